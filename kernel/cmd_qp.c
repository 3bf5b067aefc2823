// SPDX-License-Identifier: GPL-2.0
/* Requests of queue pairs. */
#include "hwc.h"

#include <rdma/ib_addr.h>

/**
 * mana_ib_cmd_create_rc_qp - makes an RC QP of the public format
 * @dev: device
 * @params: what to make
 * @regions: of its queues, in the order of the device; its own then. Without a
 *	memory-management queue that of fast registration is 0
 * @result: what the device calls it
 */
int mana_ib_cmd_create_rc_qp(struct mana_ib_dev *dev,
			     const struct mana_ib_qp_params *params,
			     const u64 *regions,
			     struct mana_ib_qp_result *result)
{
	struct mana_hw_rnic_create_rc_qp_req request = {
		.adapter = dev->adapter,
		.pd = params->pd,
		.send_cq = params->send_cq,
		.recv_cq = params->recv_cq,
		.flags = regions[MANA_HW_RNIC_FAST_REGISTER_SQ] ?
				 0 :
				 MANA_HW_RNIC_RC_NO_FAST_REGISTER,
		.doorbell_page = params->doorbell_page,
		.max_send_wr = params->cap->max_send_wr,
		.max_recv_wr = params->cap->max_recv_wr,
		.max_send_sge = params->cap->max_send_sge,
		.max_recv_sge = params->cap->max_recv_sge,
	};
	struct mana_hw_rnic_create_rc_qp_resp response;
	int err;

	memcpy(request.regions, regions, sizeof(request.regions));
	err = mana_ib_hwc_send(dev, MANA_HW_RNIC_CREATE_RC_QP,
			       MANA_IB_TO_DEVICE, &request, sizeof(request),
			       &response, sizeof(response));
	if (err)
		return err;
	result->handle = response.qp;
	memcpy(result->queue_ids, response.queue_ids,
	       sizeof(result->queue_ids));
	result->sq_id = response.queue_ids[MANA_HW_RNIC_REQUESTER_SQ];
	result->qpn = response.queue_ids[MANA_HW_RNIC_RESPONDER_RQ];
	return 0;
}

/**
 * mana_ib_cmd_create_ud_qp - makes a UD or GSI QP of the public format
 * @dev: device
 * @params: what to make
 * @sq_region: of its send queue; the device's then
 * @rq_region: of its receive queue; the device's then
 * @result: what the device calls it
 */
int mana_ib_cmd_create_ud_qp(struct mana_ib_dev *dev,
			     const struct mana_ib_qp_params *params,
			     u64 sq_region, u64 rq_region,
			     struct mana_ib_qp_result *result)
{
	struct mana_hw_rnic_create_ud_qp_req request = {
		.adapter = dev->adapter,
		.pd = params->pd,
		.send_cq = params->send_cq,
		.recv_cq = params->recv_cq,
		.sq_region = sq_region,
		.rq_region = rq_region,
		.type = params->type == IB_QPT_GSI ? MANA_HW_RNIC_UD_GSI :
						     MANA_HW_RNIC_UD_USER,
		.doorbell_page = params->doorbell_page,
		.max_send_wr = params->cap->max_send_wr,
		.max_recv_wr = params->cap->max_recv_wr,
		.max_send_sge = params->cap->max_send_sge,
		.max_recv_sge = params->cap->max_recv_sge,
	};
	struct mana_hw_rnic_create_ud_qp_resp response;
	int err;

	err = mana_ib_hwc_send(dev, MANA_HW_RNIC_CREATE_UD_QP,
			       MANA_IB_TO_DEVICE, &request, sizeof(request),
			       &response, sizeof(response));
	if (err)
		return err;
	result->handle = response.qp;
	result->sq_id = response.sq_id;
	result->qpn = response.rq_id;
	return 0;
}

/**
 * mana_ib_cmd_create_ext_qp - makes a QP of the extension's format
 * @dev: device
 * @params: what to make
 * @queues: memory of its queues; the region is the device's then
 * @result: what the device calls it
 */
int mana_ib_cmd_create_ext_qp(struct mana_ib_dev *dev,
			      const struct mana_ib_qp_params *params,
			      const struct mana_ib_ext_queues *queues,
			      struct mana_ib_qp_result *result)
{
	struct mana_hw_ext_create_qp_req request = {
		.adapter = dev->adapter,
		.pd = params->pd,
		.send_cq = params->send_cq,
		.recv_cq = params->recv_cq,
		.srq = params->srq,
		.region = queues->region,
		.type = params->type,
		.flags = queues->privileged ? MANA_HW_EXT_QP_PRIVILEGED : 0,
		.doorbell_page = params->doorbell_page,
		.sq_bytes = queues->sq_bytes,
		.rq_bytes = queues->rq_bytes,
		.rq_stride = queues->rq_stride,
	};
	struct mana_hw_ext_create_qp_resp response;
	int err;

