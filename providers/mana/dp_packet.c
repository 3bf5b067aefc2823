// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "dp_packet.h"

#include <mana/eth.h>
#include <mana/ext_eth.h>

#define SHORT_OOB_BYTES 8u
#define MIN_CQES (MANA_HW_PAGE_BYTES / (uint32_t)sizeof(struct mana_hw_cqe))

static uint32_t cqes_for(uint32_t wqes)
{
	return mana_round_up_power(wqes < MIN_CQES ? MIN_CQES : wqes);
}

int mana_packet_lay_out(const struct mana_packet_attr *attr, struct mana_packet_layout *layout)
{
	const struct mana_dp_queues *queues = &attr->queues;
	uint32_t send = mana_send_wqe_bytes(mana_at_least_one(queues->max_send_sge));
	uint32_t recv = mana_recv_wqe_bytes(mana_at_least_one(queues->max_recv_sge));

	if (queues->max_send_sge > MANA_HW_SQ_WQE_MAX_BYTES || send > MANA_HW_SQ_WQE_MAX_BYTES ||
	    queues->max_recv_sge > MANA_HW_RQ_WQE_MAX_BYTES || recv > MANA_HW_RQ_WQE_MAX_BYTES)
		return EINVAL;
	layout->sq_bytes = mana_ring_bytes(queues->max_send, send);
	layout->rq_bytes = mana_ring_bytes(queues->max_recv, recv);
	/* No WQE is used again before its CQE was taken, so the ring cannot overflow. */
	layout->send_cqes = cqes_for(queues->max_send);
	layout->recv_cqes = cqes_for(queues->max_recv);
	return layout->sq_bytes && layout->rq_bytes && layout->send_cqes && layout->recv_cqes ?
		       0 :
		       EINVAL;
}

static void init_side(struct mana_packet_side *side, struct mana_packet_qp *qp, bool is_recv,
		      void *ring, uint32_t entries)
{
	side->qp = qp;
	side->is_recv = is_recv;
	mana_dp_cq_init(&side->ring, ring, entries, NULL, NULL, NULL);
}

int mana_packet_init(struct mana_packet_qp *qp, const struct mana_packet_attr *attr,
		     const struct mana_packet_layout *layout)
{
	memset(qp, 0, sizeof(*qp));
	qp->dp.format = MANA_DP_PACKET;
	if (mana_queues_init(&qp->sends, &qp->receives, &attr->queues, layout->sq_bytes,
			     layout->rq_bytes))
		return ENOMEM;
	init_side(&qp->send_side, qp, false, attr->send_cq, layout->send_cqes);
	init_side(&qp->recv_side, qp, true, attr->recv_cq, layout->recv_cqes);
	return 0;
}

void mana_packet_free(struct mana_packet_qp *qp)
{
	mana_queues_free(&qp->sends, &qp->receives);
}

static void reset_side(struct mana_packet_side *side)
{
	struct mana_dp_cq *ring = &side->ring;

	memset(ring->ring, 0, (size_t)ring->entries * sizeof(struct mana_hw_cqe));
	mana_dp_cq_init(ring, ring->ring, ring->entries, NULL, NULL, NULL);
	side->ended = false;
}

void mana_packet_reset(struct mana_packet_qp *qp)
{
	mana_queues_rewind(&qp->sends, &qp->receives);
	qp->sent_tail = 0;
	qp->recv_tail = 0;
	reset_side(&qp->send_side);
	reset_side(&qp->recv_side);
}

/* Its poller tells the device of this ring under the same lock. */
static void arm_side(struct mana_packet_side *side)
{
	mana_lock(&side->ring.arm_lock);
	mana_dp_cq_arm_ring(&side->ring, false);
	mana_unlock(&side->ring.arm_lock);
}

static void start_side(struct mana_packet_side *side, uint32_t cq_id)
{
	side->ring.id = cq_id;
	side->ring.doorbell = side->qp->dp.doorbell;
	if (side->wants_event)
		arm_side(side);
}

void mana_packet_start(struct mana_packet_qp *qp, uint32_t sq_id, uint32_t send_cq_id,
		       uint32_t rq_id, uint32_t recv_cq_id)
{
	qp->sends.ring.id = sq_id;
	qp->receives.ring.id = rq_id;
	start_side(&qp->send_side, send_cq_id);
	start_side(&qp->recv_side, recv_cq_id);
}

