// SPDX-License-Identifier: GPL-2.0
/* Requests of shared receive queues. */
#include "hwc.h"

/**
 * mana_ib_cmd_create_srq - makes an SRQ; its region is the device's then
 * @dev: device
 * @params: what to make
 * @handle: of the SRQ
 * @id: for doorbells and events
 */
int mana_ib_cmd_create_srq(struct mana_ib_dev *dev,
			   const struct mana_ib_srq_params *params, u64 *handle,
			   u32 *id)
{
	struct mana_hw_ext_create_srq_req request = {
		.adapter = dev->adapter,
		.pd = params->pd,
		.region = params->region,
		.ring_bytes = params->ring_bytes,
		.stride = params->stride,
		.doorbell_page = params->doorbell_page,
	};
	struct mana_hw_ext_create_srq_resp response;
	int err;

	err = mana_ib_hwc_send(dev, MANA_HW_EXT_CREATE_SRQ, MANA_IB_TO_DEVICE,
			       &request, sizeof(request), &response,
			       sizeof(response));
	if (err)
		return err;
	*handle = response.srq;
	*id = response.srq_id;
	return 0;
}

/**
 * mana_ib_cmd_modify_srq - arms the limit event
 * @dev: device
 * @handle: of the SRQ
 * @limit: receives below which the event comes; 0: none
 */
int mana_ib_cmd_modify_srq(struct mana_ib_dev *dev, u64 handle, u32 limit)
{
	struct mana_hw_ext_srq_req request = { .adapter = dev->adapter,
					       .srq = handle,
					       .limit = limit };

	return mana_ib_hwc_tell(dev, MANA_HW_EXT_MODIFY_SRQ, MANA_IB_TO_DEVICE,
				&request, sizeof(request));
}

/**
 * mana_ib_cmd_query_srq - asks for the limit that is armed
 * @dev: device
 * @handle: of the SRQ
 * @limit: answer
 */
int mana_ib_cmd_query_srq(struct mana_ib_dev *dev, u64 handle, u32 *limit)
{
	struct mana_hw_ext_srq_req request = { .adapter = dev->adapter,
					       .srq = handle };
	struct mana_hw_ext_query_srq_resp response;
	int err;

	err = mana_ib_hwc_send(dev, MANA_HW_EXT_QUERY_SRQ, MANA_IB_TO_DEVICE,
			       &request, sizeof(request), &response,
			       sizeof(response));
	if (!err)
		*limit = response.limit;
	return err;
}

/**
 * mana_ib_cmd_destroy_srq - ends an SRQ
 * @dev: device
 * @handle: of the SRQ
 */
void mana_ib_cmd_destroy_srq(struct mana_ib_dev *dev, u64 handle)
{
	struct mana_hw_ext_srq_req request = { .adapter = dev->adapter,
					       .srq = handle };

	mana_ib_hwc_destroy(dev, MANA_HW_EXT_DESTROY_SRQ, MANA_IB_TO_DEVICE,
			    &request, sizeof(request));
}
