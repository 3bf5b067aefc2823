// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Raw packet QPs with both queues, receive work queues, and flow rules. The kernel
 * driver makes a QP's queues when it enters INIT and ends them in ERR and RESET; a
 * work queue is there from its creation to ERR.
 */
#include <errno.h>
#include <stdlib.h>

#include "abi.h"
#include "cq_lock.h"
#include "mana.h"

static struct mana_cq *cq_of(struct mana_dp_cq *dp)
{
	return container_of(dp, struct mana_cq, dp);
}

static void free_memory(struct mana_qp *qp, struct mana_context *ctx)
{
	mana_packet_free(&qp->packet);
	if (qp->inline_mr.ibv_mr.context)
		ibv_cmd_dereg_mr(&qp->inline_mr);
	mana_buffer_free(&qp->inline_buffer, ctx, MANA_RES_QP);
	mana_buffer_free(&qp->buffer, ctx, MANA_RES_QP);
	for (unsigned int i = 0; i < MANA_UAPI_QP_QUEUES; i++)
		mana_buffer_free(&qp->queue[i], ctx, MANA_RES_QP);
	mana_leave_parent(qp->parent);
	free(qp);
}

static int alloc_queue(struct mana_pd *parent, struct mana_buffer *ring, uint32_t bytes,
		       struct mana_buffer *cq_ring, uint32_t cqes,
		       struct mana_uapi_packet_queue *payload)
{
	int ret = mana_buffer_alloc(ring, parent, bytes, MANA_RES_QP);

	if (!ret)
		ret = mana_buffer_alloc(cq_ring, parent, cqes * sizeof(struct mana_hw_cqe),
					MANA_RES_QP);
	payload->address = (uintptr_t)ring->address;
	payload->cq_address = (uintptr_t)cq_ring->address;
	payload->bytes = bytes;
	payload->cqes = cqes;
	return ret;
}

static int create(struct mana_qp *qp, struct mana_context *ctx, struct ibv_qp_init_attr_ex *attr)
{
	struct mana_packet_attr packet = {
		.queues = mana_queues_of(attr),
	};
	struct mana_buffer *send_cq = &qp->queue[0];
	struct mana_buffer *recv_ring = &qp->queue[1];
	struct mana_buffer *recv_cq = &qp->queue[2];
	struct mana_cmd_raw_qp_resp resp = {};
	struct mana_cmd_raw_qp cmd = {};
	struct mana_packet_layout layout;
	int ret;

	ret = mana_packet_lay_out(&packet, &layout);
	if (ret)
		return ret;
	ret = alloc_queue(qp->parent, &qp->buffer, layout.sq_bytes, send_cq, layout.send_cqes,
			  &cmd.drv_payload.send);
	if (!ret)
		ret = alloc_queue(qp->parent, recv_ring, layout.rq_bytes, recv_cq, layout.recv_cqes,
				  &cmd.drv_payload.recv);
	if (ret)
		return ret;
	packet.queues.sq = qp->buffer.address;
	packet.queues.rq = recv_ring->address;
	packet.send_cq = send_cq->address;
	packet.recv_cq = recv_cq->address;
	ret = mana_packet_init(&qp->packet, &packet, &layout);
	if (!ret)
		ret = mana_create_inline(qp, attr, qp->packet.sends.mask + 1,
					 &qp->packet.sends.inline_slots);
	if (ret)
		return ret;

	attr->cap.max_inline_data = 0; /* the kernel has no part in it */
	ret = ibv_cmd_create_qp_ex(&ctx->ibv_ctx.context, &qp->vqp, attr, &cmd.ibv_cmd, sizeof(cmd),
				   &resp.ibv_resp, sizeof(resp));
	if (ret)
		return ret;
	qp->cap.max_inline_data = qp->packet.sends.inline_slots.stride;
	return 0;
}

/* The sides at their CQs, or away from there. */
static void change_cqs(struct mana_qp *qp,
		       void (*change)(struct mana_dp_cq *cq, struct mana_packet_side *side))
{
	struct mana_cq *send = cq_of(qp->dp.send_cq);
	struct mana_cq *recv = cq_of(qp->dp.recv_cq);

	mana_cq_lock_all(send);
	change(&send->dp, &qp->packet.send_side);
	mana_cq_unlock_all(send);
	mana_cq_lock_all(recv);
	change(&recv->dp, &qp->packet.recv_side);
	mana_cq_unlock_all(recv);
}

