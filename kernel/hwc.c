// SPDX-License-Identifier: GPL-2.0
/*
 * The channel for requests: fills their headers, turns a device status into an
 * errno, and gives a device up that does not answer.
 */
#include "hwc.h"
#include "parent.h"
#include "trace.h"
#include "turn.h"

#include <linux/random.h>

/* How often a request is sent that answers to earlier ones are taken for. */
#define MANA_IB_TRIES 4

/* Held while devices come and go, and outside each function's own lock. */
static DEFINE_MUTEX(mana_ib_functions_lock);
static LIST_HEAD(mana_ib_functions);

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
 * A request without effect: whether there is an answer, whatever it is. It is
 * not waited for as long as usual; `waiting` is how long that is from then on.
 * The caller holds the function's lock.
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

/* No more requests to a device, and users are told. The function's lock is held. */
static void mana_ib_give_up(struct mana_ib_dev *dev)
{
	struct ib_event event = { .device = &dev->ibdev,
				  .element.port_num = 1,
				  .event = IB_EVENT_DEVICE_FATAL };

	WRITE_ONCE(dev->gone, true);
	/* Not from here: who waits for an answer may hold a QP's mutex. */
	schedule_work(&dev->lost_work);
	/* Before and after that the core has no use for events. */
	if (READ_ONCE(dev->announced))
		ib_dispatch_event(&event);
}

/*
 * A device that is silent, or does not do what it is told, may still write to
 * memory that others are to have. All of its function loses the memory: Ethernet,
 * and the other IB device, whose requests would have no answers. The caller holds
 * the function's lock.
 */
static void mana_ib_cut_off(struct mana_ib_dev *dev)
{
	struct mana_ib_function *function = dev->function;
	struct mana_ib_dev *one;

	if (function->cut_off)
		return;
	function->cut_off = true;
	mana_ib_parent_set_waiting(dev, 1);
	if (mana_ib_parent_cut_off(dev))
		dev_err(dev->parent,
			"mana_ib: the device is cut off from memory\n");
	list_for_each_entry(one, &function->devices, neighbour)
		if (!mana_ib_is_gone(one))
			mana_ib_give_up(one);
}

/*
 * The device does not answer any more. Who sees that it is gone, and takes the
 * function's lock, knows whether it can still write.
 */
static void mana_ib_lost(struct mana_ib_dev *dev)
{
	struct mana_ib_function *function = dev->function;
	u32 waiting;

	mutex_lock(&function->lock);
	if (mana_ib_is_gone(dev))
		goto unlock;
	mana_ib_give_up(dev);
	/* Ethernet shares the channel, so it is cut off only for good reason. */
	waiting = mana_ib_parent_set_waiting(dev, 1);
	if (waiting <= 1)
		waiting = function->waiting;
	if (!mana_ib_parent_is_present(dev) || !mana_ib_answers(dev, waiting))
		mana_ib_cut_off(dev);
unlock:
	mutex_unlock(&function->lock);
}

/**
 * mana_ib_may_write - whether a device that does not do what it is told reaches memory
 * @dev: device that was given up, or refused; its memory is kept for ever then
 *
 * Whoever gave it up may not have found out yet: this waits until that is so.
 */
bool mana_ib_may_write(struct mana_ib_dev *dev)
{
	struct mana_ib_function *function = dev->function;
	bool masters;

	mutex_lock(&function->lock);
	masters = mana_ib_parent_masters_bus(dev);
	if (masters && !function->keeps)
		dev_warn(dev->parent,
			 "mana_ib: keeping memory that the device may use\n");
	function->keeps |= masters;
	mutex_unlock(&function->lock);
	return masters;
}

static struct mana_ib_function *
mana_ib_find_function(const struct mana_ib_dev *dev)
{
	struct mana_ib_function *function;

	list_for_each_entry(function, &mana_ib_functions, entry)
		if (function->parent == dev->parent)
			return function;
	return NULL;
}

static struct mana_ib_function *mana_ib_make_function(struct mana_ib_dev *dev)
{
	struct mana_ib_function *function;

