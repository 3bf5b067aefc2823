// SPDX-License-Identifier: GPL-2.0
/* Requests of completion queues. */
#include "hwc.h"

/**
 * mana_ib_cmd_create_cq - makes a CQ; its region is the device's then
 * @dev: device
 * @params: what to make
 * @handle: of the CQ
 * @id: for doorbells and events
 */
int mana_ib_cmd_create_cq(struct mana_ib_dev *dev,
			  const struct mana_ib_cq_params *params, u64 *handle,
			  u32 *id)
{
	struct mana_hw_rnic_create_cq_req stock = {
		.adapter = dev->adapter,
		.region = params->region,
		.eq_id = params->eq_id,
		.doorbell_page = params->doorbell_page,
	};
	struct mana_hw_ext_create_cq_req extended = {
		.adapter = dev->adapter,
		.region = params->region,
		.entries = params->entries,
		.eq_id = params->eq_id,
		.doorbell_page = params->doorbell_page,
	};
	struct mana_hw_rnic_create_cq_resp response;
	int err;

	if (params->extended)
		err = mana_ib_hwc_send(dev, MANA_HW_EXT_CREATE_CQ,
				       MANA_IB_TO_DEVICE, &extended,
				       sizeof(extended), &response,
				       sizeof(response));
	else
		err = mana_ib_hwc_send(dev, MANA_HW_RNIC_CREATE_CQ,
				       MANA_IB_TO_DEVICE, &stock, sizeof(stock),
				       &response, sizeof(response));
	if (err)
		return err;
	*handle = response.cq;
	*id = response.cq_id;
	return 0;
}

/**
 * mana_ib_cmd_resize_cq - gives an extended CQ another ring
 * @dev: device
 * @handle: of the CQ
 * @region: of the new ring and its record; the device's if this succeeds
 * @entries: in the new ring
 * @consumer: where its first entry is
 */
int mana_ib_cmd_resize_cq(struct mana_ib_dev *dev, u64 handle, u64 region,
			  u32 entries, u32 *consumer)
{
	struct mana_hw_ext_resize_cq_req request = {
		.adapter = dev->adapter,
		.cq = handle,
		.region = region,
		.entries = entries,
	};
	struct mana_hw_ext_resize_cq_resp response;
	int err;

	err = mana_ib_hwc_send(dev, MANA_HW_EXT_RESIZE_CQ, MANA_IB_TO_DEVICE,
			       &request, sizeof(request), &response,
			       sizeof(response));
	if (!err)
		*consumer = response.consumer;
	return err;
}

/**
 * mana_ib_cmd_destroy_cq - ends a CQ of either format
 * @dev: device
 * @handle: of the CQ
 */
void mana_ib_cmd_destroy_cq(struct mana_ib_dev *dev, u64 handle)
{
	mana_ib_hwc_destroy_object(dev, MANA_HW_RNIC_DESTROY_CQ, handle);
}
