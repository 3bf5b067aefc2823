// SPDX-License-Identifier: GPL-2.0
/* DMA regions, the device's lists of pages, and the memory of queues. */
#include "region.h"
#include "cmd.h"
#include "parent.h"

#include <linux/dma-mapping.h>
#include <linux/kmemleak.h>

/* Where the pages of a region come from: pinned memory, or one stretch and @last. */
struct mana_ib_pages {
	struct ib_block_iter blocks;
	bool pinned;
	dma_addr_t next;
	u32 left; /* of the stretch */
	dma_addr_t last;
	unsigned long page_size;
};

static u64 mana_ib_next_page(struct mana_ib_pages *pages)
{
	u64 page;

	if (pages->pinned) {
		if (!__rdma_umem_block_iter_next(&pages->blocks))
			return 0;
		return rdma_block_iter_dma_address(&pages->blocks);
	}
	if (!pages->left)
		return pages->last;
	pages->left--;
	page = pages->next;
	pages->next += pages->page_size;
	return page;
}

static void mana_ib_fill_pages(void *context, u64 *list, u32 count)
{
	struct mana_ib_pages *pages = context;
	u32 i;

	for (i = 0; i < count; i++)
		list[i] = mana_ib_next_page(pages);
}

/**
 * mana_ib_create_region - describes pinned memory to the device
 * @dev: device
 * @umem: pinned memory
 * @page_size: one that the caller has found to fit
 * @offset: of the first byte in the first page
 * @length: in bytes
 * @region: handle; the caller's until an object takes it over
 */
int mana_ib_create_region(struct mana_ib_dev *dev, struct ib_umem *umem,
			  unsigned long page_size, u32 offset, u64 length,
			  u64 *region)
{
	size_t count = ib_umem_num_dma_blocks(umem, page_size);
	struct mana_ib_pages pages = { .pinned = true,
				       .page_size = page_size };
	struct mana_ib_region_params params = {
		.length = length,
		.offset = offset,
		.page_size = page_size,
		.pages = count,
		.fill = mana_ib_fill_pages,
		.context = &pages,
	};

	if (count > U32_MAX)
		return -EINVAL;
	__rdma_umem_block_iter_start(&pages.blocks, umem, page_size);
	return mana_ib_cmd_create_region(dev, &params, region);
}

/**
 * mana_ib_umem_region - describes a user's queue to the device; it starts at a page
 * @dev: device
 * @umem: pinned memory
 * @region: handle; the caller's until an object takes it over
 */
int mana_ib_umem_region(struct mana_ib_dev *dev, struct ib_umem *umem,
			u64 *region)
{
	unsigned long page_size;

	page_size = ib_umem_find_best_pgoff(umem, dev->page_sizes, 0);
	if (!page_size)
		return -EINVAL;
	return mana_ib_create_region(dev, umem, page_size, 0, umem->length,
				     region);
}

/**
 * mana_ib_keeps_memory - whether the device may still write to its memory
 * @dev: device
 *
 * It was given up because of a request without answer, so it may be only slow, or
 * carry out that request yet. Such memory is lost rather than handed to somebody
 * else.
 */
bool mana_ib_keeps_memory(struct mana_ib_dev *dev)
{
	return mana_ib_is_gone(dev) && mana_ib_may_write(dev);
}

/**
 * mana_ib_release_umem - gives pinned memory back
 * @dev: device
 * @umem: memory that no object of the device uses, or NULL
 */
void mana_ib_release_umem(struct mana_ib_dev *dev, struct ib_umem *umem)
{
	if (!umem)
		return;
	if (mana_ib_keeps_memory(dev))
		kmemleak_not_leak(umem);
	else
		ib_umem_release(umem);
}

/**
 * mana_ib_queue_region - pins a user's queue and describes it
 * @dev: device
 * @address: of the process
 * @bytes: of the queue
 * @umem: pinned memory, the caller's
 * @region: handle; the caller's until an object takes it over
 */
