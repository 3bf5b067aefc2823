/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The requests to the device, one function each: plain parameters in, results
 * out, a negative errno when the device refuses. The message layouts are known to
 * cmd_*.c alone, a file for each kind of object.
 */
#ifndef MANA_IB_CMD_H
#define MANA_IB_CMD_H

#include "mana_ib.h"

#include <mana/ext_eth.h>

/* hwc.c */
int mana_ib_join_function(struct mana_ib_dev *dev);
void mana_ib_leave_function(struct mana_ib_dev *dev);
bool mana_ib_may_write(struct mana_ib_dev *dev);

/* cmd_adapter.c */
int mana_ib_cmd_query_limits(struct mana_ib_dev *dev,
			     struct mana_ib_limits *limits);
int mana_ib_cmd_query_ethernet_limits(struct mana_ib_dev *dev,
				      struct mana_ib_limits *limits);
int mana_ib_cmd_query_doorbell_pages(struct mana_ib_dev *dev, u32 *pages);
int mana_ib_cmd_query_ext_limits(struct mana_ib_dev *dev,
				 struct mana_ib_ext_limits *ext);
int mana_ib_cmd_create_adapter(struct mana_ib_dev *dev, u32 event_eq,
			       u64 *adapter);
void mana_ib_cmd_destroy_adapter(struct mana_ib_dev *dev);
/* An address of the adapter. */
struct mana_ib_address {
	union ib_gid gid;
	u16 vlan; /* 0: none */
	u8 mac[ETH_ALEN]; /* that it is reached by; zeros: the port's */
};

int mana_ib_cmd_add_address(struct mana_ib_dev *dev,
			    const struct mana_ib_address *address);
int mana_ib_cmd_remove_address(struct mana_ib_dev *dev,
			       const struct mana_ib_address *address);
int mana_ib_cmd_add_mac(struct mana_ib_dev *dev, const u8 *mac);
int mana_ib_cmd_vf_counters(struct mana_ib_dev *dev, u64 *values);
int mana_ib_cmd_device_counters(struct mana_ib_dev *dev, u64 *values);

/* cmd_pd.c */
int mana_ib_cmd_alloc_doorbell_page(struct mana_ib_dev *dev, u32 *page);
void mana_ib_cmd_free_doorbell_page(struct mana_ib_dev *dev, u32 page);
int mana_ib_cmd_create_pd(struct mana_ib_dev *dev, bool kernel, u64 *handle,
			  u32 *id);
void mana_ib_cmd_destroy_pd(struct mana_ib_dev *dev, u64 handle);
int mana_ib_cmd_grant_source(struct mana_ib_dev *dev, u64 pd,
			     const union ib_gid *gid, u16 vlan, u32 number);
int mana_ib_cmd_revoke_source(struct mana_ib_dev *dev, u32 number);

/**
 * struct mana_ib_mr_params - a key to make
 * @pd: handle of its protection domain
 * @type: MANA_HW_MR_*, or MANA_HW_EXT_MR_FAST_REGISTER
 * @access: MANA_HW_ACCESS_*, of pinned memory and device memory
 * @region: of pinned memory
 * @address: virtual address of its first byte, MANA_HW_MR_GVA
 * @dm: handle of device memory, MANA_HW_MR_DM
 * @dm_offset: first byte in it
 * @dm_length: bytes
 * @max_pages: of a key for fast registration
 */
struct mana_ib_mr_params {
	u64 pd;
	u32 type;
	u32 access;
	u64 region;
	u64 address;
	u64 dm;
	u64 dm_offset;
	u64 dm_length;
	u32 max_pages;
};

/* A key that the device made. */
struct mana_ib_mr_result {
	u64 handle;
	u32 lkey;
	u32 rkey;
};

/**
 * struct mana_ib_mr_change - what becomes different of a key
 * @mr: its handle
 * @flags: MANA_HW_EXT_MODIFY_*: which of the following count
 * @pd: handle of the new protection domain
 * @access: MANA_HW_ACCESS_*
 * @region: of new memory
 * @address: virtual address of its first byte; 0 if the key is zero-based
 */
struct mana_ib_mr_change {
	u64 mr;
	u32 flags;
	u64 pd;
	u32 access;
	u64 region;
	u64 address;
};

/* cmd_mr.c */
int mana_ib_cmd_create_mr(struct mana_ib_dev *dev,
			  const struct mana_ib_mr_params *params,
			  struct mana_ib_mr_result *result);
int mana_ib_cmd_modify_mr(struct mana_ib_dev *dev,
			  const struct mana_ib_mr_change *change);
