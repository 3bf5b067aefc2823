// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "dp_cqe.h"

void mana_dp_cq_init(struct mana_dp_cq *cq, void *ring, uint32_t entries,
		     struct mana_hw_ext_cq_record *record, const struct mana_dp_table *sq_table,
		     const struct mana_dp_table *rq_table)
{
	memset(cq, 0, sizeof(*cq));
	cq->sq_table = sq_table;
	cq->rq_table = rq_table;
	cq->ready_tail = &cq->ready;
	mana_dp_cq_replace(cq, ring, entries, record, entries);
	if (record)
		mana_store_device(&record->consumer, cq->consumer);
}

void mana_dp_cq_replace(struct mana_dp_cq *cq, void *ring, uint32_t entries,
			struct mana_hw_ext_cq_record *record, uint32_t consumer)
{
	cq->ring = ring;
	cq->entries = entries;
	cq->shift = mana_log2(entries);
	cq->record = record;
	cq->consumer = consumer;
	cq->told_at = consumer;
}

static uint32_t counter_mask(const struct mana_dp_cq *cq)
{
	return 8 * cq->entries - 1;
}

/*
 * One that does not arm might undo an arming that came before it. So both are rung
 * under the lock, and this one only if no arming has told the device meanwhile.
 */
void mana_dp_cq_tell(struct mana_dp_cq *cq)
{
	mana_lock(&cq->arm_lock);
	if (cq->consumer - cq->told_at >= MANA_DP_CQ_LAPS * cq->entries) {
		mana_store_relaxed(&cq->told_at, cq->consumer);
		mana_doorbell(cq->doorbell, MANA_HW_DB_CQ,
			      mana_hw_entry_doorbell(cq->id, (cq->consumer - 1) & counter_mask(cq),
						     0));
	}
	mana_unlock(&cq->arm_lock);
}

/*
 * Hardware seems to ignore an arming with the counter of the one before, so the
 * counter moves on even if nothing was polled meanwhile; not farther than a lap,
 * for it must not look older than the CQEs to come (RNIC 4.4). A poller may go on
 * meanwhile: at worst the device sends an event for what was taken already.
 */
static void arm_stock(struct mana_dp_cq *cq)
{
	uint32_t consumer = mana_load_relaxed(&cq->consumer);
	uint32_t counter = consumer;

	if (cq->was_armed && cq->armed_at - consumer < cq->entries - 1)
		counter = cq->armed_at + 1;
	cq->was_armed = true;
	cq->armed_at = counter;
	mana_store_relaxed(&cq->told_at, consumer);
	mana_doorbell(cq->doorbell, MANA_HW_DB_CQ,
		      mana_hw_entry_doorbell(cq->id, counter & counter_mask(cq), 1));
}

/* An arming that is behind the newest CQE has its event at once (RNIC 4.4). */
void mana_dp_cq_wake(struct mana_dp_cq *cq)
{
	mana_lock(&cq->arm_lock);
	if (!cq->record && cq->was_armed)
		mana_doorbell(cq->doorbell, MANA_HW_DB_CQ,
			      mana_hw_entry_doorbell(cq->id,
						     (mana_load_relaxed(&cq->consumer) - 1) &
							     counter_mask(cq),
						     1));
	mana_unlock(&cq->arm_lock);
}

/*
 * Between two armings for all completions the first may have had its event, which
 * lies unread, so the event that comes next may not be that of the second. One
 * event too many does no harm; two are enough not to count for ever.
 */
static void expect_event(struct mana_dp_cq *cq)
{
	if (mana_load_relaxed(&cq->any_events) < 2)
		(void)__atomic_add_fetch(&cq->any_events, 1, __ATOMIC_RELAXED);
}

void mana_dp_cq_event(struct mana_dp_cq *cq)
{
	uint32_t events = mana_load_relaxed(&cq->any_events);

	while (events && !__atomic_compare_exchange_n(&cq->any_events, &events, events - 1, true,
						      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

void mana_dp_cq_arm_ring(struct mana_dp_cq *cq, bool solicited)
{
	if (!cq->record) {
		arm_stock(cq);
		return;
	}
	if (solicited)
		solicited = !mana_load_relaxed(&cq->any_events);
	else
		expect_event(cq);
	/* The record's consumer is the poller's, and no event depends on it. */
	cq->arm_sequence++;
	mana_store_device(&cq->record->arm,
			  cq->arm_sequence << MANA_HW_EXT_ARM_SEQUENCE_SHIFT |
				  (solicited ? MANA_HW_EXT_ARM_SOLICITED : 0));
	/* The caller's next poll must not be earlier than the arming. */
	mana_full_barrier();
}
