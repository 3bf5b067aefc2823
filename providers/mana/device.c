// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <stdio.h>

#include "mana.h"

int mana_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			 struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ib_uverbs_ex_query_device_resp resp = {};
	size_t resp_size = sizeof(resp);
	uint64_t version;
	int ret;

	ret = ibv_cmd_query_device_any(context, input, attr, attr_size, &resp, &resp_size);
	if (ret)
		return ret;
	version = resp.base.fw_ver;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver), "%u.%u.%u",
		 (unsigned int)(version >> 32 & 0xffff), (unsigned int)(version >> 16 & 0xffff),
		 (unsigned int)(version & 0xffff));
	if (to_mctx(context)->caps.features)
		attr->orig_attr.max_cqe = (int)mana_max_cqe(to_mctx(context));
	/* Who finds device memory here copies to and from it, which not every driver can. */
	if (!(to_mctx(context)->caps.flags & MANA_UAPI_CONTEXT_DM_COPIES) &&
	    attr_size >= offsetof(struct ibv_device_attr_ex, max_dm_size) +
				 sizeof(attr->max_dm_size))
		attr->max_dm_size = 0;
	return 0;
}

int mana_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	struct ibv_query_port cmd = {};

	return ibv_cmd_query_port(context, port, attr, &cmd, sizeof(cmd));
}
