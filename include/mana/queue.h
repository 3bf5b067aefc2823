/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) OR Apache-2.0 */
/*
 * Queues of the GDMA engine: work queue entries, completion and event queue
 * entries, owner bits, doorbells (GDMA 3).
 */
#ifndef MANA_QUEUE_H
#define MANA_QUEUE_H

#include <mana/types.h>

/* Queue types (GDMA 3.1). */
#define MANA_HW_QUEUE_SQ 1
#define MANA_HW_QUEUE_RQ 2
#define MANA_HW_QUEUE_CQ 3
#define MANA_HW_QUEUE_EQ 4

/*
 * Work queue entry (GDMA 3.3, RNIC 3.4): header, inline OOB, SGEs; starts at a
 * multiple of the unit and is padded to one. Positions in a work queue are
 * running byte counts modulo 2^32.
 */
#define MANA_HW_WQE_UNIT 32
#define MANA_HW_SQ_WQE_MAX_BYTES 512
#define MANA_HW_RQ_WQE_MAX_BYTES 256

struct mana_hw_wqe_header {
	uint32_t word0;
	uint32_t word1;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_wqe_header, 8);

/* word0 */
#define MANA_HW_WQE_PADDING_COUNT MANA_HW_BITS32(4, 0) /* SGEs that only fill the last unit */
#define MANA_HW_WQE_LAST_VBYTES MANA_HW_BITS32(31, 24) /* TSO: bytes of packet headers */
#define MANA_HW_WQE_LAST_VBYTES_SHIFT 24
/* word1 */
#define MANA_HW_WQE_SGE_COUNT MANA_HW_BITS32(7, 0)
#define MANA_HW_WQE_OOB_CODE MANA_HW_BITS32(10, 8) /* inline OOB length, MANA_HW_OOB_* */
#define MANA_HW_WQE_OOB_CODE_SHIFT 8
#define MANA_HW_WQE_OOB_IN_SGL MANA_HW_BITS32(11, 11) /* SGE 0 is header data */
#define MANA_HW_WQE_CONSUME_CREDIT MANA_HW_BITS32(12, 12)
#define MANA_HW_WQE_FENCE MANA_HW_BITS32(13, 13)
#define MANA_HW_WQE_DATA_UNIT MANA_HW_BITS32(29, 16) /* MSS or path MTU */
#define MANA_HW_WQE_DATA_UNIT_SHIFT 16
#define MANA_HW_WQE_CHECK_SN MANA_HW_BITS32(30, 30)
#define MANA_HW_WQE_DIRECT_SGL MANA_HW_BITS32(31, 31)

#define MANA_HW_OOB_SMALL 2 /* 8 bytes */
#define MANA_HW_OOB_LARGE 6 /* 24 bytes */
#define MANA_HW_OOB_EXTRA_LARGE 7 /* 24 bytes, and 16 more where the first SGE would be */

struct mana_hw_sge {
	uint64_t address;
	uint32_t key;
	uint32_t length;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_sge, 16);
MANA_HW_AT(struct mana_hw_sge, key, 8);
MANA_HW_AT(struct mana_hw_sge, length, 12);

/* An SGE list that is meant to be empty holds this one, with key 0 and length 0. */
#define MANA_HW_DUMMY_SGE_ADDRESS 1

/*
 * Completion queue entry (GDMA 3.5). The word with the owner bits is written
 * last. A ring of N entries is counted from N on: entry i lies at i mod N, its
 * owner bits are i / N mod 8 (GDMA 3.7).
 */
struct mana_hw_cqe {
	uint8_t data[60];
	uint32_t word;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_cqe, 64);
MANA_HW_AT(struct mana_hw_cqe, word, 60);

#define MANA_HW_CQE_QUEUE_ID MANA_HW_BITS32(23, 0)
#define MANA_HW_CQE_IS_SQ MANA_HW_BITS32(24, 24)
#define MANA_HW_OWNER_BITS MANA_HW_BITS32(31, 29) /* of CQE and EQE */
#define MANA_HW_OWNER_SHIFT 29
#define MANA_HW_OWNER_MASK 7U

/* Event queue entry (GDMA 3.6); owner bits as in a CQE. */
struct mana_hw_eqe {
	uint32_t data[3];
	uint32_t word;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eqe, 16);
MANA_HW_AT(struct mana_hw_eqe, word, 12);

#define MANA_HW_EQE_TYPE MANA_HW_BITS32(7, 0)
#define MANA_HW_EQE_CLIENT_ID MANA_HW_BITS32(17, 16)

