// SPDX-License-Identifier: GPL-2.0
/*
 * The channel for requests: fills their headers, turns a device status into an
 * errno, and gives a device up that does not answer.
 */
#include "hwc.h"
#include "parent.h"
#include "trace.h"

static int mana_ib_status_errno(u32 status)
{
	switch (status) {
	case MANA_HW_STATUS_SUCCESS:
		return 0;
	case MANA_HW_STATUS_UNSUPPORTED:
		return -EOPNOTSUPP;
	case MANA_HW_STATUS_INVALID_PARAMETER:
	case MANA_HW_STATUS_NOT_FOUND:
		return -EINVAL;
	case MANA_HW_STATUS_NO_RESOURCES:
		return -ENOMEM;
	case MANA_HW_STATUS_BUSY:
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

	mana_ib_parent_set_waiting(dev, MANA_IB_PROBE_MS);
	if (mana_ib_parent_request(dev, sizeof(request), &request,
				   sizeof(response), &response) == -ETIMEDOUT) {
		mana_ib_parent_set_waiting(dev, 1);
		return false;
	}
	mana_ib_parent_set_waiting(dev, waiting);
	return true;
}

/*
 * A device that is silent, or does not do what it is told, may still write to
 * memory that others are to have. Ethernet loses it, too. The caller holds
 * mana_ib_probe_lock.
 */
static void mana_ib_cut_off(struct mana_ib_dev *dev)
{
	if (dev->silent)
		return;
	dev->silent = true;
	mana_ib_parent_set_waiting(dev, 1);
	if (mana_ib_parent_cut_off(dev))
		dev_err(dev->parent,
			"mana_ib: the device is cut off from memory\n");
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
	waiting = mana_ib_parent_set_waiting(dev, 1);
	if (waiting <= 1)
		waiting = dev->waiting;
	if (!mana_ib_parent_is_present(dev) || !mana_ib_answers(dev, waiting))
		mana_ib_cut_off(dev);
	mutex_unlock(&mana_ib_probe_lock);
	/* Not from here: who waits for an answer may hold a QP's mutex. */
	schedule_work(&dev->lost_work);
	/* Before and after that the core has no use for events. */
	if (READ_ONCE(dev->announced))
		ib_dispatch_event(&event);
}

/**
 * mana_ib_leave_silent - the driver goes from a device that was cut off
 * @dev: device
 *
 * The parent finds it as it was, but for what a reset ends: its channel for
 * requests, and the frames that it was given.
 */
void mana_ib_leave_silent(struct mana_ib_dev *dev)
{
	int err;

	if (!dev->silent)
		return;
	err = mana_ib_parent_let_in(dev);
	if (err)
		dev_warn(dev->parent, "mana_ib: the device stays cut off: %pe\n",
			 ERR_PTR(err));
	mana_ib_parent_forget_frames(dev);
}

/* The header's words that say who a request is for. */
static void mana_ib_address(struct mana_ib_dev *dev,
			    enum mana_ib_hwc_target target,
			    struct mana_hw_request *header)
{
	struct gdma_dev_id id;

	switch (target) {
	case MANA_IB_TO_DEVICE:
		id = mana_ib_parent_device_id(dev);
		break;
	case MANA_IB_TO_ETHERNET:
		id = mana_ib_parent_ethernet_id(dev);
		break;
	default:
		return;
	}
	header->device.type = id.type;
	header->device.instance = id.instance;
}

/* One request and its answer; who calls decides what it means that there is none. */
static int mana_ib_exchange(struct mana_ib_dev *dev, u32 opcode,
			    enum mana_ib_hwc_target target, void *request,
			    u32 request_bytes, void *response,
			    u32 response_bytes)
{
	struct mana_hw_request *header = request;
	struct mana_hw_response *answer = response;
	int err;

	header->request.opcode = opcode;
	header->request.size = request_bytes;
	header->response.opcode = opcode;
	header->response.size = response_bytes;
	if (!header->request.version)
		header->request.version = 1;
	if (!header->response.version)
		header->response.version = 1;
	mana_ib_address(dev, target, header);

	memset(response, 0, response_bytes);
	err = mana_ib_parent_request(dev, request_bytes, request,
				     response_bytes, response);
	trace_hwc_req(dev, opcode, answer->status, err);
	if (err == -ETIMEDOUT)
		dev_err(dev->parent, "mana_ib: request %#x: no answer\n",
			opcode);
	/* Older parents say -EPROTO for each status; the answer tells more. */
	if (err == -ETIMEDOUT || answer->status == MANA_HW_STATUS_MORE_ENTRIES)
		return err;
	if (answer->status)
		return mana_ib_status_errno(answer->status);
	return err;
}

/**
 * mana_ib_hwc_send - sends a request and waits for the answer
 * @dev: device
 * @opcode: of the request
 * @target: who it is for
 * @request: its header is filled here; versions other than 1 are set before
 * @request_bytes: size
 * @response: where to; zero where the device sends less
 * @response_bytes: size
 *
 * Return: 0, or what the device's refusal is among errnos; -ETIMEDOUT or -ENODEV
 * if the device is, or was, given up.
 */
int mana_ib_hwc_send(struct mana_ib_dev *dev, u32 opcode,
		     enum mana_ib_hwc_target target, void *request,
		     u32 request_bytes, void *response, u32 response_bytes)
{
	int err;

	if (mana_ib_is_gone(dev))
		return -ENODEV;
	err = mana_ib_exchange(dev, opcode, target, request, request_bytes,
			       response, response_bytes);
	if (err == -ETIMEDOUT) {
		trace_device_lost(dev, opcode);
		mana_ib_lost(dev);
	}
	return err;
}

/**
 * mana_ib_hwc_insist - what an object was given, the device does not write to any more
 * @dev: device that was given up
 * @opcode: of a request that takes it away
 * @target: who it is for
 * @request: as for mana_ib_hwc_send()
 * @request_bytes: size
 *
 * A device that answers other requests is asked, since Ethernet goes on with it.
 * One that does not carry this one out is cut off from memory.
 */
void mana_ib_hwc_insist(struct mana_ib_dev *dev, u32 opcode,
			enum mana_ib_hwc_target target, void *request,
			u32 request_bytes)
{
	struct mana_hw_response response;
	int err;

	/* Who found that it is gone may not know yet whether it answers. */
	mutex_lock(&mana_ib_probe_lock);
	if (!dev->silent) {
		err = mana_ib_exchange(dev, opcode, target, request,
				       request_bytes, &response,
				       sizeof(response));
		/* -EINVAL: it has no such object. */
		if (err && err != -EINVAL)
			mana_ib_cut_off(dev);
	}
	mutex_unlock(&mana_ib_probe_lock);
}

/**
 * mana_ib_hwc_tell - sends a request that is answered with a header alone
 * @dev: device
 * @opcode: of the request
 * @target: who it is for
 * @request: as for mana_ib_hwc_send()
 * @request_bytes: size
 *
 * Return: as mana_ib_hwc_send().
 */
int mana_ib_hwc_tell(struct mana_ib_dev *dev, u32 opcode,
		     enum mana_ib_hwc_target target, void *request,
		     u32 request_bytes)
{
	struct mana_hw_response response;

	return mana_ib_hwc_send(dev, opcode, target, request, request_bytes,
				&response, sizeof(response));
}

/**
 * mana_ib_hwc_destroy - sends a request that undoes something
 * @dev: device
 * @opcode: of the request
 * @target: who it is for
 * @request: as for mana_ib_hwc_send()
 * @request_bytes: size
 *
 * Undoing must not fail: whatever the device says, the object is gone for us.
 */
void mana_ib_hwc_destroy(struct mana_ib_dev *dev, u32 opcode,
			 enum mana_ib_hwc_target target, void *request,
			 u32 request_bytes)
{
	int err;

	err = mana_ib_hwc_tell(dev, opcode, target, request, request_bytes);
	if (err && !mana_ib_is_gone(dev))
		dev_warn_ratelimited(dev->parent,
				     "mana_ib: request %#x failed: %pe\n",
				     opcode, ERR_PTR(err));
}

/**
 * mana_ib_hwc_destroy_object - destroys what is named by adapter and handle
 * @dev: device
 * @opcode: of the request
 * @handle: of the object
 */
void mana_ib_hwc_destroy_object(struct mana_ib_dev *dev, u32 opcode, u64 handle)
{
	struct mana_ib_object_req request = { .adapter = dev->adapter,
					      .handle = handle };

	mana_ib_hwc_destroy(dev, opcode, MANA_IB_TO_DEVICE, &request,
			    sizeof(request));
}
