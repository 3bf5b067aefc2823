/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * OpenMANA's provider for MANA RDMA devices: the objects behind the verbs. What
 * the hardware sees is made by the data path, dp_*.
 */
#ifndef MANA_H
#define MANA_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/driver.h>

#include <mana/ext.h>
#include <uapi/mana-abi.h>

#include "dp_cq.h"
#include "lock.h"
#include "manadv.h"

#define MANA_DOORBELL_PAGE_BYTES 4096
#define MANA_AV_BYTES 64 /* aligned as the device wants them */

struct mana_context {
	struct verbs_context ibv_ctx;
	void *doorbell;
	struct mana_uapi_context_resp caps; /* zero with a stock kernel driver */
	struct manadv_ctx_allocators allocators;
	bool has_allocators;
	/*
	 * QPs by queue id; the lock protects changes. It is not held over a command: what
	 * was found is kept from vanishing by its `failing`, and who waits for that to be
	 * 0 is told by the condition.
	 */
	pthread_mutex_t table_lock;
	pthread_cond_t failed;
	struct mana_dp_table sq_table;
	struct mana_dp_table rq_table;
	struct mana_dp_regions regions; /* MRs that have the addresses of their memory */
};

/* Memory of a queue. */
struct mana_buffer {
	void *address;
	size_t length;
	struct mana_pd *parent; /* whose allocator it came from; NULL: mmap */
	bool external; /* from the context's allocators */
};

struct mana_td {
	struct ibv_td ibv_td;
	int users;
};

/* A block of address vectors that the device can read: stock UD. */
struct mana_av_block {
	struct mana_av_block *next;
	struct mana_buffer buffer;
	struct verbs_mr mr;
	uint64_t used; /* a bit for each slot */
};

struct mana_pd {
	struct ibv_pd ibv_pd;
	/* of a parent domain; NULL in a PD */
	struct mana_pd *protection;
	struct mana_td *td;
	void *context;
	void *(*alloc)(struct ibv_pd *pd, void *pd_context, size_t size, size_t alignment,
		       uint64_t resource_type);
	void (*free)(struct ibv_pd *pd, void *pd_context, void *ptr, uint64_t resource_type);
	/*
	 * PDs: the program, parent domains over it, AHs with a slot. Parent domains:
	 * the objects that were made in it, which point to it.
	 */
	int users;
	pthread_mutex_t av_lock;
	struct mana_av_block *av_blocks;
};

struct mana_cq {
	struct verbs_cq vcq;
	struct mana_dp_cq dp;
	struct mana_lock lock;
	struct mana_buffer buffer;
	struct mana_pd *parent;
	bool paused; /* polls and armings wait; changes under lock and dp.arm_lock */
	bool hardware; /* false: comes with a raw packet queue (manadv) */
	uint32_t cq_id;
	/* the completion that start_poll or next_poll found */
	struct mana_completion current;
};

struct mana_srq {
	struct verbs_srq vsrq;
	struct mana_ext_srq dp;
	struct mana_lock lock;
	struct mana_buffer buffer;
	struct mana_pd *parent;
	uint32_t srq_id;
	uint32_t max_recv;
	uint32_t max_sge;
};

/* Raw packet QPs whose rings the program runs itself, by direct verbs. */
struct mana_raw_qp {
	struct mana_dp_qp dp;
	uint32_t sq_id;
	uint32_t sq_bytes;
	uint32_t tx_vport_offset;
	bool rss;
};

/* ibv_wr_*: the WQE under construction. */
struct mana_wr {
	struct mana_ext_wqe wqe;
	/* as wr_start found them */
	uint32_t first;
	uint32_t posted;
	int error;
	bool open;
	bool no_address; /* a datagram that wr_set_ud_addr must still follow */
	struct mana_mw *bound; /* windows that get their old keys back at wr_abort */
};

struct mana_qp {
	struct verbs_qp vqp;
	struct mana_lock sq_lock;
	struct mana_lock rq_lock;
	/* by dp.format, which each of them begins with */
	union {
		struct mana_dp_qp dp;
		struct mana_stock_qp stock; /* MANA_DP_RC, MANA_DP_UD */
		struct { /* MANA_DP_EXT */
			struct mana_ext_qp ext;
			struct mana_wr wr;
		};
		struct mana_packet_qp packet; /* MANA_DP_PACKET */
		struct mana_raw_qp raw; /* MANA_DP_RAW */
	};
	bool dying; /* being destroyed; under the table's lock */
	unsigned int failing; /* threads that move it to ERR; under the table's lock */
	pthread_mutex_t state_lock; /* held over the commands that change the state */
	struct mana_buffer buffer; /* extended: all of it; else the SQ */
	struct mana_buffer queue[MANA_UAPI_QP_QUEUES]; /* stock and raw packet, but the SQ */
	struct mana_buffer inline_buffer; /* stock and raw packet */
	struct verbs_mr inline_mr;
	struct ibv_qp_cap cap;
	bool signal_all;
	struct mana_pd *parent;
};

