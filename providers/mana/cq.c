// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <stdlib.h>

#include "abi.h"
#include "cq_lock.h"
#include "mana.h"

#define MIN_ENTRIES 64u
#define MAX_ENTRIES (1u << 22)
/* Small stock CQs have room for armed completions and errors, which are no work completions. */
#define STOCK_SLACK 16u
#define SMALL 2048u

#define SUPPORTED_WC_FLAGS                                                                        \
	(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)

static void destroy_memory(struct mana_cq *cq, struct mana_context *ctx)
{
	mana_buffer_free(&cq->buffer, ctx, MANA_RES_CQ);
	mana_leave_parent(cq->parent);
	free(cq);
}

/* Of the ring; 0 if there is none. */
static uint32_t entries_for(const struct mana_context *ctx, uint32_t cqe, bool extended)
{
	uint32_t entries;

	if (!cqe || cqe > (extended ? mana_max_cqe(ctx) : MAX_ENTRIES))
		return 0;
	if (!extended && cqe >= MIN_ENTRIES && cqe < SMALL)
		cqe += STOCK_SLACK;
	entries = mana_round_up_power(cqe);
	if (entries < MIN_ENTRIES)
		entries = MIN_ENTRIES;
	return extended ? MANA_EXT_CQ_RINGS * entries : entries;
}

/* What the application may fill of it. */
static int cqe_of(uint32_t entries, bool extended)
{
	return (int)(extended ? entries / MANA_EXT_CQ_RINGS : entries);
}

static int create_hardware(struct mana_cq *cq, struct mana_context *ctx, uint32_t entries,
			   bool extended, struct ibv_comp_channel *channel, int comp_vector)
{
	struct mana_cmd_cq_resp resp = {};
	struct mana_cmd_cq cmd = {};
	struct mana_hw_ext_cq_record *record = NULL;
	size_t bytes = (size_t)entries * sizeof(struct mana_hw_cqe);
	int ret;

	ret = mana_buffer_alloc(&cq->buffer, cq->parent,
				bytes + (extended ? MANA_HW_EXT_RECORD_BYTES : 0), MANA_RES_CQ);
	if (ret)
		return ret;
	if (extended)
		record = (struct mana_hw_ext_cq_record *)((uint8_t *)cq->buffer.address + bytes);
	mana_dp_cq_init(&cq->dp, cq->buffer.address, entries, record, &ctx->sq_table,
			&ctx->rq_table);
	cmd.drv_payload.address = (uintptr_t)cq->buffer.address;
	cmd.drv_payload.flags = MANA_UAPI_CQ_RNIC | (extended ? MANA_UAPI_CQ_EXTENDED : 0);
	ret = ibv_cmd_create_cq(&ctx->ibv_ctx.context, entries, channel, comp_vector, &cq->vcq.cq,
				&cmd.ibv_cmd, sizeof(cmd), &resp.ibv_resp, sizeof(resp));
	if (ret)
		return ret;
	cq->cq_id = resp.drv_payload.cq_id;
	cq->dp.id = cq->cq_id;
	cq->dp.doorbell = ctx->doorbell;
	cq->hardware = true;
	cq->vcq.cq.cqe = cqe_of(entries, extended);
	return 0;
}

/* For a direct-verbs user: the queue belongs to the raw packet QP that comes later. */
static int create_external(struct mana_cq *cq, struct mana_context *ctx, uint32_t entries,
			   struct ibv_comp_channel *channel, int comp_vector)
{
	struct mana_cmd_cq_resp resp = {};
	struct mana_cmd_cq cmd = {};
	size_t bytes = (size_t)entries * sizeof(struct mana_hw_cqe);
	int ret;

	ret = mana_buffer_alloc_external(&cq->buffer, ctx,
					 (bytes + MANA_HW_PAGE_BYTES - 1) / MANA_HW_PAGE_BYTES *
						 MANA_HW_PAGE_BYTES);
	if (ret)
		return ret;
	cmd.drv_payload.address = (uintptr_t)cq->buffer.address;
	ret = ibv_cmd_create_cq(&ctx->ibv_ctx.context, entries, channel, comp_vector, &cq->vcq.cq,
				&cmd.ibv_cmd, sizeof(cmd), &resp.ibv_resp, sizeof(resp));
	if (ret)
		return ret;
	cq->cq_id = resp.drv_payload.cq_id;
	/* Its user reads the ring itself: for us it is a ring that has nothing, ever. */
	cq->dp.ready_tail = &cq->dp.ready;
	cq->dp.entries = 1;
	cq->dp.overrun = true;
	cq->vcq.cq.cqe = entries;
	return 0;
}

