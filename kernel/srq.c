// SPDX-License-Identifier: GPL-2.0
/* Shared receive queues, in the extension's format. */
#include "srq.h"
#include "cmd.h"
#include "pd.h"
#include "post.h"
#include "trace.h"
#include "turn.h"
#include "udata.h"

#include <linux/log2.h>

#define MANA_IB_SRQ_STRIDE_MIN 32
#define MANA_IB_SRQ_STRIDE_MAX 1024

static int mana_ib_user_srq(struct mana_ib_srq *srq, struct ib_udata *udata)
{
	struct mana_ib_ucontext *context = to_user_context(udata);
	struct mana_ib_dev *dev = to_mana_dev(srq->ibsrq.device);
	struct mana_ib_srq_params params = {};
	struct mana_uapi_create_srq request;
	int err;

	if (!mana_ib_speaks_ours(udata))
		return -EOPNOTSUPP;
	err = mana_ib_udata_in(udata, &request, sizeof(request),
			       sizeof(request));
	if (err)
		return err;
	if (!is_power_of_2(request.ring_bytes) ||
	    !is_power_of_2(request.stride) ||
	    request.stride < MANA_IB_SRQ_STRIDE_MIN ||
	    request.stride > MANA_IB_SRQ_STRIDE_MAX ||
	    request.ring_bytes < request.stride ||
	    request.ring_bytes / request.stride < srq->max_wr ||
	    request.ring_bytes > SZ_64M)
		return -EINVAL;

	srq->stride = request.stride;
	err = mana_ib_queue_region(dev, request.buffer,
				   (size_t)request.ring_bytes +
					   MANA_HW_EXT_RECORD_BYTES,
				   &srq->umem, &params.region);
	if (err)
		return err;
	params.pd = to_mana_pd(srq->ibsrq.pd)->handle;
	params.ring_bytes = request.ring_bytes;
	params.stride = request.stride;
	params.doorbell_page = context->doorbell_page;
	err = mana_ib_cmd_create_srq(dev, &params, &srq->handle, &srq->id);
	if (err) {
		mana_ib_cmd_destroy_region(dev, params.region);
		mana_ib_release_umem(dev, srq->umem);
		srq->umem = NULL;
	}
	return err;
}

static void mana_ib_free_srq_memory(struct mana_ib_dev *dev,
				    struct mana_ib_srq *srq)
{
	mana_ib_release_umem(dev, srq->umem);
	mana_ib_free_buffer(dev, &srq->buffer);
	kvfree(srq->wr_ids);
	kvfree(srq->free);
}

static int mana_ib_kernel_srq(struct mana_ib_srq *srq)
{
	struct mana_ib_dev *dev = to_mana_dev(srq->ibsrq.device);
	struct mana_ib_srq_params params = {
		.pd = to_mana_pd(srq->ibsrq.pd)->handle,
		.doorbell_page = dev->doorbell_page,
	};
	/* At least two strides: the device wants rings of 64 bytes. */
	u32 count = max(2UL, roundup_pow_of_two(srq->max_wr));
	u32 ring_bytes, i;
	int err = -ENOMEM;

	srq->stride = mana_ib_ext_receive_stride(srq->max_sge);
	ring_bytes = count * srq->stride;
	srq->wr_ids = kvcalloc(count, sizeof(*srq->wr_ids), GFP_KERNEL);
	srq->free = kvcalloc(count, sizeof(*srq->free), GFP_KERNEL);
	if (!srq->wr_ids || !srq->free)
		goto err_free;
	for (i = 0; i < count; i++)
		srq->free[i] = count - 1 - i;
	srq->free_count = count;
	srq->max_wr = count;

	err = mana_ib_alloc_buffer(dev, ring_bytes, MANA_HW_EXT_RECORD_BYTES,
				   &srq->buffer);
	if (err)
		goto err_free;
	srq->record = srq->buffer.record;
	params.region = srq->buffer.region;
	params.ring_bytes = ring_bytes;
	params.stride = srq->stride;
	err = mana_ib_cmd_create_srq(dev, &params, &srq->handle, &srq->id);
	if (err)
		goto err_free;
	srq->buffer.region = 0;
	return 0;

err_free:
	mana_ib_free_srq_memory(dev, srq);
	return err;
}

static void mana_ib_srq_event(struct mana_ib_event_target *target,
			      enum ib_event_type type)
{
	struct mana_ib_srq *srq =
		container_of(target, struct mana_ib_srq, target);
	struct ib_event event = { .device = srq->ibsrq.device,
				  .element.srq = &srq->ibsrq,
				  .event = type };

	if (srq->ibsrq.event_handler)
		srq->ibsrq.event_handler(&event, srq->ibsrq.srq_context);
}

