/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The requests to the device, one function each: plain parameters in, results
 * out, a negative errno when the device refuses.
 */
#ifndef MANA_IB_CMD_H
#define MANA_IB_CMD_H

#include "mana_ib.h"

void mana_ib_leave_silent(struct mana_ib_dev *dev);

/* adapter */
int mana_ib_cmd_query_limits(struct mana_ib_dev *dev);
int mana_ib_cmd_query_ethernet_limits(struct mana_ib_dev *dev);
int mana_ib_cmd_query_ext_limits(struct mana_ib_dev *dev);
int mana_ib_cmd_create_adapter(struct mana_ib_dev *dev, u32 event_eq);
void mana_ib_cmd_destroy_adapter(struct mana_ib_dev *dev);
int mana_ib_cmd_config_address(struct mana_ib_dev *dev, u32 operation,
			       const union ib_gid *gid);
int mana_ib_cmd_add_mac(struct mana_ib_dev *dev, const u8 *mac);
int mana_ib_cmd_vf_counters(struct mana_ib_dev *dev, u64 *values);
int mana_ib_cmd_device_counters(struct mana_ib_dev *dev, u64 *values);

/* GDMA resources */
int mana_ib_cmd_alloc_doorbell_page(struct mana_ib_dev *dev, u32 *page);
void mana_ib_cmd_free_doorbell_page(struct mana_ib_dev *dev, u32 page);
int mana_ib_cmd_create_pd(struct mana_ib_dev *dev, bool kernel, u64 *handle,
			  u32 *id);
void mana_ib_cmd_destroy_pd(struct mana_ib_dev *dev, u64 handle);
int mana_ib_cmd_create_mr(struct mana_ib_dev *dev,
			  struct mana_hw_create_mr_req *request, u64 *handle,
			  u32 *lkey, u32 *rkey);
int mana_ib_cmd_destroy_mr(struct mana_ib_dev *dev, u64 handle);
int mana_ib_cmd_modify_mr(struct mana_ib_dev *dev,
			  struct mana_hw_ext_modify_mr_req *request);
int mana_ib_cmd_alloc_dm(struct mana_ib_dev *dev, u64 bytes, u32 alignment,
			 u64 *handle);
void mana_ib_cmd_free_dm(struct mana_ib_dev *dev, u64 handle);
int mana_ib_cmd_copy_dm(struct mana_ib_dev *dev, u64 handle, u64 offset,
			dma_addr_t address, u32 length, bool to_dm);
int mana_ib_cmd_create_region(struct mana_ib_dev *dev,
			      struct mana_hw_create_region_req *request,
			      u32 room, u64 *region);
int mana_ib_cmd_add_pages(struct mana_ib_dev *dev,
			  struct mana_hw_add_pages_req *request, u32 room,
			  bool last);
void mana_ib_cmd_destroy_region(struct mana_ib_dev *dev, u64 region);

/* RDMA objects */
int mana_ib_cmd_create_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq,
			  u64 region, u32 eq_id, u32 doorbell_page);
int mana_ib_cmd_resize_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq,
			  u64 region, u32 entries, u32 *consumer);
void mana_ib_cmd_destroy_cq(struct mana_ib_dev *dev, u64 handle);
int mana_ib_cmd_create_rc_qp(struct mana_ib_dev *dev, struct mana_ib_qp *qp,
			     const u64 *regions, u32 doorbell_page,
			     const struct ib_qp_init_attr *attr);
int mana_ib_cmd_create_ud_qp(struct mana_ib_dev *dev, struct mana_ib_qp *qp,
			     u64 sq_region, u64 rq_region, u32 doorbell_page,
			     const struct ib_qp_init_attr *attr);
int mana_ib_cmd_create_ext_qp(struct mana_ib_dev *dev, struct mana_ib_qp *qp,
			      struct mana_hw_ext_create_qp_req *request,
			      const struct ib_qp_init_attr *attr);
void mana_ib_cmd_destroy_qp(struct mana_ib_dev *dev, struct mana_ib_qp *qp);
int mana_ib_cmd_set_qp_state(struct mana_ib_dev *dev,
			     struct mana_hw_rnic_set_qp_state_req *request);
int mana_ib_cmd_query_qp(struct mana_ib_dev *dev, struct mana_ib_qp *qp,
			 struct mana_hw_ext_query_qp_resp *response);
int mana_ib_cmd_qp_counters(struct mana_ib_dev *dev, struct mana_ib_qp *qp,
			    u64 *values);
int mana_ib_cmd_create_srq(struct mana_ib_dev *dev, struct mana_ib_srq *srq,
			   u64 region, u32 ring_bytes, u32 doorbell_page);
int mana_ib_cmd_modify_srq(struct mana_ib_dev *dev, struct mana_ib_srq *srq,
			   u32 limit);
int mana_ib_cmd_query_srq(struct mana_ib_dev *dev, struct mana_ib_srq *srq,
			  u32 *limit);
void mana_ib_cmd_destroy_srq(struct mana_ib_dev *dev, u64 handle);
int mana_ib_cmd_multicast(struct mana_ib_dev *dev, struct mana_ib_qp *qp,
			  const union ib_gid *gid, bool attach);

/* Ethernet */
int mana_ib_cmd_create_wq_object(struct mana_ib_dev *dev,
				 struct mana_port_context *port, u32 type,
				 const struct mana_obj_spec *wq,
				 const struct mana_obj_spec *cq, u32 *wq_id,
				 u32 *cq_id, u64 *object);
int mana_ib_cmd_steer(struct mana_ib_dev *dev, struct mana_port_context *port,
		      const u64 *table, u32 entries, u64 default_rq,
		      const u8 *key);
int mana_ib_cmd_create_packet_wq(struct mana_ib_dev *dev,
				 struct mana_port_context *port,
				 struct mana_hw_ext_create_packet_wq_req *request,
				 u64 *object, u32 *id, u32 *cq_id);
void mana_ib_cmd_destroy_packet_wq(struct mana_ib_dev *dev, u32 type,
				   u64 object);
int mana_ib_cmd_add_flow(struct mana_ib_dev *dev,
			 struct mana_hw_ext_add_flow_req *request, u64 *flow);
void mana_ib_cmd_remove_flow(struct mana_ib_dev *dev, u64 flow);
int mana_ib_cmd_create_spread(struct mana_ib_dev *dev,
			      struct mana_hw_ext_create_spread_req *request,
			      u64 *spread);
void mana_ib_cmd_destroy_spread(struct mana_ib_dev *dev, u64 spread);

#endif
