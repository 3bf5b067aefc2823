// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* QPs by the ids of their queues, and how long one that was found there exists. */
#include <errno.h>
#include <sched.h>

#include "mana.h"

/* Under the table's lock. */
static void leave_tables(struct mana_qp *qp, struct mana_context *ctx)
{
	mana_dp_table_remove(&ctx->rq_table, qp->dp.qpn, &qp->dp);
	if (mana_is_extended(qp))
		return;
	mana_dp_table_remove(&ctx->sq_table, qp->stock.sends.ring.id, &qp->dp);
	if (qp->dp.format == MANA_DP_RC) {
		mana_dp_table_remove(&ctx->sq_table, qp->stock.responder_sq_id, &qp->dp);
		mana_dp_table_remove(&ctx->rq_table, qp->stock.read.id, &qp->dp);
	}
}

/* Waits while the id still belongs to a QP that is on its way out. */
static int join_table(struct mana_context *ctx, struct mana_dp_table *table, uint32_t id,
		      struct mana_qp *qp)
{
	int ret;

	while ((ret = mana_dp_table_add(table, id, &qp->dp)) == EEXIST) {
		struct mana_dp_qp *other = mana_dp_table_get(table, id);

		if (!container_of(other, struct mana_qp, dp)->dying)
			break;
		pthread_mutex_unlock(&ctx->table_lock);
		sched_yield();
		pthread_mutex_lock(&ctx->table_lock);
	}
	return ret;
}

int mana_join_tables(struct mana_qp *qp, struct mana_context *ctx)
{
	int ret;

	pthread_mutex_lock(&ctx->table_lock);
	ret = join_table(ctx, &ctx->rq_table, qp->dp.qpn, qp);
	if (!ret && !mana_is_extended(qp))
		ret = join_table(ctx, &ctx->sq_table, qp->stock.sends.ring.id, qp);
	if (!ret && qp->dp.format == MANA_DP_RC) {
		ret = join_table(ctx, &ctx->sq_table, qp->stock.responder_sq_id, qp);
		if (!ret)
			ret = join_table(ctx, &ctx->rq_table, qp->stock.read.id, qp);
	}
	if (ret)
		leave_tables(qp, ctx);
	pthread_mutex_unlock(&ctx->table_lock);
	return ret;
}

void mana_leave_tables(struct mana_qp *qp, struct mana_context *ctx)
{
	pthread_mutex_lock(&ctx->table_lock);
	leave_tables(qp, ctx);
	pthread_mutex_unlock(&ctx->table_lock);
}

void mana_begin_qp_destroy(struct mana_qp *qp, struct mana_context *ctx)
{
	pthread_mutex_lock(&ctx->table_lock);
	qp->dying = true;
	while (qp->failing)
		pthread_cond_wait(&ctx->failed, &ctx->table_lock);
	pthread_mutex_unlock(&ctx->table_lock);
}

void mana_end_qp_destroy(struct mana_qp *qp, struct mana_context *ctx, int ret)
{
	pthread_mutex_lock(&ctx->table_lock);
	if (ret)
		qp->dying = false;
	else
		leave_tables(qp, ctx);
	pthread_mutex_unlock(&ctx->table_lock);
}

struct mana_qp *mana_hold_qp(struct mana_context *ctx, uint32_t qpn)
{
	struct mana_qp *qp = NULL;
	struct mana_dp_qp *dp;

	pthread_mutex_lock(&ctx->table_lock);
	dp = mana_dp_table_get(&ctx->rq_table, qpn);
	if (dp && mana_stock_of(dp))
		qp = container_of(dp, struct mana_qp, dp);
	if (qp && qp->dying)
		qp = NULL;
	if (qp)
		qp->failing++;
	pthread_mutex_unlock(&ctx->table_lock);
	return qp;
}

void mana_release_qp(struct mana_qp *qp, struct mana_context *ctx)
{
	pthread_mutex_lock(&ctx->table_lock);
	qp->failing--;
	pthread_cond_broadcast(&ctx->failed);
	pthread_mutex_unlock(&ctx->table_lock);
}
