// SPDX-License-Identifier: GPL-2.0
/*
 * Raw packet QPs with both queues, receive work queues and spreads: the extension's
 * packet queues, which stand beside those of the port's interface. A QP's queues
 * exist from INIT to ERR or RESET, so that a reset one starts anew.
 */
#include "parent.h"
#include "pd.h"
#include "raw.h"
#include "udata.h"

#include <linux/log2.h>

#define MANA_IB_PACKET_MIN_CQES \
	(MANA_HW_PAGE_BYTES / sizeof(struct mana_hw_cqe))
#define MANA_IB_PACKET_QPNS 0x10000

/* The queue's own CQ speaks for the one that the user waits at. */
static void mana_ib_packet_completion(struct ib_cq *own, void *context)
{
	struct ib_cq *ibcq = context;

	if (ibcq->comp_handler)
		ibcq->comp_handler(ibcq, ibcq->cq_context);
}

static int mana_ib_init_packet_queue(struct mana_ib_dev *dev,
				     struct ib_cq *ibcq,
				     const struct mana_uapi_packet_queue *from,
				     struct mana_ib_packet_queue *queue)
{
	struct mana_ib_cq *cq = &queue->cq;
	struct ib_umem *umem;

	if (from->bytes < MANA_HW_PAGE_BYTES || !is_power_of_2(from->bytes) ||
	    from->cqes < MANA_IB_PACKET_MIN_CQES || !is_power_of_2(from->cqes) ||
	    from->cqes > dev->limits.max_cqe)
		return -EINVAL;
	cq->ibcq.device = &dev->ibdev;
	cq->ibcq.comp_handler = mana_ib_packet_completion;
	cq->ibcq.cq_context = ibcq;
	cq->handle = MANA_IB_NO_HANDLE;
	cq->id = MANA_IB_NO_ID;
	cq->vector = to_mana_cq(ibcq)->vector;
	cq->entries = from->cqes;
	queue->bytes = from->bytes;
	queue->object = MANA_IB_NO_HANDLE;

	umem = compat_umem_get(&dev->ibdev, from->address, from->bytes,
			       IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(umem))
		return PTR_ERR(umem);
	queue->umem = umem;
	umem = compat_umem_get(&dev->ibdev, from->cq_address,
			       from->cqes * sizeof(struct mana_hw_cqe),
			       IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(umem))
		return PTR_ERR(umem);
	cq->umem = umem;
	return 0;
}

static void mana_ib_free_packets(struct mana_ib_dev *dev,
				 struct mana_ib_packets *packets)
{
	mana_ib_release_umem(dev, packets->send.umem);
	mana_ib_release_umem(dev, packets->send.cq.umem);
	mana_ib_release_umem(dev, packets->recv.umem);
	mana_ib_release_umem(dev, packets->recv.cq.umem);
	kfree(packets);
}

/* The queues have ids only later, and others after a reset. */
static int mana_ib_number_packet_qp(struct mana_ib_dev *dev,
				    struct mana_ib_qp *qp)
{
	int number = ida_alloc_max(&dev->packet_qpns, MANA_IB_PACKET_QPNS - 1,
				   GFP_KERNEL);

	if (number < 0)
		return number;
	qp->ibqp.qp_num = MANA_UAPI_PACKET_QPN + number;
	return 0;
}

/**
 * mana_ib_create_packet_qp - a raw packet QP with both queues, which start at INIT
 * @qp: of the core's making
 * @attr: of the core
 * @request: of the provider
 * @udata: of the command
 */
int mana_ib_create_packet_qp(struct mana_ib_qp *qp,
			     struct ib_qp_init_attr *attr,
			     const struct mana_uapi_create_raw_qp *request,
			     struct ib_udata *udata)
{
	struct mana_ib_ucontext *context = to_user_context(udata);
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);
	const struct ib_qp_cap *cap = &attr->cap;
	struct mana_ib_packets *packets;
	int err;

	if (!mana_ib_has(dev, MANA_HW_EXT_PACKETS) || attr->srq ||
	    request->sq_address || request->sq_bytes || request->port)
		return -EOPNOTSUPP;
	if (!attr->send_cq || !attr->recv_cq ||
	    cap->max_send_wr > dev->limits.max_send_wr ||
	    cap->max_send_sge > dev->limits.max_send_sge ||
	    cap->max_recv_wr > dev->limits.max_recv_wr ||
	    cap->max_recv_sge > dev->limits.max_recv_sge)
		return -EINVAL;
	packets = kzalloc(sizeof(*packets), GFP_KERNEL_ACCOUNT);
	if (!packets)
		return -ENOMEM;
	INIT_LIST_HEAD(&packets->flows);
	packets->spread = MANA_IB_NO_HANDLE;
	packets->doorbell_page = context->doorbell_page;
	err = mana_ib_init_packet_queue(dev, attr->send_cq, &request->send,
					&packets->send);
	if (err)
		goto err_free;
	err = mana_ib_init_packet_queue(dev, attr->recv_cq, &request->recv,
					&packets->recv);
	if (err)
		goto err_free;
	err = mana_ib_number_packet_qp(dev, qp);
	if (err)
		goto err_free;
	qp->format = MANA_IB_QP_PACKET;
	qp->packets = packets;
	return 0;

