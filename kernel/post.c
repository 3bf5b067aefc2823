// SPDX-License-Identifier: GPL-2.0
/* Posting to work queues of the kernel, whatever their format. */
#include "post.h"

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
	spin_lock_irqsave(&qp->work.sq.lock, flags);
	before = qp->work.sq.producer;
	for (; wr; wr = wr->next) {
		if (mana_ib_ring_outstanding(&qp->work.sq) > qp->work.sq.request_mask)
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
	if (qp->work.sq.producer != before) {
		if (extended)
			mana_ib_ring_send_ext(qp);
		else
			mana_ib_ring_send_ud(qp);
	}
	spin_unlock_irqrestore(&qp->work.sq.lock, flags);
	if (unlikely(READ_ONCE(qp->work.flush)))
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
	spin_lock_irqsave(&qp->work.rq.lock, flags);
	before = qp->work.rq.producer;
	for (; wr; wr = wr->next) {
		if (mana_ib_ring_outstanding(&qp->work.rq) > qp->work.rq.request_mask)
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
	if (qp->work.rq.producer != before) {
		if (extended)
			mana_ib_ring_recv_ext(qp);
		else
			mana_ib_ring_recv_ud(qp);
	}
	spin_unlock_irqrestore(&qp->work.rq.lock, flags);
	if (unlikely(READ_ONCE(qp->work.flush)))
		mana_ib_wake_flush(to_mana_cq(ibqp->recv_cq));
	return err;
}
