/* SPDX-License-Identifier: GPL-2.0 */
/* DMA regions, pinned memory and the memory of queues. */
#ifndef MANA_IB_REGION_H
#define MANA_IB_REGION_H

#include "mana_ib.h"

/* Memory of a queue of the kernel; the record, if there is one, is its end. */
struct mana_ib_buffer {
	void *cpu;
	dma_addr_t dma;
	size_t bytes;
	u64 region;
};

int mana_ib_create_region(struct mana_ib_dev *dev, struct ib_umem *umem,
			  unsigned long page_size, u32 offset, u64 length,
			  u64 *region);
int mana_ib_queue_region(struct mana_ib_dev *dev, u64 address, size_t bytes,
			 struct ib_umem **umem, u64 *region);
int mana_ib_umem_region(struct mana_ib_dev *dev, struct ib_umem *umem,
			u64 *region);
int mana_ib_alloc_buffer(struct mana_ib_dev *dev, size_t bytes,
			 struct mana_ib_buffer *buffer);
void mana_ib_free_buffer(struct mana_ib_dev *dev,
			 struct mana_ib_buffer *buffer);
bool mana_ib_keeps_memory(struct mana_ib_dev *dev);
void mana_ib_release_umem(struct mana_ib_dev *dev, struct ib_umem *umem);

#endif
