// SPDX-License-Identifier: GPL-2.0
/* Queue pairs: which kind is made, and how it ends. */
#include "pd.h"
#include "post.h"
#include "raw.h"
#include "source.h"
#include "trace.h"
#include "turn.h"
#include "udata.h"

static int mana_ib_check_caps(const struct mana_ib_dev *dev,
			      const struct ib_qp_init_attr *attr, bool extended)
{
	const struct mana_ib_ext_limits *ext = &dev->ext;
	const struct mana_ib_limits *limits = &dev->limits;
	const struct ib_qp_cap *cap = &attr->cap;

	if (cap->max_send_wr >
		    (extended ? ext->max_send_wr : limits->max_send_wr) ||
	    cap->max_send_sge >
		    (extended ? ext->max_send_sge : limits->max_send_sge))
		return -EINVAL;
	if (extended && cap->max_inline_data > ext->max_inline_bytes)
		return -EINVAL;
	if (attr->srq)
		return 0;
	if (cap->max_recv_wr >
		    (extended ? ext->max_recv_wr : limits->max_recv_wr) ||
	    cap->max_recv_sge >
		    (extended ? ext->max_recv_sge : limits->max_recv_sge))
		return -EINVAL;
	return 0;
}

/* An extended QP for the kernel wherever the device has it. */
static bool mana_ib_wants_extended(const struct mana_ib_dev *dev,
				   const struct mana_uapi_create_qp *request,
				   enum ib_qp_type type, bool kernel)
{
	if (!kernel)
		return request->buffer || request->sq_bytes ||
		       request->rq_bytes;
	if (type == IB_QPT_GSI || type == IB_QPT_UD)
		return mana_ib_has(dev, MANA_HW_EXT_UD);
	return true;
}

static u64 mana_ib_type_feature(enum ib_qp_type type)
{
	switch (type) {
	case IB_QPT_RC:
		return MANA_HW_EXT_RC;
	case IB_QPT_UC:
		return MANA_HW_EXT_UC;
	default:
		return MANA_HW_EXT_UD;
	}
}

/*
 * What a provider asks for, in our words or in those of a stock pair: these differ
 * behind the stock part.
 */
static int mana_ib_read_qp_request(enum ib_qp_type type,
				   struct mana_uapi_create_qp *request,
				   struct mana_uapi_create_rc_qp *rc,
				   struct ib_udata *udata)
{
	int err;

	if (type == IB_QPT_RC && !mana_ib_speaks_ours(udata)) {
		err = mana_ib_udata_in(udata, rc, sizeof(*rc),
				       MANA_UAPI_CREATE_QP_STOCK_BYTES);
		if (err)
			return err;
		if (rc->mask & ~(MANA_UAPI_RC_FIXED_WQES |
				 MANA_UAPI_RC_MM_QUEUE))
			return -EOPNOTSUPP;
		return 0;
	}
	err = mana_ib_udata_in_parts(udata, request, sizeof(*request),
				     MANA_UAPI_CREATE_QP_STOCK_BYTES);
	if (err)
		return err;
	if (request->reserved)
		return -EOPNOTSUPP;
	memcpy(rc->address, request->address, sizeof(rc->address));
	memcpy(rc->bytes, request->bytes, sizeof(rc->bytes));
	return 0;
}

static int mana_ib_create_rdma_qp(struct mana_ib_qp *qp,
				  struct ib_qp_init_attr *attr,
				  struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);
	struct mana_ib_cq *send_cq = to_mana_cq(attr->send_cq);
	struct mana_ib_cq *recv_cq = to_mana_cq(attr->recv_cq);
	struct mana_uapi_create_qp request = {};
	struct mana_uapi_create_rc_qp rc = {};
	bool extended;
	int err;

	if (!dev->rdma)
		return -EOPNOTSUPP;
	/* With an indirection table the core leaves CQs out, of any QP type. */
	if (attr->rwq_ind_tbl || !attr->send_cq || !attr->recv_cq)
		return -EINVAL;
	if (attr->port_num && !mana_ib_port_is_rdma(dev, attr->port_num))
		return -EINVAL;
	if (send_cq->handle == MANA_IB_NO_HANDLE ||
	    recv_cq->handle == MANA_IB_NO_HANDLE)
		return -EINVAL;
	if (udata) {
		err = mana_ib_read_qp_request(attr->qp_type, &request, &rc,
					      udata);
		if (err)
			return err;
		err = attr->qp_type == IB_QPT_UD ?
			      mana_ib_check_datagrams(dev) :
			      0;
		if (err)
			return err;
	}
	extended = mana_ib_wants_extended(dev, &request, attr->qp_type,
					  qp->kernel);
	if (extended &&
	    !mana_ib_has(dev, mana_ib_type_feature(attr->qp_type)))
		return -EOPNOTSUPP;
	if (extended && (!send_cq->extended || !recv_cq->extended))
		return -EINVAL;
	if (attr->srq && !extended)
		return -EOPNOTSUPP;
	err = mana_ib_check_caps(dev, attr, extended);
	if (err)
		return err;

	if (extended)
		return mana_ib_create_extended(qp, attr, &request, udata);
	if (attr->qp_type == IB_QPT_RC)
		return mana_ib_create_stock_rc(qp, attr, &rc, udata);
	if (attr->qp_type == IB_QPT_UC)
		return -EOPNOTSUPP;
	return mana_ib_create_stock_ud(qp, attr, &request, udata);
}

