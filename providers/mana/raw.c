// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Raw packet QPs, receive work queues and spreading over them. Those with a data path
 * are in packet.c; the rings of the others are run by a user of the direct-verbs
 * interface (DPDK), in memory that it gave.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "compat.h"
#include "mana.h"

/* A stock driver knows no more (RNIC 5.1). */
#define STOCK_WQ_CMD_BYTES                                                                        \
	(sizeof(struct mana_cmd_wq) - sizeof(struct mana_uapi_create_wq) +                        \
	 MANA_UAPI_CREATE_WQ_STOCK_BYTES)
#define SEND_HEAD_BYTES 32u
#define RECV_HEAD_BYTES 16u

/* Bytes of a ring for so many WQEs; 0 if that is too much. */
static uint32_t ring_bytes(uint32_t wqes, uint32_t sges, uint32_t head)
{
	const uint32_t sge = sizeof(struct mana_hw_sge);
	uint64_t wqe = mana_round_up(head + (sges ? sges : 1) * sge, MANA_HW_WQE_UNIT);
	uint64_t bytes = wqe * (wqes ? wqes : 1);

	if (sges > MANA_HW_SQ_WQE_MAX_BYTES / sge || bytes > 1u << 30)
		return 0;
	return mana_round_up_power(bytes < MANA_HW_PAGE_BYTES ? MANA_HW_PAGE_BYTES : bytes);
}

/* The port is the context of the parent domain. */
static int port_of(struct ibv_pd *pd, uint32_t *port)
{
	struct mana_pd *parent = mana_parent(pd);

	if (!parent)
		return EINVAL;
	*port = (uint32_t)(uintptr_t)parent->context;
	return 0;
}

static int create_sq(struct mana_qp *qp, struct mana_context *ctx, struct ibv_qp_init_attr_ex *attr)
{
	struct mana_cmd_raw_qp_resp resp = {};
	struct mana_cmd_raw_qp cmd = {};
	int ret;

	if (!attr->send_cq || !attr->recv_cq)
		return EINVAL;
	qp->raw.sq_bytes = ring_bytes(attr->cap.max_send_wr, attr->cap.max_send_sge,
				      SEND_HEAD_BYTES);
	if (!qp->raw.sq_bytes)
		return EINVAL;
	ret = port_of(attr->pd, &cmd.drv_payload.port);
	if (ret)
		return ret;
	ret = mana_buffer_alloc_external(&qp->buffer, ctx, qp->raw.sq_bytes);
	if (ret)
		return ret;
	cmd.drv_payload.sq_address = (uintptr_t)qp->buffer.address;
	cmd.drv_payload.sq_bytes = qp->raw.sq_bytes;
	ret = ibv_cmd_create_qp_ex(&ctx->ibv_ctx.context, &qp->vqp, attr, &cmd.ibv_cmd, sizeof(cmd),
				   &resp.ibv_resp, sizeof(resp));
	if (ret)
		return ret;
	qp->raw.sq_id = resp.drv_payload.sq_id;
	qp->raw.tx_vport_offset = resp.drv_payload.tx_vport_offset;
	qp->vqp.qp.qp_num = qp->raw.sq_id;
	to_mcq(attr->send_cq)->cq_id = resp.drv_payload.cq_id;
	return 0;
}

/* Spreads over work queues that the provider runs. */
static bool has_path(const struct ibv_qp_init_attr_ex *attr)
{
	const struct mana_rwq_ind_table *table;

	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE) || !attr->rwq_ind_tbl)
		return false;
	table = container_of(attr->rwq_ind_tbl, struct mana_rwq_ind_table, ibv_table);
	return to_mwq(table->wq[0])->has_path;
}