int mana_ib_queue_region(struct mana_ib_dev *dev, u64 address, size_t bytes,
			 struct ib_umem **umem, u64 *region)
{
	struct ib_umem *pinned;
	int err;

	/* In the middle of a page the core makes memory of no bytes, too. */
	if (!bytes)
		return -EINVAL;
	pinned = compat_umem_get(&dev->ibdev, address, bytes,
				 IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(pinned))
		return PTR_ERR(pinned);
	err = mana_ib_umem_region(dev, pinned, region);
	if (err) {
		mana_ib_release_umem(dev, pinned);
		return err;
	}
	*umem = pinned;
	return 0;
}

/* Behind whole pages a record has one of its own, else the rest of the last. */
static int mana_ib_alloc_pages(struct mana_ib_dev *dev, size_t bytes,
			       size_t record_bytes,
			       struct mana_ib_buffer *buffer)
{
	bool apart = record_bytes && IS_ALIGNED(bytes, MANA_HW_PAGE_BYTES);

	buffer->bytes = apart ? bytes : PAGE_ALIGN(bytes + record_bytes);
	buffer->cpu = dma_alloc_coherent(dev->parent, buffer->bytes,
					 &buffer->dma, GFP_KERNEL | __GFP_NOWARN);
	if (!buffer->cpu)
		return -ENOMEM;
	buffer->record = buffer->cpu + bytes;
	if (!apart)
		return 0;
	buffer->record = dma_alloc_coherent(dev->parent, MANA_HW_PAGE_BYTES,
					    &buffer->record_dma, GFP_KERNEL);
	if (!buffer->record)
		return -ENOMEM;
	buffer->record_bytes = MANA_HW_PAGE_BYTES;
	return 0;
}

/**
 * mana_ib_alloc_buffer - memory of a queue of the kernel, with its region
 * @dev: device
 * @bytes: of its rings; rounded up to pages, zeroed
 * @record_bytes: of the record behind them, or 0
 * @buffer: zeroed; what was made; its region is 0 once an object has taken it over
 *
 * With the record in it, an allocation for rings of a power of two would take
 * twice as much, and of 4 MiB there is none.
 */
int mana_ib_alloc_buffer(struct mana_ib_dev *dev, size_t bytes,
			 size_t record_bytes, struct mana_ib_buffer *buffer)
{
	struct mana_ib_pages pages = { .page_size = MANA_HW_PAGE_BYTES };
	struct mana_ib_region_params params = {
		.page_size = MANA_HW_PAGE_BYTES,
		.fill = mana_ib_fill_pages,
		.context = &pages,
	};
	int err;

	err = mana_ib_alloc_pages(dev, bytes, record_bytes, buffer);
	if (err)
		goto err_free;
	pages.next = buffer->dma;
	pages.left = buffer->bytes / MANA_HW_PAGE_BYTES;
	pages.last = buffer->record_dma;
	params.length = buffer->bytes + buffer->record_bytes;
	params.pages = params.length / MANA_HW_PAGE_BYTES;
	err = mana_ib_cmd_create_region(dev, &params, &buffer->region);
	if (err)
		goto err_free;
	return 0;

err_free:
	buffer->region = 0;
	mana_ib_free_buffer(dev, buffer);
	return err;
}

/**
 * mana_ib_free_buffer - undoes mana_ib_alloc_buffer(), if it was done
 * @dev: device
 * @buffer: memory of a queue of the kernel
 */
void mana_ib_free_buffer(struct mana_ib_dev *dev, struct mana_ib_buffer *buffer)
{
	if (!buffer->cpu)
		return;
	mana_ib_cmd_destroy_region(dev, buffer->region);
	if (!mana_ib_keeps_memory(dev)) {
		dma_free_coherent(dev->parent, buffer->bytes, buffer->cpu,
				  buffer->dma);
		if (buffer->record_bytes)
			dma_free_coherent(dev->parent, buffer->record_bytes,
					  buffer->record, buffer->record_dma);
	}
	memset(buffer, 0, sizeof(*buffer));
}
