// SPDX-License-Identifier: GPL-2.0
/* Completion queues: creation, resizing, arming. */
#include "cq.h"
#include "cmd.h"
#include "pd.h"
#include "post.h"
#include "turn.h"
#include "udata.h"

#include <linux/log2.h>

/* Bytes of an extended ring and its record. */
static size_t mana_ib_cq_bytes(u32 entries, bool extended)
{
	return (size_t)entries * sizeof(struct mana_hw_cqe) +
	       (extended ? MANA_HW_EXT_RECORD_BYTES : 0);
}

static u32 mana_ib_max_cqe(const struct mana_ib_dev *dev)
{
	return max(dev->limits.max_cqe, dev->ext.max_cqe);
}

/* Ring of a user. An Ethernet CQ has no region until its queue is made. */
static int mana_ib_user_cq_memory(struct mana_ib_dev *dev,
				  struct mana_ib_cq *cq, struct ib_udata *udata,
				  u64 address, bool ethernet, u64 *region)
{
	size_t bytes = mana_ib_cq_bytes(cq->entries, cq->extended);
	struct ib_umem *umem;
	int err;

	umem = compat_cq_umem_get(&cq->ibcq, udata, address, bytes,
				  IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(umem))
		return PTR_ERR(umem);
	if (!ethernet) {
		err = mana_ib_umem_region(dev, umem, region);
		if (err) {
			mana_ib_release_umem(dev, umem);
			return err;
		}
	}
	cq->umem = umem;
	return 0;
}

/* Ring of the kernel: extended where that exists. */
static int mana_ib_kernel_cq_memory(struct mana_ib_dev *dev,
				    struct mana_ib_cq *cq, u64 *region)
{
	int err;

	cq->kernel = true;
	cq->extended = dev->ext.features;
	cq->entries = max_t(u32, roundup_pow_of_two(cq->entries),
			    PAGE_SIZE / sizeof(struct mana_hw_cqe));
	err = mana_ib_alloc_buffer(dev, mana_ib_cq_bytes(cq->entries, false),
				   cq->extended ? MANA_HW_EXT_RECORD_BYTES : 0,
				   &cq->buffer);
	if (err)
		return err;
	if (cq->extended)
		cq->record = cq->buffer.record;
	*region = cq->buffer.region;
	return 0;
}

static void mana_ib_free_cq_memory(struct mana_ib_dev *dev,
				   struct mana_ib_cq *cq)
{
	mana_ib_release_umem(dev, cq->umem);
	cq->umem = NULL;
	mana_ib_free_buffer(dev, &cq->buffer);
}

static void mana_ib_cq_event(struct mana_ib_event_target *target,
			     enum ib_event_type type)
{
	struct mana_ib_cq *cq = container_of(target, struct mana_ib_cq, target);
	struct ib_event event = { .device = cq->ibcq.device,
				  .element.cq = &cq->ibcq,
				  .event = type };

	if (cq->ibcq.event_handler)
		cq->ibcq.event_handler(&event, cq->ibcq.cq_context);
}

/* Makes the device's CQ; the region is the device's if that succeeds. */
static int mana_ib_start_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq,
			    u64 region, u32 doorbell_page)
{
	struct mana_ib_cq_params params = {
		.extended = cq->extended,
		.region = region,
		.entries = cq->entries,
		.eq_id = dev->eqs[cq->vector].id,
		.doorbell_page = doorbell_page,
	};
	int err;

	err = mana_ib_cmd_create_cq(dev, &params, &cq->handle, &cq->id);
	if (err) {
		if (!cq->kernel)
			mana_ib_cmd_destroy_region(dev, region);
		return err;
	}
	cq->buffer.region = 0;

	err = mana_ib_track(&dev->cqs, cq->id, &cq->target);
	if (err)
		goto err_destroy;
	err = mana_ib_hook_cq(dev, cq);
	if (err)
		goto err_untrack;
	return 0;

err_untrack:
	mana_ib_untrack(&dev->cqs, cq->id);
	mana_ib_target_release(&cq->target);
err_destroy:
	mana_ib_cmd_destroy_cq(dev, cq->handle);
	cq->handle = MANA_IB_NO_HANDLE;
	return err;
}

/* What a provider asks for. */
static int mana_ib_user_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq,
			   const struct ib_cq_init_attr *attr,
			   struct ib_udata *udata, bool *ethernet, u64 *region)
{
	struct mana_uapi_create_cq request = {};
	int err;

	err = mana_ib_udata_in(udata, &request, sizeof(request),
			       sizeof(request.address));
	if (err)
		return err;
	if (request.flags & ~(MANA_UAPI_CQ_RNIC | MANA_UAPI_CQ_EXTENDED))
		return -EOPNOTSUPP;
	cq->extended = request.flags & MANA_UAPI_CQ_EXTENDED;
	if (cq->extended && (!dev->ext.features || !mana_ib_speaks_ours(udata)))
		return -EOPNOTSUPP;
	if (cq->extended && (request.reserved0 || request.reserved1))
		return -EOPNOTSUPP;
	/* Time stamps are in extended entries. */
	if (attr->flags &&
	    (!cq->extended || !mana_ib_has(dev, MANA_HW_EXT_TIMESTAMPS)))
		return -EOPNOTSUPP;
	/* Where one device does both, the flag tells what it is for. */
	if (dev->rdma && dev->raw && !cq->extended &&
	    !(request.flags & MANA_UAPI_CQ_RNIC))
		*ethernet = true;
	if (!*ethernet && !is_power_of_2(cq->entries))
		return -EINVAL;
	return mana_ib_user_cq_memory(dev, cq, udata, request.address,
				      *ethernet, region);
}