/*
 * The device has ended a stock QP, which nobody can ask it for. One in RESET cannot
 * fail: then the event is of what was before.
 */
static void mana_ib_note_end(struct mana_ib_qp *qp)
{
	enum ib_qp_state state = READ_ONCE(qp->state);

	while (state != IB_QPS_RESET) {
		if (!try_cmpxchg(&qp->state, &state, IB_QPS_ERR))
			continue;
		trace_qp_state(to_mana_dev(qp->ibqp.device), qp->ibqp.qp_num,
			       state, IB_QPS_ERR, 0);
		break;
	}
}

static void mana_ib_qp_event(struct mana_ib_event_target *target,
			     enum ib_event_type type)
{
	struct mana_ib_qp *qp = mana_ib_target_qp(target);
	struct ib_event event = { .device = qp->ibqp.device,
				  .element.qp = &qp->ibqp,
				  .event = type };

	/* An extended QP is asked for its state when that matters. */
	if (type == IB_EVENT_QP_FATAL && qp->format != MANA_IB_QP_EXTENDED)
		mana_ib_note_end(qp);
	if (type == IB_EVENT_SQ_DRAINED &&
	    !READ_ONCE(qp->attr.en_sqd_async_notify))
		return;
	if (qp->ibqp.event_handler)
		qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
}

/* Makes events and completions find the QP. */
static int mana_ib_track_qp(struct mana_ib_dev *dev, struct mana_ib_qp *qp)
{
	int err;

	err = mana_ib_track(&dev->qps, qp->ibqp.qp_num, &qp->target);
	if (err || !qp->kernel || qp->format != MANA_IB_QP_STOCK_UD)
		return err;
	err = mana_ib_track(&dev->sqs, qp->sq_id, &qp->target);
	if (err)
		mana_ib_untrack(&dev->qps, qp->ibqp.qp_num);
	return err;
}

static void mana_ib_untrack_qp(struct mana_ib_dev *dev, struct mana_ib_qp *qp)
{
	mana_ib_untrack(&dev->qps, qp->ibqp.qp_num);
	if (qp->kernel && qp->format == MANA_IB_QP_STOCK_UD)
		mana_ib_untrack(&dev->sqs, qp->sq_id);
}

static void mana_ib_end_device_qp(struct mana_ib_dev *dev,
				  struct mana_ib_qp *qp)
{
	switch (qp->format) {
	case MANA_IB_QP_EXTENDED:
		mana_ib_cmd_destroy_ext_qp(dev, qp->handle);
		break;
	case MANA_IB_QP_STOCK_UD:
		mana_ib_cmd_destroy_ud_qp(dev, qp->handle);
		break;
	default:
		mana_ib_cmd_destroy_rc_qp(dev, qp->handle);
		break;
	}
}

static int mana_ib_answer_qp(struct mana_ib_qp *qp, struct ib_udata *udata)
{
	/* What is behind the shorter answer is zero but for who asked for more. */
	struct mana_uapi_create_rc_qp_resp response = {};

	if (!udata)
		return 0;
	response.queue_id[MANA_UAPI_QP_REQUESTER_SQ] = qp->sq_id;
	response.queue_id[MANA_UAPI_QP_RESPONDER_RQ] = qp->ibqp.qp_num;
	if (qp->format == MANA_IB_QP_STOCK_RC) {
		response.queue_id[MANA_UAPI_QP_RESPONDER_SQ] =
			qp->rc.queue_ids[MANA_HW_RNIC_RESPONDER_SQ];
		response.queue_id[MANA_UAPI_QP_REQUESTER_RQ] =
			qp->rc.queue_ids[MANA_HW_RNIC_REQUESTER_RQ];
		if (qp->rc.mm_umem)
			response.mm_queue_id =
				qp->rc.queue_ids[MANA_HW_RNIC_FAST_REGISTER_SQ];
	}
	return mana_ib_udata_out(udata, &response, sizeof(response));
}

