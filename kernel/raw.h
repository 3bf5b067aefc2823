/* SPDX-License-Identifier: GPL-2.0 */
/* Raw packets: queues of ports, packet queues, flow rules. */
#ifndef MANA_IB_RAW_H
#define MANA_IB_RAW_H

#include "qp.h"

/**
 * struct mana_ib_packet_queue - one direction of a raw packet QP with both queues
 * @cq: the queue's own; its events go to the user's CQ
 * @umem: ring
 * @bytes: size of it
 * @object: of the device, or MANA_IB_NO_HANDLE
 * @id: for doorbells
 */
struct mana_ib_packet_queue {
	struct mana_ib_cq cq;
	struct ib_umem *umem;
	u32 bytes;
	u64 object;
	u32 id;
};

/**
 * struct mana_ib_packets - what a raw packet QP with a data path has
 * @send: send queue
 * @recv: receive queue
 * @spread: it has no queues but this, which receives for it; or MANA_IB_NO_HANDLE
 * @doorbell_page: of the process
 * @port: of the queues
 * @live: the queues, or the spread, exist
 * @flows: rules that give frames to the receive queue or the spread
 *
 * The QP's mutex protects the last three.
 */
struct mana_ib_packets {
	struct mana_ib_packet_queue send;
	struct mana_ib_packet_queue recv;
	u64 spread;
	u32 doorbell_page;
	u32 port;
	bool live;
	struct list_head flows;
};

/**
 * struct mana_ib_wq - receive work queue
 * @ibwq: that of the core
 * @umem: ring; direct verbs: the device knows it as part of an RSS QP
 * @object: of the device, or MANA_IB_NO_HANDLE
 * @id: for doorbells
 * @bytes: size of the ring
 * @packet: the queue, if it has a data path; then the above are not used
 * @mutex: protects the states, and @packet's object
 */
struct mana_ib_wq {
	struct ib_wq ibwq;
	struct ib_umem *umem;
	u64 object;
	u32 id;
	u32 bytes;
	struct mana_ib_packet_queue *packet;
	struct mutex mutex; /* states, packet's object */
};

struct mana_ib_rwq_table {
	struct ib_rwq_ind_table ibtable;
	struct mana_ib_user *user;
};

static inline struct mana_ib_rwq_table *
to_mana_rwq_table(struct ib_rwq_ind_table *ibtable)
{
	return container_of(ibtable, struct mana_ib_rwq_table, ibtable);
}

static inline struct mana_ib_wq *to_mana_wq(struct ib_wq *ibwq)
{
	return container_of(ibwq, struct mana_ib_wq, ibwq);
}

/* raw.c */
int mana_ib_create_raw_qp(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			  struct ib_udata *udata);
void mana_ib_destroy_raw_qp(struct mana_ib_qp *qp);
int mana_ib_create_rss_qp(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			  struct ib_udata *udata);
void mana_ib_destroy_rss_qp(struct mana_ib_qp *qp);
struct ib_wq *mana_ib_create_wq(struct ib_pd *ibpd,
				struct ib_wq_init_attr *attr,
				struct ib_udata *udata);
int mana_ib_modify_wq(struct ib_wq *ibwq, struct ib_wq_attr *attr, u32 mask,
		      struct ib_udata *udata);
int mana_ib_destroy_wq(struct ib_wq *ibwq, struct ib_udata *udata);
int mana_ib_create_rwq_table(struct ib_rwq_ind_table *ibtable,
			     struct ib_rwq_ind_table_init_attr *attr,
			     struct ib_udata *udata);
int mana_ib_destroy_rwq_table(struct ib_rwq_ind_table *ibtable);

/* packet.c */
int mana_ib_create_packet_qp(struct mana_ib_qp *qp,
			     struct ib_qp_init_attr *attr,
			     const struct mana_uapi_create_raw_qp *request,
			     struct ib_udata *udata);
int mana_ib_modify_packet_qp(struct mana_ib_qp *qp, enum ib_qp_state state,
			     u32 port, struct ib_udata *udata);
void mana_ib_destroy_packet_qp(struct mana_ib_qp *qp);
int mana_ib_create_packet_wq(struct mana_ib_wq *wq, struct ib_pd *ibpd,
			     struct ib_wq_init_attr *attr,
			     const struct mana_uapi_packet_queue *from,
			     struct ib_udata *udata);
int mana_ib_modify_packet_wq(struct mana_ib_wq *wq,
			     const struct ib_wq_attr *attr, u32 mask);
void mana_ib_destroy_packet_wq(struct mana_ib_wq *wq);
int mana_ib_create_spread_qp(struct mana_ib_qp *qp,
			     struct ib_rwq_ind_table *table,
			     const struct mana_uapi_create_rss_qp *request);

/* flow.c */
int mana_ib_install_flows(struct mana_ib_dev *dev,
			  struct mana_ib_packets *packets);
void mana_ib_forget_flows(struct mana_ib_packets *packets);
struct ib_flow *mana_ib_create_flow(struct ib_qp *ibqp,
				    struct ib_flow_attr *attr,
				    struct ib_udata *udata);
int mana_ib_destroy_flow(struct ib_flow *ibflow);

#endif