void mana_packet_end(struct mana_packet_qp *qp)
{
	qp->send_side.ring.doorbell = NULL;
	qp->send_side.ended = true;
	qp->recv_side.ring.doorbell = NULL;
	qp->recv_side.ended = true;
}

void mana_packet_join(struct mana_dp_cq *cq, struct mana_packet_side *side)
{
	if (cq->packets) {
		side->next = cq->packets->next;
		cq->packets->next = side;
	} else {
		side->next = side;
		cq->packets = side;
	}
	side->wants_event = cq->was_armed || cq->arm_sequence;
}

void mana_packet_leave(struct mana_dp_cq *cq, struct mana_packet_side *side)
{
	struct mana_packet_side *before = side;

	while (before->next != side)
		before = before->next;
	before->next = side->next;
	if (cq->packets == side)
		cq->packets = before == side ? NULL : before;
	side->next = NULL;
}

int mana_packet_send(struct mana_packet_qp *qp, const struct mana_dp_send *wr)
{
	struct mana_dp_sent *sent = &qp->sends.slot[qp->sends.head & qp->sends.mask];
	const struct mana_dp_sge *sge = wr->sge;
	uint8_t scratch[MANA_HW_SQ_WQE_MAX_BYTES];
	uint32_t count = wr->sge_count;
	struct mana_hw_wqe_header *header;
	struct mana_dp_sge copied;
	uint32_t head = (uint32_t)sizeof(*header) + SHORT_OOB_BYTES;
	uint32_t used, bytes;
	uint64_t length;
	uint32_t *oob;
	uint8_t *wqe;

	if (!qp->sends.allowed || count > qp->sends.max_sge)
		return EINVAL;
	if (wr->opcode != MANA_HW_EXT_WQE_SEND)
		return EOPNOTSUPP;
	length = mana_sges_length(sge, count);
	if (length > MANA_DP_MAX_MESSAGE)
		return EINVAL;
	if ((wr->flags & MANA_HW_EXT_WQE_INLINE) && length) {
		if (length > qp->sends.inline_slots.stride)
			return EINVAL;
		copied = mana_inline_sge(&qp->sends.inline_slots, qp->sends.head & qp->sends.mask,
					 (uint32_t)length);
		sge = &copied;
		count = 1;
	}
	used = head + mana_at_least_one(count) * (uint32_t)sizeof(struct mana_hw_sge);
	bytes = mana_round_up(used, MANA_HW_WQE_UNIT);
	if (qp->sends.head - mana_load_acquire(&qp->sent_tail) >= qp->sends.max ||
	    mana_ring_space(&qp->sends.ring) < bytes)
		return ENOMEM;
	if (sge == &copied)
		mana_inline_copy(&qp->sends.inline_slots, qp->sends.head & qp->sends.mask, wr);

	wqe = mana_wqe_begin(&qp->sends.ring, bytes, scratch);
	header = (struct mana_hw_wqe_header *)wqe;
	oob = (uint32_t *)(header + 1);
	count = mana_put_sges(wqe + head, sge, count);
	header->word0 = 0;
	header->word1 = count | MANA_HW_OOB_SMALL << MANA_HW_WQE_OOB_CODE_SHIFT;
	/* The vPort offset of packet queues is 0. */
	oob[0] = MANA_HW_ETH_TX_FORMAT_SHORT | (wr->checksums ? MANA_HW_EXT_TX_CHECKSUMS : 0) |
		 qp->send_side.ring.id << MANA_HW_ETH_TX_CQ_SHIFT;
	oob[1] = qp->sends.ring.id & MANA_HW_ETH_TX_SQ;
	mana_wqe_pad(wqe, used, bytes);
	mana_wqe_end(&qp->sends.ring, wqe, bytes);

	sent->wr_id = wr->wr_id;
	sent->end = qp->sends.ring.producer;
	sent->length = (uint32_t)length;
	sent->signaled = qp->sends.signal_all || (wr->flags & MANA_HW_EXT_WQE_SIGNALED);
	mana_store_release(&qp->sends.head, qp->sends.head + 1);
	return 0;
}

