/* SPDX-License-Identifier: GPL-2.0 */
/* Shared receive queues. */
#ifndef MANA_IB_SRQ_H
#define MANA_IB_SRQ_H

#include "event.h"
#include "region.h"

/**
 * struct mana_ib_srq - shared receive queue
 * @ibsrq: that of the core
 * @handle: of the device
 * @id: of the device
 * @max_wr: receives it holds
 * @max_sge: of one
 * @target: references of event handlers
 * @umem: ring of a user
 * @buffer: ring of the kernel
 * @record: shared with the device
 * @stride: bytes of a WQE
 * @lock: protects what follows, of the kernel's
 * @producer: receives posted
 * @wr_ids: by cookie
 * @free: stack of cookies, @free_count of them
 * @free_count: receives that may be posted
 */
struct mana_ib_srq {
	struct ib_srq ibsrq;
	u64 handle;
	u32 id;
	u32 max_wr;
	u32 max_sge;
	struct mana_ib_event_target target;
	struct ib_umem *umem;
	struct mana_ib_buffer buffer;
	struct mana_hw_ext_srq_record *record;
	u32 stride;
	spinlock_t lock; /* the kernel's receives */
	u32 producer;
	u64 *wr_ids;
	u32 *free;
	u32 free_count;
};

static inline struct mana_ib_srq *to_mana_srq(struct ib_srq *ibsrq)
{
	return container_of(ibsrq, struct mana_ib_srq, ibsrq);
}

int mana_ib_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *attr,
		       struct ib_udata *udata);
int mana_ib_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		       enum ib_srq_attr_mask mask, struct ib_udata *udata);
int mana_ib_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int mana_ib_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);
int mana_ib_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
			  const struct ib_recv_wr **bad);
bool mana_ib_complete_srq(struct mana_ib_srq *srq, u32 cookie, u64 *wr_id);

#endif
