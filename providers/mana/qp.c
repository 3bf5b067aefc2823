// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "mana.h"

/* A stock driver refuses the bytes that it does not know (RNIC 5.1). */
#define STOCK_CMD_BYTES                                                                           \
	(sizeof(struct mana_cmd_qp) - sizeof(struct mana_uapi_create_qp) +                        \
	 MANA_UAPI_CREATE_QP_STOCK_BYTES)

static void free_memory(struct mana_qp *qp, struct mana_context *ctx)
{
	if (mana_is_extended(qp))
		mana_ext_free(&qp->ext);
	else
		mana_stock_free(&qp->stock);
	if (qp->inline_mr.ibv_mr.context)
		ibv_cmd_dereg_mr(&qp->inline_mr);
	mana_buffer_free(&qp->inline_buffer, ctx, MANA_RES_QP);
	mana_buffer_free(&qp->buffer, ctx, MANA_RES_QP);
	for (unsigned int i = 0; i < MANA_UAPI_QP_QUEUES; i++)
		mana_buffer_free(&qp->queue[i], ctx, MANA_RES_QP);
	mana_leave_parent(qp->parent);
	pthread_mutex_destroy(&qp->state_lock);
	free(qp);
}

static bool within_limits(const struct mana_context *ctx, const struct ibv_qp_init_attr_ex *attr)
{
	const struct ibv_qp_cap *cap = &attr->cap;

	if (cap->max_send_wr > ctx->caps.max_send_wr ||
	    cap->max_send_sge > ctx->caps.max_send_sge ||
	    cap->max_inline_data > ctx->caps.max_inline_bytes)
		return false;
	return attr->srq || (cap->max_recv_wr <= ctx->caps.max_recv_wr &&
			     cap->max_recv_sge <= ctx->caps.max_recv_sge);
}

static uint32_t port_mtu(struct ibv_context *context)
{
	struct ibv_port_attr attr = {};

	if (mana_query_port(context, 1, &attr) || attr.active_mtu < IBV_MTU_256)
		return 1024;
	return 128u << attr.active_mtu;
}

/* What QPs of this type, or this device, do not do. */
static uint32_t refused_opcodes(const struct mana_context *ctx, enum ibv_qp_type type)
{
	return (type == IBV_QPT_UC ? MANA_EXT_RELIABLE : 0) |
	       (mana_has(ctx, MANA_HW_EXT_ATOMICS) ? 0 : MANA_EXT_ATOMICS) |
	       (mana_has(ctx, MANA_HW_EXT_MEMORY_WINDOWS) ? 0 : MANA_EXT_WINDOWS);
}

static int create_extended(struct mana_qp *qp, struct mana_context *ctx,
			   struct ibv_qp_init_attr_ex *attr)
{
	struct mana_ext_attr ext = {
		.datagrams = attr->qp_type == IBV_QPT_UD,
		.signal_all = attr->sq_sig_all,
		.max_send = attr->cap.max_send_wr,
		.max_send_sge = attr->cap.max_send_sge,
		.max_inline = attr->cap.max_inline_data,
		.max_recv = attr->cap.max_recv_wr,
		.max_recv_sge = attr->cap.max_recv_sge,
		.srq = attr->srq ? &to_msrq(attr->srq)->dp : NULL,
		.refused = refused_opcodes(ctx, attr->qp_type),
	};
	struct mana_cmd_qp_resp resp = {};
	struct mana_cmd_qp cmd = {};
	struct mana_ext_layout layout;
	int ret;

