// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "mana.h"

#define INLINE_ALIGN 64u

/* Inline data needs memory that the device can read: the stock format has none in the WQE. */
static int alloc_inline(struct mana_qp *qp, struct ibv_pd *pd, size_t bytes)
{
	struct ib_uverbs_reg_mr_resp resp = {};
	struct ibv_reg_mr cmd = {};
	int ret;

	ret = mana_buffer_alloc(&qp->inline_buffer, qp->parent, bytes, MANA_RES_QP);
	if (ret)
		return ret;
	ret = ibv_cmd_reg_mr(pd, qp->inline_buffer.address, qp->inline_buffer.length,
			     (uintptr_t)qp->inline_buffer.address, IBV_ACCESS_LOCAL_WRITE,
			     &qp->inline_mr, &cmd, sizeof(cmd), &resp, sizeof(resp));
	if (!ret)
		qp->inline_mr.ibv_mr.context = pd->context;
	return ret;
}

int mana_create_inline(struct mana_qp *qp, const struct ibv_qp_init_attr_ex *attr, uint32_t sends,
		       struct mana_dp_inline *slots)
{
	uint32_t stride;
	int ret;

	if (!attr->cap.max_inline_data)
		return 0;
	if (attr->cap.max_inline_data > MANA_HW_PAGE_BYTES)
		return EINVAL;
	stride = mana_round_up(attr->cap.max_inline_data, INLINE_ALIGN);
	ret = alloc_inline(qp, attr->pd, (size_t)sends * stride);
	if (ret)
		return ret;
	slots->base = qp->inline_buffer.address;
	slots->address = (uintptr_t)qp->inline_buffer.address;
	slots->stride = stride;
	slots->lkey = qp->inline_mr.ibv_mr.lkey;
	return 0;
}