static inline bool mana_is_extended(const struct mana_qp *qp)
{
	return qp->dp.format == MANA_DP_EXT;
}

struct mana_wq {
	struct ibv_wq ibv_wq;
	struct mana_pd *parent;
	struct mana_buffer buffer;
	/* for the direct-verbs interface */
	uint32_t wqe_bytes;
	uint32_t bytes;
	uint32_t max_wr;
	uint32_t wq_id;
	/* with a data path */
	bool has_path;
	struct mana_packet_qp packet; /* its receive side */
	struct mana_lock lock;
	struct mana_buffer cq_ring;
};

struct mana_rwq_ind_table {
	struct ibv_rwq_ind_table ibv_table;
	uint32_t count;
	struct ibv_wq *wq[MANA_UAPI_RSS_QUEUES];
};

struct mana_mr {
	struct verbs_mr vmr;
	struct mana_pd *parent;
	struct mana_dp_region region; /* in the context's, or in none */
};

struct mana_ah {
	struct ibv_ah ibv_ah;
	struct mana_dp_av av;
	struct mana_pd *parent;
	struct mana_pd *pd; /* whose block the stock address vector is in */
	struct mana_av_block *block;
	unsigned int slot;
};

struct mana_mw {
	struct ibv_mw ibv_mw;
	struct mana_pd *parent;
	uint32_t key; /* as the newest bind made it */
	/* from ibv_wr_bind_mw to the end of its batch */
	struct mana_qp *binder;
	struct mana_mw *next_bound;
	uint32_t old_key;
};

struct mana_dm {
	struct verbs_dm vdm;
};

/*
 * The ring of an extended CQ is as big as so many of those asked for: the device learns
 * in the middle of a long batch only what was taken, and may fill as much meanwhile.
 */
#define MANA_EXT_CQ_RINGS 2u

/* Entries that an extended CQ may be asked for. */
static inline uint32_t mana_max_cqe(const struct mana_context *ctx)
{
	return ctx->caps.max_cqe / MANA_EXT_CQ_RINGS;
}

static inline struct mana_context *to_mctx(struct ibv_context *context)
{
	return container_of(context, struct mana_context, ibv_ctx.context);
}

static inline struct mana_pd *to_mpd(struct ibv_pd *pd)
{
	return container_of(pd, struct mana_pd, ibv_pd);
}

static inline struct mana_cq *to_mcq(struct ibv_cq *cq)
{
	return container_of(cq, struct mana_cq, vcq.cq);
}

static inline struct mana_cq *ex_to_mcq(struct ibv_cq_ex *cq)
{
	return container_of(cq, struct mana_cq, vcq.cq_ex);
}

static inline struct mana_qp *to_mqp(struct ibv_qp *qp)
{
	return container_of(qp, struct mana_qp, vqp.qp);
}

static inline struct mana_qp *ex_to_mqp(struct ibv_qp_ex *qp)
{
	return container_of(qp, struct mana_qp, vqp.qp_ex);
}

static inline struct mana_dm *to_mdm(struct ibv_dm *dm)
{
	return container_of(dm, struct mana_dm, vdm.dm);
}

static inline struct mana_srq *to_msrq(struct ibv_srq *srq)
{
	return container_of(srq, struct mana_srq, vsrq.srq);
}

static inline struct mana_wq *to_mwq(struct ibv_wq *wq)
{
	return container_of(wq, struct mana_wq, ibv_wq);
}

static inline struct mana_ah *to_mah(struct ibv_ah *ah)
{
	return container_of(ah, struct mana_ah, ibv_ah);
}

static inline struct mana_mr *to_mmr(struct verbs_mr *vmr)
{
	return container_of(vmr, struct mana_mr, vmr);
}

static inline struct mana_mw *to_mmw(struct ibv_mw *mw)
{
	return container_of(mw, struct mana_mw, ibv_mw);
}

/* What is asked for of the queues of a QP; their memory comes later. */
static inline struct mana_dp_queues mana_queues_of(const struct ibv_qp_init_attr_ex *attr)
{
	struct mana_dp_queues queues = {
		.max_send = attr->cap.max_send_wr,
		.max_send_sge = attr->cap.max_send_sge,
		.max_recv = attr->cap.max_recv_wr,
		.max_recv_sge = attr->cap.max_recv_sge,
		.signal_all = attr->sq_sig_all,
	};

	return queues;
}