static struct mana_cq *create(struct ibv_context *context, uint32_t cqe,
			      struct ibv_comp_channel *channel, uint32_t comp_vector,
			      struct mana_pd *parent, bool single_threaded)
{
	struct mana_context *ctx = to_mctx(context);
	bool extended = ctx->caps.features != 0;
	uint32_t entries = entries_for(ctx, cqe, extended);
	struct mana_cq *cq;
	int ret;

	if (!entries) {
		errno = EINVAL;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	cq->parent = parent;
	mana_enter_parent(parent);
	single_threaded = single_threaded || mana_single_threaded(parent);
	mana_lock_init(&cq->lock, single_threaded);
	if (ctx->has_allocators)
		ret = create_external(cq, ctx, cqe, channel, comp_vector);
	else
		ret = create_hardware(cq, ctx, entries, extended, channel, comp_vector);
	mana_lock_init(&cq->dp.arm_lock, single_threaded);
	if (ret) {
		destroy_memory(cq, ctx);
		errno = ret;
		return NULL;
	}
	return cq;
}

struct ibv_cq *mana_create_cq(struct ibv_context *context, int cqe,
			      struct ibv_comp_channel *channel, int comp_vector)
{
	struct mana_cq *cq = create(context, cqe < 0 ? 0 : cqe, channel, comp_vector, NULL, false);

	return cq ? &cq->vcq.cq : NULL;
}

int mana_destroy_cq(struct ibv_cq *ibv_cq)
{
	struct mana_cq *cq = to_mcq(ibv_cq);
	int ret = ibv_cmd_destroy_cq(ibv_cq);

	if (ret)
		return ret;
	destroy_memory(cq, to_mctx(ibv_cq->context));
	return 0;
}

int mana_resize_cq(struct ibv_cq *ibv_cq, int cqe)
{
	struct mana_context *ctx = to_mctx(ibv_cq->context);
	struct mana_cq *cq = to_mcq(ibv_cq);
	struct mana_cmd_resize_resp resp = {};
	struct mana_cmd_resize cmd = {};
	struct mana_hw_ext_cq_record *record;
	struct mana_buffer buffer;
	uint32_t entries;
	size_t bytes;
	int ret;

	if (!cq->dp.record || !mana_has(ctx, MANA_HW_EXT_RESIZE))
		return EOPNOTSUPP;
	entries = entries_for(ctx, cqe < 0 ? 0 : cqe, true);
	if (!entries)
		return EINVAL;
	bytes = (size_t)entries * sizeof(struct mana_hw_cqe);
	ret = mana_buffer_alloc(&buffer, cq->parent, bytes + MANA_HW_EXT_RECORD_BYTES, MANA_RES_CQ);
	if (ret)
		return ret;
	record = (struct mana_hw_ext_cq_record *)((uint8_t *)buffer.address + bytes);
	cmd.drv_payload.address = (uintptr_t)buffer.address;
	cmd.drv_payload.entries = entries;

	mana_cq_lock_all(cq);
	cq->paused = true;
	mana_dp_cq_done(&cq->dp);
	mana_cq_unlock_all(cq);
	ret = ibv_cmd_resize_cq(ibv_cq, entries, &cmd.ibv_cmd, sizeof(cmd), &resp.ibv_resp,
				sizeof(resp));
	mana_cq_relock_all(cq);
	if (!ret) {
		struct mana_buffer old = cq->buffer;

		cq->buffer = buffer;
		buffer = old;
		mana_dp_cq_replace(&cq->dp, cq->buffer.address, entries, record,
				   resp.drv_payload.consumer);
		ibv_cq->cqe = cqe_of(entries, true);
	}
	cq->paused = false;
	mana_cq_unlock_all(cq);
	mana_buffer_free(&buffer, ctx, MANA_RES_CQ);
	return ret;
}

struct ibv_cq_ex *mana_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct mana_context *ctx = to_mctx(context);
	struct mana_pd *parent = NULL;
	bool single_threaded = false;
	struct mana_cq *cq;

	if (!check_comp_mask(attr->comp_mask,
			     IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) ||
	    !check_comp_mask(attr->wc_flags, SUPPORTED_WC_FLAGS) ||
	    ((attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) &&
	     !mana_has(ctx, MANA_HW_EXT_TIMESTAMPS))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) {
		if (!check_comp_mask(attr->flags, IBV_CREATE_CQ_ATTR_SINGLE_THREADED)) {
			errno = EOPNOTSUPP;
			return NULL;
		}
		single_threaded = attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	}
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
		parent = mana_parent(attr->parent_domain);
		if (!parent) {
			errno = EINVAL;
			return NULL;
		}
	}
	cq = create(context, attr->cqe, attr->channel, attr->comp_vector, parent, single_threaded);
	if (!cq)
		return NULL;
	mana_set_poll_ops(&cq->vcq.cq_ex, attr->wc_flags);
	return &cq->vcq.cq_ex;
}
