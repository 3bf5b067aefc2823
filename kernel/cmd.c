// SPDX-License-Identifier: GPL-2.0
/*
 * Requests to the device. The only place that knows message headers, and that
 * turns a device status into an errno.
 */
#include "cmd.h"

#include <linux/pci.h>
#include <mana/eth.h>
#include <mana/hwc.h>

/* Statuses that OpenMANA's device gives a meaning; others are just failures. */
enum mana_ib_status {
	MANA_IB_STATUS_INVALID = 1,
	MANA_IB_STATUS_NOT_FOUND = 2,
	MANA_IB_STATUS_NO_RESOURCES = 3,
	MANA_IB_STATUS_BUSY = 4
};

static int mana_ib_status_errno(u32 status)
{
	switch (status) {
	case MANA_HW_STATUS_SUCCESS:
		return 0;
	case MANA_HW_STATUS_UNSUPPORTED:
		return -EOPNOTSUPP;
	case MANA_IB_STATUS_INVALID:
	case MANA_IB_STATUS_NOT_FOUND:
		return -EINVAL;
	case MANA_IB_STATUS_NO_RESOURCES:
		return -ENOMEM;
	case MANA_IB_STATUS_BUSY:
		return -EBUSY;
	default:
		return -EPROTO;
	}
}

/*
 * How long the parent waits is one number for a function, which may have two
 * RDMA devices: who changes it for a while puts it back before the other looks.
 */
static DEFINE_MUTEX(mana_ib_probe_lock);

/*
 * A request without effect: whether there is an answer, whatever it is. It is
 * not waited for as long as usual; `waiting` is how long that is from then on.
 * The caller holds mana_ib_probe_lock.
 */
static bool mana_ib_answers(struct mana_ib_dev *dev, u32 waiting)
{
	struct mana_hw_request request = {
		.request = { .opcode = MANA_HW_QUERY_MAX_RESOURCES,
			     .version = 1,
			     .size = sizeof(request) },
		.response = { .opcode = MANA_HW_QUERY_MAX_RESOURCES,
			      .version = 1,
			      .size = sizeof(struct mana_hw_max_resources_resp) },
	};
	struct mana_hw_max_resources_resp response;

	compat_set_waiting(dev->gc, MANA_IB_PROBE_MS);
	if (mana_gd_send_request(dev->gc, sizeof(request), &request,
				 sizeof(response), &response) == -ETIMEDOUT) {
		compat_set_waiting(dev->gc, 1);
		return false;
	}
	compat_set_waiting(dev->gc, waiting);
	return true;
}

/* The device does not answer any more: no more requests, and users are told. */
static void mana_ib_lost(struct mana_ib_dev *dev)
{
	struct ib_event event = { .device = &dev->ibdev,
				  .element.port_num = 1,
				  .event = IB_EVENT_DEVICE_FATAL };
	u32 waiting;

	if (xchg(&dev->gone, true))
		return;
	mutex_lock(&mana_ib_probe_lock);
	/* Ethernet shares the channel, so it is cut off only for good reason. */
	waiting = compat_set_waiting(dev->gc, 1);
	if (waiting <= 1)
		waiting = MANA_IB_WAITING_MS;
	if (!pci_device_is_present(to_pci_dev(dev->gc->dev)) ||
	    !mana_ib_answers(dev, waiting)) {
		dev->waiting = waiting;
		WRITE_ONCE(dev->silent, true);
	}
	mutex_unlock(&mana_ib_probe_lock);
	/* Not from here: who waits for an answer may hold a QP's mutex. */
	schedule_work(&dev->lost_work);
	/* Before and after that the core has no use for events. */
	if (READ_ONCE(dev->announced))
		ib_dispatch_event(&event);
}

/**
 * mana_ib_leave_silent - the driver goes from a device that did not answer
 * @dev: device
 *
 * One that answers again was only slow: the parent waits for it as before.
 */
void mana_ib_leave_silent(struct mana_ib_dev *dev)
{
	bool present = pci_device_is_present(to_pci_dev(dev->gc->dev));
	bool answers;

	if (!dev->silent)
		return;
	mutex_lock(&mana_ib_probe_lock);
	answers = present && mana_ib_answers(dev, dev->waiting);
	mutex_unlock(&mana_ib_probe_lock);
	if (!answers)
		compat_forget_frames(dev->eth);
}

/*
 * Sends a request whose header this function fills; versions other than 1 are
 * set before. `device` says whether it is for our GDMA device or for GDMA
 * itself. The response is zero where the device sends less.
 */