/* What a QP is asked to have; creation flags that ask for nothing are none. */
static inline uint32_t mana_comp_mask(const struct ibv_qp_init_attr_ex *attr)
{
	return attr->create_flags ? attr->comp_mask :
				    attr->comp_mask & ~(uint32_t)IBV_QP_INIT_ATTR_CREATE_FLAGS;
}

/* The kernel driver gives this part of the extension to user space. */
static inline bool mana_has(const struct mana_context *ctx, uint64_t feature)
{
	return (ctx->caps.features & feature) == feature;
}

/* The parent domain asks for one thread only. */
static inline bool mana_single_threaded(const struct mana_pd *pd)
{
	return pd && pd->td;
}

/*
 * An object in a parent domain, or (NULL) in none. Queues free their memory there,
 * and of all the application may read the PD.
 */
static inline void mana_enter_parent(struct mana_pd *parent)
{
	if (parent)
		__atomic_fetch_add(&parent->users, 1, __ATOMIC_RELAXED);
}

static inline void mana_leave_parent(struct mana_pd *parent)
{
	if (parent)
		__atomic_fetch_sub(&parent->users, 1, __ATOMIC_RELEASE);
}

/* buffer.c */
/* What the allocator of a parent domain is told: the driver, and what the memory is for. */
#define MANA_RES(number) ((uint64_t)RDMA_DRIVER_MANA << 32 | (number))
#define MANA_RES_QP MANA_RES(1)
#define MANA_RES_CQ MANA_RES(2)
#define MANA_RES_SRQ MANA_RES(3)
/*
 * Zeroed, page aligned, kept out of forked children: by the allocator, if the parent
 * domain has one. 0 or an errno.
 */
int mana_buffer_alloc(struct mana_buffer *buffer, struct mana_pd *parent, size_t length,
		      uint64_t resource_type);
/* From the context's external allocators. */
int mana_buffer_alloc_external(struct mana_buffer *buffer, struct mana_context *ctx, size_t length);
void mana_buffer_free(struct mana_buffer *buffer, struct mana_context *ctx, uint64_t resource_type);

/* device.c */
int mana_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			 struct ibv_device_attr_ex *attr, size_t attr_size);
int mana_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);

/* pd.c */
struct ibv_pd *mana_alloc_pd(struct ibv_context *context);
struct ibv_pd *mana_alloc_parent_domain(struct ibv_context *context,
					struct ibv_parent_domain_init_attr *attr);
int mana_dealloc_pd(struct ibv_pd *pd);
/* One in memory alone, or NULL and errno; its last user frees it. */
struct mana_pd *mana_new_pd(void);
void mana_get_pd(struct mana_pd *pd);
void mana_put_pd(struct mana_pd *pd);
struct ibv_td *mana_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int mana_dealloc_td(struct ibv_td *td);
/* The PD itself, also of a parent domain. */
static inline struct mana_pd *mana_protection(struct mana_pd *pd)
{
	return pd->protection ? pd->protection : pd;
}
/* The parent domain, or NULL if this is a plain PD. */
static inline struct mana_pd *mana_parent(struct ibv_pd *pd)
{
	return pd && to_mpd(pd)->protection ? to_mpd(pd) : NULL;
}
/* The same, for an object that is made in it. */
static inline struct mana_pd *mana_enter_parent_of(struct ibv_pd *pd)
{
	struct mana_pd *parent = mana_parent(pd);

	mana_enter_parent(parent);
	return parent;
}

/* mr.c */
struct ibv_mr *mana_reg_mr(struct ibv_pd *pd, void *address, size_t length, uint64_t hca_va,
			   int access);
struct ibv_mr *mana_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				  int fd, int access);
int mana_rereg_mr(struct verbs_mr *vmr, int flags, struct ibv_pd *pd, void *address, size_t length,
		  int access);
int mana_dereg_mr(struct verbs_mr *vmr);
struct ibv_dm *mana_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr);
int mana_free_dm(struct ibv_dm *dm);
void mana_set_dm_copies(struct mana_dm *dm);
struct ibv_mr *mana_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
			      unsigned int access);

/* mw.c */
struct ibv_mw *mana_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int mana_dealloc_mw(struct ibv_mw *mw);
/* What a bind work request says, in the device's words. 0 or an errno. */
int mana_fill_bind(struct mana_qp *qp, struct mana_mw *mw, uint32_t rkey,
		   const struct ibv_mw_bind_info *info, struct mana_hw_ext_bind *bind);

/* import.c */
struct ibv_pd *mana_import_pd(struct ibv_context *context, uint32_t handle);
void mana_unimport_pd(struct ibv_pd *pd);
struct ibv_mr *mana_import_mr(struct ibv_pd *pd, uint32_t handle);
void mana_unimport_mr(struct ibv_mr *mr);
struct ibv_dm *mana_import_dm(struct ibv_context *context, uint32_t handle);
void mana_unimport_dm(struct ibv_dm *dm);