	/* The device's numbers are those of the verbs. */
	BUILD_BUG_ON(MANA_HW_EXT_QP_GSI != (int)IB_QPT_GSI ||
		     MANA_HW_EXT_QP_RC != (int)IB_QPT_RC ||
		     MANA_HW_EXT_QP_UC != (int)IB_QPT_UC ||
		     MANA_HW_EXT_QP_UD != (int)IB_QPT_UD);
	err = mana_ib_hwc_send(dev, MANA_HW_EXT_CREATE_QP, MANA_IB_TO_DEVICE,
			       &request, sizeof(request), &response,
			       sizeof(response));
	if (err)
		return err;
	result->handle = response.qp;
	result->sq_id = response.sq_id;
	result->qpn = response.rq_id;
	return 0;
}

/**
 * mana_ib_cmd_destroy_rc_qp - ends an RC QP of the public format
 * @dev: device
 * @handle: of the QP
 */
void mana_ib_cmd_destroy_rc_qp(struct mana_ib_dev *dev, u64 handle)
{
	mana_ib_hwc_destroy_object(dev, MANA_HW_RNIC_DESTROY_RC_QP, handle);
}

/**
 * mana_ib_cmd_destroy_ud_qp - ends a UD or GSI QP of the public format
 * @dev: device
 * @handle: of the QP
 */
void mana_ib_cmd_destroy_ud_qp(struct mana_ib_dev *dev, u64 handle)
{
	mana_ib_hwc_destroy_object(dev, MANA_HW_RNIC_DESTROY_UD_QP, handle);
}

/**
 * mana_ib_cmd_destroy_ext_qp - ends a QP of the extension's format
 * @dev: device
 * @handle: of the QP
 */
void mana_ib_cmd_destroy_ext_qp(struct mana_ib_dev *dev, u64 handle)
{
	mana_ib_hwc_destroy_object(dev, MANA_HW_EXT_DESTROY_QP, handle);
}

/* What the mask bits of the verbs and of the device have in common. */
static void mana_ib_check_numbering(void)
{
	BUILD_BUG_ON(MANA_HW_RNIC_ATTR_STATE != (u64)IB_QP_STATE ||
		     MANA_HW_RNIC_ATTR_ACCESS != (u64)IB_QP_ACCESS_FLAGS ||
		     MANA_HW_RNIC_ATTR_ADDRESS != (u64)IB_QP_AV ||
		     MANA_HW_RNIC_ATTR_SQ_PSN != (u64)IB_QP_SQ_PSN ||
		     MANA_HW_RNIC_ATTR_DEST_QPN != (u64)IB_QP_DEST_QPN);
	BUILD_BUG_ON(MANA_HW_RNIC_QP_INIT != (int)IB_QPS_INIT ||
		     MANA_HW_RNIC_QP_SQD != (int)IB_QPS_SQD ||
		     MANA_HW_RNIC_QP_ERR != (int)IB_QPS_ERR);
}

/* MACs and GIDs go back to front (RNIC 2.10). */
static void mana_ib_fill_address(struct mana_hw_rnic_address *address,
				 const struct mana_ib_path *path)
{
	mana_ib_reverse(address->source_gid, path->source.raw,
			sizeof(address->source_gid));
	mana_ib_reverse(address->dest_gid, path->dest.raw,
			sizeof(address->dest_gid));
	mana_ib_reverse(address->source_mac, path->source_mac, ETH_ALEN);
	mana_ib_reverse(address->dest_mac, path->dest_mac, ETH_ALEN);
	address->source_type =
		ipv6_addr_v4mapped((const struct in6_addr *)&path->source) ?
			MANA_HW_RNIC_ADDRESS_IPV4 :
			MANA_HW_RNIC_ADDRESS_IPV6;
	address->dest_type = address->source_type;
	address->hop_limit = path->hop_limit;
	address->dscp = path->traffic_class >> 2;
	address->udp_source_port = path->udp_source_port;
	address->udp_dest_port = ROCE_V2_UDP_DPORT;
	address->flow_label = path->flow_label;
}

/**
 * mana_ib_cmd_modify_qp - changes attributes of a QP
 * @dev: device
 * @handle: of the QP
 * @attr: attributes
 * @mask: which of them count
 * @state: that the QP is in then
 * @path: for the address, or NULL
 */
int mana_ib_cmd_modify_qp(struct mana_ib_dev *dev, u64 handle,
			  const struct ib_qp_attr *attr, int mask,
			  enum ib_qp_state state,
			  const struct mana_ib_path *path)
{
	struct mana_hw_ext_set_qp_state_req request = {
		.base = {
			.adapter = dev->adapter,
			.qp = handle,
			.attr_mask = mask,
			.state = state,
			.path_mtu = attr->path_mtu,
			.rq_psn = attr->rq_psn,
			.sq_psn = attr->sq_psn,
			.dest_qpn = attr->dest_qp_num,
			.max_read_in = attr->max_dest_rd_atomic,
			.retry_count = attr->retry_cnt,
			.rnr_retry = attr->rnr_retry,
			.min_rnr_timer = attr->min_rnr_timer,
			.qkey = attr->qkey,
			.access_flags = attr->qp_access_flags,
			.timeout = attr->timeout,
			.max_read_out = attr->max_rd_atomic,
		},
	};

	mana_ib_check_numbering();
	mana_ib_request_header(&request)->request.version = 3;
	if (path)
		mana_ib_fill_address(&request.base.address, path);
	/* The public request cannot say it. */
	if (path && path->tag) {
		request.vlan = path->tag;
		return mana_ib_hwc_tell(dev, MANA_HW_EXT_SET_QP_STATE,
					MANA_IB_TO_DEVICE, &request,
					sizeof(request));
	}
	return mana_ib_hwc_tell(dev, MANA_HW_RNIC_SET_QP_STATE,
				MANA_IB_TO_DEVICE, &request.base,
				sizeof(request.base));
}

