// SPDX-License-Identifier: GPL-2.0
/*
 * Requests to the Ethernet device: work queues of ports and their steering; packet
 * queues of the extension, flow rules, spreads.
 */
#include "hwc.h"

#include <mana/eth.h>

static u32 mana_ib_wq_type(bool send)
{
	return send ? MANA_HW_ETH_SQ : MANA_HW_ETH_RQ;
}

static int mana_ib_read_wq(const struct mana_hw_eth_create_wq_resp *response,
			   struct mana_ib_wq_result *result)
{
	if (response->wq_object == MANA_HW_ETH_NO_OBJECT)
		return -EPROTO;
	result->object = response->wq_object;
	result->wq_id = response->wq_id;
	result->cq_id = response->cq_id;
	return 0;
}

/**
 * mana_ib_cmd_create_wq_object - makes a work queue and its CQ of a port
 * @dev: device
 * @params: what to make
 * @result: what the device calls it
 *
 * GDMA 6.6. The parent could do it too, but to it each refusal is -EPROTO and
 * worth a line in the log.
 */
int mana_ib_cmd_create_wq_object(struct mana_ib_dev *dev,
				 const struct mana_ib_wq_params *params,
				 struct mana_ib_wq_result *result)
{
	struct mana_hw_eth_create_wq_req request = {
		.vport = params->vport,
		.wq_type = mana_ib_wq_type(params->send),
		.wq_region = params->wq_region,
		.cq_region = params->cq_region,
		.wq_bytes = params->wq_bytes,
		.cq_bytes = params->cq_bytes,
		.eq_id = params->eq_id,
	};
	struct mana_hw_eth_create_wq_resp response;
	int err;

	err = mana_ib_hwc_send(dev, MANA_HW_ETH_CREATE_WQ_OBJ,
			       MANA_IB_TO_ETHERNET, &request, sizeof(request),
			       &response, sizeof(response));
	if (err)
		return err;
	return mana_ib_read_wq(&response, result);
}

/**
 * mana_ib_cmd_destroy_wq_object - ends a work queue of a port, or a packet queue, and its CQ
 * @dev: device
 * @send: it is a send queue
 * @object: its handle
 *
 * GDMA 6.6. The parent could do it too, but does not say that there was no answer.
 * Then the device, which may still write to the queues, has to be given up.
 */
void mana_ib_cmd_destroy_wq_object(struct mana_ib_dev *dev, bool send,
				   u64 object)
{
	struct mana_hw_eth_destroy_wq_req request = {
		.wq_type = mana_ib_wq_type(send),
		.wq_object = object,
	};

	mana_ib_hwc_undo(dev, MANA_HW_ETH_DESTROY_WQ_OBJ, MANA_IB_TO_ETHERNET,
			 &request, sizeof(request));
}

/**
 * mana_ib_cmd_steer - sets the receive steering of a port (GDMA 6.8)
 * @dev: device
 * @vport: the device's handle of the port
 * @table: RQ objects
 * @entries: of @table
 * @default_rq: RQ object for what is not hashed
 * @key: of the hash
 */
int mana_ib_cmd_steer(struct mana_ib_dev *dev, u64 vport, const u64 *table,
		      u32 entries, u64 default_rq, const u8 *key)
{
	size_t bytes = sizeof(struct mana_hw_eth_vport_rx_req) +
		       entries * sizeof(u64);
	struct mana_hw_eth_vport_rx_resp response;
	struct mana_hw_eth_vport_rx_req *request;
	int err;

	request = kzalloc(bytes, GFP_KERNEL);
	if (!request)
		return -ENOMEM;

	mana_ib_request_header(request)->request.version = 2;
	request->vport = vport;
	request->table_entries = entries;
	request->table_offset = sizeof(*request);
	request->rx_enable = 1;
	request->rss_enable = 1;
	request->update_default = 1;
	request->update_key = 1;
	request->update_table = 1;
	request->default_rq = default_rq;
	request->coalescing = 1;
	memcpy(request->key, key, sizeof(request->key));
	memcpy(request + 1, table, entries * sizeof(u64));

	err = mana_ib_hwc_send(dev, MANA_HW_ETH_CONFIG_VPORT_RX,
			       MANA_IB_TO_ETHERNET, request, bytes, &response,
			       sizeof(response));
	kfree(request);
	return err;
}

/**
 * mana_ib_cmd_stop_receiving - receive queues of a port get no more frames (GDMA 6.8)
 * @dev: device
 * @vport: the device's handle of the port
 *
 * Not by the parent, for the reason of mana_ib_cmd_destroy_wq_object().
 */
void mana_ib_cmd_stop_receiving(struct mana_ib_dev *dev, u64 vport)
{
	struct {
		struct mana_hw_eth_vport_rx_req base;
		u64 table[MANA_UAPI_RSS_QUEUES]; /* not taken over */
	} request = {
		.base.vport = vport,
		.base.table_entries = ARRAY_SIZE(request.table),
		.base.table_offset = sizeof(request.base),
	};

	mana_ib_request_header(&request)->request.version = 2;
	mana_ib_hwc_undo(dev, MANA_HW_ETH_CONFIG_VPORT_RX, MANA_IB_TO_ETHERNET,
			 &request, sizeof(request));
}

/**
 * mana_ib_cmd_create_packet_wq - makes a packet queue and its CQ
 * @dev: device
 * @params: what to make
 * @result: what the device calls it
 */
