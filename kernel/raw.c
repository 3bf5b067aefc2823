// SPDX-License-Identifier: GPL-2.0
/*
 * Raw packets: send queues of a port of the Ethernet device, and receive queues
 * that its packets are spread over.
 */
#include "raw.h"
#include "eq.h"
#include "parent.h"
#include "pd.h"
#include "udata.h"
#include "user.h"

#include <linux/log2.h>

#define MANA_IB_QUEUE_MIN MANA_HW_PAGE_BYTES

/*
 * The transmit side of a port belongs to one PD and doorbell page at a time:
 * the first raw packet QP of a PD takes it, the last gives it back.
 */
static int mana_ib_take_vport(struct mana_ib_pd *pd,
			      struct mana_port_context *port, u32 doorbell_page)
{
	int err = 0;

	mutex_lock(&pd->vport_lock);
	if (pd->vport_users && pd->vport != port) {
		err = -EBUSY;
		goto out;
	}
	if (!pd->vport_users) {
		err = mana_ib_port_take(port, pd->id, doorbell_page);
		if (err)
			goto out;
		pd->vport = port;
	}
	pd->vport_users++;
out:
	mutex_unlock(&pd->vport_lock);
	return err;
}

static void mana_ib_give_vport(struct mana_ib_pd *pd)
{
	mutex_lock(&pd->vport_lock);
	if (!--pd->vport_users) {
		mana_ib_port_give(pd->vport);
		pd->vport = NULL;
	}
	mutex_unlock(&pd->vport_lock);
}

/* A work queue and its CQ, which comes to life with it; raw_lock is held. */
static int mana_ib_create_object(struct mana_ib_dev *dev,
				 struct mana_port_context *port, bool send,
				 struct ib_umem *umem, u32 bytes,
				 struct mana_ib_cq *cq, u64 *object, u32 *id)
{
	struct mana_ib_wq_params params = {
		.vport = mana_ib_port_vport(port),
		.send = send,
		.wq_bytes = bytes,
		.cq_bytes = cq->entries * sizeof(struct mana_hw_cqe),
		.eq_id = dev->raw_eqs[cq->vector].id,
	};
	struct mana_ib_wq_result result;
	int err;

	/* One queue for each Ethernet CQ. */
	if (cq->id != MANA_IB_NO_ID || cq->kernel)
		return -EINVAL;
	err = mana_ib_umem_region(dev, umem, &params.wq_region);
	if (err)
		return err;
	err = mana_ib_umem_region(dev, cq->umem, &params.cq_region);
	if (err)
		goto err_wq_region;
	err = mana_ib_cmd_create_wq_object(dev, &params, &result);
	if (err)
		goto err_cq_region;
	*object = result.object;
	*id = result.wq_id;
	/* Who lists CQs reads it at any time. */
	WRITE_ONCE(cq->id, result.cq_id);

	/* Both regions are the device's now. */
	err = mana_ib_hook_cq(dev, cq);
	if (err) {
		mana_ib_cmd_destroy_wq_object(dev, send, *object);
		WRITE_ONCE(cq->id, MANA_IB_NO_ID);
	}
	return err;

err_cq_region:
	mana_ib_cmd_destroy_region(dev, params.cq_region);
err_wq_region:
	mana_ib_cmd_destroy_region(dev, params.wq_region);
	return err;
}

/* raw_lock is held. */
static void mana_ib_destroy_object(struct mana_ib_dev *dev, bool send,
				   struct mana_ib_cq *cq, u64 object)
{
	mana_ib_mute_cq(cq);
	mana_ib_cmd_destroy_wq_object(dev, send, object);
	mana_ib_unhook_cq(dev, cq);
	WRITE_ONCE(cq->id, MANA_IB_NO_ID);
}

/**
 * mana_ib_create_raw_qp - makes a raw packet QP, of either kind
 * @qp: QP without a format
 * @attr: of the core
 * @udata: of the command
 */
