// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <assert.h>

#include "dp_stock.h"

#include "dp_cq.h"

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
	mana_store_flag(&qp->send_side.failed, false);
	mana_store_flag(&qp->recv_side.failed, false);
	mana_store_flag(&qp->error_named, false);
	if (qp->rollback) {
		qp->rollback->left = 0;
		qp->rollback->right = 0;
	}
}

static void arm_send(struct mana_stock_qp *qp, uint32_t psn)
{
	mana_doorbell(qp->dp.doorbell, MANA_HW_RNIC_DOORBELL_ARM_CLIENT,
		      mana_hw_rq_client_doorbell(qp->read.id, psn));
}

void mana_stock_start(struct mana_stock_qp *qp, uint32_t psn)
{
	qp->next_psn = psn & MANA_HW_RNIC_24BIT;
	mana_store_release(&qp->acked, (psn - 1) & MANA_HW_RNIC_24BIT);
	qp->ssn = 1;
	if (qp->dp.format == MANA_DP_RC)
		arm_send(qp, psn);
}

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

static_assert(MANA_HW_EXT_WQE_SIGNALED == true, "signal_all is that flag");
static_assert(MANA_HW_EXT_WQE_SIGNALED << 6 == MANA_HW_RNIC_OOB_SIGNALED &&
		      MANA_HW_EXT_WQE_SOLICITED << 6 == MANA_HW_RNIC_OOB_SOLICITED &&
		      MANA_HW_EXT_WQE_FENCE << 3 == MANA_HW_RNIC_OOB_FENCE,
	      "flags are moved");

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

uint8_t mana_stock_status(uint32_t vendor_error)
{
	static const struct {
		uint16_t vendor;
		uint8_t status;
	} table[] = {
		{ 0x000, MANA_WC_SUCCESS },
		{ 0x003, MANA_WC_REM_INV_REQ_ERR },
		{ 0x005, MANA_WC_LOC_LEN_ERR },
		{ 0x043, MANA_WC_REM_ACCESS_ERR },
		{ 0x083, MANA_WC_REM_ACCESS_ERR },
		{ 0x0c3, MANA_WC_REM_ACCESS_ERR },
		{ 0x102, MANA_WC_LOC_LEN_ERR },
		{ 0x108, MANA_WC_FATAL_ERR },
		{ 0x109, MANA_WC_LOC_QP_OP_ERR },
		{ 0x10a, MANA_WC_FATAL_ERR },
		{ 0x10b, MANA_WC_LOC_ACCESS_ERR },
		{ 0x10c, MANA_WC_FATAL_ERR },
		{ 0x10f, MANA_WC_LOC_LEN_ERR },
		{ 0x111, MANA_WC_FATAL_ERR },
		{ 0x143, MANA_WC_LOC_PROT_ERR },
		{ 0x145, MANA_WC_FATAL_ERR },
		{ 0x161, MANA_WC_REM_OP_ERR },
		{ 0x162, MANA_WC_REM_ACCESS_ERR },
		{ 0x163, MANA_WC_REM_OP_ERR },
		{ 0x164, MANA_WC_RNR_RETRY_EXC_ERR },
		{ 0x183, MANA_WC_LOC_ACCESS_ERR },
		{ 0x185, MANA_WC_FATAL_ERR },
		{ 0x1c3, MANA_WC_LOC_PROT_ERR },
		{ 0x1c5, MANA_WC_FATAL_ERR },
		{ 0x1c6, MANA_WC_RETRY_EXC_ERR },
		{ 0x1c7, MANA_WC_WR_FLUSH_ERR },
		{ 0x201, MANA_WC_LOC_QP_OP_ERR },
		{ 0x202, MANA_WC_LOC_PROT_ERR },
		{ 0x203, MANA_WC_LOC_PROT_ERR },
		{ 0x204, MANA_WC_LOC_PROT_ERR },
		{ 0x205, MANA_WC_LOC_QP_OP_ERR },
		{ 0x206, MANA_WC_LOC_PROT_ERR },
		{ 0x207, MANA_WC_LOC_PROT_ERR },
		{ 0x208, MANA_WC_LOC_PROT_ERR },
		{ 0x209, MANA_WC_LOC_QP_OP_ERR },
		{ 0x20a, MANA_WC_LOC_QP_OP_ERR },
		{ 0x20b, MANA_WC_LOC_QP_OP_ERR },
		{ 0x210, MANA_WC_LOC_QP_OP_ERR },
		{ 0x211, MANA_WC_LOC_QP_OP_ERR },
		{ 0x212, MANA_WC_FATAL_ERR },
		{ 0x213, MANA_WC_FATAL_ERR },
		{ 0x214, MANA_WC_FATAL_ERR },
		{ 0x215, MANA_WC_LOC_QP_OP_ERR },
		{ 0x216, MANA_WC_LOC_QP_OP_ERR },
		{ 0x217, MANA_WC_LOC_QP_OP_ERR },
		{ 0x218, MANA_WC_FATAL_ERR },
		{ 0xfff, MANA_WC_WR_FLUSH_ERR },
	};

	if (vendor_error >= 0x220 && vendor_error <= 0x227)
		return MANA_WC_LOC_PROT_ERR;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (table[i].vendor == vendor_error)
			return table[i].status;
	return MANA_WC_GENERAL_ERR;
}

