// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Posting in the queue format of the public ABI. */
#include <assert.h>

#include "dp_stock.h"

/* What a send of RC is in the queue, in its completion, and at the peer. */
struct kind {
	uint8_t opcode; /* of mana_dp_send */
	uint8_t rc;
	uint8_t wc;
	bool takes_receive;
};

static const struct kind kinds[] = {
	[MANA_HW_EXT_WQE_SEND] = { MANA_HW_EXT_WQE_SEND, MANA_HW_RNIC_WQE_SEND, MANA_WC_SEND,
				   true },
	[MANA_HW_EXT_WQE_SEND_IMM] = { MANA_HW_EXT_WQE_SEND_IMM, MANA_HW_RNIC_WQE_SEND_IMM,
				       MANA_WC_SEND, true },
	[MANA_HW_EXT_WQE_WRITE] = { MANA_HW_EXT_WQE_WRITE, MANA_HW_RNIC_WQE_WRITE,
				    MANA_WC_RDMA_WRITE, false },
	[MANA_HW_EXT_WQE_WRITE_IMM] = { MANA_HW_EXT_WQE_WRITE_IMM, MANA_HW_RNIC_WQE_WRITE_IMM,
					MANA_WC_RDMA_WRITE, true },
	[MANA_HW_EXT_WQE_READ] = { MANA_HW_EXT_WQE_READ, MANA_HW_RNIC_WQE_READ, MANA_WC_RDMA_READ,
				   false },
};

/* The READ's scatter list goes out before its request (RNIC 3.6). */
static void post_scatter(struct mana_stock_qp *qp, const struct mana_dp_send *wr, uint32_t bytes)
{
	uint8_t scratch[MANA_HW_RQ_WQE_MAX_BYTES];
	uint8_t *wqe = mana_wqe_begin(&qp->read, bytes, scratch);
	struct mana_hw_wqe_header *header = (struct mana_hw_wqe_header *)wqe;
	struct mana_hw_rnic_recv_oob *oob = (struct mana_hw_rnic_recv_oob *)(header + 1);
	uint32_t sges = mana_put_sges(wqe + MANA_RECV_HEAD_BYTES, wr->sge, wr->sge_count);
	uint32_t used = MANA_RECV_HEAD_BYTES + sges * (uint32_t)sizeof(struct mana_hw_sge);

	mana_wqe_pad(wqe, used, bytes);
	header->word0 = 0;
	header->word1 = sges | MANA_HW_RNIC_OOB_CODE_RECV << MANA_HW_WQE_OOB_CODE_SHIFT |
			MANA_HW_WQE_CHECK_SN;
	oob->psn = qp->next_psn;
	oob->psn_range = 0;
	mana_wqe_end(&qp->read, wqe, bytes);
	mana_doorbell(qp->dp.doorbell, MANA_HW_DB_RQ,
		      mana_hw_wq_doorbell(qp->read.id, 1, qp->read.producer));
}

/* Words of the OOB behind the SSN. */
static MANA_ALWAYS_INLINE void put_details(uint8_t *wqe, const struct mana_dp_send *wr,
					   uint8_t opcode, uint32_t length)
{
	struct mana_hw_rnic_send_oob *oob =
		(struct mana_hw_rnic_send_oob *)(wqe + sizeof(struct mana_hw_wqe_header));

	if (opcode == MANA_HW_EXT_WQE_SEND || opcode == MANA_HW_EXT_WQE_SEND_IMM) {
		memset(&oob->u, 0, sizeof(oob->u));
		if (opcode == MANA_HW_EXT_WQE_SEND_IMM)
			oob->u.send_immediate = wr->value;
		return;
	}
	oob->u.rdma.address_high = (uint32_t)(wr->remote_address >> 32);
	oob->u.rdma.address_low = (uint32_t)wr->remote_address;
	oob->u.rdma.rkey = wr->rkey;
	oob->u.rdma.length = length;
	if (opcode == MANA_HW_EXT_WQE_WRITE_IMM) {
		struct mana_hw_rnic_send_oob_large *large =
			(struct mana_hw_rnic_send_oob_large *)oob;

		large->immediate = wr->value;
		memset(large->reserved, 0, sizeof(large->reserved));
	}
}

/* The gather list of this send: its own, or the inline copy's. */
struct gather {
	const struct mana_dp_sge *sge;
	uint32_t count;
	uint32_t length;
	struct mana_dp_sge copied;
};

