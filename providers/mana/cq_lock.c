// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "cq_lock.h"

void mana_cq_lock_all(struct mana_cq *cq)
{
	mana_cq_lock(cq);
	mana_lock(&cq->dp.arm_lock);
}

void mana_cq_unlock_all(struct mana_cq *cq)
{
	mana_unlock(&cq->dp.arm_lock);
	mana_unlock(&cq->lock);
}

void mana_cq_pause(struct mana_cq *cq)
{
	mana_cq_lock_all(cq);
	cq->paused = true;
	mana_cq_unlock_all(cq);
}

void mana_cq_relock_all(struct mana_cq *cq)
{
	mana_lock(&cq->lock);
	mana_lock(&cq->dp.arm_lock);
}

void mana_cq_resume(struct mana_cq *cq)
{
	mana_cq_relock_all(cq);
	cq->paused = false;
	mana_cq_unlock_all(cq);
}
