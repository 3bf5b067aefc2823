// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "dp_cq.h"

void mana_dp_cq_arm(struct mana_dp_cq *cq, bool solicited)
{
	/* No packet is solicited, but errors count as such: an event too many does no harm. */
	if (MANA_UNLIKELY(__atomic_load_n(&cq->packets, __ATOMIC_RELAXED)))
		mana_packet_arm(cq);
	mana_dp_cq_arm_ring(cq, solicited);
}

int mana_dp_cq_poll_all(struct mana_dp_cq *cq, struct mana_completion *c)
{
	int ret;

	cq->packets_first = !cq->packets_first;
	if (cq->packets_first && mana_packet_poll(cq, c))
		return 1;
	ret = mana_dp_cq_poll_ring(cq, c);
	if (ret > 0 || cq->packets_first)
		return ret;
	return mana_packet_poll(cq, c) ? 1 : ret;
}

static bool is_of_ext(const struct mana_dp_cq *cq, const struct mana_ext_qp *qp,
		      const struct mana_hw_cqe *cqe)
{
	return cqe->data[0] == MANA_HW_EXT_CQE &&
	       (cqe->word & MANA_HW_CQE_QUEUE_ID) == qp->dp.qpn &&
	       mana_ext_cq_of(qp, (const struct mana_hw_ext_cqe *)cqe->data) == cq;
}

static bool is_of_stock(const struct mana_dp_cq *cq, const struct mana_stock_qp *qp,
			const struct mana_hw_cqe *cqe)
{
	uint32_t id = cqe->word & MANA_HW_CQE_QUEUE_ID;

	if (cqe->data[0] == MANA_HW_EXT_CQE)
		return false;
	if (cqe->word & MANA_HW_CQE_IS_SQ)
		return mana_dp_table_get(cq->sq_table, id) == &qp->dp;
	return id == qp->receives.ring.id || (qp->dp.format == MANA_DP_RC && id == qp->read.id);
}

void mana_dp_cq_forget(struct mana_dp_cq *cq, struct mana_dp_qp *qp)
{
	struct mana_stock_qp *stock = mana_stock_of(qp);
	struct mana_ext_qp *ext = mana_ext_of(qp);
	const struct mana_hw_cqe *cqe;
	bool overrun = cq->overrun;

	if (ext && cq->last == ext)
		cq->last = NULL;
	for (uint32_t i = 0; !overrun && i < cq->entries; i++) {
		cqe = mana_dp_cq_peek(cq, cq->consumer + i);
		if (!cqe)
			break;
		if (!(ext && is_of_ext(cq, ext, cqe)) && !(stock && is_of_stock(cq, stock, cqe)))
			continue;
		if (ext)
			mana_ext_drop(ext, (const struct mana_hw_ext_cqe *)cqe->data);
		/* A type that nobody has a use for. */
		((struct mana_hw_cqe *)(uintptr_t)cqe)->data[0] = 0;
	}
	cq->overrun = overrun;
	if (stock)
		mana_stock_forget(cq, stock);
}

bool mana_dp_cq_next_error(struct mana_dp_cq *cq, uint32_t *qpn)
{
	struct mana_stock_side *side = cq->errors;

	if (!side)
		return false;
	cq->errors = side->next_error;
	*qpn = side->qp->dp.qpn;
	return true;
}
