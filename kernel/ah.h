/* SPDX-License-Identifier: GPL-2.0 */
/* Address handles. */
#ifndef MANA_IB_AH_H
#define MANA_IB_AH_H

#include "mana_ib.h"

struct mana_ib_ah {
	struct ib_ah ibah;
	struct rdma_ah_attr attr;
	struct mana_hw_ext_ud ud; /* qpn and qkey are of the work request */
	struct mana_hw_rnic_av *av; /* stock sends: read by the device */
	dma_addr_t av_dma;
	struct mana_ib_user *user; /* of a process */
};

static inline struct mana_ib_ah *to_mana_ah(struct ib_ah *ibah)
{
	return container_of(ibah, struct mana_ib_ah, ibah);
}

int mana_ib_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *attr,
		      struct ib_udata *udata);
int mana_ib_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr);
int mana_ib_destroy_ah(struct ib_ah *ibah, u32 flags);

#endif
