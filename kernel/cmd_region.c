// SPDX-License-Identifier: GPL-2.0
/* Requests of DMA regions, the device's lists of pages. */
#include "hwc.h"

#include <linux/log2.h>

/* Largest request of the hardware channel. */
#define MANA_IB_MESSAGE_BYTES 4096

/* The status must say exactly whether pages are missing (RNIC 2.3). */
static int mana_ib_check_pages(const struct mana_hw_response *response,
			       bool last)
{
	u32 wanted = last ? MANA_HW_STATUS_SUCCESS :
			    MANA_HW_STATUS_MORE_ENTRIES;

	return response->status == wanted ? 0 : -EPROTO;
}

/* The region, with as many pages as fit; @message is zeroed. */
static int mana_ib_send_first_pages(struct mana_ib_dev *dev, void *message,
				    const struct mana_ib_region_params *params,
				    u32 *sent, u64 *region)
{
	struct mana_hw_create_region_req *request = message;
	u32 here = min_t(u32, params->pages, MANA_HW_PAGES_PER_CREATE);
	struct mana_hw_create_region_resp response;
	int err;

	request->length = params->length;
	request->first_offset = params->offset;
	request->page_type = ilog2(params->page_size) - MANA_HW_PAGE_SHIFT;
	request->page_count = params->pages;
	request->pages_here = here;
	params->fill(params->context, (u64 *)(request + 1), here);
	err = mana_ib_hwc_send(dev, MANA_HW_CREATE_DMA_REGION, MANA_IB_TO_GDMA,
			       request, sizeof(*request) + here * sizeof(u64),
			       &response, sizeof(response));
	if (err)
		return err;
	err = mana_ib_check_pages(&response.header, here == params->pages);
	if (err) {
		mana_ib_cmd_destroy_region(dev, response.region);
		return err;
	}
	*sent = here;
	*region = response.region;
	return 0;
}

/* Pages of a region that lacks @left. */
static int mana_ib_send_more_pages(struct mana_ib_dev *dev, void *message,
				   const struct mana_ib_region_params *params,
				   u32 left, u32 *sent, u64 region)
{
	struct mana_hw_add_pages_req *request = message;
	u32 here = min_t(u32, left, MANA_HW_PAGES_PER_ADD);
	struct mana_hw_response response;
	int err;

	memset(request, 0, sizeof(*request));
	request->region = region;
	request->pages_here = here;
	params->fill(params->context, (u64 *)(request + 1), here);
	err = mana_ib_hwc_send(dev, MANA_HW_DMA_REGION_ADD_PAGES,
			       MANA_IB_TO_GDMA, request,
			       sizeof(*request) + here * sizeof(u64), &response,
			       sizeof(response));
	*sent = here;
	return err ? err : mana_ib_check_pages(&response, here == left);
}

/**
 * mana_ib_cmd_create_region - makes a DMA region
 * @dev: device
 * @params: its pages
 * @region: handle; the caller's until an object takes it over
 */
int mana_ib_cmd_create_region(struct mana_ib_dev *dev,
			      const struct mana_ib_region_params *params,
			      u64 *region)
{
	void *message;
	u32 left, sent;
	u64 handle;
	int err;

	message = kzalloc(MANA_IB_MESSAGE_BYTES, GFP_KERNEL);
	if (!message)
		return -ENOMEM;
	err = mana_ib_send_first_pages(dev, message, params, &sent, &handle);
	if (err)
		goto out;
	for (left = params->pages - sent; left; left -= sent) {
		err = mana_ib_send_more_pages(dev, message, params, left, &sent,
					      handle);
		if (err) {
			mana_ib_cmd_destroy_region(dev, handle);
			goto out;
		}
	}
	*region = handle;
out:
	kfree(message);
	return err;
}

/**
 * mana_ib_cmd_destroy_region - ends a DMA region that no object has taken over
 * @dev: device
 * @region: handle; 0: there is none
 */
void mana_ib_cmd_destroy_region(struct mana_ib_dev *dev, u64 region)
{
	struct mana_hw_destroy_region_req request = { .region = region };

	if (!region)
		return;
	mana_ib_hwc_destroy(dev, MANA_HW_DESTROY_DMA_REGION, MANA_IB_TO_GDMA,
			    &request, sizeof(request));
}