err_free:
	mana_ib_free_packets(dev, packets);
	return err;
}

/* Whose queues are made. */
struct mana_ib_packet_owner {
	struct mana_port_context *port;
	struct ib_pd *pd;
	u32 doorbell_page;
};

static int mana_ib_start_packet_queue(struct mana_ib_dev *dev,
				      const struct mana_ib_packet_owner *owner,
				      bool send,
				      struct mana_ib_packet_queue *queue)
{
	struct mana_ib_wq_params params = {
		.vport = mana_ib_port_vport(owner->port),
		.send = send,
		.wq_bytes = queue->bytes,
		.cq_bytes = queue->cq.entries * sizeof(struct mana_hw_cqe),
		.eq_id = dev->eqs[queue->cq.vector].id,
		.pd_id = to_mana_pd(owner->pd)->id,
		.doorbell_page = owner->doorbell_page,
	};
	struct mana_ib_wq_result result;
	int err;

	err = mana_ib_umem_region(dev, queue->umem, &params.wq_region);
	if (err)
		return err;
	err = mana_ib_umem_region(dev, queue->cq.umem, &params.cq_region);
	if (err)
		goto err_wq_region;
	err = mana_ib_cmd_create_packet_wq(dev, &params, &result);
	if (err)
		goto err_cq_region;
	queue->object = result.object;
	queue->id = result.wq_id;
	queue->cq.id = result.cq_id;

	/* Both regions are the device's now. */
	err = mana_ib_hook_cq(dev, &queue->cq);
	if (err) {
		mana_ib_cmd_destroy_wq_object(dev, send, queue->object);
		queue->object = MANA_IB_NO_HANDLE;
		queue->cq.id = MANA_IB_NO_ID;
	}
	return err;

err_cq_region:
	mana_ib_cmd_destroy_region(dev, params.cq_region);
err_wq_region:
	mana_ib_cmd_destroy_region(dev, params.wq_region);
	return err;
}

static void mana_ib_stop_packet_queue(struct mana_ib_dev *dev, bool send,
				      struct mana_ib_packet_queue *queue)
{
	mana_ib_mute_cq(&queue->cq);
	mana_ib_cmd_destroy_wq_object(dev, send, queue->object);
	mana_ib_unhook_cq(dev, &queue->cq);
	queue->object = MANA_IB_NO_HANDLE;
	queue->cq.id = MANA_IB_NO_ID;
}

/* The queues end, and with the receive queue or the spread its rules. */
static void mana_ib_stop_packets(struct mana_ib_dev *dev, struct mana_ib_qp *qp)
{
	struct mana_ib_packets *packets = qp->packets;

	if (!packets->live)
		return;
	if (packets->spread != MANA_IB_NO_HANDLE) {
		mana_ib_cmd_destroy_spread(dev, packets->spread);
	} else {
		mana_ib_stop_packet_queue(dev, false, &packets->recv);
		mana_ib_stop_packet_queue(dev, true, &packets->send);
	}
	mana_ib_forget_flows(packets);
	packets->live = false;
}

static int mana_ib_start_packets(struct mana_ib_dev *dev, struct mana_ib_qp *qp,
				 u32 port, struct ib_udata *udata)
{
	struct mana_uapi_modify_packet_qp_resp response = {};
	struct mana_ib_packets *packets = qp->packets;
	struct mana_ib_packet_owner owner = {
		.pd = qp->ibqp.pd,
		.doorbell_page = packets->doorbell_page,
	};
	int err;

	/* Without the ids the provider has no use for the queues. */
	if (!udata || udata->outlen < sizeof(response))
		return -EINVAL;
	owner.port = mana_ib_parent_port(dev, port);
	if (!owner.port)
		return -EINVAL;
	packets->port = port;
	err = mana_ib_start_packet_queue(dev, &owner, true,
					 &packets->send);
	if (err)
		return err;
	err = mana_ib_start_packet_queue(dev, &owner, false,
					 &packets->recv);
	if (err) {
		mana_ib_stop_packet_queue(dev, true, &packets->send);
		return err;
	}
	packets->live = true;
	err = mana_ib_install_flows(dev, packets);
	if (err)
		goto err_stop;
	response.sq_id = packets->send.id;
	response.send_cq_id = packets->send.cq.id;
	response.rq_id = packets->recv.id;
	response.recv_cq_id = packets->recv.cq.id;
	err = mana_ib_udata_out(udata, &response, sizeof(response));
	if (err)
		goto err_stop;
	return 0;

err_stop:
	mana_ib_stop_packets(dev, qp);
	return err;
}