static int mana_ib_send(struct mana_ib_dev *dev, u32 opcode, bool device,
			void *request, u32 request_bytes, void *response,
			u32 response_bytes)
{
	struct mana_hw_response *answer = response;
	struct mana_hw_request *header = request;
	int err;

	if (dev->gone)
		return -ENODEV;

	header->request.opcode = opcode;
	header->request.size = request_bytes;
	header->response.opcode = opcode;
	header->response.size = response_bytes;
	if (!header->request.version)
		header->request.version = 1;
	if (!header->response.version)
		header->response.version = 1;
	if (device) {
		header->device.type = dev->gdev->dev_id.type;
		header->device.instance = dev->gdev->dev_id.instance;
	}

	memset(response, 0, response_bytes);
	err = mana_gd_send_request(dev->gc, request_bytes, request,
				   response_bytes, response);
	if (err == -ETIMEDOUT) {
		dev_err(dev->gc->dev, "mana_ib: request %#x: no answer\n",
			opcode);
		mana_ib_lost(dev);
		return err;
	}
	/* Older parents say -EPROTO for each status; the answer tells more. */
	if (answer->status == MANA_HW_STATUS_MORE_ENTRIES)
		return err;
	if (answer->status)
		return mana_ib_status_errno(answer->status);
	return err;
}

/* For our GDMA device, with a response that is only a header. */
static int mana_ib_send_plain(struct mana_ib_dev *dev, u32 opcode, bool device,
			      void *request, u32 request_bytes)
{
	struct mana_hw_response response;

	return mana_ib_send(dev, opcode, device, request, request_bytes,
			    &response, sizeof(response));
}

/* Undoing must not fail: whatever the device says, the object is gone for us. */
static void mana_ib_send_destroy(struct mana_ib_dev *dev, u32 opcode,
				 bool device, void *request, u32 request_bytes)
{
	int err;

	err = mana_ib_send_plain(dev, opcode, device, request, request_bytes);
	if (err && !dev->gone)
		dev_warn_ratelimited(dev->gc->dev,
				     "mana_ib: request %#x failed: %pe\n",
				     opcode, ERR_PTR(err));
}

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

static void mana_ib_destroy_object(struct mana_ib_dev *dev, u32 opcode,
				   u64 handle)
{
	struct mana_ib_object_req request = { .adapter = dev->adapter,
					      .handle = handle };

	mana_ib_send_destroy(dev, opcode, true, &request, sizeof(request));
}

/* The counters of struct mana_hw_rnic_vf_counters_resp, as an array. */
struct mana_ib_counters_resp {
	struct mana_hw_rnic_resp_head head;
	u64 values[MANA_IB_VF_COUNTERS];
};

MANA_HW_SIZE(struct mana_ib_counters_resp,
	     sizeof(struct mana_hw_rnic_vf_counters_resp));

int mana_ib_cmd_query_limits(struct mana_ib_dev *dev)
{
	struct mana_hw_request request = { .response.version = 4 };
	struct mana_hw_rnic_query_caps_resp caps;
	struct mana_ib_limits *limits = &dev->limits;
	int err;

	err = mana_ib_send(dev, MANA_HW_RNIC_QUERY_CAPS, true, &request,
			   sizeof(request), &caps, sizeof(caps));
	if (err)
		return err;

	limits->max_qp = caps.max_qp;
	limits->max_cq = caps.max_cq;
	limits->max_mr = caps.max_mr;
	limits->max_pd = caps.max_pd;
	limits->max_mw = caps.max_mw;
	limits->max_read_in = caps.max_inbound_reads;
	limits->max_read_out = caps.max_outbound_reads;
	limits->max_send_sge = caps.max_send_sge;
	limits->max_recv_sge = caps.max_recv_sge;
	/* RNIC 2.4: what fits the rings with WQEs of the largest size */
	limits->max_send_wr =
		min(caps.requester_sq_bytes / MANA_HW_SQ_WQE_MAX_BYTES,
		    caps.requester_rq_bytes / MANA_HW_RQ_WQE_MAX_BYTES);
	limits->max_recv_wr = limits->max_send_wr;
	limits->max_cqe = MANA_IB_STOCK_CQES;
	limits->caps = caps.features;
	return 0;
}

int mana_ib_cmd_query_ethernet_limits(struct mana_ib_dev *dev)
{
	struct mana_ib_limits *limits = &dev->limits;
	struct mana_hw_max_resources_resp max;
	struct mana_hw_request request = {};
	int err;

	err = mana_ib_send(dev, MANA_HW_QUERY_MAX_RESOURCES, false, &request,
			   sizeof(request), &max, sizeof(max));
	if (err)
		return err;

	limits->max_qp = min(max.max_sqs, max.max_rqs);
	limits->max_cq = max.max_cqs;
	limits->max_mr = max.max_keys;
	limits->max_pd = max.max_keys;
	limits->max_send_wr = SZ_4M / MANA_HW_SQ_WQE_MAX_BYTES;
	limits->max_recv_wr = limits->max_send_wr;
	limits->max_cqe = MANA_IB_STOCK_CQES;
	limits->max_send_sge = 29;
	limits->max_recv_sge = 15;
	return 0;
}

