/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MANA_DP_STOCK_H
#define MANA_DP_STOCK_H

#include "dp_region.h"
#include "dp_ring.h"
#include "lock.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * QPs in the queue format of the public ABI: RC with its requester and responder
 * queues (RNIC 3), and UD (RNIC 7). The host counts PSNs, and the device tells
 * only up to which PSN all is done; what that finishes is kept here.
 */

struct mana_stock_qp;

/*
 * One direction of a QP in the lists of its CQ, which the lock of that CQ's polls
 * protects. Only `failed` is looked at without it, by the poster, and `ended` is set by
 * whoever moves the QP to ERR.
 */
struct mana_stock_side {
	struct mana_stock_qp *qp;
	struct mana_stock_side *next;
	struct mana_stock_side *next_failed;
	struct mana_stock_side *next_error;
	struct mana_stock_side *next_ended;
	/* The caller's for posts, or NULL. It is taken within that of the polls. */
	struct mana_lock *posts;
	bool is_recv;
	bool ready; /* in the CQ's list of QPs with something to report */
	bool failed; /* in the CQ's list of failed ones: what is left gets error completions */
	bool ended; /* in the CQ's list of ended ones, or on its way; atomic */
	uint32_t vendor_error; /* of the oldest one left; then MANA_HW_RNIC_VE_FLUSHED */
};

struct mana_stock_qp {
	struct mana_dp_qp dp;

	/* the poster of sends */
	struct mana_dp_sends sends;
	struct mana_dp_ring read; /* RC: scatter lists of READs */
	struct mana_hw_rnic_rollback *rollback; /* RC */
	uint32_t mtu;
	uint32_t next_psn;
	uint32_t ssn;

	/* the poster of receives */
	struct mana_dp_receives receives;

	/* the pollers */
	uint32_t sent_tail;
	uint32_t acked; /* PSN up to which sends are done; the poster looks at it */
	uint32_t arm_scan; /* sends before this index were looked at for arming */
	uint32_t recv_tail;
	struct mana_dp_regions *regions; /* UD: where a datagram may be looked at; or NULL */
	struct mana_stock_side send_side;
	struct mana_stock_side recv_side;
	/*
	 * One of the sides is, or was, in its CQ's list of errors. The sides may have
	 * CQs with a lock each, so this is an atomic that the first one sets.
	 */
	bool error_named;
	uint32_t responder_sq_id; /* RC */
};

static inline struct mana_stock_qp *mana_stock_of(struct mana_dp_qp *qp)
{
	static_assert(offsetof(struct mana_stock_qp, dp) == 0, "the tag comes first");
	static_assert(MANA_DP_RC == 0 && MANA_DP_UD == 1, "the stock formats come first");

	return qp->format <= MANA_DP_UD ? (struct mana_stock_qp *)qp : NULL;
}

/* What a QP is made of. */
struct mana_stock_attr {
	enum mana_dp_format format;
	struct mana_dp_queues queues;
	uint8_t *read;
};

/* Of rings, for these limits; 0 if there is no such ring. */
uint32_t mana_stock_sq_bytes(enum mana_dp_format format, uint32_t max_send, uint32_t max_send_sge);
uint32_t mana_stock_rq_bytes(uint32_t max_recv, uint32_t max_recv_sge);
#define MANA_STOCK_READ_BYTES 4096u
#define MANA_STOCK_RESPONDER_BYTES 4096u

/* 0 or ENOMEM. Ids, doorbell page and CQs are set by the caller once they are known. */
int mana_stock_init(struct mana_stock_qp *qp, const struct mana_stock_attr *attr);
void mana_stock_free(struct mana_stock_qp *qp);
/* RESET: all that was posted is forgotten. Its CQs have forgotten the QP before. */
void mana_stock_reset(struct mana_stock_qp *qp);
/* RTS: sends start with this PSN. RC: arms the first completion. */
void mana_stock_start(struct mana_stock_qp *qp, uint32_t psn);

/* RC: the device tells when all up to this PSN is done. */
static inline void mana_stock_arm(struct mana_stock_qp *qp, uint32_t psn)
{
	mana_doorbell(qp->dp.doorbell, MANA_HW_RNIC_DOORBELL_ARM_CLIENT,
		      mana_hw_rq_client_doorbell(qp->read.id, psn));
}

/* The state of the QP allows posts, or not. Others may post meanwhile. */
static inline void mana_stock_permit(struct mana_stock_qp *qp, bool send, bool recv)
{
	mana_store_flag(&qp->sends.allowed, send);
	mana_store_flag(&qp->receives.allowed, recv);
}

/*
 * Writes one work request into the ring; mana_stock_ring_* tells the device of
 * all. EINVAL: wrong state, too many SGEs, too long. EOPNOTSUPP: not in this
 * format. ENOMEM: the queue is full. The queue is then as it was.
 */
int mana_stock_send(struct mana_stock_qp *qp, const struct mana_dp_send *wr);
void mana_stock_ring_send(struct mana_stock_qp *qp);
int mana_stock_recv(struct mana_stock_qp *qp, uint64_t wr_id, const struct mana_dp_sge *sge,
		    uint32_t sge_count);
void mana_stock_ring_recv(struct mana_stock_qp *qp, uint32_t count);

/* IB status for a vendor error (RNIC 3.9). */
uint8_t mana_stock_status(uint32_t vendor_error);

/*
 * For dp_cq.c. A CQE with its frame's word: true if it gave a completion; what
 * else it gives is in the CQ's list of ready sides.
 */
bool mana_stock_complete(struct mana_dp_cq *cq, const struct mana_hw_cqe *cqe,
			 struct mana_completion *c);
/* From the list of ready sides; false once it is empty. */
bool mana_stock_report(struct mana_dp_cq *cq, struct mana_completion *c);
/* Posts that crossed an error are flushed too. */
bool mana_stock_report_failed(struct mana_dp_cq *cq, struct mana_completion *c);
/*
 * UD in ERR: there are no error CQEs (RNIC 7.4), so the pollers flush what no CQE
 * completes. Any thread calls this, under no lock of a CQ or with it.
 */
void mana_stock_end(struct mana_stock_qp *qp);
/* Takes the QP out of the lists of this CQ. */
void mana_stock_forget(struct mana_dp_cq *cq, struct mana_stock_qp *qp);

#ifdef __cplusplus
}
#endif
#endif
