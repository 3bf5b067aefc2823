// SPDX-License-Identifier: GPL-2.0
/* Requests of the adapter: limits, addresses, counters. */
#include "hwc.h"

/* What RDMA devices are known to have (RNIC 2.4). */
#define MANA_IB_ETHERNET_PDS 16384

/**
 * mana_ib_cmd_query_limits - asks the RDMA device what it can do
 * @dev: device
 * @limits: answer, in the terms of the verbs
 */
int mana_ib_cmd_query_limits(struct mana_ib_dev *dev,
			     struct mana_ib_limits *limits)
{
	struct mana_hw_request request = { .response.version = 4 };
	struct mana_hw_rnic_query_caps_resp caps;
	int err;

	err = mana_ib_hwc_send(dev, MANA_HW_RNIC_QUERY_CAPS, MANA_IB_TO_DEVICE,
			       &request, sizeof(request), &caps, sizeof(caps));
	if (err)
		return err;

	limits->max_qp = caps.max_qp;
	limits->max_cq = caps.max_cq;
	limits->max_mr = caps.max_mr;
	limits->max_pd = caps.max_pd;
	limits->max_mw = caps.max_mw;
	limits->max_read_in = caps.max_inbound_reads;
	limits->max_read_out = caps.max_outbound_reads;
	limits->max_send_sge = caps.max_send_sge;
	limits->max_recv_sge = caps.max_recv_sge;
	/* RNIC 2.4: what fits the rings with WQEs of the largest size */
	limits->max_send_wr =
		min(caps.requester_sq_bytes / MANA_HW_SQ_WQE_MAX_BYTES,
		    caps.requester_rq_bytes / MANA_HW_RQ_WQE_MAX_BYTES);
	limits->max_recv_wr = limits->max_send_wr;
	limits->max_cqe = MANA_IB_STOCK_CQES;
	limits->caps = caps.features;
	return 0;
}

static int mana_ib_cmd_query_max_resources(struct mana_ib_dev *dev,
					   struct mana_hw_max_resources_resp *max)
{
	struct mana_hw_request request = {};

	return mana_ib_hwc_send(dev, MANA_HW_QUERY_MAX_RESOURCES,
				MANA_IB_TO_GDMA, &request, sizeof(request), max,
				sizeof(*max));
}

/**
 * mana_ib_cmd_query_ethernet_limits - the same of the Ethernet device
 * @dev: device
 * @limits: answer
 */
int mana_ib_cmd_query_ethernet_limits(struct mana_ib_dev *dev,
				      struct mana_ib_limits *limits)
{
	struct mana_hw_max_resources_resp max;
	int err = mana_ib_cmd_query_max_resources(dev, &max);

	if (err)
		return err;

	limits->max_qp = min(max.max_sqs, max.max_rqs);
	limits->max_cq = max.max_cqs;
	limits->max_mr = max.max_keys;
	limits->max_mw = max.max_keys;
	/* It does not say how many. */
	limits->max_pd = min_t(u32, max.max_keys, MANA_IB_ETHERNET_PDS);
	limits->max_send_wr = SZ_4M / MANA_HW_SQ_WQE_MAX_BYTES;
	limits->max_recv_wr = limits->max_send_wr;
	limits->max_cqe = MANA_IB_STOCK_CQES;
	limits->max_send_sge = 29;
	limits->max_recv_sge = 15;
	return 0;
}

/**
 * mana_ib_cmd_query_doorbell_pages - asks how many doorbell pages the function has
 * @dev: device
 * @pages: answer
 */
int mana_ib_cmd_query_doorbell_pages(struct mana_ib_dev *dev, u32 *pages)
{
	struct mana_hw_max_resources_resp max;
	int err = mana_ib_cmd_query_max_resources(dev, &max);

	if (!err)
		*pages = max.max_doorbell_pages;
	return err;
}

/**
 * mana_ib_cmd_query_ext_limits - asks what the extension can do
 * @dev: device with an adapter
 * @ext: answer; untouched if this fails
 */