int mana_ib_cmd_query_ext_limits(struct mana_ib_dev *dev)
{
	struct mana_ib_adapter_req request = { .adapter = dev->adapter };
	struct mana_hw_ext_query_caps_resp caps;
	struct mana_ib_ext_limits *ext = &dev->ext;
	int err;

	err = mana_ib_send(dev, MANA_HW_EXT_QUERY_CAPS, true, &request,
			   sizeof(request), &caps, sizeof(caps));
	if (err)
		return err;
	if (caps.version != MANA_HW_EXT_VERSION)
		return -EOPNOTSUPP;

	ext->features = caps.features;
	ext->max_srq = caps.max_srq;
	ext->max_srq_wr = caps.max_srq_wr;
	ext->max_srq_sge = caps.max_srq_sge;
	ext->max_send_wr = caps.max_send_wr;
	ext->max_recv_wr = caps.max_recv_wr;
	ext->max_send_sge = caps.max_send_sge;
	ext->max_recv_sge = caps.max_recv_sge;
	ext->max_inline_bytes = caps.max_inline_bytes;
	ext->max_cqe = caps.max_cqe;
	ext->max_fast_reg_pages = caps.max_fast_reg_pages;
	ext->max_multicast_groups = caps.max_multicast_groups;
	ext->max_multicast_qps = caps.max_multicast_qps;
	ext->clock_khz = caps.clock_khz;
	return 0;
}

int mana_ib_cmd_create_adapter(struct mana_ib_dev *dev, u32 event_eq)
{
	struct mana_hw_rnic_create_adapter_req request = {
		.event_eq = event_eq,
	};
	struct mana_hw_rnic_create_adapter_resp response;
	int err;

	((struct mana_hw_request *)&request)->request.version = 2;
	if (dev->limits.caps & MANA_HW_RNIC_CAP_ERROR_CQES)
		request.features |= MANA_HW_RNIC_FEATURE_ERROR_CQES;
	if (dev->limits.caps & MANA_HW_RNIC_CAP_EXTENSIONS)
		request.features |= MANA_HW_RNIC_FEATURE_EXTENSIONS;

	err = mana_ib_send(dev, MANA_HW_RNIC_CREATE_ADAPTER, true, &request,
			   sizeof(request), &response, sizeof(response));
	if (!err)
		dev->adapter = response.adapter;
	return err;
}

void mana_ib_cmd_destroy_adapter(struct mana_ib_dev *dev)
{
	struct mana_ib_adapter_req request = { .adapter = dev->adapter };

	mana_ib_send_destroy(dev, MANA_HW_RNIC_DESTROY_ADAPTER, true, &request,
			     sizeof(request));
}

int mana_ib_cmd_config_address(struct mana_ib_dev *dev, u32 operation,
			       const union ib_gid *gid)
{
	struct mana_hw_rnic_config_address_req request = {
		.adapter = dev->adapter,
		.operation = operation,
	};

	request.type = ipv6_addr_v4mapped((const struct in6_addr *)gid) ?
			       MANA_HW_RNIC_ADDRESS_IPV4 :
			       MANA_HW_RNIC_ADDRESS_IPV6;
	mana_ib_reverse(request.gid, gid->raw, sizeof(request.gid));
	return mana_ib_send_plain(dev, MANA_HW_RNIC_CONFIG_ADDRESS, true,
				  &request, sizeof(request));
}

int mana_ib_cmd_add_mac(struct mana_ib_dev *dev, const u8 *mac)
{
	struct mana_hw_rnic_config_mac_req request = {
		.adapter = dev->adapter,
		.operation = MANA_HW_RNIC_CONFIG_ADD,
	};

	mana_ib_reverse(request.mac, mac, sizeof(request.mac));
	return mana_ib_send_plain(dev, MANA_HW_RNIC_CONFIG_MAC, true, &request,
				  sizeof(request));
}

/* `values` in the order of the response: MANA_IB_VF_COUNTERS of them. */
int mana_ib_cmd_vf_counters(struct mana_ib_dev *dev, u64 *values)
{
	struct mana_ib_adapter_req request = { .adapter = dev->adapter };
	struct mana_ib_counters_resp response;
	int err;

	((struct mana_hw_request *)&request)->response.version = 2;
	err = mana_ib_send(dev, MANA_HW_RNIC_QUERY_VF_COUNTERS, true, &request,
			   sizeof(request), &response, sizeof(response));
	if (!err)
		memcpy(values, response.values, sizeof(response.values));
	return err;
}