int mana_ib_create_raw_qp(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			  struct ib_udata *udata)
{
	struct mana_ib_ucontext *context = to_user_context(udata);
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);
	struct mana_ib_pd *pd = to_mana_pd(qp->ibqp.pd);
	struct mana_ib_cq *cq = to_mana_cq(attr->send_cq);
	struct mana_uapi_create_raw_qp_resp response = {};
	struct mana_uapi_create_raw_qp request;
	int err;

	err = mana_ib_udata_in_parts(udata, &request, sizeof(request),
				     MANA_UAPI_CREATE_RAW_QP_STOCK_BYTES);
	if (err)
		return err;
	if (request.send.bytes || request.recv.bytes)
		return mana_ib_create_packet_qp(qp, attr, &request, udata);
	if (!dev->raw)
		return -EOPNOTSUPP;
	if (!attr->send_cq || cq->handle != MANA_IB_NO_HANDLE || !cq->umem)
		return -EINVAL;
	if (attr->cap.max_send_wr > dev->limits.max_send_wr ||
	    attr->cap.max_send_sge > dev->limits.max_send_sge ||
	    request.sq_bytes < MANA_IB_QUEUE_MIN ||
	    !is_power_of_2(request.sq_bytes))
		return -EINVAL;
	qp->format = MANA_IB_QP_RAW;
	qp->raw.port = mana_ib_parent_port(dev, request.port);
	if (!qp->raw.port)
		return -EINVAL;
	err = mana_ib_get_raw_eqs(dev);
	if (err)
		return err;
	err = mana_ib_take_vport(pd, qp->raw.port, context->doorbell_page);
	if (err)
		goto err_eqs;
	qp->raw.umem = compat_umem_get(&dev->ibdev, request.sq_address,
				       request.sq_bytes, IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(qp->raw.umem)) {
		err = PTR_ERR(qp->raw.umem);
		qp->raw.umem = NULL;
		goto err_vport;
	}
	mutex_lock(&dev->raw_lock);
	err = mana_ib_create_object(dev, qp->raw.port, true, qp->raw.umem,
				    request.sq_bytes, cq, &qp->handle,
				    &qp->sq_id);
	mutex_unlock(&dev->raw_lock);
	if (err)
		goto err_umem;

	response.sq_id = qp->sq_id;
	response.cq_id = cq->id;
	response.tx_vport_offset = mana_ib_port_tx_offset(qp->raw.port);
	err = mana_ib_udata_out(udata, &response, sizeof(response));
	if (err)
		goto err_object;
	qp->ibqp.qp_num = qp->sq_id;
	return 0;

err_object:
	mutex_lock(&dev->raw_lock);
	mana_ib_destroy_object(dev, true, cq, qp->handle);
	mutex_unlock(&dev->raw_lock);
err_umem:
	mana_ib_release_umem(dev, qp->raw.umem);
err_vport:
	mana_ib_give_vport(pd);
err_eqs:
	mana_ib_put_raw_eqs(dev);
	return err;
}

/**
 * mana_ib_destroy_raw_qp - ends a raw packet QP of direct verbs
 * @qp: QP
 */
void mana_ib_destroy_raw_qp(struct mana_ib_qp *qp)
{
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);

	mutex_lock(&dev->raw_lock);
	mana_ib_destroy_object(dev, true, to_mana_cq(qp->ibqp.send_cq),
			       qp->handle);
	mutex_unlock(&dev->raw_lock);
	mana_ib_release_umem(dev, qp->raw.umem);
	mana_ib_give_vport(to_mana_pd(qp->ibqp.pd));
	mana_ib_put_raw_eqs(dev);
}

struct ib_wq *mana_ib_create_wq(struct ib_pd *ibpd,
				struct ib_wq_init_attr *attr,
				struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibpd->device);
	struct mana_uapi_create_wq request;
	struct mana_ib_wq *wq;
	int err;

	err = mana_ib_udata_in_parts(udata, &request, sizeof(request),
				     MANA_UAPI_CREATE_WQ_STOCK_BYTES);
	if (err)
		return ERR_PTR(err);
	if (attr->wq_type != IB_WQT_RQ || attr->create_flags ||
	    request.reserved || (!request.recv.bytes && !dev->raw))
		return ERR_PTR(-EOPNOTSUPP);
	if (!request.recv.bytes && (request.bytes < MANA_IB_QUEUE_MIN ||
				    !is_power_of_2(request.bytes)))
		return ERR_PTR(-EINVAL);

	wq = kzalloc(sizeof(*wq), GFP_KERNEL_ACCOUNT);
	if (!wq)
		return ERR_PTR(-ENOMEM);
	if (request.recv.bytes) {
		err = request.address || request.bytes ?
			      -EOPNOTSUPP :
			      mana_ib_create_packet_wq(wq, ibpd, attr,
						       &request.recv, udata);
		if (err) {
			kfree(wq);
			return ERR_PTR(err);
		}
		return &wq->ibwq;
	}
	wq->umem = compat_umem_get(ibpd->device, request.address, request.bytes,
				   IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(wq->umem)) {
		err = PTR_ERR(wq->umem);
		kfree(wq);
		return ERR_PTR(err);
	}
	wq->bytes = request.bytes;
	wq->object = MANA_IB_NO_HANDLE;
	return &wq->ibwq;
}

