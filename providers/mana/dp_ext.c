// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "dp_ext.h"

#include <stdlib.h>

#define MIN_STRIDE 32u
#define MAX_STRIDE 1024u

#define DATAGRAM_OPCODES                                                                           \
	(MANA_EXT_OPCODE(MANA_HW_EXT_WQE_SEND) | MANA_EXT_OPCODE(MANA_HW_EXT_WQE_SEND_IMM))
/* Fast registration is for kernels. */
#define ALL_OPCODES (MANA_EXT_OPCODE(MANA_HW_EXT_WQE_FAST_REGISTER) - 1)

/* 0 if no receive WQE is that big. */
static uint32_t receive_stride(uint32_t max_sge)
{
	uint64_t bytes = sizeof(struct mana_hw_ext_receive) +
			 (uint64_t)max_sge * sizeof(struct mana_hw_sge);

	if (bytes > MAX_STRIDE)
		return 0;
	return mana_round_up_power(bytes < MIN_STRIDE ? MIN_STRIDE : bytes);
}

/* Bytes of a ring of this many WQEs, a power of two; 0 if 32 bits do not hold it. */
static uint32_t power_ring(uint32_t count, uint32_t bytes)
{
	uint64_t total = (uint64_t)(count ? count : 1) * bytes;

	return total > 1u << 30 ? 0 : mana_round_up_power(total);
}

int mana_ext_lay_out(const struct mana_ext_attr *attr, struct mana_ext_layout *layout)
{
	uint32_t head = MANA_EXT_CONTROL_BYTES;
	uint32_t fixed = head + (uint32_t)sizeof(struct mana_hw_ext_bind);
	uint64_t gather = (uint64_t)attr->max_send_sge * sizeof(struct mana_hw_sge);
	uint64_t bytes;

	memset(layout, 0, sizeof(*layout));
	if (attr->datagrams) {
		head += sizeof(struct mana_hw_ext_ud);
		fixed = head;
	} else {
		head += sizeof(struct mana_hw_ext_remote);
		/* an atomic has one SGE */
		if (attr->max_send_sge)
			fixed = head + (uint32_t)(sizeof(struct mana_hw_ext_atomic) +
						  sizeof(struct mana_hw_sge));
	}
	bytes = head + (gather > attr->max_inline ? gather : attr->max_inline);
	if (bytes < fixed)
		bytes = fixed;
	bytes = (bytes + MANA_HW_EXT_WQE_UNIT - 1) / MANA_HW_EXT_WQE_UNIT * MANA_HW_EXT_WQE_UNIT;
	if (bytes > MANA_HW_EXT_WQE_MAX_BYTES)
		return EINVAL;
	layout->wqe_bytes = (uint32_t)bytes;
	layout->max_inline = layout->wqe_bytes - head;
	layout->sq_bytes = power_ring(attr->max_send, layout->wqe_bytes);
	if (!layout->sq_bytes)
		return EINVAL;
	if (!attr->srq) {
		layout->rq_stride = receive_stride(attr->max_recv_sge);
		if (!layout->rq_stride)
			return EINVAL;
		layout->rq_bytes = power_ring(attr->max_recv, layout->rq_stride);
		if (!layout->rq_bytes)
			return EINVAL;
		/* the record behind it is aligned to its size */
		if (layout->rq_bytes < MANA_HW_EXT_RECORD_BYTES)
			layout->rq_bytes = MANA_HW_EXT_RECORD_BYTES;
	}
	layout->record = layout->sq_bytes + layout->rq_bytes;
	layout->bytes = layout->record + MANA_HW_EXT_RECORD_BYTES;
	return 0;
}

int mana_ext_init(struct mana_ext_qp *qp, const struct mana_ext_attr *attr,
		  const struct mana_ext_layout *layout, void *memory)
{
	memset(qp, 0, sizeof(*qp));
	qp->dp.format = MANA_DP_EXT;
	qp->sq = memory;
	qp->rq = qp->sq + layout->sq_bytes;
	qp->record = (struct mana_hw_ext_qp_record *)(qp->sq + layout->record);
	qp->sq_units = layout->sq_bytes / MANA_HW_EXT_WQE_UNIT;
	qp->max_wqe_units = layout->wqe_bytes / MANA_HW_EXT_WQE_UNIT;
	qp->max_send = attr->max_send;
	qp->max_send_sge = attr->max_send_sge;
	qp->max_message = attr->datagrams && attr->mtu ? attr->mtu : MANA_DP_MAX_MESSAGE;
	qp->opcodes = (attr->datagrams ? DATAGRAM_OPCODES : ALL_OPCODES) & ~attr->refused;
	qp->max_inline = layout->max_inline;
	qp->signal = attr->signal_all ? MANA_HW_EXT_WQE_SIGNALED : 0;
	qp->datagrams = attr->datagrams;
	qp->srq = attr->srq;
	qp->sent = calloc(qp->sq_units, sizeof(*qp->sent));
	if (!qp->sent)
		return ENOMEM;
	if (!attr->srq) {
		qp->rq_count = layout->rq_bytes / layout->rq_stride;
		qp->rq_shift = mana_log2(layout->rq_stride);
		qp->max_recv = attr->max_recv;
		qp->max_recv_sge = attr->max_recv_sge;
		qp->recv_wr_id = calloc(qp->rq_count, sizeof(*qp->recv_wr_id));
		if (!qp->recv_wr_id) {
			mana_ext_free(qp);
			return ENOMEM;
		}
	}
	return 0;
}