/* cq.c */
struct ibv_cq *mana_create_cq(struct ibv_context *context, int cqe,
			      struct ibv_comp_channel *channel, int comp_vector);
struct ibv_cq_ex *mana_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
int mana_destroy_cq(struct ibv_cq *cq);
int mana_resize_cq(struct ibv_cq *cq, int cqe);

/* poll.c */
int mana_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int mana_arm_cq(struct ibv_cq *cq, int solicited);
void mana_cq_event(struct ibv_cq *cq);
/* The extended interface, with readers for what is asked for. */
void mana_set_poll_ops(struct ibv_cq_ex *cq, uint64_t wc_flags);

/* srq.c */
struct ibv_srq *mana_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
struct ibv_srq *mana_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int mana_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int mana_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int mana_get_srq_num(struct ibv_srq *srq, uint32_t *number);
int mana_destroy_srq(struct ibv_srq *srq);
int mana_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/* qp.c */
struct ibv_qp *mana_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *mana_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int mana_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		  struct ibv_qp_init_attr *init_attr);
int mana_destroy_qp(struct ibv_qp *qp);

/* qp_table.c */
/* 0 or an errno. Waits while an id still belongs to a QP that is on its way out. */
int mana_join_tables(struct mana_qp *qp, struct mana_context *ctx);
void mana_leave_tables(struct mana_qp *qp, struct mana_context *ctx);
/* From here on nobody finds the QP to hold it, and nobody holds it. */
void mana_begin_qp_destroy(struct mana_qp *qp, struct mana_context *ctx);
/* It is gone, or, with what the command returned, there as before. */
void mana_end_qp_destroy(struct mana_qp *qp, struct mana_context *ctx, int ret);
/* The stock QP of this number, which is not destroyed until it is released, or NULL. */
struct mana_qp *mana_hold_qp(struct mana_context *ctx, uint32_t qpn);
void mana_release_qp(struct mana_qp *qp, struct mana_context *ctx);

/* qp_state.c */
int mana_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
/* A QP of the public ABI has named an error: to ERR with it, if it still exists. */
void mana_fail_qp(struct mana_context *ctx, uint32_t qpn);
void mana_async_event(struct ibv_context *context, struct ibv_async_event *event);
/* What its CQs still hold of this QP goes. */
void mana_leave_cqs(struct mana_qp *qp);

/* inline.c */
/* Memory that the device can read for inline data of QPs whose WQEs take none. 0 or an errno. */
int mana_create_inline(struct mana_qp *qp, const struct ibv_qp_init_attr_ex *attr, uint32_t sends,
		       struct mana_dp_inline *slots);

/* raw.c */
struct ibv_qp *mana_create_raw_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int mana_destroy_raw_qp(struct mana_qp *qp);
struct ibv_wq *mana_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr);
int mana_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr);
int mana_destroy_wq(struct ibv_wq *wq);
struct ibv_rwq_ind_table *
mana_create_rwq_ind_table(struct ibv_context *context, struct ibv_rwq_ind_table_init_attr *attr);
int mana_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table);

/* packet.c */
struct ibv_qp *mana_create_packet_qp(struct ibv_context *context,
				     struct ibv_qp_init_attr_ex *attr);
int mana_destroy_packet_qp(struct mana_qp *qp);
int mana_modify_packet_qp(struct mana_qp *qp, struct ibv_qp_attr *attr, int mask);
struct ibv_wq *mana_create_packet_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr);
int mana_modify_packet_wq(struct mana_wq *wq, struct ibv_wq_attr *attr);
int mana_destroy_packet_wq(struct mana_wq *wq);
struct ibv_flow *mana_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr);
int mana_destroy_flow(struct ibv_flow *flow);

/* post.c */
int mana_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int mana_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int mana_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int mana_post_wq_recv(struct ibv_wq *wq, struct ibv_recv_wr *recv, struct ibv_recv_wr **bad_recv);

/* post_ex.c */
/* EOPNOTSUPP if this QP does not do one of the operations. */
int mana_set_wr_ops(struct mana_qp *qp, uint64_t send_ops);

/* av.c */
/* A slot in memory that the device can read, for an AH of a stock UD QP. 0 or an errno. */
int mana_take_av_slot(struct mana_ah *ah, struct mana_pd *pd);
void mana_return_av_slot(struct mana_ah *ah);
void mana_free_av_blocks(struct mana_pd *pd);

/* ah.c */
struct ibv_ah *mana_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int mana_destroy_ah(struct ibv_ah *ah);
int mana_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int mana_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);

#endif