/* `values` in the order of the response: MANA_IB_DEVICE_COUNTERS of them. */
int mana_ib_cmd_device_counters(struct mana_ib_dev *dev, u64 *values)
{
	struct mana_ib_adapter_req request = { .adapter = dev->adapter };
	struct {
		struct mana_hw_rnic_resp_head head;
		u32 values[MANA_IB_DEVICE_COUNTERS];
	} response;
	unsigned int i;
	int err;

	BUILD_BUG_ON(sizeof(response) !=
		     sizeof(struct mana_hw_rnic_device_counters_resp));
	err = mana_ib_send(dev, MANA_HW_RNIC_QUERY_DEVICE_COUNTERS, true,
			   &request, sizeof(request), &response,
			   sizeof(response));
	if (err)
		return err;
	for (i = 0; i < MANA_IB_DEVICE_COUNTERS; i++)
		values[i] = response.values[i];
	return 0;
}

int mana_ib_cmd_alloc_doorbell_page(struct mana_ib_dev *dev, u32 *page)
{
	struct mana_hw_allocate_range_req request = {
		.type = MANA_HW_RESOURCE_DOORBELL_PAGE,
		.count = 1,
		.alignment = PAGE_SIZE / MANA_HW_PAGE_BYTES,
	};
	struct mana_hw_allocate_range_resp response;
	int err;

	err = mana_ib_send(dev, MANA_HW_ALLOCATE_RESOURCE_RANGE, false,
			   &request, sizeof(request), &response,
			   sizeof(response));
	if (!err)
		*page = response.first;
	return err;
}

void mana_ib_cmd_free_doorbell_page(struct mana_ib_dev *dev, u32 page)
{
	struct mana_hw_destroy_range_req request = {
		.type = MANA_HW_RESOURCE_DOORBELL_PAGE,
		.count = 1,
		.first = page,
	};

	mana_ib_send_destroy(dev, MANA_HW_DESTROY_RESOURCE_RANGE, false,
			     &request, sizeof(request));
}

int mana_ib_cmd_create_pd(struct mana_ib_dev *dev, bool kernel, u64 *handle,
			  u32 *id)
{
	struct mana_hw_create_pd_req request = {
		.flags = kernel ? MANA_HW_PD_ALLOW_GPA : 0,
	};
	struct mana_hw_create_pd_resp response;
	int err;

	err = mana_ib_send(dev, MANA_HW_CREATE_PD, false, &request,
			   sizeof(request), &response, sizeof(response));
	if (err)
		return err;
	*handle = response.pd;
	*id = response.pd_id;
	return 0;
}

void mana_ib_cmd_destroy_pd(struct mana_ib_dev *dev, u64 handle)
{
	struct mana_hw_destroy_pd_req request = { .pd = handle };

	mana_ib_send_destroy(dev, MANA_HW_DESTROY_PD, false, &request,
			     sizeof(request));
}

int mana_ib_cmd_create_mr(struct mana_ib_dev *dev,
			  struct mana_hw_create_mr_req *request, u64 *handle,
			  u32 *lkey, u32 *rkey)
{
	struct mana_hw_create_mr_resp response;
	int err;

	request->header.request.version = 2;
	err = mana_ib_send(dev, MANA_HW_CREATE_MR, false, request,
			   sizeof(*request), &response, sizeof(response));
	if (err)
		return err;
	*handle = response.mr;
	*lkey = response.lkey;
	*rkey = response.rkey;
	return 0;
}

/* Refused with -EBUSY as long as windows show the region. */
int mana_ib_cmd_destroy_mr(struct mana_ib_dev *dev, u64 handle)
{
	struct mana_hw_destroy_mr_req request = { .mr = handle };

	return mana_ib_send_plain(dev, MANA_HW_DESTROY_MR, false, &request,
				  sizeof(request));
}

/* Refused with -EBUSY as long as windows show the region. */
int mana_ib_cmd_modify_mr(struct mana_ib_dev *dev,
			  struct mana_hw_ext_modify_mr_req *request)
{
	request->adapter = dev->adapter;
	return mana_ib_send_plain(dev, MANA_HW_EXT_MODIFY_MR, true, request,
				  sizeof(*request));
}

int mana_ib_cmd_alloc_dm(struct mana_ib_dev *dev, u64 bytes, u32 alignment,
			 u64 *handle)
{
	struct mana_hw_alloc_dm_req request = {
		.length = bytes,
		.log2_alignment = alignment,
	};
	struct mana_hw_alloc_dm_resp response;
	int err;

	err = mana_ib_send(dev, MANA_HW_ALLOC_DM, false, &request,
			   sizeof(request), &response, sizeof(response));
	if (!err)
		*handle = response.dm;
	return err;
}

void mana_ib_cmd_free_dm(struct mana_ib_dev *dev, u64 handle)
{
	struct mana_hw_destroy_dm_req request = { .dm = handle };

	mana_ib_send_destroy(dev, MANA_HW_DESTROY_DM, false, &request,
			     sizeof(request));
}

