/* SPDX-License-Identifier: GPL-2.0 */
/* Counters, and what `rdma resource` tells. */
#ifndef MANA_IB_STATS_H
#define MANA_IB_STATS_H

#include "mana_ib.h"

/* A counter of the core, and the QPs that are bound to it. */
struct mana_ib_counter {
	struct list_head qps;
	u64 passed[MANA_IB_VF_COUNTERS]; /* by QPs that were unbound */
};

/* counters.c */
struct rdma_hw_stats *mana_ib_alloc_port_stats(struct ib_device *ibdev,
					       u32 port);
struct rdma_hw_stats *mana_ib_alloc_device_stats(struct ib_device *ibdev);
int mana_ib_get_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
		      u32 port, int index);
struct rdma_hw_stats *mana_ib_counter_stats(struct rdma_counter *counter);
int mana_ib_counter_update(struct rdma_counter *counter);
int mana_ib_counter_dealloc(struct rdma_counter *counter);

/* pma.c */
bool mana_ib_start_traffic(struct mana_ib_dev *dev);
int mana_ib_process_mad(struct ib_device *ibdev, int flags, u32 port,
			const struct ib_wc *in_wc, const struct ib_grh *in_grh,
			const struct ib_mad *in, struct ib_mad *out,
			size_t *out_bytes, u16 *out_pkey_index);

/* restrack.c */
int mana_ib_fill_qp(struct sk_buff *msg, struct ib_qp *ibqp);
int mana_ib_fill_cq(struct sk_buff *msg, struct ib_cq *ibcq);
int mana_ib_fill_mr(struct sk_buff *msg, struct ib_mr *ibmr);
int mana_ib_fill_srq(struct sk_buff *msg, struct ib_srq *ibsrq);

#endif
