// SPDX-License-Identifier: GPL-2.0
/* Asynchronous events of QPs, CQs and SRQs: whom they are about, and for how long. */
#include "event.h"
#include "trace.h"

/**
 * mana_ib_target_init - prepares an object for events, before it is tracked
 * @target: part of the object
 * @event: tells the object's user, in hard interrupt context
 */
void mana_ib_target_init(struct mana_ib_event_target *target,
			 void (*event)(struct mana_ib_event_target *target,
				       enum ib_event_type type))
{
	refcount_set(&target->references, 1);
	init_completion(&target->released);
	target->event = event;
}

/**
 * mana_ib_target_get - finds an object and takes a reference to it
 * @table: of its kind
 * @id: that the device gave it
 *
 * Return: NULL if there is no such object.
 */
struct mana_ib_event_target *mana_ib_target_get(struct xarray *table, u32 id)
{
	struct mana_ib_event_target *target;
	unsigned long flags;

	xa_lock_irqsave(table, flags);
	target = xa_load(table, id);
	if (target)
		refcount_inc(&target->references);
	xa_unlock_irqrestore(table, flags);
	return target;
}

/**
 * mana_ib_target_put - gives a reference back
 * @target: from mana_ib_target_get()
 */
void mana_ib_target_put(struct mana_ib_event_target *target)
{
	if (refcount_dec_and_test(&target->references))
		complete(&target->released);
}

/**
 * mana_ib_target_release - gives the owner's reference back
 * @target: not tracked any more; on return no event handler uses the object
 */
void mana_ib_target_release(struct mana_ib_event_target *target)
{
	mana_ib_target_put(target);
	wait_for_completion(&target->released);
}

/**
 * mana_ib_track - makes an object known to event handlers and pollers
 * @table: of its kind
 * @id: that the device gave it
 * @target: part of the object
 */
int mana_ib_track(struct xarray *table, u32 id,
		  struct mana_ib_event_target *target)
{
	return xa_insert_irq(table, id, target, GFP_KERNEL);
}

/**
 * mana_ib_untrack - undoes mana_ib_track()
 * @table: of its kind
 * @id: that the device gave it
 */
void mana_ib_untrack(struct xarray *table, u32 id)
{
	xa_erase_irq(table, id);
}

static void mana_ib_tell(struct xarray *table, u32 id, enum ib_event_type type)
{
	struct mana_ib_event_target *target = mana_ib_target_get(table, id);

	if (!target)
		return;
	target->event(target, type);
	mana_ib_target_put(target);
}

/**
 * mana_ib_event - the device tells an event, in hard interrupt context
 * @dev: device
 * @id: what it is about
 * @word: the extension's: the parent hands on the type QP-fatal alone, so the
 *	extension's events hide behind it (ext.h)
 */
void mana_ib_event(struct mana_ib_dev *dev, u32 id, u32 word)
{
	u32 type = MANA_HW_EXT_EVENT_QP_FATAL;

	if (dev->ext.features && word & MANA_HW_EXT_EVENT_MARK)
		type = word & ~MANA_HW_EXT_EVENT_MARK;

	trace_async_event(dev, type, id);
	switch (type) {
	case MANA_HW_EXT_EVENT_QP_FATAL:
	case MANA_HW_EXT_EVENT_QP_REQUEST_ERROR:
	case MANA_HW_EXT_EVENT_QP_ACCESS_ERROR:
	case MANA_HW_EXT_EVENT_COMMUNICATION_ESTABLISHED:
	case MANA_HW_EXT_EVENT_SQ_DRAINED:
	case MANA_HW_EXT_EVENT_LAST_WQE_REACHED:
		mana_ib_tell(&dev->qps, id, (enum ib_event_type)type);
		break;
	case MANA_HW_EXT_EVENT_SRQ_ERROR:
	case MANA_HW_EXT_EVENT_SRQ_LIMIT:
		mana_ib_tell(&dev->srqs, id, (enum ib_event_type)type);
		break;
	case MANA_HW_EXT_EVENT_CQ_ERROR:
		mana_ib_tell(&dev->cqs, id, IB_EVENT_CQ_ERR);
		break;
	default:
		dev_warn_ratelimited(dev->parent,
				     "mana_ib: unknown event %u of %#x\n", type,
				     id);
	}
}