/* At most MANA_HW_EXT_COPY_DM_BYTES, to or from memory of the host. */
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

	return mana_ib_send_plain(dev, MANA_HW_EXT_COPY_DM, true, &request,
				  sizeof(request));
}

/* The status must say exactly whether pages are missing (RNIC 2.3). */
static int mana_ib_check_pages(const struct mana_hw_response *response,
			       bool last)
{
	u32 wanted = last ? MANA_HW_STATUS_SUCCESS :
			    MANA_HW_STATUS_MORE_ENTRIES;

	return response->status == wanted ? 0 : -EPROTO;
}

int mana_ib_cmd_create_region(struct mana_ib_dev *dev,
			      struct mana_hw_create_region_req *request,
			      u32 room, u64 *region)
{
	struct mana_hw_create_region_resp response;
	bool last = request->pages_here == request->page_count;
	int err;

	request->header.request.version = 0;
	request->header.response.version = 0;
	err = mana_ib_send(dev, MANA_HW_CREATE_DMA_REGION, false, request, room,
			   &response, sizeof(response));
	if (err)
		return err;
	*region = response.region;
	err = mana_ib_check_pages(&response.header, last);
	if (err)
		mana_ib_cmd_destroy_region(dev, response.region);
	return err;
}

int mana_ib_cmd_add_pages(struct mana_ib_dev *dev,
			  struct mana_hw_add_pages_req *request, u32 room,
			  bool last)
{
	struct mana_hw_response response;
	int err;

	err = mana_ib_send(dev, MANA_HW_DMA_REGION_ADD_PAGES, false, request,
			   room, &response, sizeof(response));
	return err ? err : mana_ib_check_pages(&response, last);
}

void mana_ib_cmd_destroy_region(struct mana_ib_dev *dev, u64 region)
{
	struct mana_hw_destroy_region_req request = { .region = region };

	if (!region)
		return;
	mana_ib_send_destroy(dev, MANA_HW_DESTROY_DMA_REGION, false, &request,
			     sizeof(request));
}

int mana_ib_cmd_create_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq,
			  u64 region, u32 eq_id, u32 doorbell_page)
{
	struct mana_hw_rnic_create_cq_resp response;
	int err;

	if (cq->extended) {
		struct mana_hw_ext_create_cq_req request = {
			.adapter = dev->adapter,
			.region = region,
			.entries = cq->entries,
			.eq_id = eq_id,
			.doorbell_page = doorbell_page,
		};

		err = mana_ib_send(dev, MANA_HW_EXT_CREATE_CQ, true, &request,
				   sizeof(request), &response,
				   sizeof(response));
	} else {
		struct mana_hw_rnic_create_cq_req request = {
			.adapter = dev->adapter,
			.region = region,
			.eq_id = eq_id,
			.doorbell_page = doorbell_page,
		};

		err = mana_ib_send(dev, MANA_HW_RNIC_CREATE_CQ, true, &request,
				   sizeof(request), &response,
				   sizeof(response));
	}
	if (err)
		return err;
	cq->handle = response.cq;
	cq->id = response.cq_id;
	return 0;
}

int mana_ib_cmd_resize_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq,
			  u64 region, u32 entries, u32 *consumer)
{
	struct mana_hw_ext_resize_cq_req request = {
		.adapter = dev->adapter,
		.cq = cq->handle,
		.region = region,
		.entries = entries,
	};
	struct mana_hw_ext_resize_cq_resp response;
	int err;

	err = mana_ib_send(dev, MANA_HW_EXT_RESIZE_CQ, true, &request,
			   sizeof(request), &response, sizeof(response));
	if (!err)
		*consumer = response.consumer;
	return err;
}

void mana_ib_cmd_destroy_cq(struct mana_ib_dev *dev, u64 handle)
{
	mana_ib_destroy_object(dev, MANA_HW_RNIC_DESTROY_CQ, handle);
}

int mana_ib_cmd_create_rc_qp(struct mana_ib_dev *dev, struct mana_ib_qp *qp,
			     const u64 *regions, u32 doorbell_page,
			     const struct ib_qp_init_attr *attr)
{
	struct mana_hw_rnic_create_rc_qp_req request = {
		.adapter = dev->adapter,
		.pd = to_mana_pd(qp->ibqp.pd)->handle,
		.send_cq = to_mana_cq(attr->send_cq)->handle,
		.recv_cq = to_mana_cq(attr->recv_cq)->handle,
		.flags = MANA_HW_RNIC_RC_NO_FAST_REGISTER,
		.doorbell_page = doorbell_page,
		.max_send_wr = attr->cap.max_send_wr,
		.max_recv_wr = attr->cap.max_recv_wr,
		.max_send_sge = attr->cap.max_send_sge,
		.max_recv_sge = attr->cap.max_recv_sge,
	};
	struct mana_hw_rnic_create_rc_qp_resp response;
	int err;

	memcpy(request.regions, regions, sizeof(request.regions));
	err = mana_ib_send(dev, MANA_HW_RNIC_CREATE_RC_QP, true, &request,
			   sizeof(request), &response, sizeof(response));
	if (err)
		return err;
	qp->handle = response.qp;
	memcpy(qp->queue_ids, response.queue_ids, sizeof(qp->queue_ids));
	qp->sq_id = response.queue_ids[MANA_HW_RNIC_REQUESTER_SQ];
	qp->ibqp.qp_num = response.queue_ids[MANA_HW_RNIC_RESPONDER_RQ];
	return 0;
}

