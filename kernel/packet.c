// SPDX-License-Identifier: GPL-2.0
/*
 * Raw packet QPs with both queues, and flow rules: the extension's packet queues,
 * which stand beside those of the port's interface. A QP's queues exist from INIT
 * to ERR or RESET, so that a reset one starts anew.
 */
#include "cmd.h"

#include <linux/etherdevice.h>
#include <linux/log2.h>
#include <mana/eth.h>

#define MANA_IB_PACKET_MIN_CQES \
	(MANA_HW_PAGE_BYTES / sizeof(struct mana_hw_cqe))
#define MANA_IB_PACKET_QPNS 0x10000

/* A rule of a QP: what the device is told of it. */
struct mana_ib_flow {
	struct ib_flow ibflow;
	struct list_head entry;
	struct mana_ib_qp *qp;
	u64 handle; /* MANA_IB_NO_HANDLE: the QP has no queues */
	u32 priority;
	u32 port;
	struct mana_hw_ext_flow_fields value;
	struct mana_hw_ext_flow_fields mask;
};

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

int mana_ib_create_packet_qp(struct mana_ib_qp *qp,
			     struct ib_qp_init_attr *attr,
			     const struct mana_uapi_create_raw_qp *request,
			     struct ib_udata *udata)
{
	struct mana_ib_ucontext *context = rdma_udata_to_drv_context(
		udata, struct mana_ib_ucontext, ibcontext);
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
	packets = kzalloc(sizeof(*packets), GFP_KERNEL);
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
				      u32 type,
				      struct mana_ib_packet_queue *queue)
{
	struct mana_hw_ext_create_packet_wq_req request = {
		.wq_type = type,
		.wq_bytes = queue->bytes,
		.cq_bytes = queue->cq.entries * sizeof(struct mana_hw_cqe),
		.eq_id = dev->eqs[queue->cq.vector].queue->id,
		.pd_id = to_mana_pd(owner->pd)->id,
		.doorbell_page = owner->doorbell_page,
	};
	u64 region;
	int err;

	err = mana_ib_umem_region(dev, queue->umem, &region);
	if (err)
		return err;
	request.wq_region = region;
	err = mana_ib_umem_region(dev, queue->cq.umem, &region);
	if (err)
		goto err_wq_region;
	request.cq_region = region;
	err = mana_ib_cmd_create_packet_wq(dev, owner->port, &request,
					   &queue->object, &queue->id,
					   &queue->cq.id);
	if (err)
		goto err_cq_region;

	/* Both regions are the device's now. */
	err = mana_ib_hook_cq(dev, &queue->cq);
	if (err) {
		mana_ib_cmd_destroy_packet_wq(dev, type, queue->object);
		queue->object = MANA_IB_NO_HANDLE;
		queue->cq.id = MANA_IB_NO_ID;
	}
	return err;

err_cq_region:
	mana_ib_cmd_destroy_region(dev, request.cq_region);
err_wq_region:
	mana_ib_cmd_destroy_region(dev, request.wq_region);
	return err;
}

static void mana_ib_stop_packet_queue(struct mana_ib_dev *dev, u32 type,
				      struct mana_ib_packet_queue *queue)
{
	mana_ib_mute_cq(&queue->cq);
	mutex_lock(&dev->hook_lock);
	mana_ib_cmd_destroy_packet_wq(dev, type, queue->object);
	mana_ib_unhook_cq(dev, &queue->cq);
	mutex_unlock(&dev->hook_lock);
	queue->object = MANA_IB_NO_HANDLE;
	queue->cq.id = MANA_IB_NO_ID;
}

static int mana_ib_install_flow(struct mana_ib_dev *dev,
				struct mana_ib_packets *packets,
				struct mana_ib_flow *flow)
{
	struct mana_hw_ext_add_flow_req request = {
		.rq = packets->spread != MANA_IB_NO_HANDLE ?
			      packets->spread :
			      packets->recv.object,
		.priority = flow->priority,
		.value = flow->value,
		.mask = flow->mask,
	};

	if (flow->port != packets->port)
		return -EINVAL;
	return mana_ib_cmd_add_flow(dev, &request, &flow->handle);
}