/**
 * mana_ib_modify_packet_qp - queues come and go with the state
 * @qp: raw packet QP, its mutex held
 * @state: that it enters
 * @port: that its queues are of, if they start
 * @udata: answered with the ids of queues that start
 */
int mana_ib_modify_packet_qp(struct mana_ib_qp *qp, enum ib_qp_state state,
			     u32 port, struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);

	/* It receives from creation on, by its work queues. */
	if (qp->packets->spread != MANA_IB_NO_HANDLE)
		return -EOPNOTSUPP;
	switch (state) {
	case IB_QPS_INIT:
		if (qp->packets->live)
			return port && port != qp->packets->port ? -EINVAL : 0;
		return mana_ib_start_packets(dev, qp, port, udata);
	case IB_QPS_RTR:
	case IB_QPS_RTS:
		return 0;
	case IB_QPS_RESET:
		mana_ib_stop_packets(dev, qp);
		return 0;
	case IB_QPS_ERR:
		mana_ib_stop_packets(dev, qp);
		/* What is left is flushed by the provider. */
		mana_ib_packet_completion(NULL, qp->ibqp.send_cq);
		mana_ib_packet_completion(NULL, qp->ibqp.recv_cq);
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

/**
 * mana_ib_destroy_packet_qp - ends a raw packet QP with a data path
 * @qp: QP
 */
void mana_ib_destroy_packet_qp(struct mana_ib_qp *qp)
{
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);

	/* Until we are back, the core lets those in who list all QPs. */
	mutex_lock(&qp->mutex);
	mana_ib_stop_packets(dev, qp);
	mutex_unlock(&qp->mutex);
	mana_ib_free_packets(dev, qp->packets);
	ida_free(&dev->packet_qpns, qp->ibqp.qp_num - MANA_UAPI_PACKET_QPN);
}

static void mana_ib_free_packet_wq(struct mana_ib_dev *dev,
				   struct mana_ib_wq *wq)
{
	mana_ib_release_umem(dev, wq->packet->umem);
	mana_ib_release_umem(dev, wq->packet->cq.umem);
	kfree(wq->packet);
	wq->packet = NULL;
}

/**
 * mana_ib_create_packet_wq - a receive work queue with a data path
 * @wq: zeroed
 * @ibpd: protection domain
 * @attr: of the core
 * @from: its memory
 * @udata: answered with the ids
 */
int mana_ib_create_packet_wq(struct mana_ib_wq *wq, struct ib_pd *ibpd,
			     struct ib_wq_init_attr *attr,
			     const struct mana_uapi_packet_queue *from,
			     struct ib_udata *udata)
{
	struct mana_ib_ucontext *context = to_user_context(udata);
	struct mana_ib_dev *dev = to_mana_dev(ibpd->device);
	struct mana_ib_packet_owner owner = {
		.port = mana_ib_parent_port(dev, 1),
		.pd = ibpd,
		.doorbell_page = context->doorbell_page,
	};
	struct mana_uapi_create_wq_resp response = {};
	int err;

	if (!mana_ib_has(dev, MANA_HW_EXT_PACKET_SPREAD))
		return -EOPNOTSUPP;
	if (attr->max_wr > dev->limits.max_recv_wr ||
	    attr->max_sge > dev->limits.max_recv_sge ||
	    udata->outlen < sizeof(response))
		return -EINVAL;
	mutex_init(&wq->mutex);
	wq->object = MANA_IB_NO_HANDLE;
	wq->packet = kzalloc(sizeof(*wq->packet), GFP_KERNEL_ACCOUNT);
	if (!wq->packet)
		return -ENOMEM;
	err = mana_ib_init_packet_queue(dev, attr->cq, from, wq->packet);
	if (err)
		goto err_free;
	err = mana_ib_start_packet_queue(dev, &owner, false,
					 wq->packet);
	if (err)
		goto err_free;
	wq->ibwq.wq_num = wq->packet->id;
	response.wq_id = wq->packet->id;
	response.cq_id = wq->packet->cq.id;
	err = mana_ib_udata_out(udata, &response, sizeof(response));
	if (err)
		goto err_stop;
	return 0;

err_stop:
	mana_ib_stop_packet_queue(dev, false, wq->packet);
err_free:
	mana_ib_free_packet_wq(dev, wq);
	return err;
}