int mana_ib_cmd_create_ud_qp(struct mana_ib_dev *dev, struct mana_ib_qp *qp,
			     u64 sq_region, u64 rq_region, u32 doorbell_page,
			     const struct ib_qp_init_attr *attr)
{
	struct mana_hw_rnic_create_ud_qp_req request = {
		.adapter = dev->adapter,
		.pd = to_mana_pd(qp->ibqp.pd)->handle,
		.send_cq = to_mana_cq(attr->send_cq)->handle,
		.recv_cq = to_mana_cq(attr->recv_cq)->handle,
		.sq_region = sq_region,
		.rq_region = rq_region,
		.type = attr->qp_type == IB_QPT_GSI ? MANA_HW_RNIC_UD_GSI :
						      MANA_HW_RNIC_UD_USER,
		.doorbell_page = doorbell_page,
		.max_send_wr = attr->cap.max_send_wr,
		.max_recv_wr = attr->cap.max_recv_wr,
		.max_send_sge = attr->cap.max_send_sge,
		.max_recv_sge = attr->cap.max_recv_sge,
	};
	struct mana_hw_rnic_create_ud_qp_resp response;
	int err;

	err = mana_ib_send(dev, MANA_HW_RNIC_CREATE_UD_QP, true, &request,
			   sizeof(request), &response, sizeof(response));
	if (err)
		return err;
	qp->handle = response.qp;
	qp->sq_id = response.sq_id;
	qp->ibqp.qp_num = response.rq_id;
	return 0;
}

/* Fills what does not depend on the queues' memory. */
int mana_ib_cmd_create_ext_qp(struct mana_ib_dev *dev, struct mana_ib_qp *qp,
			      struct mana_hw_ext_create_qp_req *request,
			      const struct ib_qp_init_attr *attr)
{
	struct mana_hw_ext_create_qp_resp response;
	int err;

	/* The device's numbers are those of the verbs. */
	BUILD_BUG_ON(MANA_HW_EXT_QP_GSI != (int)IB_QPT_GSI ||
		     MANA_HW_EXT_QP_RC != (int)IB_QPT_RC ||
		     MANA_HW_EXT_QP_UC != (int)IB_QPT_UC ||
		     MANA_HW_EXT_QP_UD != (int)IB_QPT_UD);
	request->adapter = dev->adapter;
	request->pd = to_mana_pd(qp->ibqp.pd)->handle;
	request->send_cq = to_mana_cq(attr->send_cq)->handle;
	request->recv_cq = to_mana_cq(attr->recv_cq)->handle;
	request->srq = attr->srq ? to_mana_srq(attr->srq)->handle : 0;
	request->type = attr->qp_type;
	err = mana_ib_send(dev, MANA_HW_EXT_CREATE_QP, true, request,
			   sizeof(*request), &response, sizeof(response));
	if (err)
		return err;
	qp->handle = response.qp;
	qp->sq_id = response.sq_id;
	qp->ibqp.qp_num = response.rq_id;
	return 0;
}

void mana_ib_cmd_destroy_qp(struct mana_ib_dev *dev, struct mana_ib_qp *qp)
{
	u32 opcode;

	switch (qp->format) {
	case MANA_IB_QP_EXTENDED:
		opcode = MANA_HW_EXT_DESTROY_QP;
		break;
	case MANA_IB_QP_STOCK_UD:
		opcode = MANA_HW_RNIC_DESTROY_UD_QP;
		break;
	default:
		opcode = MANA_HW_RNIC_DESTROY_RC_QP;
		break;
	}
	mana_ib_destroy_object(dev, opcode, qp->handle);
}

int mana_ib_cmd_set_qp_state(struct mana_ib_dev *dev,
			     struct mana_hw_rnic_set_qp_state_req *request)
{
	((struct mana_hw_request *)request)->request.version = 3;
	request->adapter = dev->adapter;
	return mana_ib_send_plain(dev, MANA_HW_RNIC_SET_QP_STATE, true, request,
				  sizeof(*request));
}

int mana_ib_cmd_query_qp(struct mana_ib_dev *dev, struct mana_ib_qp *qp,
			 struct mana_hw_ext_query_qp_resp *response)
{
	struct mana_ib_object_req request = { .adapter = dev->adapter,
					      .handle = qp->handle };
	int err;

