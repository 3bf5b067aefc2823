// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <stdlib.h>

#include <infiniband/cmd_ioctl.h>
#include <rdma/ib_user_ioctl_cmds.h>

#include "mana.h"

static struct verbs_mr *alloc_mr(struct ibv_pd *pd)
{
	struct mana_mr *mr = calloc(1, sizeof(*mr));

	if (!mr)
		return NULL;
	mr->parent = mana_enter_parent_of(pd);
	return &mr->vmr;
}

static void free_mr(struct verbs_mr *vmr)
{
	mana_dp_region_leave(&to_mmr(vmr)->region);
	mana_leave_parent(to_mmr(vmr)->parent);
	free(to_mmr(vmr));
}

/* The MR, or NULL and errno once the command gave `ret`. */
static struct ibv_mr *finish_mr(struct verbs_mr *vmr, int ret)
{
	if (!ret)
		return &vmr->ibv_mr;
	free_mr(vmr);
	errno = ret;
	return NULL;
}

/* The lkey that it has now names this memory at its own address. */
static void enter_region(struct verbs_mr *vmr, uint64_t address, uint64_t length)
{
	mana_dp_region_enter(&to_mctx(vmr->ibv_mr.context)->regions, &to_mmr(vmr)->region,
			     vmr->ibv_mr.lkey, address, length);
}

struct ibv_mr *mana_reg_mr(struct ibv_pd *pd, void *address, size_t length, uint64_t hca_va,
			   int access)
{
	struct ib_uverbs_reg_mr_resp resp = {};
	struct ibv_reg_mr cmd = {};
	struct verbs_mr *vmr = alloc_mr(pd);
	int ret;

	if (!vmr)
		return NULL;
	ret = ibv_cmd_reg_mr(pd, address, length, hca_va, access, vmr, &cmd, sizeof(cmd), &resp,
			     sizeof(resp));
	/* SGEs of a zero-based one have offsets, which do not lie in the region. */
	if (!ret && hca_va == (uintptr_t)address)
		enter_region(vmr, hca_va, length);
	return finish_mr(vmr, ret);
}

struct ibv_mr *mana_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				  int fd, int access)
{
	struct verbs_mr *vmr = alloc_mr(pd);

	if (!vmr)
		return NULL;
	return finish_mr(vmr, ibv_cmd_reg_dmabuf_mr(pd, offset, length, iova, fd, access, vmr,
						    NULL));
}

int mana_rereg_mr(struct verbs_mr *vmr, int flags, struct ibv_pd *pd, void *address, size_t length,
		  int access)
{
	const struct mana_dp_region *region = &to_mmr(vmr)->region;
	struct ib_uverbs_rereg_mr_resp resp;
	struct ibv_rereg_mr cmd;
	int ret;

	ret = ibv_cmd_rereg_mr(vmr, flags, address, length, (uintptr_t)address, access, pd, &cmd,
			       sizeof(cmd), &resp, sizeof(resp));
	if (ret)
		return ret;
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		mana_leave_parent(to_mmr(vmr)->parent);
		to_mmr(vmr)->parent = mana_enter_parent_of(pd);
	}
	/* The same memory may have another lkey now. */
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION)
		enter_region(vmr, (uintptr_t)address, length);
	else if (region->table)
		enter_region(vmr, region->address, region->length);
	return 0;
}

int mana_dereg_mr(struct verbs_mr *vmr)
{
	int ret = ibv_cmd_dereg_mr(vmr);

	if (ret)
		return ret;
	free_mr(vmr);
	return 0;
}

/* Offsets and lengths of copies are multiples of this, as with other RDMA NICs. */
#define DM_GRANULE 4

/* The driver does it: device memory is mapped nowhere. It checks the rest, too. */
static int copy_dm(struct ibv_dm *ibv_dm, uint64_t offset, const void *host, uint64_t length,
		   uint32_t direction)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_DM, MANA_UAPI_METHOD_COPY_DM, 5);
	const struct mana_context *ctx = to_mctx(ibv_dm->context);

	if (!(ctx->caps.flags & MANA_UAPI_CONTEXT_DM_COPIES))
		return EOPNOTSUPP;
	if (offset % DM_GRANULE || length % DM_GRANULE)
		return EINVAL;
	fill_attr_in_obj(cmd, MANA_UAPI_ATTR_COPY_DM_HANDLE, to_mdm(ibv_dm)->vdm.handle);
	fill_attr_in_uint64(cmd, MANA_UAPI_ATTR_COPY_DM_OFFSET, offset);
	fill_attr_in_uint64(cmd, MANA_UAPI_ATTR_COPY_DM_ADDRESS, (uintptr_t)host);
	fill_attr_in_uint64(cmd, MANA_UAPI_ATTR_COPY_DM_LENGTH, length);
	fill_attr_in_uint32(cmd, MANA_UAPI_ATTR_COPY_DM_DIRECTION, direction);
	return execute_ioctl(ibv_dm->context, cmd);
}

static int copy_to_dm(struct ibv_dm *dm, uint64_t offset, const void *from, size_t length)
{
	return copy_dm(dm, offset, from, length, MANA_UAPI_COPY_TO_DM);
}

static int copy_from_dm(void *to, struct ibv_dm *dm, uint64_t offset, size_t length)
{
	return copy_dm(dm, offset, to, length, MANA_UAPI_COPY_FROM_DM);
}

void mana_set_dm_copies(struct mana_dm *dm)
{
	dm->vdm.dm.memcpy_to_dm = copy_to_dm;
	dm->vdm.dm.memcpy_from_dm = copy_from_dm;
}

struct ibv_mr *mana_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct verbs_mr *vmr = alloc_mr(pd);

	if (!vmr)
		return NULL;
	return finish_mr(vmr, ibv_cmd_query_mr(pd, vmr, handle));
}

void mana_unimport_mr(struct ibv_mr *mr)
{
	free_mr(verbs_get_mr(mr));
}

struct ibv_dm *mana_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	struct mana_dm *dm;
	int ret;

	if (!check_comp_mask(attr->comp_mask, 0)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	dm = calloc(1, sizeof(*dm));
	if (!dm)
		return NULL;
	ret = ibv_cmd_alloc_dm(context, attr, &dm->vdm, NULL);
	if (ret) {
		free(dm);
		errno = ret;
		return NULL;
	}
	mana_set_dm_copies(dm);
	return &dm->vdm.dm;
}

int mana_free_dm(struct ibv_dm *ibv_dm)
{
	struct mana_dm *dm = to_mdm(ibv_dm);
	int ret = ibv_cmd_free_dm(&dm->vdm);

	if (ret)
		return ret;
	free(dm);
	return 0;
}

struct ibv_mr *mana_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *ibv_dm, uint64_t offset,
			      size_t length, unsigned int access)
{
	struct mana_dm *dm = to_mdm(ibv_dm);
	struct verbs_mr *vmr = alloc_mr(pd);

	if (!vmr)
		return NULL;
	return finish_mr(vmr, ibv_cmd_reg_dm_mr(pd, &dm->vdm, offset, length, access, vmr, NULL));
}