static MANA_ALWAYS_INLINE int get_gather(const struct mana_stock_qp *qp,
					 const struct mana_dp_send *wr, struct gather *gather)
{
	uint64_t length;

	if (MANA_UNLIKELY(wr->sge_count > qp->sends.max_sge))
		return EINVAL;
	length = MANA_LIKELY(wr->sge_count == 1) ? wr->sge->length :
						   mana_sges_length(wr->sge, wr->sge_count);
	if (MANA_UNLIKELY(length > MANA_DP_MAX_MESSAGE))
		return EINVAL;
	gather->sge = wr->sge;
	gather->count = wr->sge_count;
	gather->length = (uint32_t)length;
	if (MANA_UNLIKELY(wr->flags & MANA_HW_EXT_WQE_INLINE) && length) {
		if (length > qp->sends.inline_slots.stride || wr->opcode == MANA_HW_EXT_WQE_READ)
			return EINVAL;
		gather->copied = mana_inline_sge(&qp->sends.inline_slots,
						 qp->sends.head & qp->sends.mask,
						 (uint32_t)length);
		gather->sge = &gather->copied;
		gather->count = 1;
	}
	return 0;
}

static_assert(MANA_HW_EXT_WQE_SIGNALED == 1, "signal_all is that flag");
/* Flags are moved. */
static_assert(MANA_HW_EXT_WQE_SIGNALED << 6 == MANA_HW_RNIC_OOB_SIGNALED, "signaled");
static_assert(MANA_HW_EXT_WQE_SOLICITED << 6 == MANA_HW_RNIC_OOB_SOLICITED, "solicited");
static_assert(MANA_HW_EXT_WQE_FENCE << 3 == MANA_HW_RNIC_OOB_FENCE, "fence");

static inline uint32_t send_flags(const struct mana_stock_qp *qp, const struct mana_dp_send *wr)
{
	return wr->flags | qp->sends.signal_all;
}

static inline uint32_t oob_flags(uint32_t flags)
{
	return (flags & (MANA_HW_EXT_WQE_SIGNALED | MANA_HW_EXT_WQE_SOLICITED)) << 6 |
	       (flags & MANA_HW_EXT_WQE_FENCE) << 3;
}

/* Keeps what the completion needs, and makes the send visible to the poller. */
static inline void remember(struct mana_stock_qp *qp, const struct mana_dp_send *wr, uint8_t wc,
			    uint32_t flags, uint32_t last_psn, uint32_t length,
			    uint32_t read_bytes)
{
	uint32_t head = qp->sends.head;
	struct mana_dp_sent *sent = &qp->sends.slot[head & qp->sends.mask];

	sent->wr_id = wr->wr_id;
	sent->last_psn = last_psn;
	sent->end = qp->sends.ring.producer;
	sent->length = length;
	sent->read_bytes = (uint16_t)read_bytes;
	sent->opcode = wc;
	sent->signaled = flags & MANA_HW_EXT_WQE_SIGNALED;
	mana_store_release(&qp->sends.head, head + 1);
}

/* Inline with a constant `kind` where it is to be quick: much of the work is choosing. */
static MANA_ALWAYS_INLINE int rc_send(struct mana_stock_qp *qp, const struct mana_dp_send *wr,
				      const struct kind kind)
{
	uint8_t scratch[MANA_HW_SQ_WQE_MAX_BYTES];
	bool read = kind.opcode == MANA_HW_EXT_WQE_READ;
	bool large = kind.opcode == MANA_HW_EXT_WQE_WRITE_IMM;
	uint32_t flags = send_flags(qp, wr);
	struct mana_hw_wqe_header *header;
	struct mana_hw_rnic_send_oob *oob;
	struct gather gather;
	uint32_t read_bytes = 0;
	uint32_t sges, used, bytes, padding, packets, last_psn, start;
	uint8_t *wqe;
	int ret;

	ret = get_gather(qp, wr, &gather);
	if (MANA_UNLIKELY(ret))
		return ret;
	sges = read ? 1 : mana_at_least_one(gather.count);
	used = MANA_SEND_HEAD_BYTES + (sges + large) * (uint32_t)sizeof(struct mana_hw_sge);
	bytes = mana_round_up(used, MANA_HW_WQE_UNIT);
	if (MANA_UNLIKELY(bytes > MANA_HW_SQ_WQE_MAX_BYTES))
		return EINVAL;
	packets = gather.length <= qp->mtu ? 1 : (gather.length - 1) / qp->mtu + 1;
	last_psn = (qp->next_psn + packets - 1) & MANA_HW_RNIC_24BIT;
	if (MANA_UNLIKELY(packets >= MANA_PSN_WINDOW))
		return EINVAL;
	/* A PSN further ahead would look like one that is done. */
	if (MANA_UNLIKELY(!mana_psn_after(last_psn, mana_load_relaxed(&qp->acked)) ||
			  mana_ring_space(&qp->sends.ring) < bytes))
		return ENOMEM;
	if (read) {
		read_bytes = mana_recv_wqe_bytes(mana_at_least_one(gather.count));
		if (read_bytes > MANA_HW_RQ_WQE_MAX_BYTES)
			return EINVAL;
		if (mana_ring_space(&qp->read) < read_bytes)
			return ENOMEM;
		post_scatter(qp, wr, read_bytes);
	}
	if (MANA_UNLIKELY(gather.sge == &gather.copied))
		mana_inline_copy(&qp->sends.inline_slots, qp->sends.head & qp->sends.mask, wr);

	padding = (bytes - used) / (uint32_t)sizeof(struct mana_hw_sge);
	start = qp->sends.ring.producer;

	wqe = mana_wqe_begin(&qp->sends.ring, bytes, scratch);
	header = (struct mana_hw_wqe_header *)wqe;
	oob = (struct mana_hw_rnic_send_oob *)(header + 1);
	header->word0 = padding;
	header->word1 = (sges + padding) |
			(large ? MANA_HW_RNIC_OOB_CODE_SEND_LARGE : MANA_HW_RNIC_OOB_CODE_SEND)
				<< MANA_HW_WQE_OOB_CODE_SHIFT |
			qp->mtu << MANA_HW_WQE_DATA_UNIT_SHIFT |
			(kind.takes_receive ? MANA_HW_WQE_CHECK_SN : 0);
	oob->flags_psn = kind.rc | oob_flags(flags) | qp->next_psn << MANA_HW_RNIC_OOB_PSN_SHIFT;
	oob->ssn = qp->ssn;
	put_details(wqe, wr, kind.opcode, gather.length);
	mana_put_sges(wqe + MANA_SEND_HEAD_BYTES + large * sizeof(struct mana_hw_sge), gather.sge,
		      read ? 0 : gather.count);
	mana_wqe_pad(wqe, used, bytes);
	mana_wqe_end(&qp->sends.ring, wqe, bytes);

	qp->rollback->right = start / MANA_HW_WQE_UNIT;
	qp->next_psn = (last_psn + 1) & MANA_HW_RNIC_24BIT;
	qp->ssn = (qp->ssn + 1) & MANA_HW_RNIC_24BIT;
	remember(qp, wr, kind.wc, flags, last_psn, gather.length, read_bytes);
	return 0;
}