	err = mana_ib_send(dev, MANA_HW_EXT_QUERY_QP, true, &request,
			   sizeof(request), response, sizeof(*response));
	/* The core's table of transitions is indexed with it. */
	if (!err && response->state > MANA_HW_RNIC_QP_ERR)
		return -EPROTO;
	return err;
}

int mana_ib_cmd_qp_counters(struct mana_ib_dev *dev, struct mana_ib_qp *qp,
			    u64 *values)
{
	struct mana_ib_object_req request = { .adapter = dev->adapter,
					      .handle = qp->handle };
	struct mana_ib_counters_resp response;
	int err;

	((struct mana_hw_request *)&request)->response.version = 2;
	err = mana_ib_send(dev, MANA_HW_EXT_QUERY_QP_COUNTERS, true, &request,
			   sizeof(request), &response, sizeof(response));
	if (!err)
		memcpy(values, response.values, sizeof(response.values));
	return err;
}

int mana_ib_cmd_create_srq(struct mana_ib_dev *dev, struct mana_ib_srq *srq,
			   u64 region, u32 ring_bytes, u32 doorbell_page)
{
	struct mana_hw_ext_create_srq_req request = {
		.adapter = dev->adapter,
		.pd = to_mana_pd(srq->ibsrq.pd)->handle,
		.region = region,
		.ring_bytes = ring_bytes,
		.stride = srq->stride,
		.doorbell_page = doorbell_page,
	};
	struct mana_hw_ext_create_srq_resp response;
	int err;

	err = mana_ib_send(dev, MANA_HW_EXT_CREATE_SRQ, true, &request,
			   sizeof(request), &response, sizeof(response));
	if (err)
		return err;
	srq->handle = response.srq;
	srq->id = response.srq_id;
	return 0;
}

int mana_ib_cmd_modify_srq(struct mana_ib_dev *dev, struct mana_ib_srq *srq,
			   u32 limit)
{
	struct mana_hw_ext_srq_req request = { .adapter = dev->adapter,
					       .srq = srq->handle,
					       .limit = limit };

	return mana_ib_send_plain(dev, MANA_HW_EXT_MODIFY_SRQ, true, &request,
				  sizeof(request));
}

int mana_ib_cmd_query_srq(struct mana_ib_dev *dev, struct mana_ib_srq *srq,
			  u32 *limit)
{
	struct mana_hw_ext_srq_req request = { .adapter = dev->adapter,
					       .srq = srq->handle };
	struct mana_hw_ext_query_srq_resp response;
	int err;

	err = mana_ib_send(dev, MANA_HW_EXT_QUERY_SRQ, true, &request,
			   sizeof(request), &response, sizeof(response));
	if (!err)
		*limit = response.limit;
	return err;
}

void mana_ib_cmd_destroy_srq(struct mana_ib_dev *dev, u64 handle)
{
	struct mana_hw_ext_srq_req request = { .adapter = dev->adapter,
					       .srq = handle };

	mana_ib_send_destroy(dev, MANA_HW_EXT_DESTROY_SRQ, true, &request,
			     sizeof(request));
}

int mana_ib_cmd_multicast(struct mana_ib_dev *dev, struct mana_ib_qp *qp,
			  const union ib_gid *gid, bool attach)
{
	struct mana_hw_ext_multicast_req request = { .adapter = dev->adapter,
						     .qp = qp->handle };

	memcpy(request.gid, gid->raw, sizeof(request.gid));
	return mana_ib_send_plain(dev,
				  attach ? MANA_HW_EXT_ATTACH_MULTICAST :
					   MANA_HW_EXT_DETACH_MULTICAST,
				  true, &request, sizeof(request));
}

/* For the Ethernet device that belongs to ours. */
static void mana_ib_to_ethernet(struct mana_ib_dev *dev, void *request)
{
	struct mana_hw_request *header = request;

	header->device.type = dev->gc->mana.dev_id.type;
	header->device.instance = dev->gc->mana.dev_id.instance;
}

/*
 * A work queue and its CQ of a port (GDMA 6.6). The parent could do it too, but
 * to it each refusal is -EPROTO and worth a line in the log.
 */
int mana_ib_cmd_create_wq_object(struct mana_ib_dev *dev,
				 struct mana_port_context *port, u32 type,
				 const struct mana_obj_spec *wq,
				 const struct mana_obj_spec *cq, u32 *wq_id,
				 u32 *cq_id, u64 *object)
{
	struct mana_hw_eth_create_wq_req request = {
		.vport = port->port_handle,
		.wq_type = type,
		.wq_region = wq->gdma_region,
		.cq_region = cq->gdma_region,
		.wq_bytes = wq->queue_size,
		.cq_bytes = cq->queue_size,
		.eq_id = cq->attached_eq,
	};
	struct mana_hw_eth_create_wq_resp response;
	int err;

	mana_ib_to_ethernet(dev, &request);
	err = mana_ib_send(dev, MANA_HW_ETH_CREATE_WQ_OBJ, false, &request,
			   sizeof(request), &response, sizeof(response));
	if (err)
		return err;
	if (response.wq_object == MANA_HW_ETH_NO_OBJECT)
		return -EPROTO;
	*wq_id = response.wq_id;
	*cq_id = response.cq_id;
	*object = response.wq_object;
	return 0;
}

