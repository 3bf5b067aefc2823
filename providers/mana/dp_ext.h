/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MANA_DP_EXT_H
#define MANA_DP_EXT_H

#include "dp_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * QPs and SRQs in the extended format (docs/extensions.md): the device counts
 * PSNs and gives a CQE for each signaled send; producer indices lie in a record
 * in memory, and a doorbell is rung only if the device asks for it.
 *
 * This is the hot path, so it is inline: an opcode or a flag that the caller
 * knows costs nothing.
 */

/* What a completion needs of a send, kept at the unit where its WQE starts. */
struct mana_ext_sent {
	uint64_t wr_id;
	uint32_t number; /* sends posted up to this one, running */
};

struct mana_ext_srq {
	uint8_t *ring;
	struct mana_hw_ext_srq_record *record;
	uint32_t count; /* receives of the ring: a power of two */
	uint32_t stride;
	uint32_t stride_shift;
	uint32_t max_sge;
	uint32_t max_recv; /* as many as the application may post */
	uint32_t producer;
	uint32_t outstanding;
	uint64_t *wr_id; /* by cookie */
	uint32_t *free_cookie; /* a stack: receives complete in any order */
	/*
	 * Cookies come back from the pollers of many CQs, so this part has a lock of
	 * its own: the caller's, taken by these two.
	 */
	void (*lock)(struct mana_ext_srq *srq);
	void (*unlock)(struct mana_ext_srq *srq);
};

struct mana_ext_qp {
	struct mana_dp_qp dp;
	struct mana_hw_ext_qp_record *record;

	/* the poster of sends */
	uint8_t *sq;
	uint32_t sq_units; /* a power of two */
	uint32_t sq_id;
	uint32_t sq_producer; /* units, running */
	uint32_t sq_told; /* what the record holds */
	uint32_t sq_posted; /* sends, running */
	uint32_t max_send; /* not finished at a time; then the ring has room for each */
	uint32_t max_send_sge;
	uint32_t max_inline;
	uint32_t max_message;
	uint32_t max_wqe_units;
	uint32_t opcodes; /* that this QP has: MANA_EXT_OPCODE() */
	uint8_t signal; /* MANA_HW_EXT_WQE_SIGNALED if all sends signal */
	bool datagrams; /* UD: each send has a UD segment */
	bool can_send;
	struct mana_ext_sent *sent;

	/* the poster of receives */
	uint8_t *rq;
	uint32_t rq_count; /* a power of two; 0: an SRQ, or none */
	uint32_t rq_shift; /* of the stride */
	uint32_t rq_producer;
	uint32_t max_recv;
	uint32_t max_recv_sge;
	bool can_recv;
	uint64_t *recv_wr_id;
	struct mana_ext_srq *srq;

	/* the pollers */
	uint32_t sq_finished; /* sends, running */
	uint32_t rq_consumer;
};

static inline struct mana_ext_qp *mana_ext_of(struct mana_dp_qp *qp)
{
	static_assert(offsetof(struct mana_ext_qp, dp) == 0, "the tag comes first");

	return qp->format == MANA_DP_EXT ? (struct mana_ext_qp *)qp : NULL;
}

/* A bit for each opcode of enum mana_hw_ext_wqe_opcode. */
#define MANA_EXT_OPCODE(opcode) (1u << (opcode))
#define MANA_EXT_ATOMICS                                                                           \
	(MANA_EXT_OPCODE(MANA_HW_EXT_WQE_CMP_SWAP) | MANA_EXT_OPCODE(MANA_HW_EXT_WQE_FETCH_ADD))
#define MANA_EXT_WINDOWS                                                                           \
	(MANA_EXT_OPCODE(MANA_HW_EXT_WQE_LOCAL_INV) | MANA_EXT_OPCODE(MANA_HW_EXT_WQE_BIND_MW))
/* What a connection without acknowledgements lacks. */
#define MANA_EXT_RELIABLE                                                                          \
	(MANA_EXT_ATOMICS | MANA_EXT_OPCODE(MANA_HW_EXT_WQE_SEND_INV) |                            \
	 MANA_EXT_OPCODE(MANA_HW_EXT_WQE_READ))

