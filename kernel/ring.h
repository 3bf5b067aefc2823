/* SPDX-License-Identifier: GPL-2.0 */
/* Work queues of the kernel: rings and the requests in them. */
#ifndef MANA_IB_RING_H
#define MANA_IB_RING_H

#include "trace.h"

/* A work request that is not completed: what its completion needs. */
struct mana_ib_request {
	u64 wr_id;
	u32 start; /* position of its WQE */
	u32 end; /* position behind its WQE */
	u8 opcode; /* enum ib_wc_opcode */
	bool signaled;
};

/**
 * struct mana_ib_ring - a work queue of the kernel
 * @lock: taken by those who post
 * @wqes: the ring
 * @bytes: its size, a power of two
 * @producer: position behind the newest WQE, in units of the ring
 * @consumer: position behind the newest completed WQE
 * @requests: ring of outstanding requests, @request_mask + 1 of them
 * @head: requests posted; written by those who post, under @lock
 * @tail: requests completed; written by those who poll, under the CQ's lock
 */
struct mana_ib_ring {
	spinlock_t lock; /* posting */
	void *wqes;
	u32 bytes;
	u32 producer;
	u32 consumer;
	struct mana_ib_request *requests;
	u32 request_mask;
	u32 head;
	u32 tail;
};

int mana_ib_ring_init(struct mana_ib_ring *ring, void *wqes, u32 bytes,
		      u32 requests, int node);
void mana_ib_ring_free(struct mana_ib_ring *ring);
void mana_ib_ring_reset(struct mana_ib_ring *ring);
void mana_ib_ring_write(const struct mana_ib_ring *ring, u32 position,
			const void *from, u32 bytes);
void mana_ib_ring_push(struct mana_ib_ring *ring, u64 wr_id, u8 opcode,
		       bool signaled, u32 length);
/* One store rings a doorbell of the kernel's page. */
static inline void mana_ib_ring_doorbell(struct mana_ib_dev *dev, u32 offset,
					 u64 value)
{
	/* The queue's memory is written before the device is told. */
	wmb();
	trace_doorbell(dev, offset, value);
	writeq(value, dev->doorbells + offset);
}

static inline u32 mana_ib_ring_outstanding(const struct mana_ib_ring *ring)
{
	/* Pairs with the store of those who poll: they have read the requests. */
	return READ_ONCE(ring->head) - smp_load_acquire(&ring->tail);
}

static inline struct mana_ib_request *
mana_ib_ring_request(struct mana_ib_ring *ring, u32 index)
{
	return &ring->requests[index & ring->request_mask];
}

#endif