int mana_ib_cmd_query_ext_limits(struct mana_ib_dev *dev,
				 struct mana_ib_ext_limits *ext)
{
	struct mana_ib_adapter_req request = { .adapter = dev->adapter };
	struct mana_hw_ext_query_caps_resp caps;
	int err;

	err = mana_ib_hwc_send(dev, MANA_HW_EXT_QUERY_CAPS, MANA_IB_TO_DEVICE,
			       &request, sizeof(request), &caps, sizeof(caps));
	if (err)
		return err;
	if (caps.version != MANA_HW_EXT_VERSION)
		return -EOPNOTSUPP;

	ext->features = caps.features;
	ext->max_srq = caps.max_srq;
	ext->max_srq_wr = caps.max_srq_wr;
	ext->max_srq_sge = caps.max_srq_sge;
	ext->max_send_wr = caps.max_send_wr;
	ext->max_recv_wr = caps.max_recv_wr;
	ext->max_send_sge = caps.max_send_sge;
	ext->max_recv_sge = caps.max_recv_sge;
	ext->max_inline_bytes = caps.max_inline_bytes;
	ext->max_cqe = caps.max_cqe;
	ext->max_fast_reg_pages = caps.max_fast_reg_pages;
	ext->max_multicast_groups = caps.max_multicast_groups;
	ext->max_multicast_qps = caps.max_multicast_qps;
	ext->clock_khz = caps.clock_khz;
	return 0;
}

/**
 * mana_ib_cmd_create_adapter - makes the RDMA adapter, with all that is offered
 * @dev: device whose limits are known
 * @event_eq: for events of QPs, CQs and SRQs
 * @adapter: handle
 */
int mana_ib_cmd_create_adapter(struct mana_ib_dev *dev, u32 event_eq,
			       u64 *adapter)
{
	struct mana_hw_rnic_create_adapter_req request = {
		.event_eq = event_eq,
	};
	struct mana_hw_rnic_create_adapter_resp response;
	int err;

	mana_ib_request_header(&request)->request.version = 2;
	if (dev->limits.caps & MANA_HW_RNIC_CAP_ERROR_CQES)
		request.features |= MANA_HW_RNIC_FEATURE_ERROR_CQES;
	if (dev->limits.caps & MANA_HW_RNIC_CAP_EXTENSIONS)
		request.features |= MANA_HW_RNIC_FEATURE_EXTENSIONS;

	err = mana_ib_hwc_send(dev, MANA_HW_RNIC_CREATE_ADAPTER,
			       MANA_IB_TO_DEVICE, &request, sizeof(request),
			       &response, sizeof(response));
	if (!err)
		*adapter = response.adapter;
	return err;
}

/**
 * mana_ib_cmd_destroy_adapter - ends the RDMA adapter
 * @dev: device
 */
void mana_ib_cmd_destroy_adapter(struct mana_ib_dev *dev)
{
	struct mana_ib_adapter_req request = { .adapter = dev->adapter };

	mana_ib_hwc_destroy(dev, MANA_HW_RNIC_DESTROY_ADAPTER,
			    MANA_IB_TO_DEVICE, &request, sizeof(request));
}

static int mana_ib_config_ext_address(struct mana_ib_dev *dev, u32 operation,
				      const struct mana_ib_address *address)
{
	struct mana_hw_ext_config_mac_address_req request = {
		.base.adapter = dev->adapter,
		.base.operation = operation,
		.base.vlan = address->vlan,
	};

	memcpy(request.base.gid, address->gid.raw, sizeof(request.base.gid));
	memcpy(request.mac, address->mac, sizeof(request.mac));
	return mana_ib_hwc_tell(dev, MANA_HW_EXT_CONFIG_ADDRESS,
				MANA_IB_TO_DEVICE, &request,
				mana_ib_has(dev, MANA_HW_EXT_MACS) ?
					sizeof(request) :
					sizeof(request.base));
}