/**
 * mana_ib_modify_packet_wq - the queue becomes ready, or ends
 * @wq: with a data path
 * @attr: states
 * @mask: which of them count
 *
 * What is posted in RESET is refused by the provider. In ERR the device has no queue
 * any more, and makes no other: who wants one makes another work queue.
 */
int mana_ib_modify_packet_wq(struct mana_ib_wq *wq,
			     const struct ib_wq_attr *attr, u32 mask)
{
	struct mana_ib_dev *dev = to_mana_dev(wq->ibwq.device);
	enum ib_wq_state state = attr->wq_state;
	int err = 0;

	mutex_lock(&wq->mutex);
	if (mask & IB_WQ_CUR_STATE && attr->curr_wq_state != wq->ibwq.state) {
		err = -EINVAL;
		goto out;
	}
	if (!(mask & IB_WQ_STATE) || state == wq->ibwq.state)
		goto out;
	if (state == IB_WQS_ERR) {
		mana_ib_stop_packet_queue(dev, false, wq->packet);
		/* What is left is flushed by the provider. */
		mana_ib_packet_completion(NULL, wq->ibwq.cq);
	} else if (state != IB_WQS_RDY || wq->ibwq.state != IB_WQS_RESET) {
		err = -EOPNOTSUPP;
		goto out;
	}
	wq->ibwq.state = state;
out:
	mutex_unlock(&wq->mutex);
	return err;
}

/**
 * mana_ib_destroy_packet_wq - ends a receive work queue with a data path
 * @wq: queue
 */
void mana_ib_destroy_packet_wq(struct mana_ib_wq *wq)
{
	struct mana_ib_dev *dev = to_mana_dev(wq->ibwq.device);

	if (wq->packet->object != MANA_IB_NO_HANDLE)
		mana_ib_stop_packet_queue(dev, false, wq->packet);
	mana_ib_free_packet_wq(dev, wq);
}

/**
 * mana_ib_create_spread_qp - a raw packet QP that receives by work queues
 * @qp: raw packet QP
 * @table: its work queues, all with a data path
 * @request: what is hashed, and the key
 */
int mana_ib_create_spread_qp(struct mana_ib_qp *qp,
			     struct ib_rwq_ind_table *table,
			     const struct mana_uapi_create_rss_qp *request)
{
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);
	struct mana_ib_spread *spread;
	u32 count = 1U << table->log_ind_tbl_size;
	struct mana_ib_packets *packets;
	struct mana_ib_wq *wq;
	int err = -ENOMEM;
	u32 i;

	/* What the provider asks for is handed to the device as it is. */
	BUILD_BUG_ON(MANA_UAPI_RSS_FIELDS != MANA_HW_EXT_SPREAD_FIELDS);
	BUILD_BUG_ON(MANA_UAPI_RSS_QUEUES != MANA_HW_EXT_SPREAD_ENTRIES);
	BUILD_BUG_ON(MANA_UAPI_RSS_KEY_BYTES != MANA_HW_EXT_SPREAD_KEY_BYTES);
	if (request->port)
		return -EOPNOTSUPP;
	packets = kzalloc(sizeof(*packets), GFP_KERNEL_ACCOUNT);
	spread = kzalloc(sizeof(*spread), GFP_KERNEL);
	if (!packets || !spread)
		goto err_free;
	INIT_LIST_HEAD(&packets->flows);
	spread->fields = request->hash_fields;
	spread->entries = count;
	memcpy(spread->key, request->key, sizeof(spread->key));
	err = -EINVAL;
	for (i = 0; i < count; i++) {
		wq = to_mana_wq(table->ind_tbl[i]);
		if (!wq->packet)
			goto err_free;
		/* One in ERR has no object: the device refuses the table. */
		mutex_lock(&wq->mutex);
		spread->objects[i] = wq->packet->object;
		mutex_unlock(&wq->mutex);
	}
	err = mana_ib_number_packet_qp(dev, qp);
	if (err)
		goto err_free;
	err = mana_ib_cmd_create_spread(dev, spread, &packets->spread);
	if (err)
		goto err_number;
	kfree(spread);
	packets->port = 1;
	packets->live = true;
	qp->format = MANA_IB_QP_PACKET;
	qp->packets = packets;
	return 0;

err_number:
	ida_free(&dev->packet_qpns, qp->ibqp.qp_num - MANA_UAPI_PACKET_QPN);
err_free:
	kfree(spread);
	kfree(packets);
	return err;
}