	function = kzalloc(sizeof(*function), GFP_KERNEL);
	if (!function)
		return NULL;
	function->hooks = mana_ib_parent_make_hooks(dev);
	if (!function->hooks) {
		kfree(function);
		return NULL;
	}
	function->parent = dev->parent;
	atomic_set(&function->activity, get_random_u32());
	function->waiting = mana_ib_parent_waiting(dev);
	/* Somebody else has given up already, or the parent does not say. */
	if (function->waiting <= 1)
		function->waiting = MANA_IB_WAITING_MS;
	mutex_init(&function->lock);
	INIT_LIST_HEAD(&function->devices);
	spin_lock_init(&function->hooks_lock);
	spin_lock_init(&function->users_lock);
	INIT_LIST_HEAD(&function->users);
	INIT_LIST_HEAD(&function->turns);
	list_add(&function->entry, &mana_ib_functions);
	return function;
}

/**
 * mana_ib_join_function - a device comes, before its first request
 * @dev: device of which the parent's part is known
 *
 * Return: -ENODEV as long as the function is cut off: the devices that it had
 * leave first.
 */
int mana_ib_join_function(struct mana_ib_dev *dev)
{
	struct mana_ib_function *function;
	int err = 0;

	mutex_lock(&mana_ib_functions_lock);
	function = mana_ib_find_function(dev);
	if (!function)
		function = mana_ib_make_function(dev);
	if (!function) {
		err = -ENOMEM;
		goto unlock;
	}
	mutex_lock(&function->lock);
	if (function->cut_off) {
		err = -ENODEV;
	} else {
		list_add(&dev->neighbour, &function->devices);
		dev->function = function;
	}
	mutex_unlock(&function->lock);
unlock:
	mutex_unlock(&mana_ib_functions_lock);
	return err;
}

/*
 * The parent finds the function as it was, but for what a reset ends: its channel
 * for requests, and the frames that it was given.
 */
static void mana_ib_let_in(struct mana_ib_dev *dev)
{
	int err = mana_ib_parent_let_in(dev);

	if (err)
		dev_warn(dev->parent, "mana_ib: the device stays cut off: %pe\n",
			 ERR_PTR(err));
	mana_ib_parent_forget_frames(dev);
}

/**
 * mana_ib_leave_function - a device goes
 * @dev: device that has given back its memory and sends no more requests
 *
 * With the last one goes that the function is cut off: the others' memory is
 * theirs until then.
 */
void mana_ib_leave_function(struct mana_ib_dev *dev)
{
	struct mana_ib_function *function = dev->function;
	bool last;

	if (!function)
		return;
	mutex_lock(&mana_ib_functions_lock);
	mutex_lock(&function->lock);
	list_del(&dev->neighbour);
	last = list_empty(&function->devices);
	mutex_unlock(&function->lock);
	dev->function = NULL;
	if (last) {
		list_del(&function->entry);
		if (function->cut_off)
			mana_ib_let_in(dev);
		mutex_destroy(&function->lock);
		kvfree(function->hooks);
		kfree(function);
	}
	mutex_unlock(&mana_ib_functions_lock);
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

/*
 * Whether what came is the answer to a request. Parents give the number of a message
 * that was not answered to the next one, so a late answer may come as that of another
 * request; and a parent says no more than -EPROTO of one that is too long.
 */
static bool mana_ib_is_answer(const struct mana_hw_request *request,
			      const struct mana_hw_response *answer)
{
	return answer->response.opcode == request->request.opcode &&
	       answer->activity_id == request->activity_id;
}

/*
 * One request and its answer; who calls decides what it means that there is none, or
 * that it is another's, -EBADMSG.
 */
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
	header->activity_id = atomic_inc_return(&dev->function->activity);
	mana_ib_address(dev, target, header);

	memset(response, 0, response_bytes);
	err = mana_ib_parent_request(dev, request_bytes, request,
				     response_bytes, response);
	trace_hwc_req(dev, opcode, answer->status, err);
	if (err == -ETIMEDOUT) {
		dev_err(dev->parent, "mana_ib: request %#x: no answer\n",
			opcode);
		return err;
	}
	/* With another error it was not sent. */
	if ((!err || err == -EPROTO || err == -EOPNOTSUPP) &&
	    !mana_ib_is_answer(header, answer)) {
		dev_err(dev->parent,
			"mana_ib: request %#x: an answer to another\n", opcode);
		return -EBADMSG;
	}
	/* Older parents say -EPROTO for each status; the answer tells more. */
	if (answer->status == MANA_HW_STATUS_MORE_ENTRIES)
		return err;
	if (answer->status)
		return mana_ib_status_errno(answer->status);
	return err;
}

