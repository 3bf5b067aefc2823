// SPDX-License-Identifier: GPL-2.0
/* Requests of keys to memory, and of device memory. */
#include "hwc.h"

/* What the kinds of keys have in places of their own. */
static void mana_ib_fill_key(struct mana_hw_create_mr_req *request,
			     const struct mana_ib_mr_params *params)
{
	switch (params->type) {
	case MANA_HW_MR_GVA:
		request->u.gva.region = params->region;
		request->u.gva.virtual_address = params->address;
		request->u.gva.access = params->access;
		break;
	case MANA_HW_MR_ZERO_BASED:
		request->u.zero_based.region = params->region;
		request->u.zero_based.access = params->access;
		break;
	case MANA_HW_MR_DM:
		request->u.dm.dm = params->dm;
		request->u.dm.offset = params->dm_offset;
		request->u.dm.access = params->access;
		request->dm_length = params->dm_length;
		break;
	case MANA_HW_EXT_MR_FAST_REGISTER:
		request->u.gva.region = params->max_pages;
		break;
	default:
		break;
	}
}

/**
 * mana_ib_cmd_create_mr - makes a key; its region is the device's then
 * @dev: device
 * @params: what to make: a memory region, or a window
 * @result: handle and keys
 */
int mana_ib_cmd_create_mr(struct mana_ib_dev *dev,
			  const struct mana_ib_mr_params *params,
			  struct mana_ib_mr_result *result)
{
	struct mana_hw_create_mr_req request = {
		.header.request.version = 2,
		.pd = params->pd,
		.type = params->type,
	};
	struct mana_hw_create_mr_resp response;
	int err;

	mana_ib_fill_key(&request, params);
	err = mana_ib_hwc_send(dev, MANA_HW_CREATE_MR, MANA_IB_TO_GDMA,
			       &request, sizeof(request), &response,
			       sizeof(response));
	if (err)
		return err;
	result->handle = response.mr;
	result->lkey = response.lkey;
	result->rkey = response.rkey;
	return 0;
}

/**
 * mana_ib_cmd_modify_mr - changes a memory region, whose keys stay
 * @dev: device
 * @change: what becomes different
 *
 * Return: -EBUSY as long as windows show the region.
 */
int mana_ib_cmd_modify_mr(struct mana_ib_dev *dev,
			  const struct mana_ib_mr_change *change)
{
	struct mana_hw_ext_modify_mr_req request = {
		.adapter = dev->adapter,
		.mr = change->mr,
		.pd = change->pd,
		.region = change->region,
		.address = change->address,
		.access = change->access,
		.flags = change->flags,
	};

	return mana_ib_hwc_tell(dev, MANA_HW_EXT_MODIFY_MR, MANA_IB_TO_DEVICE,
				&request, sizeof(request));
}

/**
 * mana_ib_cmd_destroy_mr - ends a key
 * @dev: device
 * @handle: of the region or window
 *
 * Return: -EBUSY as long as windows show the region.
 */
int mana_ib_cmd_destroy_mr(struct mana_ib_dev *dev, u64 handle)
{
	struct mana_hw_destroy_mr_req request = { .mr = handle };

	return mana_ib_hwc_undo(dev, MANA_HW_DESTROY_MR, MANA_IB_TO_GDMA,
				&request, sizeof(request));
}

/**
 * mana_ib_cmd_stop_mr - by a key, a device that was given up writes to nothing any more
 * @dev: device
 * @handle: of the region
 */
void mana_ib_cmd_stop_mr(struct mana_ib_dev *dev, u64 handle)
{
	struct mana_hw_destroy_mr_req request = { .mr = handle };

	mana_ib_hwc_insist(dev, MANA_HW_DESTROY_MR, MANA_IB_TO_GDMA, &request,
			   sizeof(request));
}

/**
 * mana_ib_cmd_alloc_dm - takes device memory
 * @dev: device
 * @bytes: how much
 * @alignment: logarithm
 * @handle: of the memory
 */
int mana_ib_cmd_alloc_dm(struct mana_ib_dev *dev, u64 bytes, u32 alignment,
			 u64 *handle)
{
	struct mana_hw_alloc_dm_req request = {
		.length = bytes,
		.log2_alignment = alignment,
	};
	struct mana_hw_alloc_dm_resp response;
	int err;

	err = mana_ib_hwc_send(dev, MANA_HW_ALLOC_DM, MANA_IB_TO_GDMA, &request,
			       sizeof(request), &response, sizeof(response));
	if (!err)
		*handle = response.dm;
	return err;
}

/**
 * mana_ib_cmd_free_dm - gives device memory back
 * @dev: device
 * @handle: of the memory
 */
void mana_ib_cmd_free_dm(struct mana_ib_dev *dev, u64 handle)
{
	struct mana_hw_destroy_dm_req request = { .dm = handle };

	mana_ib_hwc_destroy(dev, MANA_HW_DESTROY_DM, MANA_IB_TO_GDMA, &request,
			    sizeof(request));
}

/**
 * mana_ib_cmd_copy_dm - copies between device memory and memory of the host
 * @dev: device
 * @handle: of the device memory
 * @offset: in it
 * @address: bus address of the host's
 * @length: at most MANA_HW_EXT_COPY_DM_BYTES
 * @to_dm: direction
 */
int mana_ib_cmd_copy_dm(struct mana_ib_dev *dev, u64 handle, u64 offset,
			dma_addr_t address, u32 length, bool to_dm)
{
	struct mana_hw_ext_copy_dm_req request = {
		.adapter = dev->adapter,
		.dm = handle,
		.offset = offset,
		.address = address,
		.length = length,
		.direction = to_dm ? MANA_HW_EXT_COPY_TO_DM :
				     MANA_HW_EXT_COPY_FROM_DM,
	};

	return mana_ib_hwc_tell(dev, MANA_HW_EXT_COPY_DM, MANA_IB_TO_DEVICE,
				&request, sizeof(request));
}
