/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MANA_DP_PACKET_H
#define MANA_DP_PACKET_H

#include "dp_cqe.h"
#include "dp_ring.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Raw packet QPs: an SQ and an RQ of the Ethernet device (GDMA 6.12 to 6.15). The
 * hardware makes each of them with a CQ of its own, so a CQ of the verbs shows what
 * is in the rings of all that belong to it, beside its own ring if it has one.
 */

/* One direction of a QP, and the ring of its completions. */
struct mana_packet_side {
	struct mana_packet_qp *qp;
	struct mana_packet_side *next; /* in the circle of those that one CQ shows */
	struct mana_dp_cq ring;
	bool is_recv;
	bool wants_event; /* the CQ was armed when there was no queue to arm */
	bool ended; /* the device has no queue any more: what is left is flushed */
};

/* Also a receive work queue: it has the receive side alone. */
struct mana_packet_qp {
	struct mana_dp_qp dp;

	/* the posters; each send gets a CQE, in order */
	struct mana_dp_sends sends;
	struct mana_dp_receives receives;

	/* the pollers */
	uint32_t sent_tail;
	uint32_t recv_tail;
	struct mana_packet_side send_side;
	struct mana_packet_side recv_side;
};

/* What a QP is made of. */
struct mana_packet_attr {
	struct mana_dp_queues queues;
	void *send_cq;
	void *recv_cq;
};

/* Sizes of the queues for these limits. */
struct mana_packet_layout {
	uint32_t sq_bytes;
	uint32_t rq_bytes;
	uint32_t send_cqes;
	uint32_t recv_cqes;
};

/* 0 or EINVAL: there are no such queues. */
int mana_packet_lay_out(const struct mana_packet_attr *attr, struct mana_packet_layout *layout);

/* 0 or ENOMEM. The caller sets number, doorbell page and CQs, and joins the CQs. */
int mana_packet_init(struct mana_packet_qp *qp, const struct mana_packet_attr *attr,
		     const struct mana_packet_layout *layout);
void mana_packet_free(struct mana_packet_qp *qp);
/* RESET: all that was posted is forgotten. Nobody posts, polls or arms. */
void mana_packet_reset(struct mana_packet_qp *qp);
/*
 * INIT: the device has made the queues, with these ids. Nobody polls or arms, also in
 * mana_packet_end.
 */
void mana_packet_start(struct mana_packet_qp *qp, uint32_t sq_id, uint32_t send_cq_id,
		       uint32_t rq_id, uint32_t recv_cq_id);
/* ERR: the device has ended the queues; polling flushes what it did not complete. */
void mana_packet_end(struct mana_packet_qp *qp);

/* The CQ shows what this side completes, from now on or no longer. Nobody polls or arms. */
void mana_packet_join(struct mana_dp_cq *cq, struct mana_packet_side *side);
void mana_packet_leave(struct mana_dp_cq *cq, struct mana_packet_side *side);

/*
 * Writes one work request into the ring; mana_packet_ring_* tells the device of
 * all. EINVAL: wrong state, too many SGEs, too much inline data. EOPNOTSUPP: no
 * SEND. ENOMEM: the queue is full. The queue is then as it was.
 */
int mana_packet_send(struct mana_packet_qp *qp, const struct mana_dp_send *wr);
void mana_packet_ring_send(struct mana_packet_qp *qp);
int mana_packet_recv(struct mana_packet_qp *qp, uint64_t wr_id, const struct mana_dp_sge *sge,
		     uint32_t sge_count);
void mana_packet_ring_recv(struct mana_packet_qp *qp);

/* The next completion of all sides that the CQ shows, in turn, or false. */
bool mana_packet_poll(struct mana_dp_cq *cq, struct mana_completion *c);
/* Each side's next CQE sends an event. Under the CQ's arm_lock. */
void mana_packet_arm(struct mana_dp_cq *cq);

/* IB status for the type of a CQE. */
uint8_t mana_packet_status(uint32_t type);

#ifdef __cplusplus
}
#endif
#endif