	qp->dp.format = MANA_DP_EXT;
	if (!within_limits(ctx, attr) || !to_mcq(attr->send_cq)->dp.record ||
	    !to_mcq(attr->recv_cq)->dp.record)
		return EINVAL;
	if (attr->srq) {
		qp->cap.max_recv_wr = 0;
		qp->cap.max_recv_sge = 0;
	}
	if (ext.datagrams)
		ext.mtu = port_mtu(&ctx->ibv_ctx.context);
	ret = mana_ext_lay_out(&ext, &layout);
	if (ret)
		return ret;
	if (layout.max_inline > ctx->caps.max_inline_bytes)
		layout.max_inline = ctx->caps.max_inline_bytes;
	ret = mana_buffer_alloc(&qp->buffer, qp->parent, layout.bytes, MANA_RES_QP);
	if (ret)
		return ret;
	ret = mana_ext_init(&qp->ext, &ext, &layout, qp->buffer.address);
	if (ret)
		return ret;
	cmd.drv_payload.buffer = (uintptr_t)qp->buffer.address;
	cmd.drv_payload.sq_bytes = layout.sq_bytes;
	cmd.drv_payload.rq_bytes = layout.rq_bytes;
	cmd.drv_payload.rq_stride = layout.rq_stride;
	ret = ibv_cmd_create_qp_ex(&ctx->ibv_ctx.context, &qp->vqp, attr, &cmd.ibv_cmd, sizeof(cmd),
				   &resp.ibv_resp, sizeof(resp));
	if (ret)
		return ret;
	qp->cap.max_inline_data = layout.max_inline;
	qp->ext.sq_id = resp.drv_payload.queue_id[MANA_UAPI_QP_REQUESTER_SQ];
	qp->dp.qpn = resp.drv_payload.queue_id[MANA_UAPI_QP_RESPONDER_RQ];
	return 0;
}

static int alloc_queue(struct mana_qp *qp, struct mana_uapi_create_qp *payload, unsigned int index,
		       struct mana_buffer *buffer, uint32_t bytes)
{
	int ret = mana_buffer_alloc(buffer, qp->parent, bytes, MANA_RES_QP);

	payload->address[index] = (uintptr_t)buffer->address;
	payload->bytes[index] = bytes;
	return ret;
}

static int create_stock(struct mana_qp *qp, struct mana_context *ctx,
			struct ibv_qp_init_attr_ex *attr)
{
	struct mana_stock_attr stock = {
		.format = attr->qp_type == IBV_QPT_UD ? MANA_DP_UD : MANA_DP_RC,
		.queues = mana_queues_of(attr),
	};
	struct mana_cmd_qp_resp resp = {};
	struct mana_cmd_qp cmd = {};
	uint32_t sq_bytes = mana_stock_sq_bytes(stock.format, stock.queues.max_send,
						stock.queues.max_send_sge);
	uint32_t rq_bytes = mana_stock_rq_bytes(stock.queues.max_recv, stock.queues.max_recv_sge);
	struct ibv_qp_cap asked = attr->cap;
	uint32_t tail = 0;
	int ret = 0;

	qp->dp.format = stock.format;
	if (attr->srq)
		return EOPNOTSUPP;
	if (!sq_bytes || !rq_bytes || !to_mcq(attr->send_cq)->hardware ||
	    !to_mcq(attr->recv_cq)->hardware)
		return EINVAL;
	if (stock.format == MANA_DP_RC) {
		tail = sizeof(struct mana_hw_rnic_rollback);
		ret = alloc_queue(qp, &cmd.drv_payload, MANA_UAPI_QP_RESPONDER_SQ,
				  &qp->queue[MANA_UAPI_QP_RESPONDER_SQ],
				  MANA_STOCK_RESPONDER_BYTES);
		if (!ret)
			ret = alloc_queue(qp, &cmd.drv_payload, MANA_UAPI_QP_REQUESTER_RQ,
					  &qp->queue[MANA_UAPI_QP_REQUESTER_RQ],
					  MANA_STOCK_READ_BYTES);
	}
	if (!ret)
		ret = alloc_queue(qp, &cmd.drv_payload, MANA_UAPI_QP_REQUESTER_SQ, &qp->buffer,
				  sq_bytes + tail);
	if (!ret)
		ret = alloc_queue(qp, &cmd.drv_payload, MANA_UAPI_QP_RESPONDER_RQ,
				  &qp->queue[MANA_UAPI_QP_RESPONDER_RQ], rq_bytes);
	if (ret)
		return ret;
	stock.queues.sq = qp->buffer.address;
	stock.read = qp->queue[MANA_UAPI_QP_REQUESTER_RQ].address;
	stock.queues.rq = qp->queue[MANA_UAPI_QP_RESPONDER_RQ].address;
	ret = mana_stock_init(&qp->stock, &stock);
	if (!ret)
		ret = mana_create_inline(qp, attr, qp->stock.sends.mask + 1,
					 &qp->stock.sends.inline_slots);
	if (ret)
		return ret;
	qp->stock.send_side.posts = &qp->sq_lock;
	qp->stock.recv_side.posts = &qp->rq_lock;
	if (stock.format == MANA_DP_UD) {
		qp->stock.mtu = port_mtu(&ctx->ibv_ctx.context);
		qp->stock.regions = &ctx->regions;
	}

