// SPDX-License-Identifier: GPL-2.0
/*
 * Flow rules of raw packet QPs. They are the device's as long as their QP has
 * queues; the QP's mutex protects its list.
 */
#include "parent.h"
#include "raw.h"
#include "udata.h"

#include <linux/etherdevice.h>

/* A rule of a QP: what the device is told of it. */
struct mana_ib_flow {
	struct ib_flow ibflow;
	struct list_head entry;
	struct mana_ib_qp *qp;
	u64 handle; /* MANA_IB_NO_HANDLE: the QP has no queues */
	u32 port;
	struct mana_ib_flow_rule rule;
};

static int mana_ib_install_flow(struct mana_ib_dev *dev,
				struct mana_ib_packets *packets,
				struct mana_ib_flow *flow)
{
	u64 rq = packets->spread != MANA_IB_NO_HANDLE ? packets->spread :
							packets->recv.object;

	if (flow->port != packets->port)
		return -EINVAL;
	return mana_ib_cmd_add_flow(dev, rq, &flow->rule, &flow->handle);
}

/**
 * mana_ib_install_flows - tells the device the rules of a QP that has queues now
 * @dev: device
 * @packets: of the QP, whose mutex is held
 */
int mana_ib_install_flows(struct mana_ib_dev *dev,
			  struct mana_ib_packets *packets)
{
	struct mana_ib_flow *flow;
	int err;

	list_for_each_entry(flow, &packets->flows, entry) {
		err = mana_ib_install_flow(dev, packets, flow);
		if (err)
			return err;
	}
	return 0;
}

/**
 * mana_ib_forget_flows - the device has none of the rules any more
 * @packets: of the QP, whose mutex is held
 */
void mana_ib_forget_flows(struct mana_ib_packets *packets)
{
	struct mana_ib_flow *flow;

	list_for_each_entry(flow, &packets->flows, entry)
		flow->handle = MANA_IB_NO_HANDLE;
}

/* One field of a rule: only what the mask names counts. */
static void mana_ib_put_field(struct mana_ib_flow *flow, u8 *field,
			      const void *value, const void *mask, size_t bytes)
{
	size_t offset = field - (u8 *)&flow->rule.value;
	u8 *to = (u8 *)&flow->rule.mask + offset;
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
	       port && port <= mana_ib_parent_ports(dev) &&
	       !ether_addr_equal_unaligned(spec->val.dst_mac,
					   mana_ib_parent_lower(dev, port)
						   ->dev_addr);
}

static int mana_ib_take_eth(struct mana_ib_flow *flow,
			    const struct ib_flow_spec_eth *spec)
{
	struct mana_ib_dev *dev = to_mana_dev(flow->qp->ibqp.device);
	struct mana_hw_ext_flow_fields *fields = &flow->rule.value;
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
		if ((flow->rule.value.ether_type[i] ^ bytes[i]) &
		    flow->rule.mask.ether_type[i])
			return -EINVAL;
	mana_ib_put_exact(flow, flow->rule.value.ether_type, bytes, sizeof(wire));
	return 0;
}

static int mana_ib_take_ipv4(struct mana_ib_flow *flow,
			     const struct ib_flow_spec_ipv4 *spec)
{
	struct mana_hw_ext_flow_fields *fields = &flow->rule.value;

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
	struct mana_hw_ext_flow_fields *fields = &flow->rule.value;

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
	struct mana_hw_ext_flow_fields *fields = &flow->rule.value;

	if ((fields->protocol ^ protocol) & flow->rule.mask.protocol)
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
		flow->rule.priority = attr->priority;
		break;
	case IB_FLOW_ATTR_ALL_DEFAULT:
		flow->rule.priority = U32_MAX;
		break;
	case IB_FLOW_ATTR_MC_DEFAULT:
		flow->rule.priority = U32_MAX - 1;
		mana_ib_put_field(flow, flow->rule.value.dest_mac, &multicast,
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

	err = mana_ib_udata_empty(udata);
	if (err)
		return ERR_PTR(err);
	if (qp->format != MANA_IB_QP_PACKET)
		return ERR_PTR(-EOPNOTSUPP);
	flow = kzalloc(sizeof(*flow), GFP_KERNEL_ACCOUNT);
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