struct ibv_qp *mana_create_packet_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct mana_context *ctx = to_mctx(context);
	struct ibv_qp_init_attr_ex request = *attr;
	struct mana_qp *qp;
	int ret;

	request.comp_mask = mana_comp_mask(attr);
	if (request.comp_mask != IBV_QP_INIT_ATTR_PD || attr->srq) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!attr->send_cq || !attr->recv_cq) {
		errno = EINVAL;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->parent = mana_enter_parent_of(attr->pd);
	qp->cap = attr->cap;
	qp->signal_all = attr->sq_sig_all;
	mana_lock_init(&qp->sq_lock, mana_single_threaded(qp->parent));
	mana_lock_init(&qp->rq_lock, mana_single_threaded(qp->parent));
	ret = create(qp, ctx, &request);
	if (ret) {
		free_memory(qp, ctx);
		errno = ret;
		return NULL;
	}
	qp->dp.qpn = qp->vqp.qp.qp_num;
	qp->dp.doorbell = ctx->doorbell;
	qp->dp.send_cq = &to_mcq(attr->send_cq)->dp;
	qp->dp.recv_cq = &to_mcq(attr->recv_cq)->dp;
	change_cqs(qp, mana_packet_join);
	attr->cap = qp->cap;
	return &qp->vqp.qp;
}

int mana_destroy_packet_qp(struct mana_qp *qp)
{
	struct mana_context *ctx = to_mctx(qp->vqp.qp.context);
	int ret = ibv_cmd_destroy_qp(&qp->vqp.qp);

	if (ret)
		return ret;
	change_cqs(qp, mana_packet_leave);
	free_memory(qp, ctx);
	return 0;
}

static void set_permissions(struct mana_qp *qp, enum ibv_qp_state state)
{
	mana_lock(&qp->sq_lock);
	qp->packet.sends.allowed = state == IBV_QPS_RTS;
	mana_unlock(&qp->sq_lock);
	mana_lock(&qp->rq_lock);
	qp->packet.receives.allowed = state == IBV_QPS_INIT || state == IBV_QPS_RTR ||
			      state == IBV_QPS_RTS;
	mana_unlock(&qp->rq_lock);
}

/*
 * Nobody polls its CQs from here to resume_cqs(). In the order of their addresses,
 * since another QP may have the same two.
 */
static void pause_cqs(struct mana_qp *qp)
{
	struct mana_cq *first = cq_of(qp->dp.send_cq);
	struct mana_cq *second = cq_of(qp->dp.recv_cq);

	if (second < first) {
		first = second;
		second = cq_of(qp->dp.send_cq);
	}
	mana_cq_pause(first);
	if (second != first)
		mana_cq_pause(second);
}

static void resume_cqs(struct mana_qp *qp)
{
	mana_cq_resume(cq_of(qp->dp.send_cq));
	if (qp->dp.recv_cq != qp->dp.send_cq)
		mana_cq_resume(cq_of(qp->dp.recv_cq));
}

int mana_modify_packet_qp(struct mana_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state old = qp->vqp.qp.state;
	enum ibv_qp_state state = mask & IBV_QP_STATE ? attr->qp_state : old;
	bool starts = old == IBV_QPS_RESET && state == IBV_QPS_INIT;
	bool ends = (mask & IBV_QP_STATE) && (state == IBV_QPS_RESET || state == IBV_QPS_ERR);
	struct mana_cmd_modify_packet_qp_resp resp = {};
	struct mana_cmd_modify_packet_qp cmd = {};
	int ret;

	/* Who waits for an event must find what it stands for, so polls wait for the change. */
	if (ends)
		set_permissions(qp, state);
	if (starts || ends)
		pause_cqs(qp);
	/* The device starts at the front of empty rings. */
	if (starts)
		mana_packet_reset(&qp->packet);
	ret = ibv_cmd_modify_qp_ex(&qp->vqp.qp, attr, mask, &cmd.ibv_cmd, sizeof(cmd),
				   &resp.ibv_resp, sizeof(resp));
	if (!ret && starts)
		mana_packet_start(&qp->packet, resp.drv_payload.sq_id, resp.drv_payload.send_cq_id,
				  resp.drv_payload.rq_id, resp.drv_payload.recv_cq_id);
	if (!ret && ends)
		mana_packet_end(&qp->packet);
	if (!ret && state == IBV_QPS_RESET)
		mana_packet_reset(&qp->packet);
	if (starts || ends)
		resume_cqs(qp);
	set_permissions(qp, ret ? old : state);
	return ret;
}

static void free_wq(struct mana_wq *wq, struct mana_context *ctx)
{
	mana_packet_free(&wq->packet);
	mana_buffer_free(&wq->buffer, ctx, MANA_RES_QP);
	mana_buffer_free(&wq->cq_ring, ctx, MANA_RES_QP);
	mana_leave_parent(wq->parent);
	free(wq);
}