int mana_ib_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *attr,
		       struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibsrq->device);
	struct mana_uapi_create_srq_resp response = {};
	struct mana_ib_srq *srq = to_mana_srq(ibsrq);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	int err;

	if (attr->srq_type != IB_SRQT_BASIC)
		return -EOPNOTSUPP;
	if (!attr->attr.max_wr || attr->attr.max_wr > dev->ext.max_srq_wr ||
	    attr->attr.max_sge > dev->ext.max_srq_sge)
		return -EINVAL;

	mana_ib_skip_turns(dev, !udata, &turn);
	srq->max_wr = attr->attr.max_wr;
	srq->max_sge = max(1U, attr->attr.max_sge);
	spin_lock_init(&srq->lock);
	mana_ib_target_init(&srq->target, mana_ib_srq_event);
	/* A limit has no meaning here: an SRQ is armed when it is modified. */
	if (udata)
		err = mana_ib_user_srq(srq, udata);
	else
		err = mana_ib_kernel_srq(srq);
	if (err) {
		ibdev_dbg(&dev->ibdev, "no SRQ: %pe\n", ERR_PTR(err));
		return err;
	}

	err = mana_ib_track(&dev->srqs, srq->id, &srq->target);
	if (err)
		goto err_destroy;
	if (udata) {
		response.srq_id = srq->id;
		err = mana_ib_udata_out(udata, &response, sizeof(response));
		if (err)
			goto err_untrack;
	}
	attr->attr.max_wr = srq->max_wr;
	attr->attr.max_sge = srq->max_sge;
	return 0;

err_untrack:
	mana_ib_untrack(&dev->srqs, srq->id);
	mana_ib_target_release(&srq->target);
err_destroy:
	mana_ib_cmd_destroy_srq(dev, srq->handle);
	mana_ib_free_srq_memory(dev, srq);
	return err;
}

int mana_ib_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		       enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibsrq->device);
	struct mana_ib_srq *srq = to_mana_srq(ibsrq);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	int err;

	err = mana_ib_udata_empty(udata);
	if (err)
		return err;
	if (mask & ~IB_SRQ_LIMIT)
		return -EOPNOTSUPP;
	if (!(mask & IB_SRQ_LIMIT))
		return 0;
	if (attr->srq_limit > srq->max_wr)
		return -EINVAL;
	mana_ib_skip_turns(dev, !udata, &turn);
	return mana_ib_cmd_modify_srq(dev, srq->handle, attr->srq_limit);
}

int mana_ib_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct mana_ib_dev *dev = to_mana_dev(ibsrq->device);
	struct mana_ib_srq *srq = to_mana_srq(ibsrq);

	attr->max_wr = srq->max_wr;
	attr->max_sge = srq->max_sge;
	return mana_ib_cmd_query_srq(dev, srq->handle, &attr->srq_limit);
}

int mana_ib_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibsrq->device);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	struct mana_ib_srq *srq = to_mana_srq(ibsrq);

	mana_ib_skip_turns(dev, !udata, &turn);
	mana_ib_untrack(&dev->srqs, srq->id);
	mana_ib_target_release(&srq->target);
	mana_ib_cmd_destroy_srq(dev, srq->handle);
	mana_ib_free_srq_memory(dev, srq);
	return 0;
}

/*
 * The device takes receives in the order of the ring, so a slot may be written
 * again while fewer receives are outstanding than it has. They complete in
 * another order: the cookie finds the request.
 */
static int mana_ib_post_shared(struct mana_ib_srq *srq,
			       const struct ib_recv_wr *wr)
{
	struct mana_hw_ext_receive receive = { .sge_count = wr->num_sge };
	struct mana_hw_sge sge;
	void *slot;
	int i;

	if (wr->num_sge > (int)srq->max_sge)
		return -EINVAL;
	if (!srq->free_count)
		return -ENOMEM;
	receive.cookie = srq->free[--srq->free_count];
	srq->wr_ids[receive.cookie] = wr->wr_id;

	slot = srq->buffer.cpu +
	       (size_t)(srq->producer & (srq->max_wr - 1)) * srq->stride;
	memcpy(slot, &receive, sizeof(receive));
	slot += sizeof(receive);
	for (i = 0; i < wr->num_sge; i++) {
		sge.address = wr->sg_list[i].addr;
		sge.key = wr->sg_list[i].lkey;
		sge.length = wr->sg_list[i].length;
		memcpy(slot, &sge, sizeof(sge));
		slot += sizeof(sge);
	}
	srq->producer++;
	return 0;
}

int mana_ib_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
			  const struct ib_recv_wr **bad)
{
	struct mana_ib_dev *dev = to_mana_dev(ibsrq->device);
	struct mana_ib_srq *srq = to_mana_srq(ibsrq);
	unsigned long flags;
	int err = 0;

	spin_lock_irqsave(&srq->lock, flags);
	for (; wr; wr = wr->next) {
		err = mana_ib_post_shared(srq, wr);
		if (err) {
			*bad = wr;
			break;
		}
		trace_wqe_post(dev, srq->id, MANA_IB_TRACE_SRQ,
			       srq->producer - 1, 0);
	}
	/* The WQEs come before the index. */
	dma_wmb();
	WRITE_ONCE(srq->record->producer, srq->producer);
	spin_unlock_irqrestore(&srq->lock, flags);
	return err;
}

/**
 * mana_ib_complete_srq - a receive was taken
 * @srq: of the kernel
 * @cookie: that the device names it by
 * @wr_id: of the receive
 *
 * Return: false if there is no such receive.
 */
bool mana_ib_complete_srq(struct mana_ib_srq *srq, u32 cookie, u64 *wr_id)
{
	unsigned long flags;
	bool known = false;

	spin_lock_irqsave(&srq->lock, flags);
	if (cookie < srq->max_wr && srq->free_count < srq->max_wr) {
		*wr_id = srq->wr_ids[cookie];
		srq->free[srq->free_count++] = cookie;
		known = true;
	}
	spin_unlock_irqrestore(&srq->lock, flags);
	return known;
}
