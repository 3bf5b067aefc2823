/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How requests reach the device and what they have in common: for cmd_*.c, which
 * alone know message layouts.
 */
#ifndef MANA_IB_HWC_H
#define MANA_IB_HWC_H

#include "cmd.h"

#include <mana/hwc.h>

/* Who a request is for. */
enum mana_ib_hwc_target {
	MANA_IB_TO_GDMA,
	MANA_IB_TO_DEVICE, /* ours */
	MANA_IB_TO_ETHERNET /* of the same function */
};

/* The adapter's handle is the first field of each RDMA request. */
struct mana_ib_adapter_req {
	struct mana_hw_rnic_req_head head;
	u64 adapter;
};

/* ... and the object's handle the second of many. */
struct mana_ib_object_req {
	struct mana_hw_rnic_req_head head;
	u64 adapter;
	u64 handle;
};

/* The counters of struct mana_hw_rnic_vf_counters_resp, as an array. */
struct mana_ib_counters_resp {
	struct mana_hw_rnic_resp_head head;
	u64 values[MANA_IB_VF_COUNTERS];
};

MANA_HW_SIZE(struct mana_ib_counters_resp,
	     sizeof(struct mana_hw_rnic_vf_counters_resp));

/* Every request begins with it, whatever its layout calls that. */
static inline struct mana_hw_request *mana_ib_request_header(void *request)
{
	return request;
}

int mana_ib_hwc_send(struct mana_ib_dev *dev, u32 opcode,
		     enum mana_ib_hwc_target target, void *request,
		     u32 request_bytes, void *response, u32 response_bytes);
int mana_ib_hwc_tell(struct mana_ib_dev *dev, u32 opcode,
		     enum mana_ib_hwc_target target, void *request,
		     u32 request_bytes);
int mana_ib_hwc_undo(struct mana_ib_dev *dev, u32 opcode,
		     enum mana_ib_hwc_target target, void *request,
		     u32 request_bytes);
void mana_ib_hwc_insist(struct mana_ib_dev *dev, u32 opcode,
			enum mana_ib_hwc_target target, void *request,
			u32 request_bytes);
int mana_ib_hwc_destroy(struct mana_ib_dev *dev, u32 opcode,
			enum mana_ib_hwc_target target, void *request,
			u32 request_bytes);
void mana_ib_hwc_destroy_object(struct mana_ib_dev *dev, u32 opcode,
				u64 handle);

#endif