	attr->cap.max_inline_data = 0; /* the kernel has no part in it */
	ret = ibv_cmd_create_qp_ex(&ctx->ibv_ctx.context, &qp->vqp, attr, &cmd.ibv_cmd,
				   STOCK_CMD_BYTES, &resp.ibv_resp, sizeof(resp));
	if (ret)
		return ret;
	qp->cap = asked;
	qp->cap.max_inline_data = qp->stock.sends.inline_slots.stride;
	qp->stock.sends.ring.id = resp.drv_payload.queue_id[MANA_UAPI_QP_REQUESTER_SQ];
	qp->stock.responder_sq_id = resp.drv_payload.queue_id[MANA_UAPI_QP_RESPONDER_SQ];
	qp->stock.read.id = resp.drv_payload.queue_id[MANA_UAPI_QP_REQUESTER_RQ];
	qp->stock.receives.ring.id = resp.drv_payload.queue_id[MANA_UAPI_QP_RESPONDER_RQ];
	qp->dp.qpn = qp->stock.receives.ring.id;
	return 0;
}

/* Which format a QP of this type has here; EOPNOTSUPP if none. */
static int choose_format(const struct mana_context *ctx, enum ibv_qp_type type, bool *extended)
{
	*extended = true;
	switch (type) {
	case IBV_QPT_RC:
		*extended = mana_has(ctx, MANA_HW_EXT_RC);
		return 0;
	case IBV_QPT_UC:
		return mana_has(ctx, MANA_HW_EXT_UC) ? 0 : EOPNOTSUPP;
	case IBV_QPT_UD:
		*extended = mana_has(ctx, MANA_HW_EXT_UD);
		return *extended || (ctx->caps.flags & MANA_UAPI_CONTEXT_USER_UD) ? 0 : EOPNOTSUPP;
	default:
		return EOPNOTSUPP;
	}
}

static int check_request(const struct ibv_qp_init_attr_ex *attr, bool extended)
{
	if (!check_comp_mask(attr->comp_mask, IBV_QP_INIT_ATTR_PD |
						      IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
						      IBV_QP_INIT_ATTR_CREATE_FLAGS))
		return EOPNOTSUPP;
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags)
		return EOPNOTSUPP;
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && !extended)
		return EOPNOTSUPP;
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->send_cq || !attr->recv_cq)
		return EINVAL;
	return 0;
}

/*
 * Whether posts need no lock. That of a stock queue is also for the poller of its CQ, so
 * both have to be of one thread domain.
 */
static bool is_single_threaded(const struct mana_qp *qp, bool extended, struct ibv_cq *cq)
{
	const struct mana_pd *parent = to_mcq(cq)->parent;

	return mana_single_threaded(qp->parent) &&
	       (extended || (parent && parent->td == qp->parent->td));
}