void mana_ext_free(struct mana_ext_qp *qp)
{
	free(qp->sent);
	free(qp->recv_wr_id);
	qp->sent = NULL;
	qp->recv_wr_id = NULL;
}

void mana_ext_reset(struct mana_ext_qp *qp)
{
	qp->sq_producer = 0;
	qp->sq_told = 0;
	qp->sq_posted = 0;
	qp->sq_finished = 0;
	qp->rq_producer = 0;
	qp->rq_consumer = 0;
	mana_store_device(&qp->record->sq_producer, 0);
	mana_store_device(&qp->record->rq_producer, 0);
}

void mana_ext_wqe_wrap(struct mana_ext_qp *qp, const struct mana_ext_wqe *wqe, uint32_t units)
{
	uint32_t slot = qp->sq_producer & (qp->sq_units - 1);
	uint32_t first = qp->sq_units - slot;

	if (first > units)
		first = units;
	memcpy(qp->sq + (size_t)slot * MANA_HW_EXT_WQE_UNIT, wqe->scratch,
	       (size_t)first * MANA_HW_EXT_WQE_UNIT);
	memcpy(qp->sq, wqe->scratch + (size_t)first * MANA_HW_EXT_WQE_UNIT,
	       (size_t)(units - first) * MANA_HW_EXT_WQE_UNIT);
}

int mana_ext_srq_lay_out(uint32_t max_recv, uint32_t max_sge, struct mana_ext_srq_layout *layout)
{
	layout->stride = receive_stride(max_sge);
	if (!layout->stride)
		return EINVAL;
	layout->ring_bytes = power_ring(max_recv, layout->stride);
	if (!layout->ring_bytes)
		return EINVAL;
	if (layout->ring_bytes < MANA_HW_EXT_RECORD_BYTES)
		layout->ring_bytes = MANA_HW_EXT_RECORD_BYTES;
	layout->bytes = layout->ring_bytes + MANA_HW_EXT_RECORD_BYTES;
	return 0;
}

int mana_ext_srq_init(struct mana_ext_srq *srq, uint32_t max_recv, uint32_t max_sge,
		      const struct mana_ext_srq_layout *layout, void *memory)
{
	memset(srq, 0, sizeof(*srq));
	srq->ring = memory;
	srq->record = (struct mana_hw_ext_srq_record *)(srq->ring + layout->ring_bytes);
	srq->count = layout->ring_bytes / layout->stride;
	srq->stride = layout->stride;
	srq->stride_shift = mana_log2(layout->stride);
	srq->max_sge = max_sge;
	srq->max_recv = max_recv;
	srq->wr_id = calloc(srq->count, sizeof(*srq->wr_id));
	srq->free_cookie = calloc(srq->count, sizeof(*srq->free_cookie));
	if (!srq->wr_id || !srq->free_cookie) {
		mana_ext_srq_free(srq);
		return ENOMEM;
	}
	for (uint32_t i = 0; i < srq->count; i++)
		srq->free_cookie[i] = i;
	return 0;
}

void mana_ext_srq_free(struct mana_ext_srq *srq)
{
	free(srq->wr_id);
	free(srq->free_cookie);
	srq->wr_id = NULL;
	srq->free_cookie = NULL;
}

uint64_t mana_ext_srq_take(struct mana_ext_srq *srq, uint32_t cookie)
{
	uint64_t wr_id;

	cookie &= srq->count - 1;
	if (srq->lock)
		srq->lock(srq);
	wr_id = srq->wr_id[cookie];
	if (srq->outstanding)
		srq->free_cookie[--srq->outstanding] = cookie;
	if (srq->unlock)
		srq->unlock(srq);
	return wr_id;
}

void mana_ext_drop(struct mana_ext_qp *qp, const struct mana_hw_ext_cqe *cqe)
{
	if ((cqe->opcode & MANA_HW_EXT_WC_RECV) && qp->srq)
		(void)mana_ext_srq_take(qp->srq, cqe->cookie);
}
