// SPDX-License-Identifier: GPL-2.0
/* Telling the device of what was posted. */
#include "post.h"

/* Gives the index to the device. True if the device sleeps: it wants a doorbell. */
static bool mana_ib_publish(u32 *producer, const u32 *kick, u32 value)
{
	/* The WQEs come before the index. */
	dma_wmb();
	WRITE_ONCE(*producer, value);
	/* Pairs with the device's barrier between kick and producer. */
	mb();
	return READ_ONCE(*kick);
}

/**
 * mana_ib_notify_send - tells the device of sends
 * @qp: QP; the lock of its send queue is held
 *
 * Extended: by memory, and by doorbell only if the device sleeps.
 */
void mana_ib_notify_send(struct mana_ib_qp *qp)
{
	struct mana_hw_ext_qp_record *record = qp->ext.record;
	u32 producer = qp->work.sq.producer;

	if (qp->format == MANA_IB_QP_EXTENDED &&
	    !mana_ib_publish(&record->sq_producer, &record->sq_kick, producer))
		return;
	mana_ib_ring_doorbell(to_mana_dev(qp->ibqp.device), MANA_HW_DB_SQ,
			      mana_hw_wq_doorbell(qp->sq_id, 0, producer));
}

/**
 * mana_ib_notify_recv - tells the device of receives
 * @qp: QP; the lock of its receive queue is held
 *
 * Extended: by memory, and by doorbell only if the QP is in ERR.
 */
void mana_ib_notify_recv(struct mana_ib_qp *qp)
{
	struct mana_hw_ext_qp_record *record = qp->ext.record;
	u32 producer = qp->work.rq.producer;

	if (qp->format == MANA_IB_QP_EXTENDED &&
	    !mana_ib_publish(&record->rq_producer, &record->rq_kick, producer))
		return;
	mana_ib_ring_doorbell(to_mana_dev(qp->ibqp.device), MANA_HW_DB_RQ,
			      mana_hw_wq_doorbell(qp->ibqp.qp_num, 0,
						  producer));
}
