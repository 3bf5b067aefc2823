// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "dp_stock.h"

uint32_t mana_stock_sq_bytes(enum mana_dp_format format, uint32_t max_send, uint32_t max_send_sge)
{
	uint32_t sges;
	uint32_t bytes;

	if (max_send_sge > MANA_HW_SQ_WQE_MAX_BYTES / sizeof(struct mana_hw_sge))
		return 0;
	/* RC: one slot more, for WRITE with immediate. UD: the address vector. */
	sges = format == MANA_DP_UD ? max_send_sge + 1 : mana_at_least_one(max_send_sge) + 1;
	bytes = mana_send_wqe_bytes(sges);
	return bytes > MANA_HW_SQ_WQE_MAX_BYTES ? 0 : mana_ring_bytes(max_send, bytes);
}

uint32_t mana_stock_rq_bytes(uint32_t max_recv, uint32_t max_recv_sge)
{
	uint32_t bytes;

	if (max_recv_sge > MANA_HW_RQ_WQE_MAX_BYTES / sizeof(struct mana_hw_sge))
		return 0;
	bytes = mana_recv_wqe_bytes(mana_at_least_one(max_recv_sge));
	return bytes > MANA_HW_RQ_WQE_MAX_BYTES ? 0 : mana_ring_bytes(max_recv, bytes);
}

int mana_stock_init(struct mana_stock_qp *qp, const struct mana_stock_attr *attr)
{
	const struct mana_dp_queues *queues = &attr->queues;

	memset(qp, 0, sizeof(*qp));
	qp->dp.format = attr->format;
	if (mana_queues_init(&qp->sends, &qp->receives, queues,
			     mana_stock_sq_bytes(attr->format, queues->max_send,
						 queues->max_send_sge),
			     mana_stock_rq_bytes(queues->max_recv, queues->max_recv_sge)))
		return ENOMEM;
	if (attr->format == MANA_DP_RC) {
		qp->read.base = attr->read;
		qp->read.bytes = MANA_STOCK_READ_BYTES;
		qp->rollback = (struct mana_hw_rnic_rollback *)(queues->sq + qp->sends.ring.bytes);
		qp->rollback->signature = MANA_HW_RNIC_ROLLBACK_SIGNATURE;
		qp->rollback->size = sizeof(*qp->rollback);
	}
	qp->send_side.qp = qp;
	qp->recv_side.qp = qp;
	qp->recv_side.is_recv = true;
	mana_stock_reset(qp);
	return 0;
}

void mana_stock_free(struct mana_stock_qp *qp)
{
	mana_queues_free(&qp->sends, &qp->receives);
}

void mana_stock_reset(struct mana_stock_qp *qp)
{
	mana_queues_rewind(&qp->sends, &qp->receives);
	mana_ring_rewind(&qp->read);
	qp->sent_tail = 0;
	qp->recv_tail = 0;
	qp->arm_scan = 0;
	qp->next_psn = 0;
	qp->ssn = 1;
	qp->acked = MANA_HW_RNIC_24BIT;
	mana_store_flag(&qp->error_named, false);
	if (qp->rollback) {
		qp->rollback->left = 0;
		qp->rollback->right = 0;
	}
}

void mana_stock_start(struct mana_stock_qp *qp, uint32_t psn)
{
	qp->next_psn = psn & MANA_HW_RNIC_24BIT;
	mana_store_release(&qp->acked, (psn - 1) & MANA_HW_RNIC_24BIT);
	qp->ssn = 1;
	if (qp->dp.format == MANA_DP_RC)
		mana_stock_arm(qp, psn);
}