/* Direct verbs: the device makes the queue with the QP and knows no states of it. */
int mana_ib_modify_wq(struct ib_wq *ibwq, struct ib_wq_attr *attr, u32 mask,
		      struct ib_udata *udata)
{
	struct mana_ib_wq *wq = to_mana_wq(ibwq);
	int err;

	err = mana_ib_udata_empty(udata);
	if (err)
		return err;
	if (!wq->packet || mask & ~(IB_WQ_STATE | IB_WQ_CUR_STATE))
		return -EOPNOTSUPP;
	return mana_ib_modify_packet_wq(wq, attr, mask);
}

int mana_ib_destroy_wq(struct ib_wq *ibwq, struct ib_udata *udata)
{
	struct mana_ib_wq *wq = to_mana_wq(ibwq);

	if (wq->packet)
		mana_ib_destroy_packet_wq(wq);
	else
		mana_ib_release_umem(to_mana_dev(ibwq->device), wq->umem);
	kfree(wq);
	return 0;
}

int mana_ib_create_rwq_table(struct ib_rwq_ind_table *ibtable,
			     struct ib_rwq_ind_table_init_attr *attr,
			     struct ib_udata *udata)
{
	struct mana_ib_rwq_table *table = to_mana_rwq_table(ibtable);
	int err;

	err = mana_ib_udata_empty(udata);
	if (err)
		return err;
	if (attr->log_ind_tbl_size > ilog2(MANA_UAPI_RSS_QUEUES))
		return -EINVAL;
	table->user = mana_ib_caller(udata);
	return mana_ib_take_share(to_mana_dev(ibtable->device), table->user,
				  MANA_IB_SHARE_HANDLES, 1);
}

int mana_ib_destroy_rwq_table(struct ib_rwq_ind_table *ibtable)
{
	mana_ib_give_share(to_mana_dev(ibtable->device),
			   to_mana_rwq_table(ibtable)->user,
			   MANA_IB_SHARE_HANDLES, 1);
	return 0;
}

static void mana_ib_destroy_receive_queues(struct mana_ib_dev *dev,
					   struct ib_wq **wqs, u32 count)
{
	struct mana_ib_wq *wq;

	while (count--) {
		wq = to_mana_wq(wqs[count]);
		mana_ib_destroy_object(dev, false, to_mana_cq(wq->ibwq.cq),
				       wq->object);
		wq->object = MANA_IB_NO_HANDLE;
	}
}

static int mana_ib_create_receive_queues(struct mana_ib_dev *dev,
					 struct mana_port_context *port,
					 struct ib_wq **wqs, u32 count,
					 struct mana_uapi_create_rss_qp_resp *response)
{
	struct mana_ib_wq *wq;
	struct mana_ib_cq *cq;
	int err;
	u32 i;

	for (i = 0; i < count; i++) {
		wq = to_mana_wq(wqs[i]);
		cq = to_mana_cq(wq->ibwq.cq);
		err = -EINVAL;
		/* A queue is in one table, and there once. */
		if (wq->packet || wq->object != MANA_IB_NO_HANDLE ||
		    !cq->umem || cq->handle != MANA_IB_NO_HANDLE)
			goto err_destroy;
		err = mana_ib_create_object(dev, port, false, wq->umem,
					    wq->bytes, cq, &wq->object,
					    &wq->id);
		if (err)
			goto err_destroy;
		response->entry[i].cq_id = cq->id;
		response->entry[i].wq_id = wq->id;
	}
	response->entries = count;
	return 0;

err_destroy:
	mana_ib_destroy_receive_queues(dev, wqs, i);
	return err;
}

/* The device's table has MANA_UAPI_RSS_QUEUES entries, ours may have fewer. */
static int mana_ib_steer(struct mana_ib_dev *dev,
			 struct mana_port_context *port, struct ib_wq **wqs,
			 u32 count, const u8 *key)
{
	u64 table[MANA_UAPI_RSS_QUEUES];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(table); i++)
		table[i] = to_mana_wq(wqs[i % count])->object;
	return mana_ib_cmd_steer(dev, mana_ib_port_vport(port), table,
				 ARRAY_SIZE(table), table[0], key);
}

