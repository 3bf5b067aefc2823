// SPDX-License-Identifier: GPL-2.0
/* Attributes and states of queue pairs. */
#include "device.h"
#include "link.h"
#include "post.h"
#include "raw.h"
#include "source.h"
#include "trace.h"
#include "turn.h"
#include "udata.h"

#include <linux/etherdevice.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>

#define MANA_IB_DEFAULT_HOPS 64
#define MANA_IB_MAX_TIME 31 /* codes of 5 bits */
#define MANA_IB_MAX_TRIES 7 /* of 3 bits */

static bool mana_ib_on_ethernet(const struct mana_ib_qp *qp)
{
	return qp->format == MANA_IB_QP_RAW || qp->format == MANA_IB_QP_RSS ||
	       qp->format == MANA_IB_QP_PACKET;
}

/* Path of a connected QP. */
static int mana_ib_find_path(const struct mana_ib_qp *qp,
			     const struct rdma_ah_attr *ah, u32 dest_qpn,
			     struct mana_ib_path *path)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(ah);
	const struct ib_gid_attr *sgid = grh->sgid_attr;
	u16 vlan;
	int err;

	if (ah->type != RDMA_AH_ATTR_TYPE_ROCE || !sgid)
		return -EINVAL;
	if (!qp->kernel) {
		err = mana_ib_check_source(sgid);
		if (err)
			return err;
	}
	err = mana_ib_source_link(sgid, path->source_mac, &vlan);
	if (err)
		return err;

	path->source = sgid->gid;
	path->dest = grh->dgid;
	ether_addr_copy(path->dest_mac, ah->roce.dmac);
	path->hop_limit = grh->hop_limit ? : MANA_IB_DEFAULT_HOPS;
	path->traffic_class = grh->traffic_class;
	path->udp_source_port = rdma_get_udp_sport(grh->flow_label,
						   qp->ibqp.qp_num, dest_qpn);
	path->flow_label = grh->flow_label;
	path->tag = mana_ib_make_tag(vlan, rdma_ah_get_sl(ah));
	return 0;
}

static int mana_ib_check_attr(const struct mana_ib_dev *dev,
			      const struct mana_ib_qp *qp,
			      const struct ib_qp_attr *attr, int mask)
{
	if (mask & IB_QP_PORT && !mana_ib_on_ethernet(qp) &&
	    !mana_ib_port_is_rdma(dev, attr->port_num))
		return -EINVAL;
	if (mask & IB_QP_PKEY_INDEX && attr->pkey_index)
		return -EINVAL;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC &&
	    attr->max_rd_atomic > dev->limits.max_read_out)
		return -EINVAL;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC &&
	    attr->max_dest_rd_atomic > dev->limits.max_read_in)
		return -EINVAL;
	if (mask & IB_QP_PATH_MTU && (attr->path_mtu < IB_MTU_256 ||
				      attr->path_mtu > mana_ib_max_mtu(dev)))
		return -EINVAL;
	if ((mask & IB_QP_TIMEOUT && attr->timeout > MANA_IB_MAX_TIME) ||
	    (mask & IB_QP_MIN_RNR_TIMER &&
	     attr->min_rnr_timer > MANA_IB_MAX_TIME))
		return -EINVAL;
	if ((mask & IB_QP_RETRY_CNT && attr->retry_cnt > MANA_IB_MAX_TRIES) ||
	    (mask & IB_QP_RNR_RETRY && attr->rnr_retry > MANA_IB_MAX_TRIES))
		return -EINVAL;
	return 0;
}

static int mana_ib_send_attr(struct mana_ib_dev *dev, struct mana_ib_qp *qp,
			     const struct ib_qp_attr *attr, int mask,
			     enum ib_qp_state state)
{
	struct mana_ib_path path;
	u32 dest_qpn;
	int err;

	if (mask & IB_QP_AV) {
		dest_qpn = mask & IB_QP_DEST_QPN ? attr->dest_qp_num :
						   qp->attr.dest_qp_num;
		err = mana_ib_find_path(qp, &attr->ah_attr, dest_qpn, &path);
		if (err)
			return err;
	}
	return mana_ib_cmd_modify_qp(dev, qp->handle, attr, mask, state,
				     mask & IB_QP_AV ? &path : NULL);
}