int mana_ib_cmd_destroy_mr(struct mana_ib_dev *dev, u64 handle);
void mana_ib_cmd_stop_mr(struct mana_ib_dev *dev, u64 handle);
int mana_ib_cmd_alloc_dm(struct mana_ib_dev *dev, u64 bytes, u32 alignment,
			 u64 *handle);
void mana_ib_cmd_free_dm(struct mana_ib_dev *dev, u64 handle);
int mana_ib_cmd_copy_dm(struct mana_ib_dev *dev, u64 handle, u64 offset,
			dma_addr_t address, u32 length, bool to_dm);

/**
 * struct mana_ib_region_params - a DMA region to make
 * @length: in bytes
 * @offset: of the first byte in the first page
 * @page_size: of all its pages
 * @pages: how many
 * @fill: writes the bus addresses of the next pages
 * @context: for @fill
 */
struct mana_ib_region_params {
	u64 length;
	u32 offset;
	unsigned long page_size;
	u32 pages;
	void (*fill)(void *context, u64 *list, u32 count);
	void *context;
};

/* cmd_region.c */
int mana_ib_cmd_create_region(struct mana_ib_dev *dev,
			      const struct mana_ib_region_params *params,
			      u64 *region);
void mana_ib_cmd_destroy_region(struct mana_ib_dev *dev, u64 region);

/* cmd_eq.c */
int mana_ib_cmd_destroy_eq(struct mana_ib_dev *dev, bool ethernet, u32 id);

/**
 * struct mana_ib_cq_params - a completion queue to make
 * @extended: its entries are those of the extension
 * @region: of the ring, and of the record behind it
 * @entries: in the ring; the public format has the region tell
 * @eq_id: event queue
 * @doorbell_page: that it is rung from
 */
struct mana_ib_cq_params {
	bool extended;
	u64 region;
	u32 entries;
	u32 eq_id;
	u32 doorbell_page;
};

/* cmd_cq.c */
int mana_ib_cmd_create_cq(struct mana_ib_dev *dev,
			  const struct mana_ib_cq_params *params, u64 *handle,
			  u32 *id);
int mana_ib_cmd_resize_cq(struct mana_ib_dev *dev, u64 handle, u64 region,
			  u32 entries, u32 *consumer);
void mana_ib_cmd_destroy_cq(struct mana_ib_dev *dev, u64 handle);

/**
 * struct mana_ib_qp_params - a queue pair to make, of any format
 * @pd: handle
 * @send_cq: handle
 * @recv_cq: handle
 * @srq: handle, 0 if there is none; extended QPs
 * @type: of the verbs
 * @doorbell_page: that it is rung from
 * @cap: numbers of requests and their entries; public formats
 */
struct mana_ib_qp_params {
	u64 pd;
	u64 send_cq;
	u64 recv_cq;
	u64 srq;
	enum ib_qp_type type;
	u32 doorbell_page;
	const struct ib_qp_cap *cap;
};

/* Where the queues of an extended QP are; the kernel's are privileged. */
struct mana_ib_ext_queues {
	u64 region;
	u32 sq_bytes;
	u32 rq_bytes;
	u32 rq_stride;
	bool privileged;
};

/* What the device calls a QP, and all queues of a public RC one. */
struct mana_ib_qp_result {
	u64 handle;
	u32 sq_id;
	u32 qpn;
	u32 queue_ids[MANA_HW_RNIC_RC_QUEUES];
};

/* Where a connected QP sends to, in the network's byte order. */
struct mana_ib_path {
	union ib_gid source;
	union ib_gid dest;
	u8 source_mac[ETH_ALEN];
	u8 dest_mac[ETH_ALEN];
	u8 hop_limit;
	u8 traffic_class;
	u16 udp_source_port;
	u16 tag; /* MANA_HW_EXT_VLAN_*, in the CPU's byte order */
	u32 flow_label;
};

/* State of a QP as the device has it. */
struct mana_ib_qp_now {
	enum ib_qp_state state;
	u32 sq_psn;
	u32 rq_psn;
	bool sq_draining;
};

/* cmd_qp.c */
int mana_ib_cmd_create_rc_qp(struct mana_ib_dev *dev,
			     const struct mana_ib_qp_params *params,
			     const u64 *regions,
			     struct mana_ib_qp_result *result);
int mana_ib_cmd_create_ud_qp(struct mana_ib_dev *dev,
			     const struct mana_ib_qp_params *params,
			     u64 sq_region, u64 rq_region,
			     struct mana_ib_qp_result *result);
int mana_ib_cmd_create_ext_qp(struct mana_ib_dev *dev,
			      const struct mana_ib_qp_params *params,
			      const struct mana_ib_ext_queues *queues,
			      struct mana_ib_qp_result *result);