static int create_wq(struct mana_wq *wq, struct ibv_context *context, struct mana_pd *parent,
		     struct ibv_wq_init_attr *attr)
{
	struct mana_packet_attr packet = {
		.queues = { .max_recv = attr->max_wr, .max_recv_sge = attr->max_sge },
	};
	struct mana_cq *cq = to_mcq(attr->cq);
	struct mana_cmd_wq_resp resp = {};
	struct mana_cmd_wq cmd = {};
	struct mana_packet_layout layout;
	int ret;

	ret = mana_packet_lay_out(&packet, &layout);
	if (!ret)
		ret = alloc_queue(parent, &wq->buffer, layout.rq_bytes, &wq->cq_ring,
				  layout.recv_cqes, &cmd.drv_payload.recv);
	if (ret)
		return ret;
	packet.queues.rq = wq->buffer.address;
	packet.recv_cq = wq->cq_ring.address;
	ret = mana_packet_init(&wq->packet, &packet, &layout);
	if (!ret)
		ret = ibv_cmd_create_wq(context, attr, &wq->ibv_wq, &cmd.ibv_cmd, sizeof(cmd),
					&resp.ibv_resp, sizeof(resp));
	if (ret)
		return ret;
	wq->packet.dp.qpn = wq->ibv_wq.wq_num;
	wq->packet.dp.doorbell = to_mctx(context)->doorbell;
	wq->packet.dp.recv_cq = &cq->dp;
	mana_cq_lock_all(cq);
	mana_packet_join(&cq->dp, &wq->packet.recv_side);
	mana_packet_start(&wq->packet, 0, 0, resp.drv_payload.wq_id, resp.drv_payload.cq_id);
	mana_cq_unlock_all(cq);
	return 0;
}

struct ibv_wq *mana_create_packet_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr)
{
	struct mana_pd *parent = mana_parent(attr->pd);
	struct mana_wq *wq;
	int ret;

	if (attr->comp_mask && (attr->comp_mask != IBV_WQ_INIT_ATTR_FLAGS || attr->create_flags)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	wq = calloc(1, sizeof(*wq));
	if (!wq)
		return NULL;
	wq->has_path = true;
	wq->parent = parent;
	mana_enter_parent(parent);
	wq->ibv_wq.post_recv = mana_post_wq_recv;
	mana_lock_init(&wq->lock, mana_single_threaded(parent));
	ret = create_wq(wq, context, parent, attr);
	if (ret) {
		free_wq(wq, to_mctx(context));
		errno = ret;
		return NULL;
	}
	return &wq->ibv_wq;
}

static void permit_wq(struct mana_wq *wq, bool allowed)
{
	mana_lock(&wq->lock);
	wq->packet.receives.allowed = allowed;
	mana_unlock(&wq->lock);
}

int mana_modify_packet_wq(struct mana_wq *wq, struct ibv_wq_attr *attr)
{
	enum ibv_wq_state old = wq->ibv_wq.state;
	enum ibv_wq_state state = attr->attr_mask & IBV_WQ_ATTR_STATE ? attr->wq_state : old;
	struct mana_cq *cq = to_mcq(wq->ibv_wq.cq);
	bool ends = state == IBV_WQS_ERR && old != IBV_WQS_ERR;
	struct ibv_modify_wq cmd = {};
	int ret;

	/* As with QPs: who waits for an event must find the flushed receives. */
	if (ends) {
		permit_wq(wq, false);
		mana_cq_pause(cq);
	}
	ret = ibv_cmd_modify_wq(&wq->ibv_wq, attr, &cmd, sizeof(cmd));
	if (ends) {
		if (!ret)
			mana_packet_end(&wq->packet);
		mana_cq_resume(cq);
	}
	permit_wq(wq, (ret ? old : state) == IBV_WQS_RDY);
	return ret;
}

int mana_destroy_packet_wq(struct mana_wq *wq)
{
	struct mana_context *ctx = to_mctx(wq->ibv_wq.context);
	struct mana_cq *cq = to_mcq(wq->ibv_wq.cq);
	int ret = ibv_cmd_destroy_wq(&wq->ibv_wq);

	if (ret)
		return ret;
	mana_cq_lock_all(cq);
	mana_packet_leave(&cq->dp, &wq->packet.recv_side);
	mana_cq_unlock_all(cq);
	free_wq(wq, ctx);
	return 0;
}

struct ibv_flow *mana_create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
	struct ibv_flow *flow = calloc(1, sizeof(*flow));
	int ret;

	if (!flow)
		return NULL;
	ret = ibv_cmd_create_flow(qp, flow, attr, NULL, 0);
	if (ret) {
		free(flow);
		errno = ret;
		return NULL;
	}
	return flow;
}

int mana_destroy_flow(struct ibv_flow *flow)
{
	int ret = ibv_cmd_destroy_flow(flow);

	if (!ret)
		free(flow);
	return ret;
}