/* Remembers what was set, for query_qp. */
static void mana_ib_store_attr(struct mana_ib_qp *qp,
			       const struct ib_qp_attr *attr, int mask)
{
	struct ib_qp_attr *own = &qp->attr;

	if (mask & IB_QP_ACCESS_FLAGS)
		own->qp_access_flags = attr->qp_access_flags;
	/* Those who poll and post read these two meanwhile. */
	if (mask & IB_QP_PORT)
		WRITE_ONCE(own->port_num, attr->port_num);
	if (mask & IB_QP_QKEY)
		WRITE_ONCE(own->qkey, attr->qkey);
	if (mask & IB_QP_AV) {
		own->ah_attr = attr->ah_attr;
		/* The core owns the reference to the GID. */
		own->ah_attr.grh.sgid_attr = NULL;
	}
	if (mask & IB_QP_PATH_MTU)
		own->path_mtu = attr->path_mtu;
	if (mask & IB_QP_TIMEOUT)
		own->timeout = attr->timeout;
	if (mask & IB_QP_RETRY_CNT)
		own->retry_cnt = attr->retry_cnt;
	if (mask & IB_QP_RNR_RETRY)
		own->rnr_retry = attr->rnr_retry;
	if (mask & IB_QP_RQ_PSN)
		own->rq_psn = attr->rq_psn;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		own->max_rd_atomic = attr->max_rd_atomic;
	if (mask & IB_QP_MIN_RNR_TIMER)
		own->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IB_QP_SQ_PSN)
		own->sq_psn = attr->sq_psn;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC)
		own->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IB_QP_DEST_QPN)
		own->dest_qp_num = attr->dest_qp_num;
}

/* Queues of the kernel follow the state; the device has already changed. */
static void mana_ib_follow_state(struct mana_ib_dev *dev,
				 struct mana_ib_qp *qp, enum ib_qp_state state)
{
	switch (state) {
	case IB_QPS_RESET:
		mana_ib_stop_flush(qp);
		mana_ib_forget_entries(to_mana_cq(qp->ibqp.send_cq), qp);
		mana_ib_forget_entries(to_mana_cq(qp->ibqp.recv_cq), qp);
		mana_ib_ring_reset(&qp->work.sq);
		mana_ib_ring_reset(&qp->work.rq);
		if (qp->format == MANA_IB_QP_STOCK_UD) {
			qp->ud.send_psn = 0;
		} else {
			WRITE_ONCE(qp->ext.record->sq_producer, 0);
			WRITE_ONCE(qp->ext.record->rq_producer, 0);
		}
		break;
	case IB_QPS_RTR:
		if (qp->format == MANA_IB_QP_STOCK_UD)
			qp->ud.mtu = mana_ib_netdev_mtu(dev,
							qp->attr.port_num);
		break;
	case IB_QPS_ERR:
		/*
		 * The public format of datagrams knows no flush. That of a device
		 * that is gone waits until it cannot write any more.
		 */
		if (qp->format == MANA_IB_QP_STOCK_UD && !mana_ib_is_gone(dev))
			mana_ib_start_flush(qp);
		break;
	default:
		break;
	}
}

/* Whether the end of a drain is told: asked for with the step to SQD, and until the next. */
static bool mana_ib_tells_drained(const struct mana_ib_qp *qp,
				  enum ib_qp_state from,
				  const struct ib_qp_attr *attr, int mask)
{
	if (!(mask & IB_QP_STATE) ||
	    (from == IB_QPS_SQD && attr->qp_state == IB_QPS_SQD))
		return qp->attr.en_sqd_async_notify;
	return attr->qp_state == IB_QPS_SQD &&
	       mask & IB_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify;
}

/* In RESET and INIT a QP stays until we change that. */
static bool mana_ib_device_knows_state(const struct mana_ib_qp *qp)
{
	return qp->format == MANA_IB_QP_EXTENDED &&
	       qp->state != IB_QPS_RESET && qp->state != IB_QPS_INIT;
}

/*
 * The event of a fatal error comes without the mutex: a QP that the device has ended
 * meanwhile stays in ERR, unless it starts anew.
 */
static void mana_ib_enter_state(struct mana_ib_qp *qp, enum ib_qp_state from,
				enum ib_qp_state state)
{
	if (state == IB_QPS_RESET)
		WRITE_ONCE(qp->state, state);
	else
		cmpxchg(&qp->state, from, state);
}

static int mana_ib_modify_locked(struct mana_ib_qp *qp, struct ib_qp_attr *attr,
				 int mask, struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);
	struct mana_ib_qp_now now;
	bool told = qp->attr.en_sqd_async_notify;
	enum ib_qp_state from, state;
	int err;

	/* The device ends a QP by itself, and would take it back to life. */
	if (mana_ib_device_knows_state(qp) && !mana_ib_is_gone(dev)) {
		err = mana_ib_cmd_query_qp(dev, qp->handle, &now);
		if (!err)
			WRITE_ONCE(qp->state, now.state);
		else if (err == -EINTR)
			return err;
	}
	from = READ_ONCE(qp->state);
	state = from;
	if (mask & IB_QP_CUR_STATE && attr->cur_qp_state != state)
		return -EINVAL;
	if (mask & IB_QP_STATE)
		state = attr->qp_state;
	if (!ib_modify_qp_is_ok(from, state, qp->ibqp.qp_type, mask))
		return -EINVAL;
	err = mana_ib_check_attr(dev, qp, attr, mask);
	if (err)
		return err;
	/* The event may come before the answer. */
	WRITE_ONCE(qp->attr.en_sqd_async_notify,
		   mana_ib_tells_drained(qp, from, attr, mask));
	if (!mana_ib_on_ethernet(qp)) {
		err = mana_ib_send_attr(dev, qp, attr, mask, state);
		/* A device that is gone has no objection to the end. */
		if (err && !(mana_ib_is_gone(dev) && state == IB_QPS_ERR)) {
			WRITE_ONCE(qp->attr.en_sqd_async_notify, told);
			return err;
		}
	} else if (qp->format == MANA_IB_QP_PACKET) {
		u32 port = mask & IB_QP_PORT ? attr->port_num : 0;

		err = mana_ib_modify_packet_qp(qp, state, port, udata);
		if (err)
			return err;
	}
	mana_ib_store_attr(qp, attr, mask);
	if (mask & IB_QP_STATE && qp->kernel)
		mana_ib_follow_state(dev, qp, state);
	mana_ib_enter_state(qp, from, state);
	if (mana_ib_is_gone(dev) && qp->kernel && state == IB_QPS_ERR)
		mana_ib_end_by_software(qp);
	return 0;
}

