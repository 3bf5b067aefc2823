/* SPDX-License-Identifier: GPL-2.0 */
/* Asynchronous events, and the objects that they may name. */
#ifndef MANA_IB_EVENT_H
#define MANA_IB_EVENT_H

#include "mana_ib.h"

/**
 * struct mana_ib_event_target - an object that asynchronous events may name
 * @references: the owner's, and one for each handler that uses the object
 * @released: there are none
 * @event: tells the object's user, in hard interrupt context
 */
struct mana_ib_event_target {
	refcount_t references;
	struct completion released;
	void (*event)(struct mana_ib_event_target *target,
		      enum ib_event_type type);
};

void mana_ib_target_init(struct mana_ib_event_target *target,
			 void (*event)(struct mana_ib_event_target *target,
				       enum ib_event_type type));
struct mana_ib_event_target *mana_ib_target_get(struct xarray *table, u32 id);
void mana_ib_target_put(struct mana_ib_event_target *target);
void mana_ib_target_release(struct mana_ib_event_target *target);
int mana_ib_track(struct xarray *table, u32 id,
		  struct mana_ib_event_target *target);
void mana_ib_untrack(struct xarray *table, u32 id);
void mana_ib_event(struct mana_ib_dev *dev, u32 id, u32 word);

#endif