struct mana_ext_attr {
	bool datagrams;
	bool signal_all;
	uint32_t refused; /* opcodes that this QP shall not have */
	uint32_t mtu; /* of datagrams; 0: no bound */
	uint32_t max_send;
	uint32_t max_send_sge;
	uint32_t max_inline;
	uint32_t max_recv;
	uint32_t max_recv_sge;
	struct mana_ext_srq *srq; /* NULL: a receive queue of its own */
};

/* What the memory of a QP is cut into: SQ, RQ, record. */
struct mana_ext_layout {
	uint32_t wqe_bytes; /* of the biggest send */
	uint32_t max_inline; /* that such a WQE holds: not less than was asked for */
	uint32_t sq_bytes;
	uint32_t rq_bytes;
	uint32_t rq_stride;
	uint32_t record; /* where it lies */
	uint32_t bytes;
};

/* EINVAL if a WQE does not fit the format, or the rings 32 bits. */
int mana_ext_lay_out(const struct mana_ext_attr *attr, struct mana_ext_layout *layout);
/*
 * `memory`: zeroed, layout->bytes long, aligned to 64. 0 or ENOMEM. Ids, doorbell
 * page and CQs are the caller's to set.
 */
int mana_ext_init(struct mana_ext_qp *qp, const struct mana_ext_attr *attr,
		  const struct mana_ext_layout *layout, void *memory);
void mana_ext_free(struct mana_ext_qp *qp);
/* RESET: all that was posted is forgotten. The device is in RESET when this is called. */
void mana_ext_reset(struct mana_ext_qp *qp);

/* The state of the QP allows posts, or not. Others may post meanwhile. */
static inline void mana_ext_permit(struct mana_ext_qp *qp, bool send, bool recv)
{
	mana_store_flag(&qp->can_send, send);
	mana_store_flag(&qp->can_recv, recv);
}

struct mana_ext_srq_layout {
	uint32_t stride;
	uint32_t ring_bytes;
	uint32_t bytes;
};

int mana_ext_srq_lay_out(uint32_t max_recv, uint32_t max_sge, struct mana_ext_srq_layout *layout);
int mana_ext_srq_init(struct mana_ext_srq *srq, uint32_t max_recv, uint32_t max_sge,
		      const struct mana_ext_srq_layout *layout, void *memory);
void mana_ext_srq_free(struct mana_ext_srq *srq);

/* The CQE is thrown away with its QP: an SRQ gets its cookie back. */
void mana_ext_drop(struct mana_ext_qp *qp, const struct mana_hw_ext_cqe *cqe);

#define MANA_EXT_CONTROL_BYTES ((uint32_t)sizeof(struct mana_hw_ext_control))
#define MANA_EXT_SEGMENT 16u

/*
 * A WQE under construction. It is written in place, or into `scratch` if it may
 * go over the end of the ring.
 */
struct mana_ext_wqe {
	uint8_t *at;
	uint32_t bytes; /* so far */
	/* what the setters of the data may still add */
	uint32_t sges;
	uint32_t inline_bytes;
	uint32_t message;
	uint64_t wr_id;
	uint8_t scratch[MANA_HW_EXT_WQE_MAX_BYTES];
};

static inline bool mana_ext_sq_full(const struct mana_ext_qp *qp)
{
	return qp->sq_posted - mana_load_acquire(&qp->sq_finished) >= qp->max_send;
}

static inline bool mana_ext_has_opcode(const struct mana_ext_qp *qp, uint8_t opcode)
{
	return opcode < 32 && qp->opcodes >> opcode & 1;
}

static inline bool mana_ext_is_atomic(uint8_t opcode)
{
	return opcode == MANA_HW_EXT_WQE_CMP_SWAP || opcode == MANA_HW_EXT_WQE_FETCH_ADD;
}

/* Units of a WQE. */
static inline uint32_t mana_ext_units(uint32_t bytes)
{
	return (bytes + MANA_HW_EXT_WQE_UNIT - 1) / MANA_HW_EXT_WQE_UNIT;
}

/* A place for up to `units` at the producer; the queue is not full. */
static inline void mana_ext_wqe_begin(struct mana_ext_qp *qp, struct mana_ext_wqe *wqe,
				      uint32_t units)
{
	uint32_t slot = qp->sq_producer & (qp->sq_units - 1);

	wqe->at = MANA_LIKELY(slot + units <= qp->sq_units) ?
			  qp->sq + (size_t)slot * MANA_HW_EXT_WQE_UNIT :
			  wqe->scratch;
}

