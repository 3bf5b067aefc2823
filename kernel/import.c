// SPDX-License-Identifier: GPL-2.0
/*
 * What a context has, to its owner and to who imports it: a process that has the
 * file of another's context uses its objects and makes its own in it. The kernel's
 * objects belong to the file, so all that it lacks is what the owner was told.
 */
#include "mr.h"
#include "pd.h"
#include "udata.h"

#include <rdma/uverbs_std_types.h>

#define UVERBS_MODULE_NAME mana_ib
#include <rdma/uverbs_named_ioctl.h>

int mana_ib_query_ucontext(struct ib_ucontext *ibcontext,
			   struct uverbs_attr_bundle *attrs)
{
	struct mana_ib_ucontext *context = to_mana_ucontext(ibcontext);
	struct mana_uapi_context_resp response;
	int err;

	mana_ib_describe_context(to_mana_dev(ibcontext->device), &response);
	err = mana_ib_attr_out_struct(attrs, MANA_UAPI_ATTR_QUERY_CONTEXT_RESP,
				      &response, sizeof(response));
	/* Who imports a context asks again while its owner makes objects. */
	if (!err)
		WRITE_ONCE(context->ours, true);
	return err;
}

/* The core has found the PD, which is the answer. */
static int
UVERBS_HANDLER(MANA_UAPI_METHOD_QUERY_PD)(struct uverbs_attr_bundle *attrs)
{
	return 0;
}

static int
UVERBS_HANDLER(MANA_UAPI_METHOD_QUERY_DM)(struct uverbs_attr_bundle *attrs)
{
	const struct ib_dm *ibdm =
		uverbs_attr_get_obj(attrs, MANA_UAPI_ATTR_QUERY_DM_HANDLE);
	u64 length;

	if (IS_ERR(ibdm))
		return PTR_ERR(ibdm);
	length = ibdm->length;
	return mana_ib_attr_out(attrs, MANA_UAPI_ATTR_QUERY_DM_LENGTH, &length,
				sizeof(length));
}

ADD_UVERBS_ATTRIBUTES_SIMPLE(mana_ib_query_context, UVERBS_OBJECT_DEVICE,
			     UVERBS_METHOD_QUERY_CONTEXT,
			     UVERBS_ATTR_PTR_OUT(MANA_UAPI_ATTR_QUERY_CONTEXT_RESP,
						 UVERBS_ATTR_MIN_SIZE(sizeof(u64)),
						 UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(MANA_UAPI_METHOD_QUERY_PD,
			    UVERBS_ATTR_IDR(MANA_UAPI_ATTR_QUERY_PD_HANDLE,
					    UVERBS_OBJECT_PD,
					    UVERBS_ACCESS_READ, UA_MANDATORY));

ADD_UVERBS_METHODS(mana_ib_pd_methods, UVERBS_OBJECT_PD,
		   &UVERBS_METHOD(MANA_UAPI_METHOD_QUERY_PD));

DECLARE_UVERBS_NAMED_METHOD(MANA_UAPI_METHOD_QUERY_DM,
			    UVERBS_ATTR_IDR(MANA_UAPI_ATTR_QUERY_DM_HANDLE,
					    UVERBS_OBJECT_DM,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_OUT(MANA_UAPI_ATTR_QUERY_DM_LENGTH,
						UVERBS_ATTR_TYPE(u64),
						UA_MANDATORY));

ADD_UVERBS_METHODS(mana_ib_dm_methods, UVERBS_OBJECT_DM,
		   &UVERBS_METHOD(MANA_UAPI_METHOD_QUERY_DM));

const struct uapi_definition mana_ib_import_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DEVICE, &mana_ib_query_context),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_PD, &mana_ib_pd_methods),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &mana_ib_dm_methods),
	UAPI_DEF_CHAIN(mana_ib_dm_defs),
	{}
};
