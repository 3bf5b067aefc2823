// SPDX-License-Identifier: GPL-2.0
/* Queue pairs in the extension's format, of users and of the kernel. */
#include "pd.h"
#include "post.h"
#include "udata.h"

#include <linux/log2.h>

#define MANA_IB_RING_MIN 64
#define MANA_IB_STRIDE_MIN 32
#define MANA_IB_STRIDE_MAX 1024
#define MANA_IB_QUEUE_MAX SZ_64M

static bool mana_ib_sizes_valid(const struct mana_uapi_create_qp *request,
				bool shared)
{
	if (!is_power_of_2(request->sq_bytes) ||
	    request->sq_bytes < MANA_HW_EXT_WQE_UNIT ||
	    request->sq_bytes > MANA_IB_QUEUE_MAX)
		return false;
	if (shared)
		return !request->rq_bytes;
	return is_power_of_2(request->rq_bytes) &&
	       is_power_of_2(request->rq_stride) &&
	       request->rq_stride >= MANA_IB_STRIDE_MIN &&
	       request->rq_stride <= MANA_IB_STRIDE_MAX &&
	       request->rq_bytes >= request->rq_stride &&
	       request->rq_bytes <= MANA_IB_QUEUE_MAX;
}

static int mana_ib_user_ext(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			    const struct mana_uapi_create_qp *request,
			    struct ib_udata *udata)
{
	struct mana_ib_ucontext *context = to_user_context(udata);
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);
	struct mana_ib_ext_queues queues = {
		.sq_bytes = request->sq_bytes,
		.rq_bytes = request->rq_bytes,
		.rq_stride = request->rq_stride,
	};
	size_t bytes = (size_t)request->sq_bytes + request->rq_bytes +
		       MANA_HW_EXT_RECORD_BYTES;
	struct mana_ib_qp_params params;
	struct mana_ib_qp_result result;
	int err;

	if (!mana_ib_sizes_valid(request, attr->srq))
		return -EINVAL;
	err = mana_ib_queue_region(dev, request->buffer, bytes, &qp->ext.umem,
				   &queues.region);
	if (err)
		return err;
	mana_ib_fill_qp_params(qp, attr, context->doorbell_page, &params);
	err = mana_ib_cmd_create_ext_qp(dev, &params, &queues, &result);
	if (err) {
		mana_ib_cmd_destroy_region(dev, queues.region);
		mana_ib_free_queues(dev, qp);
		return err;
	}
	mana_ib_qp_made(qp, &result);
	return 0;
}

static int mana_ib_kernel_ext(struct mana_ib_qp *qp,
			      struct ib_qp_init_attr *attr)
{
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);
	bool datagram = attr->qp_type == IB_QPT_UD ||
			attr->qp_type == IB_QPT_GSI;
	const struct ib_qp_cap *cap = &attr->cap;
	struct mana_ib_ext_queues queues = { .privileged = true };
	u32 wqe_bytes = mana_ib_ext_send_bytes(cap->max_send_sge, datagram);
	int node = dev->node;
	struct mana_ib_qp_params params;
	struct mana_ib_qp_result result;
	int err;

	queues.sq_bytes =
		roundup_pow_of_two(max(1U, cap->max_send_wr) * wqe_bytes);
	if (!attr->srq) {
		qp->ext.receive_stride =
			mana_ib_ext_receive_stride(cap->max_recv_sge);
		queues.rq_stride = qp->ext.receive_stride;
		queues.rq_bytes = max_t(u32, MANA_IB_RING_MIN,
					roundup_pow_of_two(max(1U, cap->max_recv_wr)) *
						qp->ext.receive_stride);
	}
	err = mana_ib_alloc_buffer(dev, queues.sq_bytes + queues.rq_bytes,
				   MANA_HW_EXT_RECORD_BYTES, &qp->ext.buffer);
	if (err)
		return err;
	qp->ext.record = qp->ext.buffer.record;
	err = mana_ib_ring_init(&qp->work.sq, qp->ext.buffer.cpu, queues.sq_bytes,
				cap->max_send_wr, node);
	if (err)
		goto err_free;
	if (!attr->srq) {
		err = mana_ib_ring_init(&qp->work.rq,
					qp->ext.buffer.cpu + queues.sq_bytes,
					queues.rq_bytes, cap->max_recv_wr,
					node);
		if (err)
			goto err_free;
	}
	queues.region = qp->ext.buffer.region;
	mana_ib_fill_qp_params(qp, attr, dev->doorbell_page, &params);
	err = mana_ib_cmd_create_ext_qp(dev, &params, &queues, &result);
	if (err)
		goto err_free;
	mana_ib_qp_made(qp, &result);
	qp->ext.buffer.region = 0;
	/* No inline data from the kernel. */
	attr->cap.max_inline_data = 0;
	qp->attr.cap.max_inline_data = 0;
	return 0;

err_free:
	mana_ib_free_queues(dev, qp);
	return err;
}

/**
 * mana_ib_create_extended - makes a QP in the extension's format
 * @qp: QP without a format
 * @attr: of the core; capabilities are answered
 * @request: of the provider
 * @udata: of the command, NULL: the kernel's
 */
int mana_ib_create_extended(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			    const struct mana_uapi_create_qp *request,
			    struct ib_udata *udata)
{
	qp->format = MANA_IB_QP_EXTENDED;
	INIT_LIST_HEAD(&qp->ext.counter_entry);
	if (udata)
		return mana_ib_user_ext(qp, attr, request, udata);
	return mana_ib_kernel_ext(qp, attr);
}