static inline void mana_ext_wqe_control(struct mana_ext_wqe *wqe, uint8_t opcode, uint8_t flags,
					uint32_t value)
{
	struct mana_hw_ext_control *control = (struct mana_hw_ext_control *)wqe->at;

	control->opcode = opcode;
	control->flags = flags;
	control->value = value;
	control->inline_bytes = 0;
	control->reserved = 0;
	wqe->bytes = MANA_EXT_CONTROL_BYTES;
}

static inline void mana_ext_wqe_remote(struct mana_ext_wqe *wqe, uint64_t address, uint32_t rkey)
{
	struct mana_hw_ext_remote *remote = (struct mana_hw_ext_remote *)(wqe->at + wqe->bytes);

	remote->address = address;
	remote->rkey = rkey;
	remote->reserved = 0;
	wqe->bytes += sizeof(*remote);
}

static inline void mana_ext_wqe_atomic(struct mana_ext_wqe *wqe, uint64_t swap_add,
				       uint64_t compare)
{
	struct mana_hw_ext_atomic *atomic = (struct mana_hw_ext_atomic *)(wqe->at + wqe->bytes);

	atomic->swap_add = swap_add;
	atomic->compare = compare;
	wqe->bytes += sizeof(*atomic);
}

static inline void mana_ext_wqe_ud(struct mana_hw_ext_ud *ud, const struct mana_dp_av *av,
				   uint32_t dest_qpn, uint32_t qkey)
{
	*ud = av->ud;
	ud->dest_qpn = dest_qpn;
	ud->qkey = qkey;
}

static inline void mana_ext_wqe_bind(struct mana_ext_wqe *wqe, const struct mana_hw_ext_bind *bind)
{
	memcpy(wqe->at + wqe->bytes, bind, sizeof(*bind));
	wqe->bytes += sizeof(*bind);
}

static inline void mana_ext_wqe_sge(struct mana_ext_wqe *wqe, uint64_t address, uint32_t lkey,
				    uint32_t length)
{
	struct mana_hw_sge *sge = (struct mana_hw_sge *)(wqe->at + wqe->bytes);

	sge->address = address;
	sge->key = lkey;
	sge->length = length;
	wqe->bytes += sizeof(*sge);
}

static inline void mana_ext_wqe_inline(struct mana_ext_wqe *wqe, const void *data, uint32_t length)
{
	struct mana_hw_ext_control *control = (struct mana_hw_ext_control *)wqe->at;

	memcpy(wqe->at + wqe->bytes, data, length);
	wqe->bytes += length;
	control->inline_bytes += length;
	control->flags |= MANA_HW_EXT_WQE_INLINE;
}

/*
 * The setters of data, for callers that give it piece by piece. What they add
 * stays within max_wqe_units whatever is asked for: false, and the WQE as it was,
 * if the opcode has no such data, or if it does not fit.
 */
static inline void mana_ext_wqe_open_data(const struct mana_ext_qp *qp, struct mana_ext_wqe *wqe,
					  uint8_t opcode)
{
	bool atomic = mana_ext_is_atomic(opcode);

	wqe->sges = opcode <= MANA_HW_EXT_WQE_READ ? qp->max_send_sge :
		    atomic && qp->max_send_sge	   ? 1 :
						     0;
	wqe->inline_bytes = opcode < MANA_HW_EXT_WQE_READ ? qp->max_inline : 0;
	wqe->message = atomic ? (uint32_t)sizeof(uint64_t) : qp->max_message;
}

static inline bool mana_ext_wqe_add_sge(struct mana_ext_wqe *wqe, uint64_t address, uint32_t lkey,
					uint32_t length)
{
	if (MANA_UNLIKELY(!wqe->sges || length > wqe->message))
		return false;
	wqe->sges--;
	wqe->message -= length;
	wqe->inline_bytes = 0;
	mana_ext_wqe_sge(wqe, address, lkey, length);
	return true;
}

