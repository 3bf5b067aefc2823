// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Completions in the format of the public ABI: what a CQE finishes, and what an error flushes. */
#include "dp_cqe.h"
#include "dp_stock.h"

static MANA_ALWAYS_INLINE uint8_t status_of(uint32_t vendor_error)
{
	switch (vendor_error) {
#define STATUS(name, code, status)                                                                 \
	case MANA_HW_RNIC_VE_##name:                                                               \
		return MANA_HW_WC_##status;
		MANA_HW_RNIC_VENDOR_ERRORS(STATUS)
#undef STATUS
	}
	return MANA_HW_WC_GENERAL_ERR;
}

uint8_t mana_stock_status(uint32_t vendor_error)
{
	return status_of(vendor_error);
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

/*
 * The poll that learns of it flushes the post that is being made, too, and later ones are
 * refused: for a post that crossed the error no event would come.
 */
static void refuse_posts(struct mana_stock_side *side)
{
	if (side->posts)
		mana_lock(side->posts);
	mana_store_flag(&side->failed, true);
	if (side->posts)
		mana_unlock(side->posts);
}

/* What the ring's CQEs do not complete gets error completions. */
static void begin_flush(struct mana_dp_cq *cq, struct mana_stock_side *side, uint32_t vendor_error)
{
	if (side->failed)
		return;
	side->vendor_error = vendor_error;
	side->next_failed = cq->failed;
	cq->failed = side;
	refuse_posts(side);
}

static void fail_side(struct mana_dp_cq *cq, struct mana_stock_side *side, uint32_t vendor_error)
{
	begin_flush(cq, side, vendor_error);
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
			mana_stock_arm(qp, sent->last_psn);
			return;
		}
	}
	qp->arm_scan = head;
	mana_stock_arm(qp, qp->acked + 1);
}

static void take_armed(struct mana_dp_cq *cq, struct mana_stock_qp *qp,
		       const struct mana_hw_rnic_armed_cqe *cqe)
{
	uint32_t psn = cqe->psn & MANA_HW_RNIC_24BIT;

	/* The top bits of the syndrome tell an ACK from the rest. */
	if (cqe->msn_syndrome >> 29 || !mana_psn_after(psn, qp->acked))
		return;
	mana_store_release(&qp->acked, psn);
	make_ready(cq, &qp->send_side);
	arm_next(qp);
}

/* Whether the queue of this id is for sends; a READ's scatter lists are, too. */
static bool is_of_sends(const struct mana_stock_qp *qp, uint32_t queue_id, bool is_sq)
{
	if (qp->dp.format == MANA_DP_UD)
		return is_sq;
	return queue_id == (is_sq ? qp->sends.ring.id : qp->read.id);
}

static void take_error(struct mana_dp_cq *cq, struct mana_stock_qp *qp,
		       const struct mana_hw_rnic_error_cqe *cqe, bool send)
{
	uint32_t vendor =
		cqe->type_vendor >> MANA_HW_RNIC_CQE_VENDOR_SHIFT & MANA_HW_RNIC_CQE_VENDOR;
	uint32_t done;

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
	c->status = status_of(side->vendor_error);
	if (c->status == MANA_HW_WC_SUCCESS)
		c->status = MANA_HW_WC_GENERAL_ERR;
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
	uint8_t first;

	/* the first SGE never wraps, as the head before it does not */
	sge = (const struct mana_hw_sge *)(ring->base + (recv->start & (ring->bytes - 1)) +
					   MANA_RECV_HEAD_BYTES);
	if (!qp->regions || !sge->length ||
	    !mana_dp_region_peek(qp->regions, sge->key, sge->address, &first))
		return 0;
	return mana_wc_sl(first >> 4 != 6);
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
	if (MANA_UNLIKELY(vendor)) {
		c->vendor_error = vendor;
		c->status = mana_stock_status(vendor);
	}
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
	struct mana_stock_qp *qp = dp ? mana_stock_of(dp) : NULL;
	const void *data = cqe->data;
	bool send;

	if (!qp)
		return false;
	send = is_of_sends(qp, id, is_sq);
	/* The other CQ has a lock of its own, and one of another QP knows nothing of this. */
	if (cq != (send ? qp->dp.send_cq : qp->dp.recv_cq))
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
		take_error(cq, qp, data, send);
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

static void end_side(struct mana_dp_cq *cq, struct mana_stock_side *side)
{
	if (__atomic_exchange_n(&side->ended, true, __ATOMIC_ACQUIRE))
		return;
	side->next_ended = __atomic_load_n(&cq->ended, __ATOMIC_RELAXED);
	/* pairs with take_ended() */
	while (!__atomic_compare_exchange_n(&cq->ended, &side->next_ended, side, true,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

void mana_stock_end(struct mana_stock_qp *qp)
{
	end_side(qp->dp.send_cq, &qp->send_side);
	end_side(qp->dp.recv_cq, &qp->recv_side);
	mana_dp_cq_wake(qp->dp.send_cq);
	if (qp->dp.recv_cq != qp->dp.send_cq)
		mana_dp_cq_wake(qp->dp.recv_cq);
}

static void take_ended(struct mana_dp_cq *cq)
{
	struct mana_stock_side *side = __atomic_exchange_n(&cq->ended, NULL, __ATOMIC_ACQUIRE);

	while (side) {
		struct mana_stock_side *next = side->next_ended;

		/* pairs with end_side(), which may put it there again */
		__atomic_store_n(&side->ended, false, __ATOMIC_RELEASE);
		begin_flush(cq, side, MANA_HW_RNIC_VE_FLUSHED);
		side = next;
	}
}

bool mana_stock_report_failed(struct mana_dp_cq *cq, struct mana_completion *c)
{
	take_ended(cq);
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

	take_ended(cq);
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
	/* Under the lock of the list: who is in it must look so, or is put there twice. */
	if (qp->dp.send_cq == cq)
		mana_store_flag(&qp->send_side.failed, false);
	if (qp->dp.recv_cq == cq)
		mana_store_flag(&qp->recv_side.failed, false);
}