int mana_ib_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr,
		      struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibqp->device);
	struct mana_ib_qp *qp = to_mana_qp(ibqp);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	int err;

	if (attr->create_flags)
		return -EOPNOTSUPP;
	/* The provider's part says where queues are, for each format its own. */
	if (udata && compat_names_queues(udata))
		return -EOPNOTSUPP;

	mana_ib_skip_turns(dev, !udata, &turn);
	qp->kernel = !udata;
	qp->user = mana_ib_caller(udata);
	qp->signal_all = attr->sq_sig_type == IB_SIGNAL_ALL_WR;
	qp->state = IB_QPS_RESET;
	qp->handle = MANA_IB_NO_HANDLE;
	qp->attr.cap = attr->cap;
	/* The step to INIT says it anew; that of a GSI QP does not. */
	qp->attr.port_num = max(1U, attr->port_num);
	mutex_init(&qp->mutex);
	mana_ib_target_init(&qp->target, mana_ib_qp_event);
	qp->work.send_flush.qp = qp;
	qp->work.send_flush.send = true;
	INIT_LIST_HEAD(&qp->work.send_flush.entry);
	qp->work.recv_flush.qp = qp;
	INIT_LIST_HEAD(&qp->work.recv_flush.entry);

	switch (attr->qp_type) {
	case IB_QPT_RC:
	case IB_QPT_UC:
	case IB_QPT_UD:
	case IB_QPT_GSI:
		break;
	case IB_QPT_RAW_PACKET:
		if (!mana_ib_has_packets(dev) || !udata)
			return -EOPNOTSUPP;
		if (attr->rwq_ind_tbl)
			return mana_ib_create_rss_qp(qp, attr, udata);
		return mana_ib_create_raw_qp(qp, attr, udata);
	default:
		return -EOPNOTSUPP;
	}

	err = mana_ib_create_rdma_qp(qp, attr, udata);
	if (err) {
		ibdev_dbg(&dev->ibdev, "no QP: %pe\n", ERR_PTR(err));
		return err;
	}
	err = mana_ib_track_qp(dev, qp);
	if (err)
		goto err_destroy;
	err = mana_ib_answer_qp(qp, udata);
	if (err)
		goto err_untrack;
	return 0;

err_untrack:
	mana_ib_untrack_qp(dev, qp);
	mana_ib_target_release(&qp->target);
err_destroy:
	mana_ib_end_device_qp(dev, qp);
	mana_ib_free_queues(dev, qp);
	return err;
}

/*
 * Completions of a QP that is not known any more are dropped, and with them the
 * receives of its SRQ: they go back before, when the device writes no more.
 */
static void mana_ib_return_receives(struct mana_ib_dev *dev,
				    struct mana_ib_qp *qp)
{
	mana_ib_cmd_reset_qp(dev, qp->handle);
	mana_ib_forget_entries(to_mana_cq(qp->ibqp.recv_cq), qp);
}

int mana_ib_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibqp->device);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	struct mana_ib_qp *qp = to_mana_qp(ibqp);

	mana_ib_skip_turns(dev, qp->kernel, &turn);
	switch (qp->format) {
	case MANA_IB_QP_RAW:
		mana_ib_destroy_raw_qp(qp);
		return 0;
	case MANA_IB_QP_RSS:
		mana_ib_destroy_rss_qp(qp);
		return 0;
	case MANA_IB_QP_PACKET:
		mana_ib_destroy_packet_qp(qp);
		return 0;
	default:
		break;
	}

	if (qp->kernel && ibqp->srq)
		mana_ib_return_receives(dev, qp);
	mana_ib_untrack_qp(dev, qp);
	mana_ib_target_release(&qp->target);
	/* Until we are back, the core lets those in who list all QPs. */
	mutex_lock(&qp->mutex);
	mana_ib_end_device_qp(dev, qp);
	if (qp->kernel && mana_ib_is_gone(dev))
		mana_ib_cmd_stop_qp(dev, qp->handle);
	qp->handle = MANA_IB_NO_HANDLE;
	mutex_unlock(&qp->mutex);
	if (qp->kernel) {
		/* After this nobody who polls holds the QP. */
		mana_ib_stop_flush(qp);
		mana_ib_forget_entries(to_mana_cq(ibqp->send_cq), qp);
		mana_ib_forget_entries(to_mana_cq(ibqp->recv_cq), qp);
	}
	mana_ib_free_queues(dev, qp);
	return 0;
}