static inline bool mana_ext_wqe_add_inline(struct mana_ext_wqe *wqe, const void *data,
					   size_t length)
{
	if (MANA_UNLIKELY(length > wqe->inline_bytes || length > wqe->message))
		return false;
	wqe->inline_bytes -= (uint32_t)length;
	wqe->message -= (uint32_t)length;
	wqe->sges = 0;
	mana_ext_wqe_inline(wqe, data, (uint32_t)length);
	return true;
}

void mana_ext_wqe_wrap(struct mana_ext_qp *qp, const struct mana_ext_wqe *wqe, uint32_t units);

/* The WQE is complete; the device sees it once mana_ext_ring_send is called. */
static inline void mana_ext_wqe_end(struct mana_ext_qp *qp, struct mana_ext_wqe *wqe)
{
	struct mana_hw_ext_control *control = (struct mana_hw_ext_control *)wqe->at;
	struct mana_ext_sent *sent = &qp->sent[qp->sq_producer & (qp->sq_units - 1)];
	uint32_t units = mana_ext_units(wqe->bytes);

	control->size = (uint16_t)((wqe->bytes + MANA_EXT_SEGMENT - 1) / MANA_EXT_SEGMENT);
	if (MANA_UNLIKELY(wqe->at == wqe->scratch))
		mana_ext_wqe_wrap(qp, wqe, units);
	sent->wr_id = wqe->wr_id;
	sent->number = ++qp->sq_posted;
	qp->sq_producer += units;
}

/* Tells the device of all sends that were written. */
static inline void mana_ext_ring_send(struct mana_ext_qp *qp)
{
	if (qp->sq_told == qp->sq_producer)
		return;
	qp->sq_told = qp->sq_producer;
	mana_store_device(&qp->record->sq_producer, qp->sq_producer);
	/* pairs with the device's, between setting the kick and its last look */
	mana_full_barrier();
	if (MANA_UNLIKELY(mana_load_relaxed(&qp->record->sq_kick)))
		mana_doorbell(qp->dp.doorbell, MANA_HW_DB_SQ,
			      mana_hw_wq_doorbell(qp->sq_id, 0, qp->sq_producer));
}

static inline bool mana_ext_has_data(uint8_t opcode)
{
	return opcode <= MANA_HW_EXT_WQE_FETCH_ADD;
}

/*
 * Writes one work request into the SQ. EOPNOTSUPP: not for this QP; EINVAL: wrong
 * state, too many SGEs, too long, no address; ENOMEM: the queue is full. The queue
 * is then as it was.
 */
