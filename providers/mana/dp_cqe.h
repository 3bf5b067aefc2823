/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MANA_DP_CQE_H
#define MANA_DP_CQE_H

#include "dp_table.h"
#include "lock.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The ring of a CQ: its CQEs, how far they were taken, what the device is told of that,
 * and its arming.
 */

struct mana_ext_qp;
struct mana_stock_side;
struct mana_packet_side;

/*
 * The consumer's side of a CQ of either kind. An extended CQ may also serve stock
 * QPs. Counters run from the number of entries on (RNIC 4.1).
 */
struct mana_dp_cq {
	struct mana_hw_cqe *ring;
	uint32_t entries; /* a power of two */
	uint32_t shift; /* its logarithm */
	uint32_t consumer; /* the poller's; arming a stock CQ looks at it */
	bool overrun; /* owner bits of no lap: nothing more can be read */
	struct mana_hw_ext_cq_record *record; /* extended CQs */
	uint32_t arm_sequence;
	uint32_t any_events; /* of armings for all completions, not fetched: 0 to 2 */
	uint32_t told_at; /* the consumer that the device knows: record, or last doorbell */
	/*
	 * The caller's for arming: not the lock of polling, which a thread that arms
	 * may hold. Where both are held, this is the inner one.
	 */
	struct mana_lock arm_lock;
	/* stock CQs */
	uint32_t id;
	void *doorbell;
	uint32_t armed_at; /* counter of the last arming */
	bool was_armed;
	/* whose completions: by the id in the CQE's frame */
	const struct mana_dp_table *sq_table;
	const struct mana_dp_table *rq_table;
	/* stock QPs with completions that need no CQE any more, or that failed */
	struct mana_stock_side *ready;
	struct mana_stock_side **ready_tail;
	struct mana_stock_side *failed;
	struct mana_stock_side *ended; /* will be failed; any thread adds to it, by an atomic */
	struct mana_stock_side *errors; /* not yet fetched by mana_dp_cq_next_error */
	struct mana_ext_qp *last; /* found for the extended CQE before this one */
	struct mana_packet_side *packets; /* a circle: whose turn it is; NULL: none */
	bool packets_first; /* their turn, or that of the ring */
};

/* `record`: NULL for a stock CQ. The ring is zeroed. */
void mana_dp_cq_init(struct mana_dp_cq *cq, void *ring, uint32_t entries,
		     struct mana_hw_ext_cq_record *record, const struct mana_dp_table *sq_table,
		     const struct mana_dp_table *rq_table);

/* Nobody polls or arms. The ring was resized: CQEs not taken start at `consumer` of the new one. */
void mana_dp_cq_replace(struct mana_dp_cq *cq, void *ring, uint32_t entries,
			struct mana_hw_ext_cq_record *record, uint32_t consumer);

/*
 * Under arm_lock; others may poll. The next CQE of this ring sends an event.
 * `solicited`: for such and errors alone, but all still count if that was asked for and
 * no event came (IBTA 11.4.2.2). A stock CQ has no such arming, and all count: who waits
 * for solicited ones has events that it can pass over, as with the kernel's CQs.
 */
void mana_dp_cq_arm_ring(struct mana_dp_cq *cq, bool solicited);
/* The application fetched an event. Needs no lock. */
void mana_dp_cq_event(struct mana_dp_cq *cq);

/*
 * There is something to poll that no CQE tells of: whoever waits for the event of an
 * arming has it now. Takes arm_lock. Extended CQs have no way to ask for it.
 */
void mana_dp_cq_wake(struct mana_dp_cq *cq);

/* A stock CQ is rung at least every 4 laps (RNIC 8.2). Takes arm_lock. */
#define MANA_DP_CQ_LAPS 4
void mana_dp_cq_tell(struct mana_dp_cq *cq);

/* The CQE at `position`, or NULL if the device has not written it. */
static inline const struct mana_hw_cqe *mana_dp_cq_peek(struct mana_dp_cq *cq, uint32_t position)
{
	const struct mana_hw_cqe *cqe = &cq->ring[position & (cq->entries - 1)];
	const void *at = (const uint8_t *)cqe + offsetof(struct mana_hw_cqe, word);
	const uint32_t *word = (const uint32_t *)at;
	uint32_t lap = position >> cq->shift & MANA_HW_OWNER_MASK;
	/* pairs with the device: data first, then the word with the owner bits */
	uint32_t owner = mana_load_device(word) >> MANA_HW_OWNER_SHIFT;

	if (MANA_LIKELY(owner == lap))
		return cqe;
	if (MANA_UNLIKELY(owner != ((lap - 1) & MANA_HW_OWNER_MASK)))
		cq->overrun = true;
	return NULL;
}

static inline void mana_dp_cq_advance(struct mana_dp_cq *cq)
{
	mana_store_relaxed(&cq->consumer, cq->consumer + 1);
}

/* Whether stock QPs have failed that may still have something to flush. */
static inline bool mana_dp_cq_has_failed(const struct mana_dp_cq *cq)
{
	return cq->failed || __atomic_load_n(&cq->ended, __ATOMIC_RELAXED);
}

/* After the last completion of a batch. */
static inline void mana_dp_cq_done(struct mana_dp_cq *cq)
{
	if (cq->record) {
		/* The device reads this cache line at each CQE: not written if nothing was taken */
		if (cq->consumer == cq->told_at)
			return;
		cq->told_at = cq->consumer;
		mana_store_device(&cq->record->consumer, cq->consumer);
	} else if (MANA_UNLIKELY(cq->consumer - mana_load_relaxed(&cq->told_at) >=
				 MANA_DP_CQ_LAPS * cq->entries)) {
		mana_dp_cq_tell(cq);
	}
}

/*
 * Before the next CQE of a batch: what was read so far has finished sends and receives,
 * in whose place others may be posted. The other half of the ring is for their CQEs.
 */
static inline void mana_dp_cq_go_on(struct mana_dp_cq *cq)
{
	if (cq->record && MANA_UNLIKELY(cq->consumer - cq->told_at >= cq->entries / 2))
		mana_dp_cq_done(cq);
}

#ifdef __cplusplus
}
#endif
#endif
