/* SPDX-License-Identifier: GPL-2.0 */
/* DMA regions, pinned memory and the memory of queues. */
#ifndef MANA_IB_REGION_H
#define MANA_IB_REGION_H

#include "mana_ib.h"

/**
 * struct mana_ib_buffer - memory of a queue of the kernel
 * @cpu: the rings
 * @dma: the same for the device
 * @bytes: of them
 * @record: what the region has behind the rings
 * @record_dma: the same for the device
 * @record_bytes: of an allocation of its own; 0: it is in that of the rings
 * @region: of all that
 */
struct mana_ib_buffer {
	void *cpu;
	dma_addr_t dma;
	size_t bytes;
	void *record;
	dma_addr_t record_dma;
	size_t record_bytes;
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
			 size_t record_bytes, struct mana_ib_buffer *buffer);
void mana_ib_free_buffer(struct mana_ib_dev *dev,
			 struct mana_ib_buffer *buffer);
bool mana_ib_keeps_memory(struct mana_ib_dev *dev);
void mana_ib_release_umem(struct mana_ib_dev *dev, struct ib_umem *umem);

#endif
