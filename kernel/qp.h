/* SPDX-License-Identifier: GPL-2.0 */
/* Queue pairs. */
#ifndef MANA_IB_QP_H
#define MANA_IB_QP_H

#include "cmd.h"
#include "cq.h"
#include "ring.h"

/* Entry in a CQ's list of queues that software completes. */
struct mana_ib_flush {
	struct list_head entry;
	struct mana_ib_qp *qp;
	bool send;
};

enum mana_ib_qp_format {
	MANA_IB_QP_STOCK_RC,
	MANA_IB_QP_STOCK_UD,
	MANA_IB_QP_EXTENDED,
	MANA_IB_QP_RAW,
	MANA_IB_QP_RSS,
	MANA_IB_QP_PACKET
};

struct mana_ib_packets;

/**
 * struct mana_ib_work - queues that the kernel posts to, of either format it uses
 * @sq: send queue
 * @rq: receive queue
 * @flush: requests are completed by software
 * @send_flush: entry in the send CQ's list, when @flush
 * @recv_flush: the same in the receive CQ's list
 */
struct mana_ib_work {
	struct mana_ib_ring sq;
	struct mana_ib_ring rq;
	bool flush;
	struct mana_ib_flush send_flush;
	struct mana_ib_flush recv_flush;
};

/**
 * struct mana_ib_rc_qp - RC in the public format, of users
 * @queue_ids: in the order of the device
 * @umems: queues, in the order of the provider
 * @mm_umem: memory-management queue, NULL: none
 */
struct mana_ib_rc_qp {
	u32 queue_ids[MANA_HW_RNIC_RC_QUEUES];
	struct ib_umem *umems[MANA_UAPI_QP_QUEUES];
	struct ib_umem *mm_umem;
};

/**
 * struct mana_ib_ud_qp - UD and GSI in the public format
 * @sq_umem: send queue of a user
 * @rq_umem: receive queue of a user
 * @sq_buffer: send queue of the kernel
 * @rq_buffer: receive queue of the kernel
 * @mtu: of the kernel's sends, bytes
 * @send_psn: of the kernel's sends
 */
struct mana_ib_ud_qp {
	struct ib_umem *sq_umem;
	struct ib_umem *rq_umem;
	struct mana_ib_buffer sq_buffer;
	struct mana_ib_buffer rq_buffer;
	u32 mtu;
	u32 send_psn;
};

/**
 * struct mana_ib_ext_qp - RC, UC, UD and GSI in the extension's format
 * @umem: queues and record of a user
 * @buffer: queues and record of the kernel
 * @record: shared with the device, the kernel's
 * @receive_stride: bytes of a receive WQE, the kernel's
 * @counter_base: device counters when the QP was bound to its counter
 * @counter_entry: in the list of that counter
 */
struct mana_ib_ext_qp {
	struct ib_umem *umem;
	struct mana_ib_buffer buffer;
	struct mana_hw_ext_qp_record *record;
	u32 receive_stride;
	u64 counter_base[MANA_IB_VF_COUNTERS];
	struct list_head counter_entry;
};

/* Raw packets of direct verbs: a send queue of an Ethernet port. */
struct mana_ib_raw_qp {
	struct mana_port_context *port;
	struct ib_umem *umem;
};

/* Receive queues of direct verbs that a port's frames are spread over. */
struct mana_ib_rss_qp {
	struct mana_port_context *port;
	bool has_vport; /* they took its transmit side for their PD */
};

/**
 * struct mana_ib_qp - queue pair
 * @ibqp: that of the core
 * @format: of its queues: which member of the union there is
 * @kernel: posted to by us
 * @user: whose it is, NULL: the kernel's
 * @handle: of the device
 * @sq_id: for doorbells
 * @target: references of event handlers
 * @mutex: one change of attributes at a time
 * @state: as far as we know. Changed under @mutex, but for a stock QP that the
 *	device ends: the event does that, in hard interrupt context
 * @attr: attributes as they were set, and capabilities
 * @signal_all: each send gives a completion
 * @work: queues of the kernel; MANA_IB_QP_STOCK_UD and MANA_IB_QP_EXTENDED
 * @rc: MANA_IB_QP_STOCK_RC
 * @ud: MANA_IB_QP_STOCK_UD
 * @ext: MANA_IB_QP_EXTENDED
 * @raw: MANA_IB_QP_RAW
 * @rss: MANA_IB_QP_RSS
 * @packets: MANA_IB_QP_PACKET
 */
struct mana_ib_qp {
	struct ib_qp ibqp;
	enum mana_ib_qp_format format;
	bool kernel;
	struct mana_ib_user *user;
	u64 handle;
	u32 sq_id;
	struct mana_ib_event_target target;
	struct mutex mutex; /* state and attributes */
	enum ib_qp_state state;
	struct ib_qp_attr attr;
	bool signal_all;
	struct mana_ib_work work;
	union {
		struct mana_ib_rc_qp rc;
		struct mana_ib_ud_qp ud;
		struct mana_ib_ext_qp ext;
		struct mana_ib_raw_qp raw;
		struct mana_ib_rss_qp rss;
		struct mana_ib_packets *packets;
	};
};

static inline struct mana_ib_qp *to_mana_qp(struct ib_qp *ibqp)
{
	return container_of(ibqp, struct mana_ib_qp, ibqp);
}

/* The QP of an event target, NULL if there is none. */
static inline struct mana_ib_qp *
mana_ib_target_qp(struct mana_ib_event_target *target)
{
	return target ? container_of(target, struct mana_ib_qp, target) : NULL;
}

/* For those who poll: mana_ib_forget_entries() waits for them. */
static inline struct mana_ib_qp *mana_ib_find_qp(struct xarray *table, u32 id)
{
	return mana_ib_target_qp(xa_load(table, id));
}

/* qp.c */
int mana_ib_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr,
		      struct ib_udata *udata);
int mana_ib_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);

/* qp_stock.c, qp_ext.c */
int mana_ib_create_stock_rc(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			    const struct mana_uapi_create_rc_qp *request,
			    struct ib_udata *udata);
int mana_ib_create_stock_ud(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			    const struct mana_uapi_create_qp *request,
			    struct ib_udata *udata);
int mana_ib_create_extended(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			    const struct mana_uapi_create_qp *request,
			    struct ib_udata *udata);

/* qp_queues.c */
void mana_ib_fill_qp_params(const struct mana_ib_qp *qp,
			    const struct ib_qp_init_attr *attr,
			    u32 doorbell_page,
			    struct mana_ib_qp_params *params);
void mana_ib_qp_made(struct mana_ib_qp *qp,
		     const struct mana_ib_qp_result *result);
void mana_ib_free_queues(struct mana_ib_dev *dev, struct mana_ib_qp *qp);

/* qp_state.c */
int mana_ib_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		      struct ib_udata *udata);
int mana_ib_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		     struct ib_qp_init_attr *init);

/* qp_end.c */
void mana_ib_end_by_software(struct mana_ib_qp *qp);
void mana_ib_end_qps(struct work_struct *work);

/* multicast.c */
int mana_ib_attach_multicast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int mana_ib_detach_multicast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);

#endif
