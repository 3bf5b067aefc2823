// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Polling and arming of CQs, by either interface of the verbs. */
#include <endian.h>
#include <errno.h>

#include "cq_lock.h"
#include "mana.h"

#define ERRORS_AT_ONCE 16

static void fill_wc(struct ibv_wc *wc, const struct mana_completion *c)
{
	wc->wr_id = c->wr_id;
	wc->status = c->status;
	wc->opcode = c->opcode;
	wc->vendor_err = c->vendor_error;
	wc->byte_len = c->length;
	if (c->flags & MANA_WC_WITH_INV)
		wc->invalidated_rkey = c->value;
	else
		wc->imm_data = htobe32(c->value);
	wc->qp_num = c->qpn;
	wc->src_qp = c->source_qpn;
	wc->wc_flags = c->flags;
	wc->pkey_index = 0;
	wc->slid = 0;
	wc->sl = c->sl;
	wc->dlid_path_bits = 0;
}

/* Unlocks the CQ, then moves QPs that failed to ERR: that is a system call each. */
static void unlock_and_fail(struct mana_cq *cq)
{
	uint32_t qpn[ERRORS_AT_ONCE];
	unsigned int count = 0;

	while (MANA_UNLIKELY(cq->dp.errors)) {
		while (count < ERRORS_AT_ONCE && mana_dp_cq_next_error(&cq->dp, &qpn[count]))
			count++;
		mana_cq_unlock(cq);
		for (; count; count--)
			mana_fail_qp(to_mctx(cq->vcq.cq.context), qpn[count - 1]);
		mana_cq_lock(cq);
	}
	mana_cq_unlock(cq);
}

int mana_poll_cq(struct ibv_cq *ibv_cq, int count, struct ibv_wc *wc)
{
	struct mana_cq *cq = to_mcq(ibv_cq);
	struct mana_completion c;
	int polled = 0;
	int ret = 0;

	mana_cq_lock(cq);
	while (polled < count) {
		ret = mana_dp_cq_poll(&cq->dp, &c);
		if (ret <= 0)
			break;
		fill_wc(&wc[polled++], &c);
	}
	mana_dp_cq_done(&cq->dp);
	unlock_and_fail(cq);
	return polled || ret >= 0 ? polled : ret;
}

/* Not under the lock of polling: the caller may be between start_poll and end_poll. */
int mana_arm_cq(struct ibv_cq *ibv_cq, int solicited)
{
	struct mana_cq *cq = to_mcq(ibv_cq);

	if (!cq->hardware)
		return EOPNOTSUPP;
	mana_lock_unless_paused(cq, &cq->dp.arm_lock);
	mana_dp_cq_arm(&cq->dp, solicited);
	mana_unlock(&cq->dp.arm_lock);
	return 0;
}

/* Without a lock: the reader of events may be between start_poll and end_poll. */
void mana_cq_event(struct ibv_cq *ibv_cq)
{
	mana_dp_cq_event(&to_mcq(ibv_cq)->dp);
}

/* The extended interface: one completion at a time, the CQ locked from start to end. */

static int take_next(struct mana_cq *cq)
{
	int ret = mana_dp_cq_poll(&cq->dp, &cq->current);

	if (ret <= 0)
		return ret ? EINVAL : ENOENT;
	cq->vcq.cq_ex.wr_id = cq->current.wr_id;
	cq->vcq.cq_ex.status = cq->current.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *cq_ex, struct ibv_poll_cq_attr *attr)
{
	struct mana_cq *cq = ex_to_mcq(cq_ex);
	int ret;

	if (MANA_UNLIKELY(attr->comp_mask))
		return EINVAL;
	mana_cq_lock(cq);
	ret = take_next(cq);
	if (ret) {
		mana_dp_cq_done(&cq->dp);
		unlock_and_fail(cq);
	}
	return ret;
}

static int next_poll(struct ibv_cq_ex *cq_ex)
{
	return take_next(ex_to_mcq(cq_ex));
}

static void end_poll(struct ibv_cq_ex *cq_ex)
{
	struct mana_cq *cq = ex_to_mcq(cq_ex);

	mana_dp_cq_done(&cq->dp);
	unlock_and_fail(cq);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq)
{
	return ex_to_mcq(cq)->current.opcode;
}

static uint32_t read_vendor_error(struct ibv_cq_ex *cq)
{
	return ex_to_mcq(cq)->current.vendor_error;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq)
{
	return ex_to_mcq(cq)->current.flags;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq)
{
	return ex_to_mcq(cq)->current.length;
}

/* Also the invalidated rkey, which callers take as it is. */
static __be32 read_imm_data(struct ibv_cq_ex *cq)
{
	const struct mana_completion *c = &ex_to_mcq(cq)->current;

	return c->flags & MANA_WC_WITH_INV ? (__be32)c->value : htobe32(c->value);
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq)
{
	return ex_to_mcq(cq)->current.qpn;
}

static uint32_t read_src_qp(struct ibv_cq_ex *cq)
{
	return ex_to_mcq(cq)->current.source_qpn;
}

static uint32_t read_slid(struct ibv_cq_ex *cq)
{
	return 0;
}

static uint8_t read_sl(struct ibv_cq_ex *cq)
{
	return ex_to_mcq(cq)->current.sl;
}

static uint8_t read_zero(struct ibv_cq_ex *cq)
{
	return 0;
}

static uint64_t read_timestamp(struct ibv_cq_ex *cq)
{
	return ex_to_mcq(cq)->current.timestamp;
}

void mana_set_poll_ops(struct ibv_cq_ex *cq, uint64_t wc_flags)
{
	cq->start_poll = start_poll;
	cq->next_poll = next_poll;
	cq->end_poll = end_poll;
	cq->read_opcode = read_opcode;
	cq->read_vendor_err = read_vendor_error;
	cq->read_wc_flags = read_wc_flags;
	cq->read_imm_data = read_imm_data;
	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		cq->read_byte_len = read_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		cq->read_qp_num = read_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		cq->read_src_qp = read_src_qp;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		cq->read_slid = read_slid;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		cq->read_sl = read_sl;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		cq->read_dlid_path_bits = read_zero;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		cq->read_completion_ts = read_timestamp;
}
