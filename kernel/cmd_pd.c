// SPDX-License-Identifier: GPL-2.0
/* Requests of protection domains and doorbell pages. */
#include "hwc.h"

/**
 * mana_ib_cmd_alloc_doorbell_page - takes a doorbell page for a process
 * @dev: device
 * @page: its number
 */
int mana_ib_cmd_alloc_doorbell_page(struct mana_ib_dev *dev, u32 *page)
{
	struct mana_hw_allocate_range_req request = {
		.type = MANA_HW_RESOURCE_DOORBELL_PAGE,
		.count = 1,
		.alignment = PAGE_SIZE / MANA_HW_PAGE_BYTES,
	};
	struct mana_hw_allocate_range_resp response;
	int err;

	err = mana_ib_hwc_send(dev, MANA_HW_ALLOCATE_RESOURCE_RANGE,
			       MANA_IB_TO_GDMA, &request, sizeof(request),
			       &response, sizeof(response));
	if (!err)
		*page = response.first;
	return err;
}

/**
 * mana_ib_cmd_free_doorbell_page - gives a doorbell page back
 * @dev: device
 * @page: its number
 */
void mana_ib_cmd_free_doorbell_page(struct mana_ib_dev *dev, u32 page)
{
	struct mana_hw_destroy_range_req request = {
		.type = MANA_HW_RESOURCE_DOORBELL_PAGE,
		.count = 1,
		.first = page,
	};

	mana_ib_hwc_destroy(dev, MANA_HW_DESTROY_RESOURCE_RANGE,
			    MANA_IB_TO_GDMA, &request, sizeof(request));
}

/**
 * mana_ib_cmd_create_pd - makes a protection domain
 * @dev: device
 * @kernel: it may have a key to all bus addresses, and send from any address
 * @handle: for memory and RDMA QPs
 * @id: for Ethernet queues
 */
int mana_ib_cmd_create_pd(struct mana_ib_dev *dev, bool kernel, u64 *handle,
			  u32 *id)
{
	struct mana_hw_create_pd_req request = {
		.flags = kernel ? MANA_HW_PD_ALLOW_GPA : 0,
	};
	struct mana_hw_create_pd_resp response;
	int err;

	if (!kernel && mana_ib_has(dev, MANA_HW_EXT_SOURCES))
		request.flags |= MANA_HW_EXT_PD_GRANTED_SOURCES;
	err = mana_ib_hwc_send(dev, MANA_HW_CREATE_PD, MANA_IB_TO_GDMA,
			       &request, sizeof(request), &response,
			       sizeof(response));
	if (err)
		return err;
	*handle = response.pd;
	*id = response.pd_id;
	return 0;
}

/**
 * mana_ib_cmd_destroy_pd - ends a protection domain
 * @dev: device
 * @handle: of the PD
 */
void mana_ib_cmd_destroy_pd(struct mana_ib_dev *dev, u64 handle)
{
	struct mana_hw_destroy_pd_req request = { .pd = handle };

	mana_ib_hwc_destroy(dev, MANA_HW_DESTROY_PD, MANA_IB_TO_GDMA, &request,
			    sizeof(request));
}

/**
 * mana_ib_cmd_grant_source - datagrams of a user's PD may come from an address
 * @dev: device with MANA_HW_EXT_SOURCES
 * @pd: handle of the PD
 * @gid: of the address
 * @vlan: of the address, where there is MANA_HW_EXT_VLANS; 0: none
 * @number: that it is known by from now on, in each PD
 */
int mana_ib_cmd_grant_source(struct mana_ib_dev *dev, u64 pd,
			     const union ib_gid *gid, u16 vlan, u32 number)
{
	struct mana_hw_ext_grant_source_req request = {
		.adapter = dev->adapter,
		.pd = pd,
		.number = number,
		.vlan = vlan,
	};

	memcpy(request.gid, gid->raw, sizeof(request.gid));
	return mana_ib_hwc_tell(dev, MANA_HW_EXT_GRANT_SOURCE,
				MANA_IB_TO_DEVICE, &request, sizeof(request));
}

/**
 * mana_ib_cmd_revoke_source - takes an address away from all PDs
 * @dev: device with MANA_HW_EXT_SOURCES
 * @number: that it was granted by
 */
int mana_ib_cmd_revoke_source(struct mana_ib_dev *dev, u32 number)
{
	struct mana_hw_ext_revoke_source_req request = {
		.adapter = dev->adapter,
		.number = number,
	};

	return mana_ib_hwc_tell(dev, MANA_HW_EXT_REVOKE_SOURCE,
				MANA_IB_TO_DEVICE, &request, sizeof(request));
}