static void mana_ib_fill_reset(struct mana_ib_dev *dev, u64 handle,
			       struct mana_hw_rnic_set_qp_state_req *request)
{
	*request = (struct mana_hw_rnic_set_qp_state_req){
		.adapter = dev->adapter,
		.qp = handle,
		.attr_mask = MANA_HW_RNIC_ATTR_STATE,
		.state = MANA_HW_RNIC_QP_RESET,
	};
	mana_ib_request_header(request)->request.version = 3;
}

/**
 * mana_ib_cmd_reset_qp - takes a QP to RESET; the device completes no more of it
 * @dev: device
 * @handle: of the QP
 */
int mana_ib_cmd_reset_qp(struct mana_ib_dev *dev, u64 handle)
{
	struct mana_hw_rnic_set_qp_state_req request;

	mana_ib_fill_reset(dev, handle, &request);
	return mana_ib_hwc_undo(dev, MANA_HW_RNIC_SET_QP_STATE,
				MANA_IB_TO_DEVICE, &request, sizeof(request));
}

/**
 * mana_ib_cmd_stop_qp - a device that was given up writes to nothing of a QP's any more
 * @dev: device
 * @handle: of the QP
 *
 * Before its work requests are completed by software, and so their buffers go back.
 */
void mana_ib_cmd_stop_qp(struct mana_ib_dev *dev, u64 handle)
{
	struct mana_hw_rnic_set_qp_state_req request;

	mana_ib_fill_reset(dev, handle, &request);
	mana_ib_hwc_insist(dev, MANA_HW_RNIC_SET_QP_STATE, MANA_IB_TO_DEVICE,
			   &request, sizeof(request));
}

/**
 * mana_ib_cmd_query_qp - asks what state an extended QP is in
 * @dev: device
 * @handle: of the QP
 * @now: answer
 */
int mana_ib_cmd_query_qp(struct mana_ib_dev *dev, u64 handle,
			 struct mana_ib_qp_now *now)
{
	struct mana_ib_object_req request = { .adapter = dev->adapter,
					      .handle = handle };
	struct mana_hw_ext_query_qp_resp response;
	int err;

	err = mana_ib_hwc_send(dev, MANA_HW_EXT_QUERY_QP, MANA_IB_TO_DEVICE,
			       &request, sizeof(request), &response,
			       sizeof(response));
	if (err)
		return err;
	/* The core's table of transitions is indexed with it. */
	if (response.state > MANA_HW_RNIC_QP_ERR)
		return -EPROTO;
	now->state = (enum ib_qp_state)response.state;
	now->sq_psn = response.sq_psn;
	now->rq_psn = response.rq_psn;
	now->sq_draining = response.sq_draining;
	return 0;
}

/**
 * mana_ib_cmd_qp_counters - asks what an extended QP has counted
 * @dev: device
 * @handle: of the QP
 * @values: MANA_IB_VF_COUNTERS of them, in the order of RNIC 2.11
 */
int mana_ib_cmd_qp_counters(struct mana_ib_dev *dev, u64 handle, u64 *values)
{
	struct mana_ib_object_req request = { .adapter = dev->adapter,
					      .handle = handle };
	struct mana_ib_counters_resp response;
	int err;

	mana_ib_request_header(&request)->response.version = 2;
	err = mana_ib_hwc_send(dev, MANA_HW_EXT_QUERY_QP_COUNTERS,
			       MANA_IB_TO_DEVICE, &request, sizeof(request),
			       &response, sizeof(response));
	if (!err)
		memcpy(values, response.values, sizeof(response.values));
	return err;
}

/**
 * mana_ib_cmd_multicast - an extended UD QP joins or leaves a group
 * @dev: device
 * @handle: of the QP
 * @gid: of the group
 * @attach: it joins
 */
int mana_ib_cmd_multicast(struct mana_ib_dev *dev, u64 handle,
			  const union ib_gid *gid, bool attach)
{
	struct mana_hw_ext_multicast_req request = { .adapter = dev->adapter,
						     .qp = handle };

	memcpy(request.gid, gid->raw, sizeof(request.gid));
	if (!attach)
		return mana_ib_hwc_undo(dev, MANA_HW_EXT_DETACH_MULTICAST,
					MANA_IB_TO_DEVICE, &request,
					sizeof(request));
	return mana_ib_hwc_tell(dev, MANA_HW_EXT_ATTACH_MULTICAST,
				MANA_IB_TO_DEVICE, &request, sizeof(request));
}
