// SPDX-License-Identifier: GPL-2.0
/* Work queues of the kernel: rings, and posting to them. */
#include "cmd.h"

#include <linux/log2.h>

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

void mana_ib_ring_free(struct mana_ib_ring *ring)
{
	kvfree(ring->requests);
	memset(ring, 0, sizeof(*ring));
}

/* Nobody posts or polls meanwhile. */
void mana_ib_ring_reset(struct mana_ib_ring *ring)
{
	ring->producer = 0;
	ring->consumer = 0;
	ring->head = 0;
	ring->tail = 0;
}

/* Copies to a position in bytes, wrapping at the end of the ring. */
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

int mana_ib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		      const struct ib_send_wr **bad)
{
	struct mana_ib_qp *qp = to_mana_qp(ibqp);
	bool extended = qp->format == MANA_IB_QP_EXTENDED;
	enum ib_qp_state state = READ_ONCE(qp->state);
	unsigned long flags;
	u32 before;
	int err = 0;

	if (state != IB_QPS_RTS && state != IB_QPS_SQD &&
	    state != IB_QPS_SQE && state != IB_QPS_ERR) {
		*bad = wr;
		return -EINVAL;
	}
	spin_lock_irqsave(&qp->sq.lock, flags);
	before = qp->sq.producer;
	for (; wr; wr = wr->next) {
		if (mana_ib_ring_outstanding(&qp->sq) > qp->sq.request_mask)
			err = -ENOMEM;
		else if (extended)
			err = mana_ib_post_send_ext(qp, wr);
		else
			err = mana_ib_post_send_ud(qp, wr);
		if (err) {
			*bad = wr;
			break;
		}
	}
	if (qp->sq.producer != before) {
		if (extended)
			mana_ib_ring_send_ext(qp);
		else
			mana_ib_ring_send_ud(qp);
	}
	spin_unlock_irqrestore(&qp->sq.lock, flags);
	if (unlikely(READ_ONCE(qp->flush)))
		mana_ib_wake_flush(to_mana_cq(ibqp->send_cq));
	return err;
}

int mana_ib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad)
{
	struct mana_ib_qp *qp = to_mana_qp(ibqp);
	bool extended = qp->format == MANA_IB_QP_EXTENDED;
	unsigned long flags;
	u32 before;
	int err = 0;

	if (READ_ONCE(qp->state) == IB_QPS_RESET || ibqp->srq) {
		*bad = wr;
		return -EINVAL;
	}
	spin_lock_irqsave(&qp->rq.lock, flags);
	before = qp->rq.producer;
	for (; wr; wr = wr->next) {
		if (mana_ib_ring_outstanding(&qp->rq) > qp->rq.request_mask)
			err = -ENOMEM;
		else if (extended)
			err = mana_ib_post_recv_ext(qp, wr);
		else
			err = mana_ib_post_recv_ud(qp, wr);
		if (err) {
			*bad = wr;
			break;
		}
	}
	if (qp->rq.producer != before) {
		if (extended)
			mana_ib_ring_recv_ext(qp);
		else
			mana_ib_ring_recv_ud(qp);
	}
	spin_unlock_irqrestore(&qp->rq.lock, flags);
	if (unlikely(READ_ONCE(qp->flush)))
		mana_ib_wake_flush(to_mana_cq(ibqp->recv_cq));
	return err;
}
