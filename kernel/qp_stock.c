// SPDX-License-Identifier: GPL-2.0
/* Queue pairs in the public format: RC of users, UD of users and the kernel. */
#include "pd.h"
#include "post.h"
#include "udata.h"

#include <linux/log2.h>

/* Where the device wants a queue of the provider. */
static const u8 mana_ib_rc_queue[MANA_UAPI_QP_QUEUES] = {
	[MANA_UAPI_QP_REQUESTER_SQ] = MANA_HW_RNIC_REQUESTER_SQ,
	[MANA_UAPI_QP_RESPONDER_SQ] = MANA_HW_RNIC_RESPONDER_SQ,
	[MANA_UAPI_QP_REQUESTER_RQ] = MANA_HW_RNIC_REQUESTER_RQ,
	[MANA_UAPI_QP_RESPONDER_RQ] = MANA_HW_RNIC_RESPONDER_RQ,
};

/**
 * mana_ib_create_stock_rc - makes an RC QP in the public format
 * @qp: QP without a format
 * @attr: of the core
 * @request: of the provider
 * @udata: of the command
 */
int mana_ib_create_stock_rc(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			    const struct mana_uapi_create_rc_qp *request,
			    struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);
	u64 regions[MANA_HW_RNIC_RC_QUEUES] = {};
	struct mana_ib_qp_params params;
	struct mana_ib_qp_result result;
	unsigned int i;
	int err;

	qp->format = MANA_IB_QP_STOCK_RC;
	for (i = 0; i < MANA_UAPI_QP_QUEUES; i++) {
		err = mana_ib_queue_region(dev, request->address[i],
					   request->bytes[i], &qp->rc.umems[i],
					   &regions[mana_ib_rc_queue[i]]);
		if (err)
			goto err_destroy_regions;
	}
	if (request->mask & MANA_UAPI_RC_MM_QUEUE) {
		err = mana_ib_queue_region(dev, request->mm_address,
					   request->mm_bytes, &qp->rc.mm_umem,
					   &regions[MANA_HW_RNIC_FAST_REGISTER_SQ]);
		if (err)
			goto err_destroy_regions;
	}
	mana_ib_fill_qp_params(qp, attr,
			       mana_ib_doorbell_page(dev,
						     to_user_context(udata)),
			       &params);
	err = mana_ib_cmd_create_rc_qp(dev, &params, regions, &result);
	if (err)
		goto err_destroy_regions;
	mana_ib_qp_made(qp, &result);
	memcpy(qp->rc.queue_ids, result.queue_ids,
	       sizeof(qp->rc.queue_ids));
	return 0;

err_destroy_regions:
	for (i = 0; i < ARRAY_SIZE(regions); i++)
		mana_ib_cmd_destroy_region(dev, regions[i]);
	mana_ib_free_queues(dev, qp);
	return err;
}

static int mana_ib_user_ud(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			   const struct mana_uapi_create_qp *request,
			   struct mana_ib_ucontext *context)
{
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);
	const unsigned int sq = MANA_UAPI_QP_REQUESTER_SQ;
	const unsigned int rq = MANA_UAPI_QP_RESPONDER_RQ;
	struct mana_ib_qp_params params;
	struct mana_ib_qp_result result;
	u64 sq_region, rq_region;
	int err;

	err = mana_ib_queue_region(dev, request->address[sq],
				   request->bytes[sq], &qp->ud.sq_umem,
				   &sq_region);
	if (err)
		return err;
	err = mana_ib_queue_region(dev, request->address[rq],
				   request->bytes[rq], &qp->ud.rq_umem,
				   &rq_region);
	if (err)
		goto err_sq;
	mana_ib_fill_qp_params(qp, attr, context->doorbell_page, &params);
	err = mana_ib_cmd_create_ud_qp(dev, &params, sq_region, rq_region,
				       &result);
	if (err)
		goto err_rq;
	mana_ib_qp_made(qp, &result);
	return 0;

err_rq:
	mana_ib_cmd_destroy_region(dev, rq_region);
err_sq:
	mana_ib_cmd_destroy_region(dev, sq_region);
	mana_ib_free_queues(dev, qp);
	return err;
}

/* Bytes of a ring of `count` WQEs, a power of two and at least a page. */
static u32 mana_ib_ring_bytes(u32 count, u32 wqe_bytes)
{
	return max_t(u32, roundup_pow_of_two(max(1U, count) * wqe_bytes),
		     PAGE_SIZE);
}

static int mana_ib_kernel_ud(struct mana_ib_qp *qp,
			     struct ib_qp_init_attr *attr)
{
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);
	const struct ib_qp_cap *cap = &attr->cap;
	struct mana_ib_qp_params params;
	struct mana_ib_qp_result result;
	u32 sq_bytes, rq_bytes;
	int err;

	sq_bytes = mana_ib_ring_bytes(cap->max_send_wr,
				      mana_ib_ud_send_bytes(cap->max_send_sge));
	rq_bytes = mana_ib_ring_bytes(cap->max_recv_wr,
				      mana_ib_ud_receive_bytes(cap->max_recv_sge));
	err = mana_ib_alloc_buffer(dev, sq_bytes, 0, &qp->ud.sq_buffer);
	if (err)
		return err;
	err = mana_ib_alloc_buffer(dev, rq_bytes, 0, &qp->ud.rq_buffer);
	if (err)
		goto err_free;
	err = mana_ib_ring_init(&qp->work.sq, qp->ud.sq_buffer.cpu, sq_bytes,
				cap->max_send_wr, dev->node);
	if (err)
		goto err_free;
	err = mana_ib_ring_init(&qp->work.rq, qp->ud.rq_buffer.cpu, rq_bytes,
				cap->max_recv_wr, dev->node);
	if (err)
		goto err_free;
	mana_ib_fill_qp_params(qp, attr, dev->doorbell_page, &params);
	err = mana_ib_cmd_create_ud_qp(dev, &params, qp->ud.sq_buffer.region,
				       qp->ud.rq_buffer.region, &result);
	if (err)
		goto err_free;
	mana_ib_qp_made(qp, &result);
	qp->ud.sq_buffer.region = 0;
	qp->ud.rq_buffer.region = 0;
	/* No inline data from the kernel. */
	attr->cap.max_inline_data = 0;
	qp->attr.cap.max_inline_data = 0;
	return 0;

err_free:
	mana_ib_free_queues(dev, qp);
	return err;
}

/**
 * mana_ib_create_stock_ud - makes a UD or GSI QP in the public format
 * @qp: QP without a format
 * @attr: of the core; capabilities are answered
 * @request: of the provider
 * @udata: of the command, NULL: the kernel's
 */
int mana_ib_create_stock_ud(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			    const struct mana_uapi_create_qp *request,
			    struct ib_udata *udata)
{
	qp->format = MANA_IB_QP_STOCK_UD;
	if (udata)
		return mana_ib_user_ud(qp, attr, request, to_user_context(udata));
	return mana_ib_kernel_ud(qp, attr);
}
