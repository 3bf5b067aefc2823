// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <stdlib.h>

#include "abi.h"
#include "mana.h"

static void lock_srq(struct mana_ext_srq *dp)
{
	mana_lock(&container_of(dp, struct mana_srq, dp)->lock);
}

static void unlock_srq(struct mana_ext_srq *dp)
{
	mana_unlock(&container_of(dp, struct mana_srq, dp)->lock);
}

static void destroy_memory(struct mana_srq *srq, struct mana_context *ctx)
{
	mana_ext_srq_free(&srq->dp);
	mana_buffer_free(&srq->buffer, ctx, MANA_RES_SRQ);
	mana_leave_parent(srq->parent);
	free(srq);
}

/* The memory of an SRQ for these limits, or NULL and errno. */
static struct mana_srq *prepare(struct ibv_pd *pd, const struct ibv_srq_attr *attr,
				struct mana_ext_srq_layout *layout)
{
	struct mana_context *ctx = to_mctx(pd->context);
	struct mana_srq *srq;
	int ret;

	if (!mana_has(ctx, MANA_HW_EXT_SRQ)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!attr->max_wr || attr->max_wr > ctx->caps.max_srq_wr ||
	    attr->max_sge > ctx->caps.max_srq_sge ||
	    mana_ext_srq_lay_out(attr->max_wr, attr->max_sge, layout)) {
		errno = EINVAL;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	srq->parent = mana_enter_parent_of(pd);
	srq->max_recv = attr->max_wr;
	srq->max_sge = attr->max_sge;
	/* Whatever the parent domain says of who posts: who polls a CQ of its QPs takes it, too. */
	mana_lock_init(&srq->lock, false);
	ret = mana_buffer_alloc(&srq->buffer, srq->parent, layout->bytes, MANA_RES_SRQ);
	if (!ret)
		ret = mana_ext_srq_init(&srq->dp, attr->max_wr, attr->max_sge, layout,
					srq->buffer.address);
	if (ret) {
		destroy_memory(srq, ctx);
		errno = ret;
		return NULL;
	}
	srq->dp.lock = lock_srq;
	srq->dp.unlock = unlock_srq;
	return srq;
}

static void fill_payload(struct mana_uapi_create_srq *payload, const struct mana_srq *srq,
			 const struct mana_ext_srq_layout *layout)
{
	payload->buffer = (uintptr_t)srq->buffer.address;
	payload->ring_bytes = layout->ring_bytes;
	payload->stride = layout->stride;
}

/* What was asked for is what there is, whatever the kernel rounded it to. */
static void finish(struct mana_srq *srq, struct ibv_srq_attr *attr, uint32_t srq_id)
{
	srq->srq_id = srq_id;
	srq->vsrq.srq_num = srq_id;
	srq->vsrq.srq_type = IBV_SRQT_BASIC;
	attr->max_wr = srq->max_recv;
	attr->max_sge = srq->max_sge;
}

struct ibv_srq *mana_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct mana_cmd_srq_resp resp = {};
	struct mana_cmd_srq cmd = {};
	struct mana_ext_srq_layout layout;
	struct mana_srq *srq;
	int ret;

	srq = prepare(pd, &attr->attr, &layout);
	if (!srq)
		return NULL;
	fill_payload(&cmd.drv_payload, srq, &layout);
	ret = ibv_cmd_create_srq(pd, &srq->vsrq.srq, attr, &cmd.ibv_cmd, sizeof(cmd),
				 &resp.ibv_resp, sizeof(resp));
	if (ret) {
		destroy_memory(srq, to_mctx(pd->context));
		errno = ret;
		return NULL;
	}
	finish(srq, &attr->attr, resp.drv_payload.srq_id);
	return &srq->vsrq.srq;
}

struct ibv_srq *mana_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct mana_cmd_xsrq_resp resp = {};
	struct mana_cmd_xsrq cmd = {};
	struct mana_ext_srq_layout layout;
	struct mana_srq *srq;
	int ret;

	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD)) {
		errno = EINVAL;
		return NULL;
	}
	if (!check_comp_mask(attr->comp_mask, IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE) ||
	    ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type != IBV_SRQT_BASIC)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	srq = prepare(attr->pd, &attr->attr, &layout);
	if (!srq)
		return NULL;
	fill_payload(&cmd.drv_payload, srq, &layout);
	ret = ibv_cmd_create_srq_ex(context, &srq->vsrq, attr, &cmd.ibv_cmd, sizeof(cmd),
				    &resp.ibv_resp, sizeof(resp));
	if (ret) {
		destroy_memory(srq, to_mctx(context));
		errno = ret;
		return NULL;
	}
	finish(srq, &attr->attr, resp.drv_payload.srq_id);
	return &srq->vsrq.srq;
}

int mana_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct ibv_modify_srq cmd = {};

	if (mask & IBV_SRQ_MAX_WR)
		return EOPNOTSUPP;
	return ibv_cmd_modify_srq(srq, attr, mask, &cmd, sizeof(cmd));
}

int mana_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct ibv_query_srq cmd = {};
	int ret = ibv_cmd_query_srq(srq, attr, &cmd, sizeof(cmd));

	if (ret)
		return ret;
	attr->max_wr = to_msrq(srq)->max_recv;
	attr->max_sge = to_msrq(srq)->max_sge;
	return 0;
}

int mana_get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	*number = to_msrq(srq)->srq_id;
	return 0;
}

int mana_destroy_srq(struct ibv_srq *ibv_srq)
{
	int ret = ibv_cmd_destroy_srq(ibv_srq);

	if (ret)
		return ret;
	destroy_memory(to_msrq(ibv_srq), to_mctx(ibv_srq->context));
	return 0;
}

int mana_post_srq_recv(struct ibv_srq *ibv_srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct mana_srq *srq = to_msrq(ibv_srq);
	int ret = 0;

	mana_lock(&srq->lock);
	for (; wr; wr = wr->next) {
		ret = wr->num_sge < 0 ? EINVAL :
					mana_ext_srq_recv(&srq->dp, wr->wr_id,
							  (const struct mana_dp_sge *)wr->sg_list,
							  (uint32_t)wr->num_sge);
		if (ret) {
			*bad_wr = wr;
			break;
		}
	}
	mana_ext_srq_ring(&srq->dp);
	mana_unlock(&srq->lock);
	return ret;
}
