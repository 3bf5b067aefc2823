/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Data path of the provider: what both queue formats share. The dp_* files need
 * libc and the headers of the hardware ABI, not libibverbs, so that they also
 * build into tests beside the device model.
 *
 * The caller serialises the posts of one queue, the polls of one CQ, and its
 * armings; a post and a poll of the same QP may run at the same time, and so may a
 * poll and an arming of the same CQ, which is why the indices that both look at are
 * read and written as atomics.
 */
#ifndef MANA_DP_BASE_H
#define MANA_DP_BASE_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <mana/ext_queue.h>
#include <mana/queue.h>
#include <mana/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MANA_ALWAYS_INLINE inline __attribute__((always_inline))
#define MANA_LIKELY(x) __builtin_expect(!!(x), 1)
#define MANA_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Longest message of a work request (IBTA 9.7.2). */
#define MANA_DP_MAX_MESSAGE 0x80000000u

static inline uint32_t mana_load_acquire(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline uint32_t mana_load_relaxed(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void mana_store_relaxed(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline void mana_store_release(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Flags that one thread changes while another looks at them. */
static inline bool mana_load_flag(const bool *flag)
{
	return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

static inline void mana_store_flag(bool *flag, bool value)
{
	__atomic_store_n(flag, value, __ATOMIC_RELAXED);
}

/*
 * Orders earlier stores before later loads: the barrier of doorbell records. The
 * device is no CPU of this machine, so it has to be what kernels call mb(): of the
 * fence among threads compilers make a locked instruction, which QEMU without KVM
 * executes as a plain one where the machine has a single CPU.
 */
static inline void mana_full_barrier(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__asm__ volatile("mfence" ::: "memory");
#elif defined(__aarch64__)
	/* the compiler's fence ends at the CPUs' domain, where the device may not be */
	__asm__ volatile("dmb osh" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/*
 * Words of queues and records, which the device writes and reads. What the other side
 * wrote before a word is seen by whoever has seen the word, as with acquire and
 * release; but those of ARM order among CPUs alone.
 */
static inline uint32_t mana_load_device(const uint32_t *word)
{
#ifdef __aarch64__
	uint32_t value = __atomic_load_n(word, __ATOMIC_RELAXED);

	__asm__ volatile("dmb oshld" ::: "memory");
	return value;
#else
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}

static inline void mana_store_device(uint32_t *word, uint32_t value)
{
#ifdef __aarch64__
	/* not oshst: what was read before, an index gives back to the device */
	__asm__ volatile("dmb osh" ::: "memory");
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
#else
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}

/*
 * The page is mapped write-combining: the first barrier orders the queue memory
 * before the doorbell, the second pushes the doorbell out.
 */
static inline void mana_write_barrier(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__asm__ volatile("sfence" ::: "memory");
#elif defined(__aarch64__)
	__asm__ volatile("dsb st" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* i386 aligns what is not told to 4 bytes, and compilers see no single store then. */
typedef uint64_t mana_register __attribute__((aligned(8)));

#ifdef MANA_DP_DOORBELL
/* A test stands where the mapped page would be. */
void MANA_DP_DOORBELL(void *page, uint32_t offset, uint64_t value);
static inline void mana_doorbell(void *page, uint32_t offset, uint64_t value)
{
	MANA_DP_DOORBELL(page, offset, value);
}
#else
static inline void mana_doorbell(void *page, uint32_t offset, uint64_t value)
{
	mana_register *at = (mana_register *)((uint8_t *)page + offset);

	mana_write_barrier();
	/* one store, also where words are of 32 bits: the device takes no half of it */
	__atomic_store_n(at, value, __ATOMIC_RELAXED);
	mana_write_barrier();
}
#endif

#define MANA_PSN_WINDOW 0x800000u /* PSNs of less than this many packets can be compared */

/* a is newer than b, in PSN arithmetic (RNIC 0). */
static inline bool mana_psn_after(uint32_t a, uint32_t b)
{
	uint32_t distance = (a - b) & MANA_HW_RNIC_24BIT;

	return distance != 0 && distance < MANA_PSN_WINDOW;
}

/* Smallest power of two that is not below n; 0 if there is none. */
static inline uint32_t mana_round_up_power(uint64_t n)
{
	uint32_t power = 1;

	while (power < n && power)
		power <<= 1;
	return power;
}

static inline uint32_t mana_round_up(uint32_t value, uint32_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static inline unsigned int mana_log2(uint32_t power)
{
	return 31 - (unsigned int)__builtin_clz(power);
}

/* The layout of struct ibv_sge. */
struct mana_dp_sge {
	uint64_t address;
	uint32_t length;
	uint32_t lkey;
};

/* Where a datagram goes. */
struct mana_dp_av {
	struct mana_hw_ext_ud ud; /* all but QPN and Q_Key */
	uint64_t stock_address; /* of a struct mana_hw_rnic_av; 0: not for stock QPs */
	uint32_t stock_lkey;
};

/* A send work request. Only what its opcode needs is looked at. */
struct mana_dp_send {
	uint64_t wr_id;
	const struct mana_dp_sge *sge;
	uint32_t sge_count;
	uint8_t opcode; /* enum mana_hw_ext_wqe_opcode */
	uint8_t flags; /* MANA_HW_EXT_WQE_* */
	bool checksums; /* raw packets: those that the packet has */
	uint32_t value; /* immediate as a number, or the rkey to invalidate */
	uint64_t remote_address;
	uint32_t rkey;
	uint64_t swap_add;
	uint64_t compare;
	const struct mana_dp_av *av;
	uint32_t dest_qpn;
	uint32_t qkey;
	struct mana_hw_ext_bind bind;
};

/* Opcodes and flags of completions have the numbers of ibv_wc_opcode and ibv_wc_flags. */
enum mana_wc_opcode {
	MANA_WC_SEND = 0,
	MANA_WC_RDMA_WRITE = 1,
	MANA_WC_RDMA_READ = 2,
	MANA_WC_COMP_SWAP = 3,
	MANA_WC_FETCH_ADD = 4,
	MANA_WC_BIND_MW = 5,
	MANA_WC_LOCAL_INV = 6,
	MANA_WC_RECV = 128,
	MANA_WC_RECV_RDMA_WITH_IMM = 129
};

#define MANA_WC_GRH (1u << 0)
#define MANA_WC_WITH_IMM (1u << 1)
#define MANA_WC_IP_CSUM_OK (1u << 2)
#define MANA_WC_WITH_INV (1u << 3)

/*
 * What the completion of a datagram has as its service level, which RoCE has none of:
 * what packet it was (IBTA A17.4.5.1), in ConnectX's numbers, for there are programs
 * that find the GRH's addresses by it.
 */
#define MANA_WC_SL_UDP (1u << 3) /* RoCEv2: there is a UDP header */
#define MANA_WC_SL_IPV4 2u
#define MANA_WC_SL_IPV6 1u
#define MANA_WC_SL_PRIORITY_SHIFT 4 /* of the tag, if it came in a VLAN */

static inline uint8_t mana_wc_sl(bool ipv4)
{
	return MANA_WC_SL_UDP | (ipv4 ? MANA_WC_SL_IPV4 : MANA_WC_SL_IPV6);
}

struct mana_completion {
	uint64_t wr_id;
	uint64_t timestamp;
	uint32_t qpn;
	uint32_t length;
	uint32_t value; /* immediate as a number, or the rkey that was invalidated */
	uint32_t source_qpn;
	uint32_t vendor_error;
	uint8_t status; /* enum mana_hw_wc_status */
	uint8_t opcode;
	uint8_t flags;
	uint8_t sl; /* mana_wc_sl() of a datagram, otherwise 0 */
};

/* One receive of a ring, until its completion is polled. */
struct mana_dp_receive {
	uint64_t wr_id;
	uint32_t start; /* stock: where its WQE starts, running bytes */
	uint32_t end; /* stock: where the next one starts */
};

enum mana_dp_format {
	MANA_DP_RC, /* stock RC: struct mana_stock_qp */
	MANA_DP_UD, /* stock UD: struct mana_stock_qp */
	MANA_DP_EXT, /* extended: struct mana_ext_qp */
	MANA_DP_PACKET, /* raw packets: struct mana_packet_qp */
	MANA_DP_RAW /* raw packets that the program runs itself: no data path */
};

struct mana_dp_cq;

/*
 * First member of the QP of each format, whose tag is `format`. The formats' own
 * functions (mana_stock_of, mana_ext_of) give the QP behind it, or NULL if it is of
 * another one.
 */
struct mana_dp_qp {
	enum mana_dp_format format;
	uint32_t qpn;
	void *doorbell;
	struct mana_dp_cq *send_cq;
	struct mana_dp_cq *recv_cq;
};

#ifdef __cplusplus
}
#endif
#endif