/* The queues end, and with the receive queue or the spread its rules. */
static void mana_ib_stop_packets(struct mana_ib_dev *dev, struct mana_ib_qp *qp)
{
	struct mana_ib_packets *packets = qp->packets;
	struct mana_ib_flow *flow;

	if (!packets->live)
		return;
	if (packets->spread != MANA_IB_NO_HANDLE) {
		mana_ib_cmd_destroy_spread(dev, packets->spread);
	} else {
		mana_ib_stop_packet_queue(dev, MANA_HW_ETH_RQ, &packets->recv);
		mana_ib_stop_packet_queue(dev, MANA_HW_ETH_SQ, &packets->send);
	}
	list_for_each_entry(flow, &packets->flows, entry)
		flow->handle = MANA_IB_NO_HANDLE;
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
	struct mana_ib_flow *flow;
	int err;

	/* Without the ids the provider has no use for the queues. */
	if (!udata || udata->outlen < sizeof(response) || !port ||
	    port > dev->eth->num_ports)
		return -EINVAL;
	packets->port = port;
	qp->port = netdev_priv(dev->eth->ports[port - 1]);
	owner.port = qp->port;
	err = mana_ib_start_packet_queue(dev, &owner, MANA_HW_ETH_SQ,
					 &packets->send);
	if (err)
		return err;
	err = mana_ib_start_packet_queue(dev, &owner, MANA_HW_ETH_RQ,
					 &packets->recv);
	if (err) {
		mana_ib_stop_packet_queue(dev, MANA_HW_ETH_SQ, &packets->send);
		return err;
	}
	packets->live = true;
	list_for_each_entry(flow, &packets->flows, entry) {
		err = mana_ib_install_flow(dev, packets, flow);
		if (err)
			goto err_stop;
	}
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
	struct mana_ib_ucontext *context = rdma_udata_to_drv_context(
		udata, struct mana_ib_ucontext, ibcontext);
	struct mana_ib_dev *dev = to_mana_dev(ibpd->device);
	struct mana_ib_packet_owner owner = {
		.port = netdev_priv(dev->eth->ports[0]),
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
	wq->packet = kzalloc(sizeof(*wq->packet), GFP_KERNEL);
	if (!wq->packet)
		return -ENOMEM;
	err = mana_ib_init_packet_queue(dev, attr->cq, from, wq->packet);
	if (err)
		goto err_free;
	err = mana_ib_start_packet_queue(dev, &owner, MANA_HW_ETH_RQ,
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
	mana_ib_stop_packet_queue(dev, MANA_HW_ETH_RQ, wq->packet);
err_free:
	mana_ib_free_packet_wq(dev, wq);
	return err;
}

/**
 * mana_ib_modify_packet_wq - the queue becomes ready, or ends
 * @wq: with a data path
 * @state: that it enters
 *
 * What is posted in RESET is refused by the provider. In ERR the device has no queue
 * any more, and makes no other: who wants one makes another work queue.
 */
int mana_ib_modify_packet_wq(struct mana_ib_wq *wq, enum ib_wq_state state)
{
	struct mana_ib_dev *dev = to_mana_dev(wq->ibwq.device);
	int err = 0;

	mutex_lock(&wq->mutex);
	if (state == wq->ibwq.state)
		goto out;
	if (state == IB_WQS_ERR) {
		mana_ib_stop_packet_queue(dev, MANA_HW_ETH_RQ, wq->packet);
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

void mana_ib_destroy_packet_wq(struct mana_ib_wq *wq)
{
	struct mana_ib_dev *dev = to_mana_dev(wq->ibwq.device);

	if (wq->packet->object != MANA_IB_NO_HANDLE)
		mana_ib_stop_packet_queue(dev, MANA_HW_ETH_RQ, wq->packet);
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
	struct mana_hw_ext_create_spread_req *spread;
	u32 count = 1U << table->log_ind_tbl_size;
	struct mana_ib_packets *packets;
	struct mana_ib_wq *wq;
	int err = -ENOMEM;
	u32 i;

	BUILD_BUG_ON(MANA_UAPI_RSS_FIELDS != MANA_HW_EXT_SPREAD_FIELDS ||
		     MANA_UAPI_RSS_QUEUES != MANA_HW_EXT_SPREAD_ENTRIES ||
		     MANA_UAPI_RSS_KEY_BYTES != MANA_HW_EXT_SPREAD_KEY_BYTES);
	if (request->port)
		return -EOPNOTSUPP;
	packets = kzalloc(sizeof(*packets), GFP_KERNEL);
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
		spread->rq[i] = READ_ONCE(wq->packet->object);
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
	qp->port = netdev_priv(dev->eth->ports[0]);
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

/* One field of a rule: only what the mask names counts. */
static void mana_ib_put_field(struct mana_ib_flow *flow, u8 *field,
			      const void *value, const void *mask, size_t bytes)
{
	size_t offset = field - (u8 *)&flow->value;
	u8 *to = (u8 *)&flow->mask + offset;
	size_t i;

	for (i = 0; i < bytes; i++) {
		field[i] = ((const u8 *)value)[i] & ((const u8 *)mask)[i];
		to[i] = ((const u8 *)mask)[i];
	}
}

static void mana_ib_put_exact(struct mana_ib_flow *flow, u8 *field,
			      const void *value, size_t bytes)
{
	static const u8 ones[] = { 0xff, 0xff };

	mana_ib_put_field(flow, field, value, ones, bytes);
}

/* The port has no frames for another's address, so such a rule would never match. */
static bool mana_ib_is_anothers(struct mana_ib_dev *dev, u32 port,
				const struct ib_flow_spec_eth *spec)
{
	return is_broadcast_ether_addr(spec->mask.dst_mac) &&
	       !is_multicast_ether_addr(spec->val.dst_mac) &&
	       port && port <= dev->eth->num_ports &&
	       !ether_addr_equal_unaligned(spec->val.dst_mac,
					   dev->eth->ports[port - 1]->dev_addr);
}

static int mana_ib_take_eth(struct mana_ib_flow *flow,
			    const struct ib_flow_spec_eth *spec)
{
	struct mana_ib_dev *dev = to_mana_dev(flow->qp->ibqp.device);
	struct mana_hw_ext_flow_fields *fields = &flow->value;
	static const u8 tagged = 1;

	if (mana_ib_is_anothers(dev, flow->port, spec))
		return -EOPNOTSUPP;
	mana_ib_put_field(flow, fields->dest_mac, spec->val.dst_mac,
			  spec->mask.dst_mac, sizeof(fields->dest_mac));
	mana_ib_put_field(flow, fields->source_mac, spec->val.src_mac,
			  spec->mask.src_mac, sizeof(fields->source_mac));
	mana_ib_put_field(flow, fields->ether_type, &spec->val.ether_type,
			  &spec->mask.ether_type, sizeof(fields->ether_type));
	mana_ib_put_field(flow, fields->vlan, &spec->val.vlan_tag,
			  &spec->mask.vlan_tag, sizeof(fields->vlan));
	if (spec->mask.vlan_tag)
		mana_ib_put_exact(flow, &fields->tagged, &tagged, 1);
	return 0;
}

/* An address of this kind is in packets of this EtherType alone. */
static int mana_ib_take_ether_type(struct mana_ib_flow *flow, u16 type)
{
	__be16 wire = cpu_to_be16(type);
	const u8 *bytes = (const u8 *)&wire;
	unsigned int i;

	for (i = 0; i < sizeof(wire); i++)
		if ((flow->value.ether_type[i] ^ bytes[i]) &
		    flow->mask.ether_type[i])
			return -EINVAL;
	mana_ib_put_exact(flow, flow->value.ether_type, bytes, sizeof(wire));
	return 0;
}

static int mana_ib_take_ipv4(struct mana_ib_flow *flow,
			     const struct ib_flow_spec_ipv4 *spec)
{
	struct mana_hw_ext_flow_fields *fields = &flow->value;

	if (spec->mask.ttl || spec->mask.flags)
		return -EOPNOTSUPP;
	mana_ib_put_field(flow, fields->source_ip, &spec->val.src_ip,
			  &spec->mask.src_ip, sizeof(spec->val.src_ip));
	mana_ib_put_field(flow, fields->dest_ip, &spec->val.dst_ip,
			  &spec->mask.dst_ip, sizeof(spec->val.dst_ip));
	mana_ib_put_field(flow, &fields->protocol, &spec->val.proto,
			  &spec->mask.proto, 1);
	mana_ib_put_field(flow, &fields->traffic_class, &spec->val.tos,
			  &spec->mask.tos, 1);
	return mana_ib_take_ether_type(flow, ETH_P_IP);
}

static int mana_ib_take_ipv6(struct mana_ib_flow *flow,
			     const struct ib_flow_spec_ipv6 *spec)
{
	struct mana_hw_ext_flow_fields *fields = &flow->value;

	if (spec->mask.flow_label || spec->mask.hop_limit)
		return -EOPNOTSUPP;
	mana_ib_put_field(flow, fields->source_ip, spec->val.src_ip,
			  spec->mask.src_ip, sizeof(fields->source_ip));
	mana_ib_put_field(flow, fields->dest_ip, spec->val.dst_ip,
			  spec->mask.dst_ip, sizeof(fields->dest_ip));
	mana_ib_put_field(flow, &fields->protocol, &spec->val.next_hdr,
			  &spec->mask.next_hdr, 1);
	mana_ib_put_field(flow, &fields->traffic_class,
			  &spec->val.traffic_class, &spec->mask.traffic_class,
			  1);
	return mana_ib_take_ether_type(flow, ETH_P_IPV6);
}

static int mana_ib_take_ports(struct mana_ib_flow *flow,
			      const struct ib_flow_spec_tcp_udp *spec,
			      u8 protocol)
{
	struct mana_hw_ext_flow_fields *fields = &flow->value;

	if ((fields->protocol ^ protocol) & flow->mask.protocol)
		return -EINVAL;
	mana_ib_put_exact(flow, &fields->protocol, &protocol, 1);
	mana_ib_put_field(flow, fields->source_port, &spec->val.src_port,
			  &spec->mask.src_port, sizeof(fields->source_port));
	mana_ib_put_field(flow, fields->dest_port, &spec->val.dst_port,
			  &spec->mask.dst_port, sizeof(fields->dest_port));
	return 0;
}

static int mana_ib_take_spec(struct mana_ib_flow *flow,
			     const union ib_flow_spec *spec)
{
	switch (spec->type) {
	case IB_FLOW_SPEC_ETH:
		return mana_ib_take_eth(flow, &spec->eth);
	case IB_FLOW_SPEC_IPV4:
		return mana_ib_take_ipv4(flow, &spec->ipv4);
	case IB_FLOW_SPEC_IPV6:
		return mana_ib_take_ipv6(flow, &spec->ipv6);
	case IB_FLOW_SPEC_TCP:
		return mana_ib_take_ports(flow, &spec->tcp_udp, IPPROTO_TCP);
	case IB_FLOW_SPEC_UDP:
		return mana_ib_take_ports(flow, &spec->tcp_udp, IPPROTO_UDP);
	default:
		return -EOPNOTSUPP;
	}
}

static int mana_ib_take_rule(struct mana_ib_flow *flow,
			     const struct ib_flow_attr *attr)
{
	const void *spec = attr + 1;
	static const u8 multicast = 1;
	unsigned int i;
	int err;

	if (attr->flags)
		return -EOPNOTSUPP;
	flow->port = attr->port;
	switch (attr->type) {
	case IB_FLOW_ATTR_NORMAL:
		flow->priority = attr->priority;
		break;
	case IB_FLOW_ATTR_ALL_DEFAULT:
		flow->priority = U32_MAX;
		break;
	case IB_FLOW_ATTR_MC_DEFAULT:
		flow->priority = U32_MAX - 1;
		mana_ib_put_field(flow, flow->value.dest_mac, &multicast,
				  &multicast, 1);
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (attr->type != IB_FLOW_ATTR_NORMAL && attr->num_of_specs)
		return -EINVAL;
	for (i = 0; i < attr->num_of_specs; i++) {
		err = mana_ib_take_spec(flow, spec);
		if (err)
			return err;
		spec += ((const union ib_flow_spec *)spec)->size;
	}
	return 0;
}

struct ib_flow *mana_ib_create_flow(struct ib_qp *ibqp,
				    struct ib_flow_attr *attr,
				    struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibqp->device);
	struct mana_ib_qp *qp = to_mana_qp(ibqp);
	struct mana_ib_flow *flow;
	int err;

	if (qp->format != MANA_IB_QP_PACKET)
		return ERR_PTR(-EOPNOTSUPP);
	flow = kzalloc(sizeof(*flow), GFP_KERNEL);
	if (!flow)
		return ERR_PTR(-ENOMEM);
	flow->qp = qp;
	flow->handle = MANA_IB_NO_HANDLE;
	err = mana_ib_take_rule(flow, attr);
	if (err)
		goto err_free;
	mutex_lock(&qp->mutex);
	if (qp->packets->live)
		err = mana_ib_install_flow(dev, qp->packets, flow);
	if (!err)
		list_add_tail(&flow->entry, &qp->packets->flows);
	mutex_unlock(&qp->mutex);
	if (err)
		goto err_free;
	return &flow->ibflow;

err_free:
	kfree(flow);
	return ERR_PTR(err);
}

int mana_ib_destroy_flow(struct ib_flow *ibflow)
{
	struct mana_ib_flow *flow =
		container_of(ibflow, struct mana_ib_flow, ibflow);
	struct mana_ib_qp *qp = flow->qp;

	mutex_lock(&qp->mutex);
	if (flow->handle != MANA_IB_NO_HANDLE)
		mana_ib_cmd_remove_flow(to_mana_dev(qp->ibqp.device),
					flow->handle);
	list_del(&flow->entry);
	mutex_unlock(&qp->mutex);
	kfree(flow);
	return 0;
}