/* A request that must not fail for the process's sake if it @undoes something. */
static int mana_ib_ask(struct mana_ib_dev *dev, bool undoes, u32 opcode,
		       enum mana_ib_hwc_target target, void *request,
		       u32 request_bytes, void *response, u32 response_bytes)
{
	struct mana_ib_turn turn;
	int err;

	if (mana_ib_is_gone(dev))
		return -ENODEV;
	err = mana_ib_take_turn(dev, undoes, &turn);
	if (err)
		return err;
	err = -ENODEV;
	if (!mana_ib_is_gone(dev))
		err = mana_ib_exchange(dev, opcode, target, request,
				       request_bytes, response,
				       response_bytes);
	/* Its own answer may come for the next one. */
	if (err == -EBADMSG)
		err = -ETIMEDOUT;
	/* Before the next one has a turn: it would wait for an answer as well. */
	if (err == -ETIMEDOUT) {
		trace_device_lost(dev, opcode);
		mana_ib_lost(dev);
	}
	mana_ib_end_turn(&turn);
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
 * if the device is, or was, given up; -EINTR if the process is killed before.
 */
int mana_ib_hwc_send(struct mana_ib_dev *dev, u32 opcode,
		     enum mana_ib_hwc_target target, void *request,
		     u32 request_bytes, void *response, u32 response_bytes)
{
	return mana_ib_ask(dev, false, opcode, target, request, request_bytes,
			   response, response_bytes);
}

/*
 * Whether a device that was given up says that it has carried a request out, or
 * has no such object. Answers to earlier requests may come first. A device that
 * refuses may do so with any status.
 */
static bool mana_ib_carries_out(struct mana_ib_dev *dev, u32 opcode,
				enum mana_ib_hwc_target target, void *request,
				u32 request_bytes)
{
	struct mana_hw_response answer;
	unsigned int i;
	int err;

	for (i = 0; i < MANA_IB_TRIES; i++) {
		err = mana_ib_exchange(dev, opcode, target, request,
				       request_bytes, &answer, sizeof(answer));
		if (err != -EBADMSG)
			return !err ||
			       answer.status == MANA_HW_STATUS_NOT_FOUND;
	}
	return false;
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
	struct mana_ib_function *function = dev->function;

	/* Who found that it is gone may not know yet whether it answers. */
	mutex_lock(&function->lock);
	if (!function->cut_off &&
	    !mana_ib_carries_out(dev, opcode, target, request, request_bytes))
		mana_ib_cut_off(dev);
	mutex_unlock(&function->lock);
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
 * mana_ib_hwc_undo - the same of a request that undoes something
 * @dev: device
 * @opcode: of the request
 * @target: who it is for
 * @request: as for mana_ib_hwc_send()
 * @request_bytes: size
 *
 * Return: as mana_ib_hwc_send(), but that a process which is killed waits.
 */
int mana_ib_hwc_undo(struct mana_ib_dev *dev, u32 opcode,
		     enum mana_ib_hwc_target target, void *request,
		     u32 request_bytes)
{
	struct mana_hw_response response;

	return mana_ib_ask(dev, true, opcode, target, request, request_bytes,
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
 *
 * Return: as mana_ib_hwc_undo(), for who keeps what the device may still write to.
 */
int mana_ib_hwc_destroy(struct mana_ib_dev *dev, u32 opcode,
			enum mana_ib_hwc_target target, void *request,
			u32 request_bytes)
{
	int err;

	err = mana_ib_hwc_undo(dev, opcode, target, request, request_bytes);
	if (err && !mana_ib_is_gone(dev))
		dev_warn_ratelimited(dev->parent,
				     "mana_ib: request %#x failed: %pe\n",
				     opcode, ERR_PTR(err));
	return err;
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
