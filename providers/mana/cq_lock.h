/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MANA_CQ_LOCK_H
#define MANA_CQ_LOCK_H

#include <sched.h>

#include "mana.h"

/* One of a CQ's two locks. */
static inline void mana_lock_unless_paused(const struct mana_cq *cq, struct mana_lock *lock)
{
	mana_lock(lock);
	while (MANA_UNLIKELY(cq->paused)) {
		mana_unlock(lock);
		sched_yield();
		mana_lock(lock);
	}
}

/* While it is resized nobody reads the ring: a poll that finds it empty would lose an event. */
static inline void mana_cq_lock(struct mana_cq *cq)
{
	mana_lock_unless_paused(cq, &cq->lock);
}

static inline void mana_cq_unlock(struct mana_cq *cq)
{
	mana_unlock(&cq->lock);
}

/* Armings wait, too, which may come from within a poll. */
void mana_cq_lock_all(struct mana_cq *cq);
void mana_cq_unlock_all(struct mana_cq *cq);
/*
 * From pause to resume polls and armings wait, and no lock is held. One caller at a
 * time gets there.
 */
void mana_cq_pause(struct mana_cq *cq);
void mana_cq_resume(struct mana_cq *cq);
/* Locks what is paused. */
void mana_cq_relock_all(struct mana_cq *cq);

#endif