void mana_packet_ring_send(struct mana_packet_qp *qp)
{
	if (qp->sends.posted == qp->sends.ring.producer)
		return;
	qp->sends.posted = qp->sends.ring.producer;
	mana_doorbell(qp->dp.doorbell, MANA_HW_DB_SQ,
		      mana_hw_wq_doorbell(qp->sends.ring.id, 0, qp->sends.ring.producer));
}

int mana_packet_recv(struct mana_packet_qp *qp, uint64_t wr_id, const struct mana_dp_sge *sge,
		     uint32_t sge_count)
{
	struct mana_dp_receive *recv = &qp->receives.slot[qp->receives.head & qp->receives.mask];
	uint8_t scratch[MANA_HW_RQ_WQE_MAX_BYTES];
	struct mana_hw_wqe_header *header;
	uint32_t used, bytes;
	uint8_t *wqe;

	if (!qp->receives.allowed || sge_count > qp->receives.max_sge)
		return EINVAL;
	bytes = mana_recv_wqe_bytes(mana_at_least_one(sge_count));
	if (qp->receives.head - mana_load_acquire(&qp->recv_tail) >= qp->receives.max ||
	    mana_ring_space(&qp->receives.ring) < bytes)
		return ENOMEM;

	recv->wr_id = wr_id;
	recv->start = qp->receives.ring.producer;
	wqe = mana_wqe_begin(&qp->receives.ring, bytes, scratch);
	header = (struct mana_hw_wqe_header *)wqe;
	sge_count = mana_put_sges(wqe + MANA_RECV_HEAD_BYTES, sge, sge_count);
	header->word0 = 0;
	header->word1 = sge_count | MANA_HW_OOB_SMALL << MANA_HW_WQE_OOB_CODE_SHIFT;
	memset(header + 1, 0, SHORT_OOB_BYTES);
	used = MANA_RECV_HEAD_BYTES + sge_count * (uint32_t)sizeof(struct mana_hw_sge);
	mana_wqe_pad(wqe, used, bytes);
	mana_wqe_end(&qp->receives.ring, wqe, bytes);
	recv->end = qp->receives.ring.producer;
	mana_store_release(&qp->receives.head, qp->receives.head + 1);
	return 0;
}

/* The device wants a count of 0 here (GDMA 3.9). */
void mana_packet_ring_recv(struct mana_packet_qp *qp)
{
	mana_doorbell(qp->dp.doorbell, MANA_HW_DB_RQ,
		      mana_hw_wq_doorbell(qp->receives.ring.id, 0, qp->receives.ring.producer));
}

uint8_t mana_packet_status(uint32_t type)
{
	switch (type) {
	case MANA_HW_ETH_CQE_RX_OK:
	case MANA_HW_ETH_CQE_TX_OK:
		return MANA_HW_WC_SUCCESS;
	case MANA_HW_ETH_CQE_RX_TRUNCATED:
	case MANA_HW_ETH_CQE_TX_MTU:
		return MANA_HW_WC_LOC_LEN_ERR;
	case MANA_HW_ETH_CQE_TX_SOURCE:
	case MANA_HW_ETH_CQE_TX_VLAN:
		return MANA_HW_WC_LOC_ACCESS_ERR;
	case MANA_HW_ETH_CQE_TX_OOB:
	case MANA_HW_ETH_CQE_TX_ETHERTYPE:
	case MANA_HW_ETH_CQE_TX_HEADERS:
		return MANA_HW_WC_LOC_QP_OP_ERR;
	default:
		return MANA_HW_WC_GENERAL_ERR;
	}
}

static void begin_completion(const struct mana_packet_qp *qp, uint32_t type,
			     struct mana_completion *c)
{
	memset(c, 0, sizeof(*c));
	c->qpn = qp->dp.qpn;
	c->status = mana_packet_status(type);
	if (c->status != MANA_HW_WC_SUCCESS)
		c->vendor_error = type;
}

/* The oldest send leaves the queue; whether that gives a completion. */
static bool retire_send(struct mana_packet_qp *qp, struct mana_completion *c)
{
	const struct mana_dp_sent *sent = &qp->sends.slot[qp->sent_tail & qp->sends.mask];
	bool report = sent->signaled || c->status != MANA_HW_WC_SUCCESS;

	c->wr_id = sent->wr_id;
	c->opcode = MANA_WC_SEND;
	c->length = sent->length;
	mana_store_release(&qp->sends.ring.consumer, sent->end);
	mana_store_release(&qp->sent_tail, qp->sent_tail + 1);
	return report;
}

