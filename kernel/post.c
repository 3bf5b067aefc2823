// SPDX-License-Identifier: GPL-2.0
/* Posting to work queues of the kernel, whatever their format. */
#include "post.h"
#include "trace.h"

int mana_ib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		      const struct ib_send_wr **bad)
{
	struct mana_ib_dev *dev = to_mana_dev(ibqp->device);
	struct mana_ib_qp *qp = to_mana_qp(ibqp);
	struct mana_ib_ring *ring = &qp->work.sq;
	bool extended = qp->format == MANA_IB_QP_EXTENDED;
	enum ib_qp_state state = READ_ONCE(qp->state);
	unsigned long flags;
	u32 before, offset;
	int err = 0;

	if (state != IB_QPS_RTS && state != IB_QPS_SQD &&
	    state != IB_QPS_SQE && state != IB_QPS_ERR) {
		*bad = wr;
		return -EINVAL;
	}
	spin_lock_irqsave(&ring->lock, flags);
	before = ring->producer;
	for (; wr; wr = wr->next) {
		offset = ring->producer;
		if (mana_ib_ring_outstanding(ring) > ring->request_mask)
			err = -ENOMEM;
		else if (extended)
			err = mana_ib_post_send_ext(qp, wr);
		else
			err = mana_ib_post_send_ud(qp, wr);
		if (err) {
			*bad = wr;
			break;
		}
		trace_wqe_post(dev, ibqp->qp_num, MANA_IB_TRACE_SQ, offset,
			       wr->opcode);
	}
	if (ring->producer != before)
		mana_ib_notify_send(qp);
	spin_unlock_irqrestore(&ring->lock, flags);
	if (unlikely(READ_ONCE(qp->work.flush)))
		mana_ib_wake_flush(to_mana_cq(ibqp->send_cq));
	return err;
}

int mana_ib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad)
{
	struct mana_ib_dev *dev = to_mana_dev(ibqp->device);
	struct mana_ib_qp *qp = to_mana_qp(ibqp);
	struct mana_ib_ring *ring = &qp->work.rq;
	bool extended = qp->format == MANA_IB_QP_EXTENDED;
	unsigned long flags;
	u32 before, offset;
	int err = 0;

	if (READ_ONCE(qp->state) == IB_QPS_RESET || ibqp->srq) {
		*bad = wr;
		return -EINVAL;
	}
	spin_lock_irqsave(&ring->lock, flags);
	before = ring->producer;
	for (; wr; wr = wr->next) {
		offset = ring->producer;
		if (mana_ib_ring_outstanding(ring) > ring->request_mask)
			err = -ENOMEM;
		else if (extended)
			err = mana_ib_post_recv_ext(qp, wr);
		else
			err = mana_ib_post_recv_ud(qp, wr);
		if (err) {
			*bad = wr;
			break;
		}
		trace_wqe_post(dev, ibqp->qp_num, MANA_IB_TRACE_RQ, offset, 0);
	}
	if (ring->producer != before)
		mana_ib_notify_recv(qp);
	spin_unlock_irqrestore(&ring->lock, flags);
	if (unlikely(READ_ONCE(qp->work.flush)))
		mana_ib_wake_flush(to_mana_cq(ibqp->recv_cq));
	return err;
}