static int create_rss(struct mana_qp *qp, struct mana_context *ctx,
		      struct ibv_qp_init_attr_ex *attr)
{
	struct mana_rwq_ind_table *table =
		container_of(attr->rwq_ind_tbl, struct mana_rwq_ind_table, ibv_table);
	const struct ibv_rx_hash_conf *hash = &attr->rx_hash_conf;
	struct mana_cmd_rss_qp_resp resp = {};
	struct mana_cmd_rss_qp cmd = {};
	int ret;

	if (hash->rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ)
		return EOPNOTSUPP;
	if (hash->rx_hash_key_len != MANA_UAPI_RSS_KEY_BYTES)
		return EINVAL;
	ret = has_path(attr) ? 0 : port_of(attr->pd, &cmd.drv_payload.port);
	if (ret)
		return ret;
	cmd.drv_payload.hash_fields = hash->rx_hash_fields_mask;
	cmd.drv_payload.hash_function = MANA_UAPI_RSS_TOEPLITZ;
	cmd.drv_payload.key_length = hash->rx_hash_key_len;
	memcpy(cmd.drv_payload.key, hash->rx_hash_key, MANA_UAPI_RSS_KEY_BYTES);
	ret = mana_cmd_create_qp_ex2(&ctx->ibv_ctx.context, &qp->vqp, attr, &cmd.ibv_cmd,
				     sizeof(cmd), &resp.ibv_resp, sizeof(resp));
	if (ret)
		return ret;
	/* Queues of direct verbs exist from now on, and have their ids. */
	if (resp.drv_payload.entries > table->count) {
		ibv_cmd_destroy_qp(&qp->vqp.qp);
		return EPROTO;
	}
	for (uint32_t i = 0; i < resp.drv_payload.entries; i++) {
		to_mwq(table->wq[i])->wq_id = resp.drv_payload.entry[i].wq_id;
		to_mcq(table->wq[i]->cq)->cq_id = resp.drv_payload.entry[i].cq_id;
	}
	qp->raw.rss = true;
	return 0;
}

static void free_raw_qp(struct mana_qp *qp, struct mana_context *ctx)
{
	mana_buffer_free(&qp->buffer, ctx, MANA_RES_QP);
	mana_leave_parent(qp->parent);
	free(qp);
}

struct ibv_qp *mana_create_raw_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t rss = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
	struct mana_context *ctx = to_mctx(context);
	struct ibv_qp_init_attr_ex request = *attr;
	uint32_t comp_mask = mana_comp_mask(attr);
	struct mana_qp *qp;
	int ret;

	request.comp_mask = comp_mask;
	/* Who runs the rings himself gave allocators and names the port by a parent domain. */
	if (!ctx->has_allocators && !(attr->comp_mask & rss) && mana_has(ctx, MANA_HW_EXT_PACKETS))
		return mana_create_packet_qp(context, attr);
	if (!check_comp_mask(comp_mask, IBV_QP_INIT_ATTR_PD | rss) ||
	    (!ctx->has_allocators && !has_path(attr))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) ||
	    ((attr->comp_mask & rss) && (attr->comp_mask & rss) != rss)) {
		errno = EINVAL;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->dp.format = MANA_DP_RAW;
	qp->parent = mana_enter_parent_of(attr->pd);
	qp->cap = attr->cap;
	mana_lock_init(&qp->sq_lock, false);
	mana_lock_init(&qp->rq_lock, false);
	ret = attr->comp_mask & rss ? create_rss(qp, ctx, &request) : create_sq(qp, ctx, &request);
	if (ret) {
		free_raw_qp(qp, ctx);
		errno = ret;
		return NULL;
	}
	return &qp->vqp.qp;
}

int mana_destroy_raw_qp(struct mana_qp *qp)
{
	struct mana_context *ctx = to_mctx(qp->vqp.qp.context);
	int ret = ibv_cmd_destroy_qp(&qp->vqp.qp);

	if (ret)
		return ret;
	free_raw_qp(qp, ctx);
	return 0;
}

static void free_raw_wq(struct mana_wq *wq, struct mana_context *ctx)
{
	mana_buffer_free(&wq->buffer, ctx, MANA_RES_QP);
	mana_leave_parent(wq->parent);
	free(wq);
}