static void retire_receive(struct mana_packet_qp *qp, struct mana_completion *c)
{
	const struct mana_dp_receive *recv = &qp->receives.slot[qp->recv_tail & qp->receives.mask];

	c->wr_id = recv->wr_id;
	c->opcode = MANA_WC_RECV;
	mana_store_release(&qp->receives.ring.consumer, recv->end);
	mana_store_release(&qp->recv_tail, qp->recv_tail + 1);
}

static bool take_sent(struct mana_packet_qp *qp, const struct mana_hw_eth_tx_cqe *cqe,
		      struct mana_completion *c)
{
	if (qp->sent_tail == mana_load_acquire(&qp->sends.head))
		return false;
	begin_completion(qp, cqe->type & MANA_HW_ETH_CQE_TYPE, c);
	return retire_send(qp, c);
}

static bool take_received(struct mana_packet_qp *qp, const struct mana_hw_eth_rx_cqe *cqe,
			  struct mana_completion *c)
{
	uint32_t type = cqe->type & MANA_HW_ETH_CQE_TYPE;

	if (type == MANA_HW_ETH_CQE_RX_FENCE ||
	    qp->recv_tail == mana_load_acquire(&qp->receives.head))
		return false;
	begin_completion(qp, type, c);
	c->length = cqe->packets[0].length;
	if ((cqe->flags & MANA_HW_ETH_RX_IP_GOOD) &&
	    (cqe->flags & (MANA_HW_ETH_RX_TCP_GOOD | MANA_HW_ETH_RX_UDP_GOOD)))
		c->flags = MANA_WC_IP_CSUM_OK;
	retire_receive(qp, c);
	return true;
}

/* What an ended queue still had. */
static bool flush(struct mana_packet_side *side, struct mana_completion *c)
{
	struct mana_packet_qp *qp = side->qp;

	if (side->is_recv ? qp->recv_tail == mana_load_acquire(&qp->receives.head) :
			    qp->sent_tail == mana_load_acquire(&qp->sends.head))
		return false;
	memset(c, 0, sizeof(*c));
	c->qpn = qp->dp.qpn;
	c->status = MANA_HW_WC_WR_FLUSH_ERR;
	c->vendor_error = MANA_HW_RNIC_VE_FLUSHED;
	if (side->is_recv)
		retire_receive(qp, c);
	else
		retire_send(qp, c);
	return true;
}

static bool poll_side(struct mana_packet_side *side, struct mana_completion *c)
{
	struct mana_dp_cq *ring = &side->ring;
	const struct mana_hw_cqe *cqe;

	while ((cqe = mana_dp_cq_peek(ring, ring->consumer))) {
		bool is_sq = cqe->word & MANA_HW_CQE_IS_SQ;
		uint32_t id = side->is_recv ? side->qp->receives.ring.id : side->qp->sends.ring.id;
		const void *data = cqe->data;
		bool found = false;

		mana_dp_cq_advance(ring);
		if (is_sq != side->is_recv && (cqe->word & MANA_HW_CQE_QUEUE_ID) == id)
			found = side->is_recv ? take_received(side->qp, data, c) :
						take_sent(side->qp, data, c);
		/* Also stock CQs are told of what was taken now and then (RNIC 8.2). */
		if (ring->doorbell)
			mana_dp_cq_done(ring);
		if (found)
			return true;
	}
	return side->ended && flush(side, c);
}

/* The sides take turns. */
bool mana_packet_poll(struct mana_dp_cq *cq, struct mana_completion *c)
{
	struct mana_packet_side *first = cq->packets;
	struct mana_packet_side *side = first;

	do {
		if (poll_side(side, c)) {
			__atomic_store_n(&cq->packets, side->next, __ATOMIC_RELAXED);
			return true;
		}
		side = side->next;
	} while (side != first);
	return false;
}

void mana_packet_arm(struct mana_dp_cq *cq)
{
	/* Polls move on the start of the circle meanwhile. */
	struct mana_packet_side *first = __atomic_load_n(&cq->packets, __ATOMIC_RELAXED);
	struct mana_packet_side *side = first;

	do {
		side->wants_event = true;
		if (side->ring.doorbell)
			arm_side(side);
		side = side->next;
	} while (side != first);
}
