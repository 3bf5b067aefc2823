// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <stdlib.h>

#include <mana/gdma.h>

#include "mana.h"

struct ibv_mw *mana_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ib_uverbs_alloc_mw_resp resp = {};
	struct ibv_alloc_mw cmd = {};
	struct mana_mw *mw;
	int ret;

	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return NULL;
	ret = ibv_cmd_alloc_mw(pd, type, &mw->ibv_mw, &cmd, sizeof(cmd), &resp, sizeof(resp));
	if (ret) {
		free(mw);
		errno = ret;
		return NULL;
	}
	mw->parent = mana_enter_parent_of(pd);
	mw->key = mw->ibv_mw.rkey;
	return &mw->ibv_mw;
}

int mana_dealloc_mw(struct ibv_mw *ibv_mw)
{
	int ret = ibv_cmd_dealloc_mw(ibv_mw);

	if (ret)
		return ret;
	mana_leave_parent(to_mmw(ibv_mw)->parent);
	free(to_mmw(ibv_mw));
	return 0;
}

/* A window gives rights to the peer alone. */
static uint32_t bind_access(unsigned int access)
{
	return (access & IBV_ACCESS_REMOTE_READ ? MANA_HW_ACCESS_REMOTE_READ : 0) |
	       (access & IBV_ACCESS_REMOTE_WRITE ? MANA_HW_ACCESS_REMOTE_WRITE : 0) |
	       (access & IBV_ACCESS_REMOTE_ATOMIC ? MANA_HW_ACCESS_REMOTE_ATOMIC : 0) |
	       (access & IBV_ACCESS_ZERO_BASED ? MANA_HW_EXT_ACCESS_ZERO_BASED : 0);
}

int mana_fill_bind(struct mana_qp *qp, struct mana_mw *mw, uint32_t rkey,
		   const struct ibv_mw_bind_info *info, struct mana_hw_ext_bind *bind)
{
	/* Local rights say nothing, but programs give them. */
	const unsigned int allowed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
				     IBV_ACCESS_ZERO_BASED;

	if (info->mw_access_flags & ~allowed)
		return EINVAL;
	if (info->length && !info->mr)
		return EINVAL;
	if (mw->ibv_mw.pd->handle != qp->vqp.qp.pd->handle)
		return EPERM;
	if (info->mr && info->mr->pd->handle != mw->ibv_mw.pd->handle)
		return EPERM;
	bind->mw_key = mw->key;
	bind->new_key = rkey;
	bind->mr_key = info->mr ? info->mr->lkey : 0;
	bind->access = bind_access(info->mw_access_flags);
	bind->address = info->addr;
	bind->length = info->length;
	return 0;
}
