// SPDX-License-Identifier: GPL-2.0
/* Work queues of the kernel: rings, and the requests in them. */
#include "ring.h"

#include <linux/log2.h>

/**
 * mana_ib_ring_init - makes a work queue of the kernel
 * @ring: zeroed
 * @wqes: its memory
 * @bytes: size, a power of two
 * @requests: that are outstanding at most
 * @node: where to remember them
 */
int mana_ib_ring_init(struct mana_ib_ring *ring, void *wqes, u32 bytes,
		      u32 requests, int node)
{
	u32 count = roundup_pow_of_two(max(1U, requests));

	spin_lock_init(&ring->lock);
	ring->requests = kvcalloc_node(count, sizeof(*ring->requests),
				       GFP_KERNEL, node);
	if (!ring->requests)
		return -ENOMEM;
	ring->request_mask = count - 1;
	ring->wqes = wqes;
	ring->bytes = bytes;
	return 0;
}

/**
 * mana_ib_ring_free - undoes mana_ib_ring_init(), if it was done
 * @ring: queue
 */
void mana_ib_ring_free(struct mana_ib_ring *ring)
{
	kvfree(ring->requests);
	memset(ring, 0, sizeof(*ring));
}

/**
 * mana_ib_ring_reset - forgets all requests
 * @ring: queue; nobody posts or polls meanwhile
 */
void mana_ib_ring_reset(struct mana_ib_ring *ring)
{
	ring->producer = 0;
	ring->consumer = 0;
	ring->head = 0;
	ring->tail = 0;
}

/**
 * mana_ib_ring_write - copies into the ring, wrapping at its end
 * @ring: queue
 * @position: where to, in bytes
 * @from: what
 * @bytes: how much
 */
void mana_ib_ring_write(const struct mana_ib_ring *ring, u32 position,
			const void *from, u32 bytes)
{
	u32 offset = position & (ring->bytes - 1);
	u32 first = min(bytes, ring->bytes - offset);

	memcpy(ring->wqes + offset, from, first);
	memcpy(ring->wqes, from + first, bytes - first);
}

/**
 * mana_ib_ring_push - remembers a request whose WQE is written
 * @ring: its lock is held
 * @wr_id: of the request
 * @opcode: of its completion
 * @signaled: a successful one is completed too
 * @length: of the WQE, in the ring's units
 *
 * Before the device is told: its completion may come at once.
 */
void mana_ib_ring_push(struct mana_ib_ring *ring, u64 wr_id, u8 opcode,
		       bool signaled, u32 length)
{
	struct mana_ib_request *request;

	request = mana_ib_ring_request(ring, ring->head);
	request->wr_id = wr_id;
	request->opcode = opcode;
	request->signaled = signaled;
	request->start = ring->producer;
	request->end = ring->producer + length;
	ring->producer = request->end;
	/* Pairs with the load of head by those who poll. */
	smp_store_release(&ring->head, ring->head + 1);
}
