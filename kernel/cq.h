/* SPDX-License-Identifier: GPL-2.0 */
/* Completion queues. */
#ifndef MANA_IB_CQ_H
#define MANA_IB_CQ_H

#include "event.h"
#include "region.h"

struct mana_ib_hook;

/**
 * struct mana_ib_cq - completion queue
 * @ibcq: that of the core
 * @handle: of the device, or MANA_IB_NO_HANDLE: an Ethernet CQ
 * @id: of the device; MANA_IB_NO_ID as long as an Ethernet CQ has no queue
 * @vector: completion vector
 * @extended: entries are those of the extension
 * @kernel: polled by us
 * @resize_lock: one resize at a time
 * @umem: ring of a user
 * @buffer: ring of the kernel
 * @record: shared with the device, extended CQs of the kernel
 * @hook: what the parent calls for completion events
 * @target: references of event handlers
 * @lock: protects what follows: polling and arming
 * @consumer: entries taken, counted from @entries on
 * @entries: in the ring, a power of two
 * @arm_sequence: of the last arm
 * @armed: the user waits for an event
 * @rung: consumer at the last stock doorbell
 * @flushing: queues whose requests are completed by software
 */
struct mana_ib_cq {
	struct ib_cq ibcq;
	u64 handle;
	u32 id;
	u32 vector;
	bool extended;
	bool kernel;
	struct mutex resize_lock; /* umem and size of a user's ring */
	struct ib_umem *umem;
	struct mana_ib_buffer buffer;
	struct mana_hw_ext_cq_record *record;
	struct mana_ib_hook *hook;
	struct mana_ib_event_target target;
	spinlock_t lock; /* polling and arming */
	u32 consumer;
	u32 entries;
	u32 arm_sequence;
	bool armed;
	u32 rung;
	struct list_head flushing;
};

static inline struct mana_ib_cq *to_mana_cq(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct mana_ib_cq, ibcq);
}

/* cq_hook.c */
int mana_ib_hook_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq);
void mana_ib_mute_cq(struct mana_ib_cq *cq);
void mana_ib_unhook_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq);

/* cq.c */
int mana_ib_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int mana_ib_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);

#endif
