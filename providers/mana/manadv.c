// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>

#include "mana.h"

int manadv_set_context_attr(struct ibv_context *ibv_ctx, enum manadv_set_ctx_attr_type type,
			    void *attr)
{
	struct mana_context *ctx = to_mctx(ibv_ctx);
	const struct manadv_ctx_allocators *allocators = attr;

	if (type != MANADV_CTX_ATTR_BUF_ALLOCATORS)
		return EOPNOTSUPP;
	if (!allocators || !allocators->alloc || !allocators->free)
		return EINVAL;
	ctx->allocators = *allocators;
	ctx->has_allocators = true;
	return 0;
}

/* Only rings in the application's own memory are its to run. */
static int init_qp(struct ibv_qp *ibv_qp, struct manadv_qp *out)
{
	struct mana_qp *qp = to_mqp(ibv_qp);

	if (qp->dp.format != MANA_DP_RAW || qp->raw.rss)
		return EINVAL;
	out->sq_buf = qp->buffer.address;
	out->sq_count = qp->cap.max_send_wr;
	out->sq_size = qp->raw.sq_bytes;
	out->sq_id = qp->raw.sq_id;
	out->tx_vp_offset = qp->raw.tx_vport_offset;
	out->db_page = to_mctx(ibv_qp->context)->doorbell;
	return 0;
}

static int init_cq(struct ibv_cq *ibv_cq, struct manadv_cq *out)
{
	struct mana_cq *cq = to_mcq(ibv_cq);

	out->buf = cq->buffer.address;
	out->count = cq->hardware ? cq->dp.entries : (uint32_t)ibv_cq->cqe;
	out->cq_id = cq->cq_id;
	return 0;
}

static int init_rwq(struct ibv_wq *ibv_wq, struct manadv_rwq *out)
{
	struct mana_wq *wq = to_mwq(ibv_wq);

	out->buf = wq->buffer.address;
	out->count = wq->max_wr;
	out->size = wq->bytes;
	out->wq_id = wq->wq_id;
	out->db_page = to_mctx(ibv_wq->context)->doorbell;
	return 0;
}

/* No driver so far tells a PD's number, or lets its range be chosen. */
static int init_pd(void)
{
	return EOPNOTSUPP;
}

struct ibv_pd *manadv_alloc_pd(struct ibv_context *ibv_ctx, uint32_t flags)
{
	if (flags) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return ibv_alloc_pd(ibv_ctx);
}

int manadv_init_obj(struct manadv_obj *obj, uint64_t obj_type)
{
	int ret = 0;

	if (obj_type & ~(uint64_t)(MANADV_OBJ_QP | MANADV_OBJ_CQ | MANADV_OBJ_RWQ |
				    MANADV_OBJ_PD))
		return EINVAL;
	if (obj_type & MANADV_OBJ_QP)
		ret = init_qp(obj->qp.in, obj->qp.out);
	if (!ret && (obj_type & MANADV_OBJ_CQ))
		ret = init_cq(obj->cq.in, obj->cq.out);
	if (!ret && (obj_type & MANADV_OBJ_RWQ))
		ret = init_rwq(obj->rwq.in, obj->rwq.out);
	if (!ret && (obj_type & MANADV_OBJ_PD))
		ret = init_pd();
	return ret;
}
