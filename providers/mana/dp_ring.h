/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Rings of WQEs in the format of the public ABI, RDMA's and Ethernet's (GDMA 3.3). */
#ifndef MANA_DP_RING_H
#define MANA_DP_RING_H

#include <stdlib.h>

#include "dp_base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MANA_SEND_HEAD_BYTES 32u /* header and OOB; never wraps (RNIC 3.3) */
#define MANA_RECV_HEAD_BYTES 16u

/* A ring of WQEs; positions are running bytes. */
struct mana_dp_ring {
	uint8_t *base;
	uint32_t bytes; /* a power of two */
	uint32_t id;
	uint32_t producer;
	uint32_t consumer; /* written by the poller */
};

/* Memory that inline data is copied to, a slot for each send; stride 0: none. */
struct mana_dp_inline {
	uint8_t *base;
	uint64_t address;
	uint32_t stride;
	uint32_t lkey;
};

/* The slot with the data, as the device finds it. */
static inline struct mana_dp_sge mana_inline_sge(const struct mana_dp_inline *slots, uint32_t slot,
						 uint32_t length)
{
	struct mana_dp_sge sge = {
		.address = slots->address + (uint64_t)slot * slots->stride,
		.length = length,
		.lkey = slots->lkey,
	};

	return sge;
}

static inline void mana_inline_copy(const struct mana_dp_inline *slots, uint32_t slot,
				    const struct mana_dp_send *wr)
{
	uint8_t *out = slots->base + (size_t)slot * slots->stride;

	for (uint32_t i = 0; i < wr->sge_count; i++) {
		memcpy(out, (const void *)(uintptr_t)wr->sge[i].address, wr->sge[i].length);
		out += wr->sge[i].length;
	}
}

static inline uint32_t mana_at_least_one(uint32_t n)
{
	return n ? n : 1;
}

/* One send, until it is reported or vanishes. */
struct mana_dp_sent {
	uint64_t wr_id;
	uint32_t end; /* where the next WQE starts */
	uint32_t length;
	uint32_t last_psn; /* RC */
	uint16_t read_bytes; /* RC: of its WQE in the requester RQ */
	uint8_t opcode; /* enum mana_wc_opcode */
	bool signaled;
};

/* What the poster of sends keeps. The poller has the tail, on a line of its own. */
struct mana_dp_sends {
	struct mana_dp_ring ring;
	struct mana_dp_sent *slot;
	uint32_t mask;
	uint32_t head;
	uint32_t max;
	uint32_t max_sge;
	uint32_t posted; /* ring.producer that the device was told */
	bool signal_all;
	bool allowed; /* by the state of the QP */
	struct mana_dp_inline inline_slots;
};

/* The same of receives. */
struct mana_dp_receives {
	struct mana_dp_ring ring;
	struct mana_dp_receive *slot;
	uint32_t mask;
	uint32_t head;
	uint32_t max;
	uint32_t max_sge;
	bool allowed;
};

/* What both queues of a QP are made of. Memory is the caller's, zeroed, and outlives the QP. */
struct mana_dp_queues {
	uint32_t max_send;
	uint32_t max_send_sge;
	uint32_t max_recv;
	uint32_t max_recv_sge;
	bool signal_all;
	uint8_t *sq; /* stock RC: followed by the rollback area */
	uint8_t *rq;
};

/* Of zeroed structures; 0 or ENOMEM, which leaves nothing behind. */
static inline int mana_queues_init(struct mana_dp_sends *sends, struct mana_dp_receives *receives,
				   const struct mana_dp_queues *attr, uint32_t sq_bytes,
				   uint32_t rq_bytes)
{
	uint32_t sent = mana_round_up_power(mana_at_least_one(attr->max_send));
	uint32_t received = mana_round_up_power(mana_at_least_one(attr->max_recv));

	sends->slot = (struct mana_dp_sent *)calloc(sent, sizeof(*sends->slot));
	receives->slot = (struct mana_dp_receive *)calloc(received, sizeof(*receives->slot));
	if (!sends->slot || !receives->slot) {
		free(sends->slot);
		free(receives->slot);
		sends->slot = NULL;
		receives->slot = NULL;
		return ENOMEM;
	}
	sends->mask = sent - 1;
	sends->max = attr->max_send;
	sends->max_sge = attr->max_send_sge;
	sends->signal_all = attr->signal_all;
	sends->ring.base = attr->sq;
	sends->ring.bytes = sq_bytes;
	receives->mask = received - 1;
	receives->max = attr->max_recv;
	receives->max_sge = attr->max_recv_sge;
	receives->ring.base = attr->rq;
	receives->ring.bytes = rq_bytes;
	return 0;
}

