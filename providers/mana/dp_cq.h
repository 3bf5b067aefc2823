/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MANA_DP_CQ_H
#define MANA_DP_CQ_H

#include "dp_cqe.h"
#include "dp_ext.h"
#include "dp_packet.h"
#include "dp_stock.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A CQ of the verbs: completions of QPs of each format, from its ring and those of raw packets. */

/* Under arm_lock; others may poll. As mana_dp_cq_arm_ring, of all rings. */
void mana_dp_cq_arm(struct mana_dp_cq *cq, bool solicited);

/* Drops what the ring and the lists hold of this QP. */
void mana_dp_cq_forget(struct mana_dp_cq *cq, struct mana_dp_qp *qp);

/*
 * A QP that failed and shall be moved to ERR, or false. Each is named once until it is
 * reset, by one of its CQs, whichever learns of it first.
 */
bool mana_dp_cq_next_error(struct mana_dp_cq *cq, uint32_t *qpn);

/* From the CQ's own ring, without raw packets: as mana_dp_cq_poll. */
static inline int mana_dp_cq_poll_ring(struct mana_dp_cq *cq, struct mana_completion *c)
{
	const struct mana_hw_cqe *cqe;

	for (;;) {
		if (MANA_UNLIKELY(cq->ready) && mana_stock_report(cq, c))
			return 1;
		if (MANA_UNLIKELY(cq->overrun))
			return -1;
		mana_dp_cq_go_on(cq);
		cqe = mana_dp_cq_peek(cq, cq->consumer);
		if (!cqe)
			break;
		mana_dp_cq_advance(cq);
		if (MANA_LIKELY(cqe->data[0] == MANA_HW_EXT_CQE)) {
			const void *data = cqe->data;
			const struct mana_hw_ext_cqe *ext = (const struct mana_hw_ext_cqe *)data;
			uint32_t qpn = cqe->word & MANA_HW_CQE_QUEUE_ID;
			struct mana_ext_qp *qp = cq->last;

			if (MANA_UNLIKELY(!qp || qp->dp.qpn != qpn)) {
				struct mana_dp_qp *dp = mana_dp_table_get(cq->rq_table, qpn);

				qp = dp ? mana_ext_of(dp) : NULL;
				if (!qp)
					continue;
			}
			/*
			 * What belongs to another CQ the lock of that protects, and this
			 * one is not told when the QP goes.
			 */
			if (MANA_UNLIKELY(mana_ext_cq_of(qp, ext) != cq))
				continue;
			cq->last = qp;
			mana_ext_complete(qp, ext, c);
			return 1;
		}
		if (mana_stock_complete(cq, cqe, c))
			return 1;
	}
	if (MANA_UNLIKELY(cq->overrun))
		return -1;
	return MANA_UNLIKELY(mana_dp_cq_has_failed(cq)) && mana_stock_report_failed(cq, c) ? 1 : 0;
}

/* The CQ's own ring and those of raw packets take turns. */
int mana_dp_cq_poll_all(struct mana_dp_cq *cq, struct mana_completion *c);

/*
 * The next completion: 1, 0 if there is none, -1 if the ring was overrun. After
 * the last of a batch: mana_dp_cq_done.
 */
static inline int mana_dp_cq_poll(struct mana_dp_cq *cq, struct mana_completion *c)
{
	if (MANA_UNLIKELY(cq->packets))
		return mana_dp_cq_poll_all(cq, c);
	return mana_dp_cq_poll_ring(cq, c);
}

#ifdef __cplusplus
}
#endif
#endif