static void make_ready(struct mana_dp_cq *cq, struct mana_stock_side *side)
{
	if (side->ready)
		return;
	side->ready = true;
	side->next = NULL;
	*cq->ready_tail = side;
	cq->ready_tail = &side->next;
}

static void fail_side(struct mana_dp_cq *cq, struct mana_stock_side *side, uint32_t vendor_error)
{
	if (!side->failed) {
		side->vendor_error = vendor_error;
		side->next_failed = cq->failed;
		cq->failed = side;
		mana_store_flag(&side->failed, true);
	}
	make_ready(cq, side);
	/* The other side's CQ may be polled at this moment; the QP is named once. */
	if (!__atomic_exchange_n(&side->qp->error_named, true, __ATOMIC_RELAXED)) {
		side->next_error = cq->errors;
		cq->errors = side;
	}
}

/*
 * Asks for the next armed completion: when the next signaled send is done, or, if
 * none is posted, when anything newer is (RNIC 3.8).
 */
static void arm_next(struct mana_stock_qp *qp)
{
	uint32_t head = mana_load_acquire(&qp->sends.head);
	uint32_t i = qp->arm_scan;

	if ((int32_t)(qp->sent_tail - i) > 0)
		i = qp->sent_tail;
	for (; i != head; i++) {
		const struct mana_dp_sent *sent = &qp->sends.slot[i & qp->sends.mask];

		if (sent->signaled && mana_psn_after(sent->last_psn, qp->acked)) {
			qp->arm_scan = i;
			arm_send(qp, sent->last_psn);
			return;
		}
	}
	qp->arm_scan = head;
	arm_send(qp, qp->acked + 1);
}

static void take_armed(struct mana_dp_cq *cq, struct mana_stock_qp *qp,
		       const struct mana_hw_rnic_armed_cqe *cqe)
{
	uint32_t psn = cqe->psn & MANA_HW_RNIC_24BIT;

	/* The top bits of the syndrome tell an ACK from the rest. */
	if (cqe->msn_syndrome >> 29 || cq != qp->dp.send_cq || !mana_psn_after(psn, qp->acked))
		return;
	mana_store_release(&qp->acked, psn);
	make_ready(cq, &qp->send_side);
	arm_next(qp);
}

static void take_error(struct mana_dp_cq *cq, struct mana_stock_qp *qp,
		       const struct mana_hw_rnic_error_cqe *cqe, uint32_t queue_id, bool is_sq)
{
	uint32_t vendor = cqe->type_vendor >> MANA_HW_RNIC_CQE_VENDOR_SHIFT & MANA_HW_RNIC_CQE_VENDOR;
	bool send = is_sq ? queue_id == qp->sends.ring.id : queue_id == qp->read.id;
	uint32_t done;

	if (qp->dp.format == MANA_DP_UD)
		send = is_sq;
	/* The other CQ has a lock of its own. */
	if (cq != (send ? qp->dp.send_cq : qp->dp.recv_cq))
		return;
	if (!send) {
		fail_side(cq, &qp->recv_side, vendor);
		return;
	}
	/* The PSN lies in the failing WQE, or is the one before it (RNIC 3.9). */
	done = ((cqe->psn_opcode & MANA_HW_RNIC_24BIT) - 1) & MANA_HW_RNIC_24BIT;
	if (qp->dp.format == MANA_DP_RC && mana_psn_after(done, qp->acked))
		mana_store_release(&qp->acked, done);
	fail_side(cq, &qp->send_side, vendor);
}

static __attribute__((noinline)) void fill_error(struct mana_stock_side *side,
						 struct mana_completion *c)
{
	c->vendor_error = side->vendor_error;
	c->status = mana_stock_status(side->vendor_error);
	if (c->status == MANA_WC_SUCCESS)
		c->status = MANA_WC_GENERAL_ERR;
	side->vendor_error = MANA_HW_RNIC_VE_FLUSHED;
}

static inline void begin_completion(const struct mana_stock_qp *qp, struct mana_completion *c)
{
	memset(c, 0, sizeof(*c));
	c->qpn = qp->dp.qpn;
}