void mana_ib_cmd_destroy_rc_qp(struct mana_ib_dev *dev, u64 handle);
void mana_ib_cmd_destroy_ud_qp(struct mana_ib_dev *dev, u64 handle);
void mana_ib_cmd_destroy_ext_qp(struct mana_ib_dev *dev, u64 handle);
int mana_ib_cmd_modify_qp(struct mana_ib_dev *dev, u64 handle,
			  const struct ib_qp_attr *attr, int mask,
			  enum ib_qp_state state,
			  const struct mana_ib_path *path);
int mana_ib_cmd_reset_qp(struct mana_ib_dev *dev, u64 handle);
void mana_ib_cmd_stop_qp(struct mana_ib_dev *dev, u64 handle);
int mana_ib_cmd_query_qp(struct mana_ib_dev *dev, u64 handle,
			 struct mana_ib_qp_now *now);
int mana_ib_cmd_qp_counters(struct mana_ib_dev *dev, u64 handle, u64 *values);
int mana_ib_cmd_multicast(struct mana_ib_dev *dev, u64 handle,
			  const union ib_gid *gid, bool attach);

/* A shared receive queue to make. */
struct mana_ib_srq_params {
	u64 pd;
	u64 region; /* of the ring, and of the record behind it */
	u32 ring_bytes;
	u32 stride;
	u32 doorbell_page;
};

/* cmd_srq.c */
int mana_ib_cmd_create_srq(struct mana_ib_dev *dev,
			   const struct mana_ib_srq_params *params, u64 *handle,
			   u32 *id);
int mana_ib_cmd_modify_srq(struct mana_ib_dev *dev, u64 handle, u32 limit);
int mana_ib_cmd_query_srq(struct mana_ib_dev *dev, u64 handle, u32 *limit);
void mana_ib_cmd_destroy_srq(struct mana_ib_dev *dev, u64 handle);

/**
 * struct mana_ib_wq_params - an Ethernet work queue to make, and its CQ
 * @vport: the device's handle of the port
 * @send: a send queue
 * @wq_region: of the queue
 * @cq_region: of the CQ
 * @wq_bytes: of the queue
 * @cq_bytes: of the CQ
 * @eq_id: event queue of the CQ
 * @pd_id: protection domain, packet queues
 * @doorbell_page: that it is rung from, packet queues
 */
struct mana_ib_wq_params {
	u64 vport;
	bool send;
	u64 wq_region;
	u64 cq_region;
	u32 wq_bytes;
	u32 cq_bytes;
	u32 eq_id;
	u32 pd_id;
	u32 doorbell_page;
};

/* What the device calls them. */
struct mana_ib_wq_result {
	u64 object;
	u32 wq_id;
	u32 cq_id;
};

/* A rule: frames whose fields are @value under @mask. */
struct mana_ib_flow_rule {
	u32 priority;
	struct mana_hw_ext_flow_fields value;
	struct mana_hw_ext_flow_fields mask;
};

/* Packet queues that share what a rule gives them, by hash. */
struct mana_ib_spread {
	u32 fields;
	u32 entries;
	u8 key[MANA_HW_EXT_SPREAD_KEY_BYTES];
	u64 objects[MANA_HW_EXT_SPREAD_ENTRIES];
};

/* cmd_eth.c */
int mana_ib_cmd_create_wq_object(struct mana_ib_dev *dev,
				 const struct mana_ib_wq_params *params,
				 struct mana_ib_wq_result *result);
void mana_ib_cmd_destroy_wq_object(struct mana_ib_dev *dev, bool send,
				   u64 object);
int mana_ib_cmd_steer(struct mana_ib_dev *dev, u64 vport, const u64 *table,
		      u32 entries, u64 default_rq, const u8 *key);
void mana_ib_cmd_stop_receiving(struct mana_ib_dev *dev, u64 vport);
int mana_ib_cmd_create_packet_wq(struct mana_ib_dev *dev,
				 const struct mana_ib_wq_params *params,
				 struct mana_ib_wq_result *result);
int mana_ib_cmd_add_flow(struct mana_ib_dev *dev, u64 rq,
			 const struct mana_ib_flow_rule *rule, u64 *flow);
void mana_ib_cmd_remove_flow(struct mana_ib_dev *dev, u64 flow);
int mana_ib_cmd_create_spread(struct mana_ib_dev *dev,
			      const struct mana_ib_spread *spread, u64 *handle);
void mana_ib_cmd_destroy_spread(struct mana_ib_dev *dev, u64 spread);
int mana_ib_cmd_ethernet_traffic(struct mana_ib_dev *dev,
				 struct mana_ib_traffic *traffic);

#endif