static int ud_send(struct mana_stock_qp *qp, const struct mana_dp_send *wr)
{
	uint8_t scratch[MANA_HW_SQ_WQE_MAX_BYTES];
	bool immediate = wr->opcode == MANA_HW_EXT_WQE_SEND_IMM;
	uint32_t flags = send_flags(qp, wr);
	struct mana_hw_wqe_header *header;
	struct mana_hw_rnic_send_oob *oob;
	struct mana_hw_sge *av;
	struct gather gather;
	uint32_t used, bytes;
	uint8_t *wqe;
	int ret;

	if (wr->opcode != MANA_HW_EXT_WQE_SEND && !immediate)
		return EOPNOTSUPP;
	if (!wr->av || !wr->av->stock_address)
		return EINVAL;
	ret = get_gather(qp, wr, &gather);
	if (ret)
		return ret;
	if (gather.length > qp->mtu)
		return EINVAL;
	used = MANA_SEND_HEAD_BYTES + (gather.count + 1) * (uint32_t)sizeof(struct mana_hw_sge);
	bytes = mana_round_up(used, MANA_HW_WQE_UNIT);
	if (bytes > MANA_HW_SQ_WQE_MAX_BYTES)
		return EINVAL;
	if (mana_ring_space(&qp->sends.ring) < bytes)
		return ENOMEM;
	if (gather.sge == &gather.copied)
		mana_inline_copy(&qp->sends.inline_slots, qp->sends.head & qp->sends.mask, wr);

	wqe = mana_wqe_begin(&qp->sends.ring, bytes, scratch);
	header = (struct mana_hw_wqe_header *)wqe;
	oob = (struct mana_hw_rnic_send_oob *)(header + 1);
	header->word0 = 0;
	header->word1 = (gather.count + 1) |
			MANA_HW_RNIC_OOB_CODE_SEND << MANA_HW_WQE_OOB_CODE_SHIFT |
			MANA_HW_WQE_OOB_IN_SGL | qp->mtu << MANA_HW_WQE_DATA_UNIT_SHIFT;
	oob->flags_psn = (immediate ? MANA_HW_RNIC_WQE_UD_SEND_IMM : MANA_HW_RNIC_WQE_UD_SEND) |
			 oob_flags(flags) | qp->next_psn << MANA_HW_RNIC_OOB_PSN_SHIFT;
	oob->ssn = wr->dest_qpn & MANA_HW_RNIC_24BIT;
	memset(&oob->u, 0, sizeof(oob->u));
	oob->u.ud.qkey = wr->qkey;
	oob->u.ud.immediate = immediate ? wr->value : 0;
	av = (struct mana_hw_sge *)(wqe + MANA_SEND_HEAD_BYTES);
	av->address = wr->av->stock_address;
	av->key = wr->av->stock_lkey;
	av->length = sizeof(struct mana_hw_rnic_av);
	if (gather.count)
		mana_put_sges((uint8_t *)(av + 1), gather.sge, gather.count);
	mana_wqe_pad(wqe, used, bytes);
	mana_wqe_end(&qp->sends.ring, wqe, bytes);

	qp->next_psn = (qp->next_psn + 1) & MANA_HW_RNIC_24BIT;
	remember(qp, wr, MANA_WC_SEND, flags, 0, gather.length, 0);
	return 0;
}