/* The oldest receive leaves the queue. */
static void retire_receive(struct mana_stock_qp *qp, struct mana_completion *c)
{
	const struct mana_dp_receive *recv = &qp->receives.slot[qp->recv_tail & qp->receives.mask];

	c->wr_id = recv->wr_id;
	mana_store_release(&qp->receives.ring.consumer, recv->end);
	mana_store_release(&qp->recv_tail, qp->recv_tail + 1);
}

/*
 * The CQE does not say which IP it was, the GRH does: IPv6's header starts it, and
 * before IPv4's there are 20 bytes of zero (IBTA A17.4.5.2). 0: not known.
 */
static uint8_t datagram_sl(const struct mana_stock_qp *qp, const struct mana_dp_receive *recv)
{
	const struct mana_dp_ring *ring = &qp->receives.ring;
	const struct mana_hw_sge *sge;

	/* the first SGE never wraps, as the head before it does not */
	sge = (const struct mana_hw_sge *)(ring->base + (recv->start & (ring->bytes - 1)) +
					   MANA_RECV_HEAD_BYTES);
	if (!qp->elsewhere || mana_load_relaxed(qp->elsewhere) || !sge->length)
		return 0;
	return mana_wc_sl(*(const uint8_t *)(uintptr_t)sge->address >> 4 != 6);
}

static bool take_receive(struct mana_stock_qp *qp, const struct mana_hw_rnic_recv_cqe *cqe,
			 struct mana_completion *c)
{
	const struct mana_dp_receive *recv = &qp->receives.slot[qp->recv_tail & qp->receives.mask];
	uint8_t type = cqe->type & MANA_HW_RNIC_CQE_TYPE;

	if (qp->recv_tail == mana_load_acquire(&qp->receives.head))
		return false;
	begin_completion(qp, c);
	if (qp->dp.format == MANA_DP_RC) {
		if ((recv->start ^ cqe->wqe_offset) / MANA_HW_WQE_UNIT)
			return false;
		c->opcode = type == MANA_HW_RNIC_CQE_WRITE_IMM ? MANA_WC_RECV_RDMA_WITH_IMM :
								  MANA_WC_RECV;
		if (type == MANA_HW_RNIC_CQE_SEND_IMM || type == MANA_HW_RNIC_CQE_WRITE_IMM)
			c->flags = MANA_WC_WITH_IMM;
		else if (type == MANA_HW_RNIC_CQE_SEND_INV)
			c->flags = MANA_WC_WITH_INV;
	} else {
		c->opcode = MANA_WC_RECV;
		c->flags = MANA_WC_GRH |
			   (type == MANA_HW_RNIC_CQE_UD_IMM ? MANA_WC_WITH_IMM : 0);
		c->source_qpn = cqe->psn & MANA_HW_RNIC_24BIT;
		c->sl = datagram_sl(qp, recv);
	}
	c->length = cqe->length;
	c->value = cqe->immediate;
	retire_receive(qp, c);
	return true;
}

/* The oldest send, which is `sent`, leaves the queue. */
static MANA_ALWAYS_INLINE void retire_send(struct mana_stock_qp *qp,
					   const struct mana_dp_sent *sent)
{
	if (sent->read_bytes)
		mana_store_release(&qp->read.consumer, qp->read.consumer + sent->read_bytes);
	mana_store_release(&qp->sends.ring.consumer, sent->end);
	if (qp->rollback)
		qp->rollback->left = sent->end / MANA_HW_WQE_UNIT;
	mana_store_release(&qp->sent_tail, qp->sent_tail + 1);
}

/* UD: each CQE stands for the oldest send, signaled or not (RNIC 7.4). */
static bool take_datagram_sent(struct mana_stock_qp *qp, const struct mana_hw_rnic_ud_send_cqe *cqe,
			       struct mana_completion *c)
{
	const struct mana_dp_sent *sent = &qp->sends.slot[qp->sent_tail & qp->sends.mask];
	uint32_t vendor = cqe->type_vendor >> MANA_HW_RNIC_CQE_VENDOR_SHIFT & 0x1ff;
	bool report = sent->signaled || vendor;

	if (qp->sent_tail == mana_load_acquire(&qp->sends.head))
		return false;
	begin_completion(qp, c);
	c->wr_id = sent->wr_id;
	c->opcode = sent->opcode;
	c->length = sent->length;
	c->vendor_error = vendor;
	c->status = mana_stock_status(vendor);
	retire_send(qp, sent);
	return report;
}

bool mana_stock_complete(struct mana_dp_cq *cq, const struct mana_hw_cqe *cqe,
			 struct mana_completion *c)
{
	uint32_t word = cqe->word;
	uint32_t id = word & MANA_HW_CQE_QUEUE_ID;
	bool is_sq = word & MANA_HW_CQE_IS_SQ;
	struct mana_dp_qp *dp = mana_dp_table_get(is_sq ? cq->sq_table : cq->rq_table, id);
	struct mana_stock_qp *qp = (struct mana_stock_qp *)dp;
	const void *data = cqe->data;

