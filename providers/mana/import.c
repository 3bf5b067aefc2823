// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Objects of another's context, by their handles. Importing asks the kernel
 * whether they are there; unimporting leaves them there.
 */
#include <errno.h>
#include <stdlib.h>

#include <infiniband/cmd_ioctl.h>
#include <rdma/ib_user_ioctl_cmds.h>

#include "mana.h"

struct ibv_pd *mana_import_pd(struct ibv_context *context, uint32_t handle)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_PD, MANA_UAPI_METHOD_QUERY_PD, 1);
	struct mana_pd *pd;

	fill_attr_in_obj(cmd, MANA_UAPI_ATTR_QUERY_PD_HANDLE, handle);
	if (execute_ioctl(context, cmd))
		return NULL;
	pd = mana_new_pd();
	if (!pd)
		return NULL;
	pd->ibv_pd.context = context;
	pd->ibv_pd.handle = handle;
	return &pd->ibv_pd;
}

/* Also for the PD's maker, once another has deallocated it. */
void mana_unimport_pd(struct ibv_pd *pd)
{
	mana_put_pd(to_mpd(pd));
}

struct ibv_dm *mana_import_dm(struct ibv_context *context, uint32_t handle)
{
	DECLARE_COMMAND_BUFFER(cmd, UVERBS_OBJECT_DM, MANA_UAPI_METHOD_QUERY_DM, 2);
	struct mana_dm *dm;
	uint64_t length;

	fill_attr_in_obj(cmd, MANA_UAPI_ATTR_QUERY_DM_HANDLE, handle);
	fill_attr_out_ptr(cmd, MANA_UAPI_ATTR_QUERY_DM_LENGTH, &length);
	if (execute_ioctl(context, cmd))
		return NULL;
	dm = calloc(1, sizeof(*dm));
	if (!dm)
		return NULL;
	dm->vdm.handle = handle;
	dm->vdm.dm.handle = handle;
	dm->vdm.dm.comp_mask = IBV_DM_MASK_HANDLE;
	dm->vdm.dm.context = context;
	mana_set_dm_copies(dm);
	return &dm->vdm.dm;
}

void mana_unimport_dm(struct ibv_dm *dm)
{
	free(to_mdm(dm));
}