int mana_ib_cmd_create_packet_wq(struct mana_ib_dev *dev,
				 const struct mana_ib_wq_params *params,
				 struct mana_ib_wq_result *result)
{
	struct mana_hw_ext_create_packet_wq_req request = {
		.vport = params->vport,
		.wq_type = mana_ib_wq_type(params->send),
		.wq_region = params->wq_region,
		.cq_region = params->cq_region,
		.wq_bytes = params->wq_bytes,
		.cq_bytes = params->cq_bytes,
		.eq_id = params->eq_id,
		.pd_id = params->pd_id,
		.doorbell_page = params->doorbell_page,
	};
	struct mana_hw_eth_create_wq_resp response;
	int err;

	err = mana_ib_hwc_send(dev, MANA_HW_EXT_CREATE_PACKET_WQ,
			       MANA_IB_TO_ETHERNET, &request, sizeof(request),
			       &response, sizeof(response));
	if (err)
		return err;
	return mana_ib_read_wq(&response, result);
}

/**
 * mana_ib_cmd_add_flow - gives frames to a packet queue or a spread
 * @dev: device
 * @rq: handle of that
 * @rule: which frames
 * @flow: handle of the rule
 */
int mana_ib_cmd_add_flow(struct mana_ib_dev *dev, u64 rq,
			 const struct mana_ib_flow_rule *rule, u64 *flow)
{
	struct mana_hw_ext_add_flow_req request = {
		.rq = rq,
		.priority = rule->priority,
		.value = rule->value,
		.mask = rule->mask,
	};
	struct mana_hw_ext_add_flow_resp response;
	int err;

	err = mana_ib_hwc_send(dev, MANA_HW_EXT_ADD_FLOW, MANA_IB_TO_ETHERNET,
			       &request, sizeof(request), &response,
			       sizeof(response));
	if (!err)
		*flow = response.flow;
	return err;
}

/**
 * mana_ib_cmd_remove_flow - ends a rule
 * @dev: device
 * @flow: its handle; the device may have ended it with its queue
 */
void mana_ib_cmd_remove_flow(struct mana_ib_dev *dev, u64 flow)
{
	struct mana_hw_ext_remove_flow_req request = { .flow = flow };

	mana_ib_hwc_undo(dev, MANA_HW_EXT_REMOVE_FLOW, MANA_IB_TO_ETHERNET,
			 &request, sizeof(request));
}

/**
 * mana_ib_cmd_create_spread - makes a table of packet queues
 * @dev: device
 * @spread: the table
 * @handle: of the spread
 */
int mana_ib_cmd_create_spread(struct mana_ib_dev *dev,
			      const struct mana_ib_spread *spread, u64 *handle)
{
	struct mana_hw_ext_create_spread_resp response;
	struct mana_hw_ext_create_spread_req *request;
	int err;

	request = kzalloc(sizeof(*request), GFP_KERNEL);
	if (!request)
		return -ENOMEM;
	request->fields = spread->fields;
	request->entries = spread->entries;
	memcpy(request->key, spread->key, sizeof(request->key));
	memcpy(request->rq, spread->objects, sizeof(request->rq));
	err = mana_ib_hwc_send(dev, MANA_HW_EXT_CREATE_SPREAD,
			       MANA_IB_TO_ETHERNET, request, sizeof(*request),
			       &response, sizeof(response));
	if (!err)
		*handle = response.spread;
	kfree(request);
	return err;
}

/**
 * mana_ib_cmd_destroy_spread - ends a spread and its rules
 * @dev: device
 * @spread: its handle
 */
void mana_ib_cmd_destroy_spread(struct mana_ib_dev *dev, u64 spread)
{
	struct mana_hw_ext_destroy_spread_req request = { .spread = spread };

	mana_ib_hwc_undo(dev, MANA_HW_EXT_DESTROY_SPREAD, MANA_IB_TO_ETHERNET,
			 &request, sizeof(request));
}

/**
 * mana_ib_cmd_ethernet_traffic - asks what the Ethernet device has counted (GDMA 6.9)
 * @dev: device
 * @traffic: answer, of all ports together; untouched if this fails
 */
int mana_ib_cmd_ethernet_traffic(struct mana_ib_dev *dev,
				 struct mana_ib_traffic *traffic)
{
	struct mana_hw_eth_stat_req request = {
		.wanted = MANA_HW_ETH_GF_STAT_ALL,
	};
	struct mana_hw_eth_gf_stat_resp stat;
	int err;

	err = mana_ib_hwc_send(dev, MANA_HW_ETH_QUERY_GF_STAT,
			       MANA_IB_TO_ETHERNET, &request, sizeof(request),
			       &stat, sizeof(stat));
	if (err)
		return err;

	traffic->xmit_bytes = stat.tx_bytes;
	traffic->rcv_bytes = stat.rx_bytes;
	traffic->xmit_unicasts = stat.tx_unicast_packets;
	traffic->rcv_unicasts = stat.rx_unicast_packets;
	traffic->xmit_multicasts = stat.tx_multicast_packets +
				   stat.tx_broadcast_packets;
	traffic->rcv_multicasts = stat.rx_multicast_packets +
				  stat.rx_broadcast_packets;
	traffic->xmit_packets = traffic->xmit_unicasts +
				traffic->xmit_multicasts;
	traffic->rcv_packets = traffic->rcv_unicasts + traffic->rcv_multicasts;
	traffic->rcv_overruns = stat.rx_no_wqe;
	traffic->xmit_discards = stat.tx_function_disabled +
				 stat.tx_vport_disabled + stat.tx_mtu;
	traffic->xmit_forbidden = stat.tx_vlan + stat.tx_ethertype +
				  stat.tx_source;
	return 0;
}