int mana_ib_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		      struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibqp->device);
	struct mana_ib_qp *qp = to_mana_qp(ibqp);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	enum ib_qp_state from;
	int err;

	err = mana_ib_udata_empty(udata);
	if (err)
		return err;
	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	if (mask & (IB_QP_ALT_PATH | IB_QP_PATH_MIG_STATE | IB_QP_CAP))
		return -EOPNOTSUPP;
	mana_ib_skip_turns(dev, qp->kernel, &turn);
	mutex_lock(&qp->mutex);
	from = READ_ONCE(qp->state);
	err = mana_ib_modify_locked(qp, attr, mask, udata);
	if (mask & IB_QP_STATE)
		trace_qp_state(dev, ibqp->qp_num, from, attr->qp_state, err);
	mutex_unlock(&qp->mutex);
	if (err)
		ibdev_dbg(ibqp->device, "qp[%u]: not modified: %pe\n",
			  ibqp->qp_num, ERR_PTR(err));
	return err;
}

/* What the device says of a QP, or what is known of one that is gone. */
static int mana_ib_ask_qp(struct mana_ib_qp *qp, struct ib_qp_attr *attr)
{
	struct mana_ib_dev *dev = to_mana_dev(qp->ibqp.device);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	struct mana_ib_qp_now now;
	int err = 0;

	mana_ib_skip_turns(dev, qp->kernel, &turn);
	mutex_lock(&qp->mutex);
	*attr = qp->attr;
	attr->qp_state = READ_ONCE(qp->state);
	if (qp->format == MANA_IB_QP_EXTENDED && qp->state != IB_QPS_RESET &&
	    qp->handle != MANA_IB_NO_HANDLE) {
		err = mana_ib_cmd_query_qp(dev, qp->handle, &now);
		if (!err) {
			attr->qp_state = now.state;
			WRITE_ONCE(qp->state, attr->qp_state);
			attr->sq_psn = now.sq_psn;
			attr->rq_psn = now.rq_psn;
			attr->sq_draining = now.sq_draining;
		} else if (mana_ib_is_gone(dev)) {
			/* What is known stays so, but that nothing works. */
			attr->qp_state = IB_QPS_ERR;
			err = 0;
		}
	}
	mutex_unlock(&qp->mutex);
	return err;
}

/*
 * The same for who asks for no attribute: the core does so of all QPs for everybody
 * who lists them. Their users wait neither for a request of that one nor for its
 * turn, and the QP may change meanwhile.
 */
static void mana_ib_recall_qp(const struct mana_ib_qp *qp,
			      struct ib_qp_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->qp_state = READ_ONCE(qp->state);
	if (qp->format == MANA_IB_QP_EXTENDED &&
	    attr->qp_state != IB_QPS_RESET &&
	    mana_ib_is_gone(to_mana_dev(qp->ibqp.device)))
		attr->qp_state = IB_QPS_ERR;
	attr->dest_qp_num = READ_ONCE(qp->attr.dest_qp_num);
	attr->rq_psn = READ_ONCE(qp->attr.rq_psn);
	attr->sq_psn = READ_ONCE(qp->attr.sq_psn);
}

int mana_ib_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		     struct ib_qp_init_attr *init)
{
	struct mana_ib_qp *qp = to_mana_qp(ibqp);
	int err = 0;

	if (mask)
		err = mana_ib_ask_qp(qp, attr);
	else
		mana_ib_recall_qp(qp, attr);
	if (err)
		return err;

	attr->cur_qp_state = attr->qp_state;
	attr->path_mig_state = IB_MIG_MIGRATED;
	init->event_handler = ibqp->event_handler;
	init->qp_context = ibqp->qp_context;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	init->srq = ibqp->srq;
	init->cap = qp->attr.cap;
	init->sq_sig_type = qp->signal_all ? IB_SIGNAL_ALL_WR :
					     IB_SIGNAL_REQ_WR;
	init->qp_type = ibqp->qp_type;
	return 0;
}