struct ibv_wq *mana_create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr)
{
	struct mana_context *ctx = to_mctx(context);
	struct ib_uverbs_ex_create_wq_resp resp = {};
	struct mana_cmd_wq cmd = {};
	struct mana_wq *wq;
	int ret;

	if (attr->cq && attr->cq->context != context) {
		errno = EINVAL;
		return NULL;
	}
	if (attr->wq_type == IBV_WQT_RQ && !ctx->has_allocators &&
	    mana_has(ctx, MANA_HW_EXT_PACKET_SPREAD))
		return mana_create_packet_wq(context, attr);
	if (attr->wq_type != IBV_WQT_RQ || attr->comp_mask || !ctx->has_allocators) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	wq = calloc(1, sizeof(*wq));
	if (!wq)
		return NULL;
	wq->parent = mana_enter_parent_of(attr->pd);
	wq->ibv_wq.post_recv = mana_post_wq_recv;
	wq->max_wr = attr->max_wr;
	wq->bytes = ring_bytes(attr->max_wr, attr->max_sge, RECV_HEAD_BYTES);
	ret = wq->bytes ? mana_buffer_alloc_external(&wq->buffer, ctx, wq->bytes) : EINVAL;
	if (!ret) {
		cmd.drv_payload.address = (uintptr_t)wq->buffer.address;
		cmd.drv_payload.bytes = wq->bytes;
		ret = ibv_cmd_create_wq(context, attr, &wq->ibv_wq, &cmd.ibv_cmd,
					STOCK_WQ_CMD_BYTES, &resp, sizeof(resp));
	}
	if (ret) {
		free_raw_wq(wq, ctx);
		errno = ret;
		return NULL;
	}
	return &wq->ibv_wq;
}

/* A queue of direct verbs starts with its QP and ends with it. */
int mana_modify_wq(struct ibv_wq *ibv_wq, struct ibv_wq_attr *attr)
{
	struct mana_wq *wq = to_mwq(ibv_wq);

	return wq->has_path ? mana_modify_packet_wq(wq, attr) : EOPNOTSUPP;
}

int mana_destroy_wq(struct ibv_wq *ibv_wq)
{
	struct mana_wq *wq = to_mwq(ibv_wq);
	int ret;

	if (wq->has_path)
		return mana_destroy_packet_wq(wq);
	ret = ibv_cmd_destroy_wq(ibv_wq);
	if (ret)
		return ret;
	free_raw_wq(wq, to_mctx(ibv_wq->context));
	return 0;
}

struct ibv_rwq_ind_table *
mana_create_rwq_ind_table(struct ibv_context *context, struct ibv_rwq_ind_table_init_attr *attr)
{
	struct ib_uverbs_ex_create_rwq_ind_table_resp resp = {};
	struct mana_rwq_ind_table *table;
	int ret;

	if (attr->log_ind_tbl_size > mana_log2(MANA_UAPI_RSS_QUEUES)) {
		errno = EINVAL;
		return NULL;
	}
	table = calloc(1, sizeof(*table));
	if (!table)
		return NULL;
	table->count = 1u << attr->log_ind_tbl_size;
	memcpy(table->wq, attr->ind_tbl, table->count * sizeof(table->wq[0]));
	ret = ibv_cmd_create_rwq_ind_table(context, attr, &table->ibv_table, &resp, sizeof(resp));
	if (ret) {
		free(table);
		errno = ret;
		return NULL;
	}
	return &table->ibv_table;
}

int mana_destroy_rwq_ind_table(struct ibv_rwq_ind_table *ibv_table)
{
	int ret = ibv_cmd_destroy_rwq_ind_table(ibv_table);

	if (ret)
		return ret;
	free(container_of(ibv_table, struct mana_rwq_ind_table, ibv_table));
	return 0;
}