static inline int mana_ext_send(struct mana_ext_qp *qp, const struct mana_dp_send *wr)
{
	struct mana_ext_wqe wqe;
	uint32_t bytes = MANA_EXT_CONTROL_BYTES;
	uint8_t opcode = wr->opcode;
	/* Of requests without data the list means nothing, and is not looked at. */
	uint32_t count = mana_ext_has_data(opcode) ? wr->sge_count : 0;
	uint64_t length = 0;

	if (MANA_UNLIKELY(!mana_ext_has_opcode(qp, opcode)))
		return EOPNOTSUPP;
	if (MANA_UNLIKELY(!mana_load_flag(&qp->can_send) || count > qp->max_send_sge))
		return EINVAL;
	for (uint32_t i = 0; i < count; i++)
		length += wr->sge[i].length;
	if (MANA_UNLIKELY(length > qp->max_message))
		return EINVAL;
	if (qp->datagrams) {
		if (MANA_UNLIKELY(!wr->av))
			return EINVAL;
		bytes += sizeof(struct mana_hw_ext_ud);
	} else if (opcode >= MANA_HW_EXT_WQE_WRITE && opcode <= MANA_HW_EXT_WQE_READ) {
		bytes += sizeof(struct mana_hw_ext_remote);
	} else if (mana_ext_is_atomic(opcode)) {
		if (MANA_UNLIKELY(count != 1 || length != sizeof(uint64_t)))
			return EINVAL;
		bytes += sizeof(struct mana_hw_ext_remote) + sizeof(struct mana_hw_ext_atomic);
	} else if (opcode == MANA_HW_EXT_WQE_BIND_MW) {
		bytes += sizeof(struct mana_hw_ext_bind);
	}
	if (wr->flags & MANA_HW_EXT_WQE_INLINE) {
		if (MANA_UNLIKELY(length > qp->max_inline || opcode >= MANA_HW_EXT_WQE_READ))
			return EINVAL;
		bytes += (uint32_t)length;
	} else {
		bytes += count * (uint32_t)sizeof(struct mana_hw_sge);
	}
	if (MANA_UNLIKELY(mana_ext_sq_full(qp)))
		return ENOMEM;

	mana_ext_wqe_begin(qp, &wqe, mana_ext_units(bytes));
	wqe.wr_id = wr->wr_id;
	mana_ext_wqe_control(&wqe, opcode,
			     (wr->flags & (uint8_t)~MANA_HW_EXT_WQE_INLINE) | qp->signal,
			     wr->value);
	if (qp->datagrams) {
		mana_ext_wqe_ud((struct mana_hw_ext_ud *)(wqe.at + wqe.bytes), wr->av,
				wr->dest_qpn, wr->qkey);
		wqe.bytes += sizeof(struct mana_hw_ext_ud);
	} else if (opcode >= MANA_HW_EXT_WQE_WRITE && opcode <= MANA_HW_EXT_WQE_FETCH_ADD) {
		mana_ext_wqe_remote(&wqe, wr->remote_address, wr->rkey);
		if (opcode >= MANA_HW_EXT_WQE_CMP_SWAP)
			mana_ext_wqe_atomic(&wqe, wr->swap_add, wr->compare);
	} else if (opcode == MANA_HW_EXT_WQE_BIND_MW) {
		mana_ext_wqe_bind(&wqe, &wr->bind);
	}
	if (wr->flags & MANA_HW_EXT_WQE_INLINE) {
		for (uint32_t i = 0; i < count; i++)
			mana_ext_wqe_inline(&wqe, (const void *)(uintptr_t)wr->sge[i].address,
					    wr->sge[i].length);
	} else {
		for (uint32_t i = 0; i < count; i++)
			mana_ext_wqe_sge(&wqe, wr->sge[i].address, wr->sge[i].lkey,
					 wr->sge[i].length);
	}
	mana_ext_wqe_end(qp, &wqe);
	return 0;
}

static inline void mana_ext_put_receive(uint8_t *at, uint32_t cookie, const struct mana_dp_sge *sge,
					uint32_t count)
{
	struct mana_hw_ext_receive *receive = (struct mana_hw_ext_receive *)at;
	struct mana_hw_sge *out = (struct mana_hw_sge *)(receive + 1);

	receive->sge_count = count;
	receive->cookie = cookie;
	receive->reserved = 0;
	for (uint32_t i = 0; i < count; i++) {
		out[i].address = sge[i].address;
		out[i].key = sge[i].lkey;
		out[i].length = sge[i].length;
	}
}

/* As mana_ext_send, for the receive queue. */
static inline int mana_ext_recv(struct mana_ext_qp *qp, uint64_t wr_id,
				const struct mana_dp_sge *sge, uint32_t count)
{
	uint32_t slot = qp->rq_producer & (qp->rq_count - 1);

	if (MANA_UNLIKELY(!mana_load_flag(&qp->can_recv) || count > qp->max_recv_sge))
		return EINVAL;
	if (MANA_UNLIKELY(qp->rq_producer - mana_load_acquire(&qp->rq_consumer) >= qp->max_recv))
		return ENOMEM;
	qp->recv_wr_id[slot] = wr_id;
	mana_ext_put_receive(qp->rq + ((size_t)slot << qp->rq_shift), slot, sge, count);
	qp->rq_producer++;
	return 0;
}

static inline void mana_ext_ring_recv(struct mana_ext_qp *qp)
{
	mana_store_device(&qp->record->rq_producer, qp->rq_producer);
	/* pairs with the device's, between setting the kick and flushing */
	mana_full_barrier();
	if (MANA_UNLIKELY(mana_load_relaxed(&qp->record->rq_kick)))
		mana_doorbell(qp->dp.doorbell, MANA_HW_DB_RQ,
			      mana_hw_wq_doorbell(qp->dp.qpn, 0, qp->rq_producer));
}