static struct ibv_qp *create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct mana_context *ctx = to_mctx(context);
	struct ibv_qp_init_attr_ex request = *attr;
	struct mana_qp *qp;
	bool extended;
	int ret;

	ret = choose_format(ctx, attr->qp_type, &extended);
	if (!ret)
		ret = check_request(attr, extended);
	if (ret) {
		errno = ret;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->parent = mana_enter_parent_of(attr->pd);
	qp->cap = attr->cap;
	qp->signal_all = attr->sq_sig_all;
	pthread_mutex_init(&qp->state_lock, NULL);
	mana_lock_init(&qp->sq_lock, is_single_threaded(qp, extended, attr->send_cq));
	mana_lock_init(&qp->rq_lock, is_single_threaded(qp, extended, attr->recv_cq));
	request.comp_mask &= ~(uint32_t)IBV_QP_INIT_ATTR_CREATE_FLAGS;
	ret = extended ? create_extended(qp, ctx, &request) : create_stock(qp, ctx, &request);
	if (!ret) {
		qp->vqp.qp.qp_num = qp->dp.qpn;
		qp->dp.doorbell = ctx->doorbell;
		qp->dp.send_cq = &to_mcq(attr->send_cq)->dp;
		qp->dp.recv_cq = &to_mcq(attr->recv_cq)->dp;
		ret = mana_join_tables(qp, ctx);
		if (!ret && (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) {
			ret = mana_set_wr_ops(qp, attr->send_ops_flags);
			if (ret)
				mana_leave_tables(qp, ctx);
		}
		if (ret)
			ibv_cmd_destroy_qp(&qp->vqp.qp);
	}
	if (ret) {
		free_memory(qp, ctx);
		errno = ret;
		return NULL;
	}
	attr->cap = qp->cap;
	return &qp->vqp.qp;
}

/*
 * Two contexts of one process may be the same to the kernel, if one is imported.
 * But a CQ finds the QPs of its own context alone.
 */
static bool is_foreign(const struct ibv_context *context, const struct ibv_qp_init_attr_ex *attr)
{
	return (attr->send_cq && attr->send_cq->context != context) ||
	       (attr->recv_cq && attr->recv_cq->context != context) ||
	       (attr->srq && attr->srq->context != context);
}

struct ibv_qp *mana_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	if (is_foreign(context, attr)) {
		errno = EINVAL;
		return NULL;
	}
	if (attr->qp_type == IBV_QPT_RAW_PACKET)
		return mana_create_raw_qp(context, attr);
	return create_qp(context, attr);
}

struct ibv_qp *mana_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex request = {};
	struct ibv_qp *qp;

	memcpy(&request, attr, sizeof(*attr));
	request.comp_mask = IBV_QP_INIT_ATTR_PD;
	request.pd = pd;
	qp = mana_create_qp_ex(pd->context, &request);
	if (qp)
		attr->cap = request.cap;
	return qp;
}

int mana_destroy_qp(struct ibv_qp *ibv_qp)
{
	struct mana_context *ctx = to_mctx(ibv_qp->context);
	struct mana_qp *qp = to_mqp(ibv_qp);
	int ret;

	if (qp->dp.format == MANA_DP_RAW)
		return mana_destroy_raw_qp(qp);
	if (qp->dp.format == MANA_DP_PACKET)
		return mana_destroy_packet_qp(qp);
	/*
	 * The command waits until events of the QP are acknowledged, and reading them
	 * may take the lock, so it is not held. Another QP that gets the number at
	 * once waits in mana_join_tables() until nothing is left of this one.
	 */
	mana_begin_qp_destroy(qp, ctx);
	ret = ibv_cmd_destroy_qp(ibv_qp);
	if (!ret)
		mana_leave_cqs(qp);
	mana_end_qp_destroy(qp, ctx, ret);
	if (!ret)
		free_memory(qp, ctx);
	return ret;
}

int mana_query_qp(struct ibv_qp *ibv_qp, struct ibv_qp_attr *attr, int mask,
		  struct ibv_qp_init_attr *init_attr)
{
	struct mana_qp *qp = to_mqp(ibv_qp);
	struct ibv_query_qp cmd = {};
	int ret = ibv_cmd_query_qp(ibv_qp, attr, mask, init_attr, &cmd, sizeof(cmd));

	if (ret)
		return ret;
	if (qp->dp.format != MANA_DP_RAW) {
		attr->cap = qp->cap;
		init_attr->cap = qp->cap;
		init_attr->sq_sig_all = qp->signal_all;
	}
	return 0;
}
