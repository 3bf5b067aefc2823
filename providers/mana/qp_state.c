// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>

#include "cq_lock.h"
#include "mana.h"

static struct mana_cq *cq_of(struct mana_dp_cq *dp)
{
	return container_of(dp, struct mana_cq, dp);
}

void mana_leave_cqs(struct mana_qp *qp)
{
	struct mana_cq *send = cq_of(qp->dp.send_cq);
	struct mana_cq *recv = cq_of(qp->dp.recv_cq);

	mana_cq_lock(send);
	mana_dp_cq_forget(&send->dp, &qp->dp);
	mana_cq_unlock(send);
	if (recv == send)
		return;
	mana_cq_lock(recv);
	mana_dp_cq_forget(&recv->dp, &qp->dp);
	mana_cq_unlock(recv);
}

static void reset(struct mana_qp *qp)
{
	mana_leave_cqs(qp);
	mana_lock(&qp->sq_lock);
	mana_lock(&qp->rq_lock);
	if (mana_is_extended(qp))
		mana_ext_reset(&qp->ext);
	else
		mana_stock_reset(&qp->stock);
	mana_unlock(&qp->rq_lock);
	mana_unlock(&qp->sq_lock);
}

static void set_permissions(struct mana_qp *qp, enum ibv_qp_state state)
{
	bool send = state == IBV_QPS_RTS || state == IBV_QPS_SQD;
	bool recv = state != IBV_QPS_RESET;

	if (mana_is_extended(qp)) {
		/* The device flushes what is posted in these. */
		mana_ext_permit(&qp->ext, send || state == IBV_QPS_SQE || state == IBV_QPS_ERR,
				recv && !qp->ext.srq);
	} else {
		mana_stock_permit(&qp->stock, send, recv && state != IBV_QPS_ERR);
	}
}

/* The device flushes all but datagrams in the stock format. */
static void entered_error(struct mana_qp *qp)
{
	set_permissions(qp, IBV_QPS_ERR);
	if (qp->dp.format == MANA_DP_UD)
		mana_stock_end(&qp->stock);
}

static void entered_state(struct mana_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	if (!mana_is_extended(qp) && (mask & IBV_QP_PATH_MTU))
		qp->stock.mtu = 128u << attr->path_mtu;
	if (!(mask & IBV_QP_STATE))
		return;
	if (!mana_is_extended(qp) && attr->qp_state == IBV_QPS_RTS && (mask & IBV_QP_SQ_PSN)) {
		mana_lock(&qp->sq_lock);
		mana_stock_start(&qp->stock, attr->sq_psn);
		mana_unlock(&qp->sq_lock);
	}
	if (attr->qp_state == IBV_QPS_ERR)
		entered_error(qp);
	else
		set_permissions(qp, attr->qp_state);
}

/* The caller holds the lock of the state, so that no thread moves the QP to ERR meanwhile. */
static int modify(struct mana_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp *ibv_qp = &qp->vqp.qp;
	enum ibv_qp_state old = ibv_qp->state;
	bool resets = (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET &&
		      !mana_is_extended(qp);
	struct ibv_modify_qp cmd = {};
	int ret;

	if (resets)
		set_permissions(qp, IBV_QPS_RESET);
	ret = ibv_cmd_modify_qp(ibv_qp, attr, mask, &cmd, sizeof(cmd));
	if (ret && resets)
		set_permissions(qp, old);
	if (ret)
		return ret;
	entered_state(qp, attr, mask);
	/* As libibverbs does, but before the lock is free. */
	if (mask & IBV_QP_STATE)
		ibv_qp->state = attr->qp_state;
	return 0;
}

int mana_modify_qp(struct ibv_qp *ibv_qp, struct ibv_qp_attr *attr, int mask)
{
	struct mana_qp *qp = to_mqp(ibv_qp);
	struct ibv_modify_qp cmd = {};
	int ret;

	if (mask & IBV_QP_RATE_LIMIT)
		return EOPNOTSUPP;
	if (qp->dp.format == MANA_DP_PACKET)
		return mana_modify_packet_qp(qp, attr, mask);
	if (qp->dp.format == MANA_DP_RAW)
		return ibv_cmd_modify_qp(ibv_qp, attr, mask, &cmd, sizeof(cmd));
	pthread_mutex_lock(&qp->state_lock);
	ret = modify(qp, attr, mask);
	pthread_mutex_unlock(&qp->state_lock);
	/*
	 * This waits for who polls a CQ, who may modify the QP before it ends its batch. In
	 * RESET nobody else moves the QP.
	 */
	if (!ret && (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET)
		reset(qp);
	return ret;
}

/* An error CQE came since the last RESET. */
static bool has_named_error(struct mana_qp *qp)
{
	return mana_load_flag(&qp->stock.error_named);
}

/*
 * Events are read late: one may be of a life before the last RESET. What the device has
 * ended since then the driver tells, if it answers such queries at all.
 */
static bool may_be_in_error(struct mana_qp *qp)
{
	struct ibv_qp_init_attr init_attr = {};
	struct ibv_qp_attr attr = {};
	struct ibv_query_qp cmd = {};

	return ibv_cmd_query_qp(&qp->vqp.qp, &attr, IBV_QP_STATE, &init_attr, &cmd,
				sizeof(cmd)) ||
	       attr.qp_state == IBV_QPS_ERR;
}

/* `failed`: whether the QP is still the one that failed, which a RESET ends. */
static void move_to_error(struct mana_qp *qp, bool (*failed)(struct mana_qp *qp))
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_modify_qp cmd = {};
	struct ibv_qp *ibv_qp = &qp->vqp.qp;

	pthread_mutex_lock(&qp->state_lock);
	if (ibv_qp->state != IBV_QPS_RESET && ibv_qp->state != IBV_QPS_ERR && failed(qp) &&
	    !ibv_cmd_modify_qp(ibv_qp, &attr, IBV_QP_STATE, &cmd, sizeof(cmd))) {
		ibv_qp->state = IBV_QPS_ERR;
		entered_error(qp);
	}
	pthread_mutex_unlock(&qp->state_lock);
}

void mana_fail_qp(struct mana_context *ctx, uint32_t qpn)
{
	struct mana_qp *qp = mana_hold_qp(ctx, qpn);

	if (!qp)
		return;
	/* The number may be another QP's by now, or this one was reset. */
	move_to_error(qp, has_named_error);
	mana_release_qp(qp, ctx);
}

/* The device waits for the move to ERR before it flushes the rest (RNIC 3.9). */
void mana_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct mana_context *ctx = to_mctx(context);
	struct mana_qp *qp;

	if (event->event_type != IBV_EVENT_QP_FATAL)
		return;
	qp = mana_hold_qp(ctx, event->element.qp->qp_num);
	if (!qp)
		return;
	if (&qp->vqp.qp == event->element.qp)
		move_to_error(qp, may_be_in_error);
	mana_release_qp(qp, ctx);
}