#define MANA_HW_EQE_COMPLETION 3 /* data[0] 23:0 = CQ id */
#define MANA_HW_EQE_TEST 64
#define MANA_HW_EQE_HWC_INIT_EQ_DB 129 /* data[0] 15:0 = EQ id, 31:16 = doorbell page */
#define MANA_HW_EQE_HWC_INIT_DATA 130 /* data[0] 23:0 = value, 31:24 = MANA_HW_INIT_* */
#define MANA_HW_EQE_HWC_INIT_DONE 131
#define MANA_HW_EQE_FPGA_RECONFIG 132
#define MANA_HW_EQE_RECONFIG_DATA 133 /* data[0] 23:0 = value, 31:24 = MANA_HW_RECONFIG_* */
#define MANA_HW_EQE_SOC_SERVICE 134 /* data[0] 27:0 = value, 31:28 = MANA_HW_SOC_* */
#define MANA_HW_EQE_RESET_REQUEST 135
#define MANA_HW_EQE_QP_FATAL 176 /* data[0] = QP number */

/* Kinds of MANA_HW_EQE_RECONFIG_DATA (GDMA 4.8). */
#define MANA_HW_RECONFIG_HWC_TIMEOUT 1 /* value = milliseconds */
#define MANA_HW_RECONFIG_LINK_UP 2
#define MANA_HW_RECONFIG_LINK_DOWN 3
#define MANA_HW_RECONFIG_SHIFT 24
/* Kinds of MANA_HW_EQE_SOC_SERVICE. */
#define MANA_HW_SOC_RDMA_SUSPEND 1
#define MANA_HW_SOC_RDMA_RESUME 2
#define MANA_HW_SOC_SHIFT 28

/*
 * Doorbells: offsets in a doorbell page, and the fields of the 64-bit values
 * (GDMA 3.8, 3.9). One 8-byte store each.
 */
#define MANA_HW_DB_SQ 0x000
#define MANA_HW_DB_RQ 0x400
#define MANA_HW_DB_RQ_CLIENT 0x408 /* arm a send completion at a PSN (RNIC 3.8) */
#define MANA_HW_DB_CQ 0x800
#define MANA_HW_DB_CQ_MODERATION 0x820
#define MANA_HW_DB_EQ 0xff8
/* Short doorbells of 32-bit user space: relative. */
#define MANA_HW_DB_SQ_SHORT 0x010
#define MANA_HW_DB_RQ_SHORT 0x410
#define MANA_HW_DB_CQ_SHORT 0x810
#define MANA_HW_DB_EQ_SHORT 0xff0

#define MANA_HW_DB_ID MANA_HW_BITS64(23, 0) /* SQ, RQ, CQ */
#define MANA_HW_DB_EQ_ID MANA_HW_BITS64(15, 0)
#define MANA_HW_DB_WQE_COUNT_SHIFT 24 /* RQ: WQEs posted, mod 256; RQ-client: 1 */
#define MANA_HW_DB_POSITION_SHIFT 32 /* SQ, RQ: 32 bits, bytes; RQ-client: 24 bits, PSN */
#define MANA_HW_DB_INDEX MANA_HW_BITS64(62, 32) /* CQ, EQ: entries mod 8N */
#define MANA_HW_DB_INDEX_SHIFT 32
#define MANA_HW_DB_ARM MANA_HW_BITS64(63, 63) /* CQ, EQ */

/* Of MANA_HW_DB_CQ_MODERATION, beside the id; a value counts if its valid bit is set. */
#define MANA_HW_DB_MODERATION_USEC MANA_HW_BITS64(41, 32)
#define MANA_HW_DB_MODERATION_USEC_SHIFT 32
#define MANA_HW_DB_MODERATION_USEC_VALID MANA_HW_BITS64(47, 47)
#define MANA_HW_DB_MODERATION_COUNT MANA_HW_BITS64(55, 48)
#define MANA_HW_DB_MODERATION_COUNT_SHIFT 48
#define MANA_HW_DB_MODERATION_COUNT_VALID MANA_HW_BITS64(63, 63)

#define MANA_HW_DB_SHORT_INCREMENT MANA_HW_BITS32(15, 0)
#define MANA_HW_DB_SHORT_ID MANA_HW_BITS32(27, 16)
#define MANA_HW_DB_SHORT_ID_SHIFT 16
#define MANA_HW_DB_SHORT_ARM MANA_HW_BITS32(31, 31)

static inline uint64_t mana_hw_wq_doorbell(uint32_t id, uint8_t wqe_count, uint32_t position)
{
	return (uint64_t)position << MANA_HW_DB_POSITION_SHIFT |
	       (uint64_t)wqe_count << MANA_HW_DB_WQE_COUNT_SHIFT | (id & 0xffffffU);
}

static inline uint64_t mana_hw_rq_client_doorbell(uint32_t id, uint32_t psn)
{
	return (uint64_t)(psn & 0xffffffU) << MANA_HW_DB_POSITION_SHIFT |
	       (uint64_t)1 << MANA_HW_DB_WQE_COUNT_SHIFT | (id & 0xffffffU);
}

/* Of a CQ or an EQ; index is already reduced modulo 8N. */
static inline uint64_t mana_hw_entry_doorbell(uint32_t id, uint32_t index, int arm)
{
	return (arm ? MANA_HW_DB_ARM : 0) |
	       ((uint64_t)index << MANA_HW_DB_INDEX_SHIFT & MANA_HW_DB_INDEX) | (id & 0xffffffU);
}

#endif /* MANA_QUEUE_H */