/* The kinds of RC that are not worth code of their own. */
static int other_rc_send(struct mana_stock_qp *qp, const struct mana_dp_send *wr)
{
	return rc_send(qp, wr, kinds[wr->opcode]);
}

int mana_stock_send(struct mana_stock_qp *qp, const struct mana_dp_send *wr)
{
	if (MANA_UNLIKELY(!mana_load_flag(&qp->sends.allowed) ||
			  mana_load_flag(&qp->send_side.failed)))
		return EINVAL;
	if (MANA_UNLIKELY(wr->opcode > MANA_HW_EXT_WQE_READ ||
			  wr->opcode == MANA_HW_EXT_WQE_SEND_INV))
		return EOPNOTSUPP;
	if (MANA_UNLIKELY(qp->sends.head - mana_load_acquire(&qp->sent_tail) >= qp->sends.max))
		return ENOMEM;
	if (qp->dp.format != MANA_DP_RC)
		return ud_send(qp, wr);
	switch (wr->opcode) {
	case MANA_HW_EXT_WQE_WRITE:
		return rc_send(qp, wr, kinds[MANA_HW_EXT_WQE_WRITE]);
	case MANA_HW_EXT_WQE_SEND:
		return rc_send(qp, wr, kinds[MANA_HW_EXT_WQE_SEND]);
	case MANA_HW_EXT_WQE_READ:
		return rc_send(qp, wr, kinds[MANA_HW_EXT_WQE_READ]);
	default:
		return other_rc_send(qp, wr);
	}
}

void mana_stock_ring_send(struct mana_stock_qp *qp)
{
	if (qp->sends.posted == qp->sends.ring.producer)
		return;
	qp->sends.posted = qp->sends.ring.producer;
	mana_doorbell(qp->dp.doorbell, MANA_HW_DB_SQ,
		      mana_hw_wq_doorbell(qp->sends.ring.id, 0, qp->sends.ring.producer));
}

int mana_stock_recv(struct mana_stock_qp *qp, uint64_t wr_id, const struct mana_dp_sge *sge,
		    uint32_t sge_count)
{
	uint8_t scratch[MANA_HW_RQ_WQE_MAX_BYTES];
	struct mana_hw_wqe_header *header;
	struct mana_dp_receive *recv;
	uint32_t sges, used, bytes;
	uint8_t *wqe;

	if (!mana_load_flag(&qp->receives.allowed) || mana_load_flag(&qp->recv_side.failed) ||
	    sge_count > qp->receives.max_sge)
		return EINVAL;
	if (qp->receives.head - mana_load_acquire(&qp->recv_tail) >= qp->receives.max)
		return ENOMEM;
	bytes = mana_recv_wqe_bytes(mana_at_least_one(sge_count));
	if (mana_ring_space(&qp->receives.ring) < bytes)
		return ENOMEM;

	recv = &qp->receives.slot[qp->receives.head & qp->receives.mask];
	recv->wr_id = wr_id;
	recv->start = qp->receives.ring.producer;
	wqe = mana_wqe_begin(&qp->receives.ring, bytes, scratch);
	header = (struct mana_hw_wqe_header *)wqe;
	sges = mana_put_sges(wqe + MANA_RECV_HEAD_BYTES, sge, sge_count);
	header->word0 = 0;
	header->word1 = sges | MANA_HW_RNIC_OOB_CODE_RECV << MANA_HW_WQE_OOB_CODE_SHIFT;
	memset(header + 1, 0, sizeof(struct mana_hw_rnic_recv_oob));
	used = MANA_RECV_HEAD_BYTES + sges * (uint32_t)sizeof(struct mana_hw_sge);
	mana_wqe_pad(wqe, used, bytes);
	mana_wqe_end(&qp->receives.ring, wqe, bytes);
	recv->end = qp->receives.ring.producer;
	mana_store_release(&qp->receives.head, qp->receives.head + 1);
	return 0;
}

void mana_stock_ring_recv(struct mana_stock_qp *qp, uint32_t count)
{
	mana_doorbell(qp->dp.doorbell, MANA_HW_DB_RQ,
		      mana_hw_wq_doorbell(qp->receives.ring.id, (uint8_t)count,
					  qp->receives.ring.producer));
}