/* The caller holds the SRQ's lock. */
static inline int mana_ext_srq_recv(struct mana_ext_srq *srq, uint64_t wr_id,
				    const struct mana_dp_sge *sge, uint32_t count)
{
	uint32_t slot = srq->producer & (srq->count - 1);
	uint32_t cookie;

	if (MANA_UNLIKELY(count > srq->max_sge))
		return EINVAL;
	if (MANA_UNLIKELY(srq->outstanding >= srq->max_recv))
		return ENOMEM;
	cookie = srq->free_cookie[srq->outstanding++];
	srq->wr_id[cookie] = wr_id;
	mana_ext_put_receive(srq->ring + ((size_t)slot << srq->stride_shift), cookie, sge, count);
	srq->producer++;
	return 0;
}

static inline void mana_ext_srq_ring(struct mana_ext_srq *srq)
{
	mana_store_device(&srq->record->producer, srq->producer);
}

/* The work request of a receive that the device is through with. */
uint64_t mana_ext_srq_take(struct mana_ext_srq *srq, uint32_t cookie);

/* Where the QP has the completions of this kind. */
static inline const struct mana_dp_cq *mana_ext_cq_of(const struct mana_ext_qp *qp,
						      const struct mana_hw_ext_cqe *cqe)
{
	return cqe->opcode & MANA_HW_EXT_WC_RECV ? qp->dp.recv_cq : qp->dp.send_cq;
}

/* Of a datagram: by which IP it came, and with which priority. */
static inline uint8_t mana_ext_wc_sl(const struct mana_hw_ext_cqe *cqe)
{
	return (uint8_t)(mana_wc_sl(cqe->flags & MANA_HW_EXT_CQE_IPV4) |
			 cqe->vlan >> MANA_HW_EXT_VLAN_PRIORITY_SHIFT
					      << MANA_WC_SL_PRIORITY_SHIFT);
}

/* What a CQE says. */
static inline void mana_ext_complete(struct mana_ext_qp *qp, const struct mana_hw_ext_cqe *cqe,
				     struct mana_completion *c)
{
	/* by enum mana_hw_ext_wqe_opcode */
	static const uint8_t opcodes[16] = {
		MANA_WC_SEND,	    MANA_WC_SEND,	MANA_WC_SEND,	   MANA_WC_RDMA_WRITE,
		MANA_WC_RDMA_WRITE, MANA_WC_RDMA_READ,	MANA_WC_COMP_SWAP, MANA_WC_FETCH_ADD,
		MANA_WC_LOCAL_INV,  MANA_WC_BIND_MW,	MANA_WC_LOCAL_INV,
	};

	c->timestamp = cqe->timestamp;
	c->qpn = qp->dp.qpn;
	c->length = cqe->length;
	c->value = cqe->value;
	c->source_qpn = cqe->source_qpn;
	c->vendor_error = cqe->vendor_error;
	c->status = cqe->status;
	c->sl = cqe->flags & MANA_HW_EXT_CQE_GRH ? mana_ext_wc_sl(cqe) : 0;
	if (cqe->opcode & MANA_HW_EXT_WC_RECV) {
		c->opcode = cqe->opcode; /* the numbers are the same */
		c->flags = (cqe->flags & MANA_HW_EXT_CQE_GRH ? MANA_WC_GRH : 0) |
			   (cqe->flags & MANA_HW_EXT_CQE_IMMEDIATE ? MANA_WC_WITH_IMM : 0) |
			   (cqe->flags & MANA_HW_EXT_CQE_INVALIDATED ? MANA_WC_WITH_INV : 0);
		if (qp->srq) {
			c->wr_id = mana_ext_srq_take(qp->srq, cqe->cookie);
			return;
		}
		c->wr_id = qp->recv_wr_id ? qp->recv_wr_id[cqe->cookie & (qp->rq_count - 1)] : 0;
		mana_store_release(&qp->rq_consumer, qp->rq_consumer + 1);
	} else {
		const struct mana_ext_sent *sent = &qp->sent[cqe->cookie & (qp->sq_units - 1)];

		c->opcode = opcodes[cqe->opcode & 15];
		c->flags = 0;
		c->wr_id = sent->wr_id;
		/* it finishes all earlier sends */
		mana_store_release(&qp->sq_finished, sent->number);
	}
}

#ifdef __cplusplus
}
#endif
#endif