static int mana_ib_config_address(struct mana_ib_dev *dev, u32 operation,
				  const struct mana_ib_address *address)
{
	const union ib_gid *gid = &address->gid;
	struct mana_hw_rnic_config_address_req request = {
		.adapter = dev->adapter,
		.operation = operation,
	};

	if (address->vlan || !is_zero_ether_addr(address->mac))
		return mana_ib_config_ext_address(dev, operation, address);
	request.type = ipv6_addr_v4mapped((const struct in6_addr *)gid) ?
			       MANA_HW_RNIC_ADDRESS_IPV4 :
			       MANA_HW_RNIC_ADDRESS_IPV6;
	mana_ib_reverse(request.gid, gid->raw, sizeof(request.gid));
	return mana_ib_hwc_tell(dev, MANA_HW_RNIC_CONFIG_ADDRESS,
				MANA_IB_TO_DEVICE, &request, sizeof(request));
}

/**
 * mana_ib_cmd_add_address - packets to an address are the adapter's
 * @dev: device
 * @address: in a VLAN where there is MANA_HW_EXT_VLANS, by another MAC address than the
 * port's where there is MANA_HW_EXT_MACS
 */
int mana_ib_cmd_add_address(struct mana_ib_dev *dev,
			    const struct mana_ib_address *address)
{
	return mana_ib_config_address(dev, MANA_HW_RNIC_CONFIG_ADD, address);
}

/**
 * mana_ib_cmd_remove_address - packets to an address are dropped
 * @dev: device
 * @address: as it was added
 */
int mana_ib_cmd_remove_address(struct mana_ib_dev *dev,
			       const struct mana_ib_address *address)
{
	return mana_ib_config_address(dev, MANA_HW_RNIC_CONFIG_REMOVE, address);
}

/**
 * mana_ib_cmd_add_mac - frames to a MAC address are the adapter's
 * @dev: device
 * @mac: in the network's order
 */
int mana_ib_cmd_add_mac(struct mana_ib_dev *dev, const u8 *mac)
{
	struct mana_hw_rnic_config_mac_req request = {
		.adapter = dev->adapter,
		.operation = MANA_HW_RNIC_CONFIG_ADD,
	};

	mana_ib_reverse(request.mac, mac, sizeof(request.mac));
	return mana_ib_hwc_tell(dev, MANA_HW_RNIC_CONFIG_MAC, MANA_IB_TO_DEVICE,
				&request, sizeof(request));
}

/**
 * mana_ib_cmd_vf_counters - asks what the adapter has counted
 * @dev: device
 * @values: MANA_IB_VF_COUNTERS of them, in the order of RNIC 2.11
 */
int mana_ib_cmd_vf_counters(struct mana_ib_dev *dev, u64 *values)
{
	struct mana_ib_adapter_req request = { .adapter = dev->adapter };
	struct mana_ib_counters_resp response;
	int err;

	mana_ib_request_header(&request)->response.version = 2;
	err = mana_ib_hwc_send(dev, MANA_HW_RNIC_QUERY_VF_COUNTERS,
			       MANA_IB_TO_DEVICE, &request, sizeof(request),
			       &response, sizeof(response));
	if (!err)
		memcpy(values, response.values, sizeof(response.values));
	return err;
}

/**
 * mana_ib_cmd_device_counters - asks what the whole device has counted
 * @dev: device
 * @values: MANA_IB_DEVICE_COUNTERS of them, in the order of RNIC 2.11
 */
int mana_ib_cmd_device_counters(struct mana_ib_dev *dev, u64 *values)
{
	struct mana_ib_adapter_req request = { .adapter = dev->adapter };
	struct {
		struct mana_hw_rnic_resp_head head;
		u32 values[MANA_IB_DEVICE_COUNTERS];
	} response;
	unsigned int i;
	int err;

	BUILD_BUG_ON(sizeof(response) !=
		     sizeof(struct mana_hw_rnic_device_counters_resp));
	err = mana_ib_hwc_send(dev, MANA_HW_RNIC_QUERY_DEVICE_COUNTERS,
			       MANA_IB_TO_DEVICE, &request, sizeof(request),
			       &response, sizeof(response));
	if (err)
		return err;
	for (i = 0; i < MANA_IB_DEVICE_COUNTERS; i++)
		values[i] = response.values[i];
	return 0;
}