/*
 * The device counts receive queues to the PD that has the port's transmit side.
 * So that the PD of another, which may go, is not theirs, they take that side
 * too, unless the kernel's interface has it.
 */
static int mana_ib_take_receive_side(struct mana_ib_qp *qp, u32 doorbell_page)
{
	int err;

	err = mana_ib_take_vport(to_mana_pd(qp->ibqp.pd), qp->rss.port,
				 doorbell_page);
	qp->rss.has_vport = !err;
	if (err == -EBUSY && mana_ib_port_is_running(qp->rss.port))
		return 0;
	return err;
}

static void mana_ib_give_receive_side(struct mana_ib_qp *qp)
{
	if (qp->rss.has_vport)
		mana_ib_give_vport(to_mana_pd(qp->ibqp.pd));
}

/**
 * mana_ib_create_rss_qp - makes a raw packet QP over work queues
 * @qp: QP without a format
 * @attr: of the core, with a table
 * @udata: of the command
 */
int mana_ib_create_rss_qp(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			  struct ib_udata *udata)
{
	struct mana_ib_ucontext *context = to_user_context(udata);
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);
	struct ib_rwq_ind_table *table = attr->rwq_ind_tbl;
	u32 count = 1U << table->log_ind_tbl_size;
	struct mana_uapi_create_rss_qp_resp *response;
	struct mana_uapi_create_rss_qp request;
	int err;

	err = mana_ib_udata_in(udata, &request, sizeof(request),
			       sizeof(request));
	if (err)
		return err;
	if (request.hash_function != MANA_UAPI_RSS_TOEPLITZ ||
	    request.hash_fields & ~MANA_UAPI_RSS_FIELDS ||
	    memchr_inv(request.reserved0, 0, sizeof(request.reserved0)))
		return -EOPNOTSUPP;
	if (request.key_length != MANA_UAPI_RSS_KEY_BYTES ||
	    count > MANA_UAPI_RSS_QUEUES)
		return -EINVAL;
	if (to_mana_wq(table->ind_tbl[0])->packet)
		return mana_ib_create_spread_qp(qp, table, &request);
	if (!dev->raw)
		return -EOPNOTSUPP;
	qp->format = MANA_IB_QP_RSS;
	qp->rss.port = mana_ib_parent_port(dev, request.port);
	if (!qp->rss.port)
		return -EINVAL;
	response = kzalloc(sizeof(*response), GFP_KERNEL);
	if (!response)
		return -ENOMEM;
	err = mana_ib_get_raw_eqs(dev);
	if (err)
		goto err_free;
	err = mana_ib_take_receive_side(qp, context->doorbell_page);
	if (err)
		goto err_eqs;

	mutex_lock(&dev->raw_lock);
	err = mana_ib_create_receive_queues(dev, qp->rss.port, table->ind_tbl,
					    count, response);
	if (err)
		goto err_unlock;
	err = mana_ib_steer(dev, qp->rss.port, table->ind_tbl, count, request.key);
	if (err)
		goto err_destroy;
	err = mana_ib_udata_out(udata, response, sizeof(*response));
	if (err)
		goto err_disable;
	mutex_unlock(&dev->raw_lock);
	kfree(response);
	return 0;

err_disable:
	mana_ib_cmd_stop_receiving(dev, mana_ib_port_vport(qp->rss.port));
err_destroy:
	mana_ib_destroy_receive_queues(dev, table->ind_tbl, count);
err_unlock:
	mutex_unlock(&dev->raw_lock);
	mana_ib_give_receive_side(qp);
err_eqs:
	mana_ib_put_raw_eqs(dev);
err_free:
	kfree(response);
	return err;
}

/**
 * mana_ib_destroy_rss_qp - ends a QP over receive queues of direct verbs
 * @qp: QP
 */
void mana_ib_destroy_rss_qp(struct mana_ib_qp *qp)
{
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);
	struct ib_rwq_ind_table *table = qp->ibqp.rwq_ind_tbl;

	mutex_lock(&dev->raw_lock);
	mana_ib_cmd_stop_receiving(dev, mana_ib_port_vport(qp->rss.port));
	mana_ib_destroy_receive_queues(dev, table->ind_tbl,
				       1U << table->log_ind_tbl_size);
	mutex_unlock(&dev->raw_lock);
	mana_ib_give_receive_side(qp);
	mana_ib_put_raw_eqs(dev);
}