int mana_ib_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		      struct ib_udata *udata)
{
	struct mana_ib_ucontext *context = to_user_context(udata);
	struct mana_ib_dev *dev = to_mana_dev(ibcq->device);
	struct mana_uapi_create_cq_resp response = {};
	struct mana_ib_cq *cq = to_mana_cq(ibcq);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	bool ethernet = !dev->rdma;
	u64 region = 0;
	int err;

	if (attr->flags & ~IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION)
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > mana_ib_max_cqe(dev))
		return -EINVAL;
	if (!udata && (ethernet || attr->flags))
		return -EOPNOTSUPP;

	mana_ib_skip_turns(dev, !udata, &turn);
	cq->handle = MANA_IB_NO_HANDLE;
	cq->id = MANA_IB_NO_ID;
	cq->vector = attr->comp_vector % dev->ibdev.num_comp_vectors;
	cq->entries = attr->cqe;
	spin_lock_init(&cq->lock);
	mutex_init(&cq->resize_lock);
	INIT_LIST_HEAD(&cq->flushing);
	mana_ib_target_init(&cq->target, mana_ib_cq_event);

	if (udata)
		err = mana_ib_user_cq(dev, cq, attr, udata, &ethernet, &region);
	else
		err = mana_ib_kernel_cq_memory(dev, cq, &region);
	if (err)
		return err;

	cq->consumer = cq->entries;
	if (!ethernet) {
		err = mana_ib_start_cq(dev, cq, region,
				       mana_ib_doorbell_page(dev, context));
		if (err) {
			ibdev_dbg(&dev->ibdev, "no CQ: %pe\n", ERR_PTR(err));
			goto err_free;
		}
	}
	if (udata) {
		response.cq_id = cq->id;
		err = mana_ib_udata_out(udata, &response, sizeof(response));
		if (err)
			goto err_destroy;
	}
	ibcq->cqe = cq->entries;
	return 0;

err_destroy:
	mana_ib_destroy_cq(ibcq, udata);
	return err;
err_free:
	mana_ib_free_cq_memory(dev, cq);
	return err;
}

int mana_ib_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibcq->device);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	struct mana_ib_cq *cq = to_mana_cq(ibcq);

	mana_ib_skip_turns(dev, cq->kernel, &turn);
	if (cq->handle != MANA_IB_NO_HANDLE) {
		mana_ib_untrack(&dev->cqs, cq->id);
		mana_ib_target_release(&cq->target);
		mana_ib_mute_cq(cq);
		mana_ib_cmd_destroy_cq(dev, cq->handle);
		mana_ib_unhook_cq(dev, cq);
	}
	mana_ib_free_cq_memory(dev, cq);
	return 0;
}

/* Users' extended CQs; the provider does not poll meanwhile. */
int mana_ib_resize_cq(struct ib_cq *ibcq, unsigned int entries,
		      struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibcq->device);
	struct mana_uapi_resize_cq_resp response = {};
	struct mana_ib_cq *cq = to_mana_cq(ibcq);
	struct mana_uapi_resize_cq request;
	struct ib_umem *umem;
	u64 region;
	int err;

	if (!udata || !cq->extended)
		return -EOPNOTSUPP;
	err = mana_ib_udata_in(udata, &request, sizeof(request),
			       sizeof(request));
	if (err)
		return err;
	if (request.reserved)
		return -EOPNOTSUPP;
	if (!entries || entries > request.entries ||
	    request.entries > mana_ib_max_cqe(dev) ||
	    !is_power_of_2(request.entries))
		return -EINVAL;
	/* The old ring cannot come back once the device has the new one. */
	err = mana_ib_command_prepare(udata);
	if (err)
		return err;

	err = mana_ib_queue_region(dev, request.address,
				   mana_ib_cq_bytes(request.entries, true),
				   &umem, &region);
	if (err)
		return err;
	/* The core lets several callers in. */
	mutex_lock(&cq->resize_lock);
	err = mana_ib_cmd_resize_cq(dev, cq->handle, region, request.entries,
				    &response.consumer);
	if (!err) {
		swap(cq->umem, umem);
		cq->entries = request.entries;
		/* Who lists CQs reads it at any time. */
		WRITE_ONCE(ibcq->cqe, request.entries);
	}
	mutex_unlock(&cq->resize_lock);
	if (err)
		mana_ib_cmd_destroy_region(dev, region);
	mana_ib_release_umem(dev, umem);
	if (err)
		return err;
	return mana_ib_udata_out(udata, &response, sizeof(response));
}

/*
 * Asks for an event. An extended CQ is armed in its record, which the device
 * reads when it writes an entry: an entry that came before has to be found by
 * the caller, who is told so. A stock CQ is armed by doorbell, and the device
 * makes up for what came before (RNIC 4.4).
 */
int mana_ib_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct mana_ib_dev *dev = to_mana_dev(ibcq->device);
	struct mana_ib_cq *cq = to_mana_cq(ibcq);
	unsigned long irq_flags;
	int missed = 0;
	u32 arm;

	spin_lock_irqsave(&cq->lock, irq_flags);
	WRITE_ONCE(cq->armed, true);
	if (cq->extended) {
		cq->arm_sequence++;
		arm = cq->arm_sequence << MANA_HW_EXT_ARM_SEQUENCE_SHIFT;
		if ((flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED)
			arm |= MANA_HW_EXT_ARM_SOLICITED;
		WRITE_ONCE(cq->record->arm, arm);
		/* Pairs with the device's barrier between entry and arm. */
		mb();
	} else {
		mana_ib_ring_cq(dev, cq, true);
	}
	if (flags & IB_CQ_REPORT_MISSED_EVENTS)
		missed = mana_ib_cq_has_completion(cq);
	spin_unlock_irqrestore(&cq->lock, irq_flags);
	return missed;
}