/* Receive steering of a port: a table of RQ objects and a hash key (GDMA 6.8). */
int mana_ib_cmd_steer(struct mana_ib_dev *dev, struct mana_port_context *port,
		      const u64 *table, u32 entries, u64 default_rq,
		      const u8 *key)
{
	size_t bytes = sizeof(struct mana_hw_eth_vport_rx_req) +
		       entries * sizeof(u64);
	struct mana_hw_eth_vport_rx_resp response;
	struct mana_hw_eth_vport_rx_req *request;
	int err;

	request = kzalloc(bytes, GFP_KERNEL);
	if (!request)
		return -ENOMEM;

	((struct mana_hw_request *)request)->request.version = 2;
	mana_ib_to_ethernet(dev, request);
	request->vport = port->port_handle;
	request->table_entries = entries;
	request->table_offset = sizeof(*request);
	request->rx_enable = 1;
	request->rss_enable = 1;
	request->update_default = 1;
	request->update_key = 1;
	request->update_table = 1;
	request->default_rq = default_rq;
	request->coalescing = 1;
	memcpy(request->key, key, sizeof(request->key));
	memcpy(request + 1, table, entries * sizeof(u64));

	err = mana_ib_send(dev, MANA_HW_ETH_CONFIG_VPORT_RX, false, request,
			   bytes, &response, sizeof(response));
	kfree(request);
	return err;
}

int mana_ib_cmd_create_packet_wq(struct mana_ib_dev *dev,
				 struct mana_port_context *port,
				 struct mana_hw_ext_create_packet_wq_req *request,
				 u64 *object, u32 *id, u32 *cq_id)
{
	struct mana_hw_eth_create_wq_resp response;
	int err;

	mana_ib_to_ethernet(dev, request);
	request->vport = port->port_handle;
	err = mana_ib_send(dev, MANA_HW_EXT_CREATE_PACKET_WQ, false, request,
			   sizeof(*request), &response, sizeof(response));
	if (err)
		return err;
	*object = response.wq_object;
	*id = response.wq_id;
	*cq_id = response.cq_id;
	return 0;
}

void mana_ib_cmd_destroy_packet_wq(struct mana_ib_dev *dev, u32 type,
				   u64 object)
{
	struct mana_hw_eth_destroy_wq_req request = { .wq_type = type,
						      .wq_object = object };

	mana_ib_to_ethernet(dev, &request);
	mana_ib_send_plain(dev, MANA_HW_ETH_DESTROY_WQ_OBJ, false, &request,
			   sizeof(request));
}

int mana_ib_cmd_add_flow(struct mana_ib_dev *dev,
			 struct mana_hw_ext_add_flow_req *request, u64 *flow)
{
	struct mana_hw_ext_add_flow_resp response;
	int err;

	mana_ib_to_ethernet(dev, request);
	err = mana_ib_send(dev, MANA_HW_EXT_ADD_FLOW, false, request,
			   sizeof(*request), &response, sizeof(response));
	if (!err)
		*flow = response.flow;
	return err;
}

void mana_ib_cmd_remove_flow(struct mana_ib_dev *dev, u64 flow)
{
	struct mana_hw_ext_remove_flow_req request = { .flow = flow };

	mana_ib_to_ethernet(dev, &request);
	mana_ib_send_plain(dev, MANA_HW_EXT_REMOVE_FLOW, false, &request,
			   sizeof(request));
}

int mana_ib_cmd_create_spread(struct mana_ib_dev *dev,
			      struct mana_hw_ext_create_spread_req *request,
			      u64 *spread)
{
	struct mana_hw_ext_create_spread_resp response;
	int err;

	mana_ib_to_ethernet(dev, request);
	err = mana_ib_send(dev, MANA_HW_EXT_CREATE_SPREAD, false, request,
			   sizeof(*request), &response, sizeof(response));
	if (!err)
		*spread = response.spread;
	return err;
}

void mana_ib_cmd_destroy_spread(struct mana_ib_dev *dev, u64 spread)
{
	struct mana_hw_ext_destroy_spread_req request = { .spread = spread };

	mana_ib_to_ethernet(dev, &request);
	mana_ib_send_plain(dev, MANA_HW_EXT_DESTROY_SPREAD, false, &request,
			   sizeof(request));
}