static inline void mana_queues_free(struct mana_dp_sends *sends, struct mana_dp_receives *receives)
{
	free(sends->slot);
	free(receives->slot);
	sends->slot = NULL;
	receives->slot = NULL;
}

static inline uint32_t mana_send_wqe_bytes(uint32_t sges)
{
	return mana_round_up(MANA_SEND_HEAD_BYTES + sges * (uint32_t)sizeof(struct mana_hw_sge),
			     MANA_HW_WQE_UNIT);
}

static inline uint32_t mana_recv_wqe_bytes(uint32_t sges)
{
	return mana_round_up(MANA_RECV_HEAD_BYTES + sges * (uint32_t)sizeof(struct mana_hw_sge),
			     MANA_HW_WQE_UNIT);
}

static inline uint32_t mana_ring_bytes(uint32_t wqes, uint32_t wqe_bytes)
{
	uint64_t bytes = (uint64_t)wqes * wqe_bytes;

	return mana_round_up_power(bytes < MANA_HW_PAGE_BYTES ? MANA_HW_PAGE_BYTES : bytes);
}

static inline void mana_ring_rewind(struct mana_dp_ring *ring)
{
	ring->producer = 0;
	ring->consumer = 0;
}

/* RESET: all that was posted is forgotten. */
static inline void mana_queues_rewind(struct mana_dp_sends *sends,
				      struct mana_dp_receives *receives)
{
	mana_ring_rewind(&sends->ring);
	sends->head = 0;
	sends->posted = 0;
	mana_ring_rewind(&receives->ring);
	receives->head = 0;
}

/* Bytes of the ring that no outstanding WQE holds. */
static inline uint32_t mana_ring_space(const struct mana_dp_ring *ring)
{
	return ring->bytes - (ring->producer - mana_load_acquire(&ring->consumer));
}

/*
 * Memory for a WQE at the producer: the ring itself, or `scratch` if the WQE
 * goes over the end of the ring.
 */
static inline uint8_t *mana_wqe_begin(const struct mana_dp_ring *ring, uint32_t bytes,
				      uint8_t *scratch)
{
	uint32_t offset = ring->producer & (ring->bytes - 1);

	return bytes <= ring->bytes - offset ? ring->base + offset : scratch;
}

/*
 * Zeros from `used` to the end of the WQE, both multiples of an SGE: one SGE or none,
 * which a call of memset() would be dear for.
 */
static inline void mana_wqe_pad(uint8_t *wqe, uint32_t used, uint32_t bytes)
{
	for (; used < bytes; used += (uint32_t)sizeof(struct mana_hw_sge))
		memset(wqe + used, 0, sizeof(struct mana_hw_sge));
}

static inline void mana_wqe_end(struct mana_dp_ring *ring, const uint8_t *wqe,
				uint32_t bytes)
{
	uint32_t offset = ring->producer & (ring->bytes - 1);

	if (wqe != ring->base + offset) {
		uint32_t first = ring->bytes - offset;

		memcpy(ring->base + offset, wqe, first);
		memcpy(ring->base, wqe + first, bytes - first);
	}
	ring->producer += bytes;
}

/* SGEs, or the one that stands for none; returns how many. */
static inline uint32_t mana_put_sges(uint8_t *at, const struct mana_dp_sge *sge, uint32_t count)
{
	struct mana_hw_sge *out = (struct mana_hw_sge *)at;

	if (!count) {
		out->address = MANA_HW_DUMMY_SGE_ADDRESS;
		out->key = 0;
		out->length = 0;
		return 1;
	}
	for (uint32_t i = 0; i < count; i++) {
		out[i].address = sge[i].address;
		out[i].key = sge[i].lkey;
		out[i].length = sge[i].length;
	}
	return count;
}

static inline uint64_t mana_sges_length(const struct mana_dp_sge *sge, uint32_t count)
{
	uint64_t length = 0;

	for (uint32_t i = 0; i < count; i++)
		length += sge[i].length;
	return length;
}

#ifdef __cplusplus
}
#endif
#endif