	if (!dp || dp->format == MANA_DP_EXT)
		return false;
	switch (cqe->data[0]) {
	case MANA_HW_RNIC_CQE_SEND:
	case MANA_HW_RNIC_CQE_SEND_IMM:
	case MANA_HW_RNIC_CQE_SEND_INV:
	case MANA_HW_RNIC_CQE_WRITE_IMM:
		if (is_sq || id != qp->receives.ring.id)
			return false;
		return take_receive(qp, data, c);
	case MANA_HW_RNIC_CQE_UD:
	case MANA_HW_RNIC_CQE_UD_IMM:
		if (dp->format != MANA_DP_UD)
			return false;
		return is_sq ? take_datagram_sent(qp, data, c) : take_receive(qp, data, c);
	case MANA_HW_RNIC_CQE_ARMED:
		if (dp->format == MANA_DP_RC && !is_sq && id == qp->read.id)
			take_armed(cq, qp, data);
		return false;
	case MANA_HW_RNIC_CQE_ERROR:
		take_error(cq, qp, data, id, is_sq);
		return false;
	default:
		return false;
	}
}

/* The next completion of a side with more than CQEs to go by; false if there is none. */
static MANA_ALWAYS_INLINE bool report_send(struct mana_stock_side *side,
					   struct mana_completion *c)
{
	struct mana_stock_qp *qp = side->qp;
	uint32_t head = mana_load_acquire(&qp->sends.head);

	while (qp->sent_tail != head) {
		const struct mana_dp_sent *sent = &qp->sends.slot[qp->sent_tail & qp->sends.mask];
		bool done = qp->dp.format == MANA_DP_RC &&
			    !mana_psn_after(sent->last_psn, qp->acked);

		if (!done && !side->failed)
			return false;
		if (done && !sent->signaled) {
			retire_send(qp, sent);
			continue;
		}
		begin_completion(qp, c);
		c->wr_id = sent->wr_id;
		c->opcode = sent->opcode;
		c->length = sent->length;
		if (MANA_UNLIKELY(!done))
			fill_error(side, c);
		retire_send(qp, sent);
		return true;
	}
	return false;
}

static __attribute__((noinline)) bool report_receive(struct mana_stock_side *side,
						     struct mana_completion *c)
{
	struct mana_stock_qp *qp = side->qp;

	if (!side->failed || qp->recv_tail == mana_load_acquire(&qp->receives.head))
		return false;
	begin_completion(qp, c);
	c->opcode = MANA_WC_RECV;
	fill_error(side, c);
	retire_receive(qp, c);
	return true;
}

static MANA_ALWAYS_INLINE bool report_side(struct mana_stock_side *side,
					   struct mana_completion *c)
{
	return MANA_UNLIKELY(side->is_recv) ? report_receive(side, c) : report_send(side, c);
}

/* A send side with nothing left: what comes later makes it ready again. */
static inline bool is_drained(const struct mana_stock_side *side)
{
	return !side->is_recv && side->qp->sent_tail == mana_load_acquire(&side->qp->sends.head);
}

static inline void next_ready(struct mana_dp_cq *cq)
{
	struct mana_stock_side *side = cq->ready;

	side->ready = false;
	cq->ready = side->next;
	if (!cq->ready)
		cq->ready_tail = &cq->ready;
}

bool mana_stock_report(struct mana_dp_cq *cq, struct mana_completion *c)
{
	while (cq->ready) {
		struct mana_stock_side *side = cq->ready;

		if (MANA_LIKELY(report_side(side, c))) {
			if (is_drained(side))
				next_ready(cq);
			return true;
		}
		next_ready(cq);
	}
	return false;
}

bool mana_stock_report_failed(struct mana_dp_cq *cq, struct mana_completion *c)
{
	for (struct mana_stock_side *side = cq->failed; side; side = side->next_failed)
		if (report_side(side, c))
			return true;
	return false;
}

void mana_stock_forget(struct mana_dp_cq *cq, struct mana_stock_qp *qp)
{
	struct mana_stock_side **ready = &cq->ready;
	struct mana_stock_side **failed = &cq->failed;
	struct mana_stock_side **error = &cq->errors;

	while (*ready) {
		struct mana_stock_side *side = *ready;

		if (side->qp != qp) {
			ready = &side->next;
			continue;
		}
		side->ready = false;
		*ready = side->next;
	}
	cq->ready_tail = ready;
	while (*failed) {
		if ((*failed)->qp != qp)
			failed = &(*failed)->next_failed;
		else
			*failed = (*failed)->next_failed;
	}
	while (*error) {
		if ((*error)->qp != qp)
			error = &(*error)->next_error;
		else
			*error = (*error)->next_error;
	}
}
