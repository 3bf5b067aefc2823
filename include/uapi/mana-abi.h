/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR Linux-OpenIB OR Apache-2.0 */
/*
 * What driver and provider say to each other beside the generic verbs: the
 * layouts of the stock pair (RNIC 5.3), and what OpenMANA adds behind them.
 *
 * What stands behind the stock part may mean something else in a stock pair that
 * comes. So a context has it only once somebody has asked, on its file, for
 * MANA_UAPI_ATTR_QUERY_CONTEXT_RESP, which no stock provider does and no stock driver
 * answers. In any other context, as with a stock driver, there is the stock part alone:
 * flags, tails and answers that are ours are refused, or absent.
 */
#ifndef OPENMANA_UAPI_MANA_ABI_H
#define OPENMANA_UAPI_MANA_ABI_H

#include <linux/types.h>

#define MANA_UAPI_VERSION 1

/*
 * Answer to "allocate context": empty, or (rdma-core 65) a mask with what the driver
 * has beyond that.
 */
struct mana_uapi_alloc_context_resp {
	__aligned_u64 comp_mask;
};

#define MANA_UAPI_MASK_RC_QUEUES (1u << 1) /* struct mana_uapi_create_rc_qp */

/* What a context of ours has, to who asks with MANA_UAPI_ATTR_QUERY_CONTEXT_RESP */
struct mana_uapi_context_resp {
	__u32 bytes; /* of this answer that the driver knows */
	__u32 flags;
	__aligned_u64 features; /* MANA_HW_EXT_* that user space may use; 0: no extension */
	__u32 max_send_wr;
	__u32 max_recv_wr;
	__u32 max_send_sge;
	__u32 max_recv_sge;
	__u32 max_inline_bytes;
	__u32 max_srq_wr;
	__u32 max_srq_sge;
	__u32 max_cqe;
	__u32 clock_khz;
	__u32 reserved;
};

#define MANA_UAPI_CONTEXT_USER_UD (1u << 0) /* UD QPs in the stock queue format exist */
#define MANA_UAPI_CONTEXT_DMAC (1u << 1) /* "create AH" answers with the destination MAC */
#define MANA_UAPI_CONTEXT_DM_COPIES (1u << 2) /* MANA_UAPI_METHOD_COPY_DM */

/*
 * Who makes a context, or has another's by its file, asks for what it has by one more
 * attribute of "query context". Methods of PDs and device memory answer whether there
 * is such an object. Numbers of a driver begin at 0x1000.
 */
enum mana_uapi_query_context_attrs {
	MANA_UAPI_ATTR_QUERY_CONTEXT_RESP = 0x1000, /* struct mana_uapi_context_resp */
};

enum mana_uapi_pd_methods {
	MANA_UAPI_METHOD_QUERY_PD = 0x1000,
};

enum mana_uapi_query_pd_attrs {
	MANA_UAPI_ATTR_QUERY_PD_HANDLE = 0x1000,
};

enum mana_uapi_dm_methods {
	MANA_UAPI_METHOD_QUERY_DM = 0x1000,
	MANA_UAPI_METHOD_COPY_DM,
};

enum mana_uapi_query_dm_attrs {
	MANA_UAPI_ATTR_QUERY_DM_HANDLE = 0x1000,
	MANA_UAPI_ATTR_QUERY_DM_LENGTH, /* __u64 */
};

/*
 * Copies between memory of the process and device memory, imported or not. All is
 * checked before but the process's memory: what lies before a bad page is copied.
 */
enum mana_uapi_copy_dm_attrs {
	MANA_UAPI_ATTR_COPY_DM_HANDLE = 0x1000,
	MANA_UAPI_ATTR_COPY_DM_OFFSET, /* __u64, in the device memory */
	MANA_UAPI_ATTR_COPY_DM_ADDRESS, /* __u64, in the process */
	MANA_UAPI_ATTR_COPY_DM_LENGTH, /* __u64; nothing is copied if it is 0 */
	MANA_UAPI_ATTR_COPY_DM_DIRECTION, /* __u32 */
};

#define MANA_UAPI_COPY_TO_DM 0u
#define MANA_UAPI_COPY_FROM_DM 1u

/* Create CQ */
struct mana_uapi_create_cq {
	__aligned_u64 address; /* of the ring; extended: of ring and record */
	__u16 flags;
	__u16 reserved0;
	__u32 reserved1;
};

#define MANA_UAPI_CQ_RNIC (1u << 0)
#define MANA_UAPI_CQ_EXTENDED (1u << 1) /* cqe is a power of two; a record follows the ring */

struct mana_uapi_create_cq_resp {
	__u32 cq_id;
	__u32 reserved;
};

/* Resize CQ: only extended ones */
struct mana_uapi_resize_cq {
	__aligned_u64 address; /* of the new ring and record */
	__u32 entries;
	__u32 reserved;
};

struct mana_uapi_resize_cq_resp {
	__u32 consumer; /* see struct mana_hw_ext_resize_cq_resp */
	__u32 reserved;
};

/* Create QP, connected or datagram. Index of a queue: */
#define MANA_UAPI_QP_REQUESTER_SQ 0 /* UD: the SQ */
#define MANA_UAPI_QP_RESPONDER_SQ 1 /* UD: none */
#define MANA_UAPI_QP_REQUESTER_RQ 2 /* UD: none */
#define MANA_UAPI_QP_RESPONDER_RQ 3 /* UD: the RQ. Its id is the QP number */
#define MANA_UAPI_QP_QUEUES 4

struct mana_uapi_create_qp {
	/* the stock part; all zero for an extended QP */
	__aligned_u64 address[MANA_UAPI_QP_QUEUES];
	__u32 bytes[MANA_UAPI_QP_QUEUES];
	/* what OpenMANA adds; absent or zero for a stock QP */
	__aligned_u64 buffer; /* SQ ring, RQ ring, record */
	__u32 sq_bytes;
	__u32 rq_bytes; /* 0 with an SRQ */
	__u32 rq_stride;
	__u32 reserved;
};

#define MANA_UAPI_CREATE_QP_STOCK_BYTES 48

struct mana_uapi_create_qp_resp {
	__u32 queue_id[MANA_UAPI_QP_QUEUES]; /* extended: 0 and 3 are used */
};

/*
 * The same for RC as upstream's next pair says it (RNIC 5.3), in a context that does
 * not speak ours: a memory-management queue, if its bit is there, and its id.
 */
struct mana_uapi_create_rc_qp {
	__aligned_u64 address[MANA_UAPI_QP_QUEUES];
	__u32 bytes[MANA_UAPI_QP_QUEUES];
	/* absent or zero before that */
	__aligned_u64 mm_address;
	__u32 mm_bytes;
	__u32 mask;
};

#define MANA_UAPI_RC_FIXED_WQES (1u << 0) /* send WQEs have one size, whatever is in them */
#define MANA_UAPI_RC_MM_QUEUE (1u << 1)

struct mana_uapi_create_rc_qp_resp {
	__u32 queue_id[MANA_UAPI_QP_QUEUES];
	__u32 mm_queue_id;
	__u32 reserved;
};

/* Create SRQ */
struct mana_uapi_create_srq {
	__aligned_u64 buffer; /* ring, record */
	__u32 ring_bytes;
	__u32 stride;
};

struct mana_uapi_create_srq_resp {
	__u32 srq_id;
	__u32 reserved;
};

/* Create AH: answer */
struct mana_uapi_create_ah_resp {
	__u8 dest_mac[6];
	__u16 vlan; /* MANA_HW_EXT_VLANS: for the send work request; else 0 */
};

/*
 * Service level of a completion of a datagram in user space: a bit that no level of
 * RoCE has, by which IP it came in bits 1 and 0, and the priority of its tag. An address
 * handle that is made with it has that priority.
 */
#define MANA_UAPI_SL_DATAGRAM (1u << 3)
#define MANA_UAPI_SL_PRIORITY_SHIFT 4

/*
 * Raw packet QP. The stock part makes a send queue whose rings somebody else runs
 * (direct verbs). A QP with both queues (MANA_HW_EXT_PACKETS) leaves it zero; each
 * of its queues has a CQ of its own, whose events come as those of the QP's CQs.
 */
struct mana_uapi_packet_queue {
	__aligned_u64 address;
	__aligned_u64 cq_address;
	__u32 bytes;
	__u32 cqes;
};

struct mana_uapi_create_raw_qp {
	__aligned_u64 sq_address;
	__u32 sq_bytes;
	__u32 port;
	/* what OpenMANA adds; absent or zero for a stock QP */
	struct mana_uapi_packet_queue send;
	struct mana_uapi_packet_queue recv;
};

#define MANA_UAPI_CREATE_RAW_QP_STOCK_BYTES 16

/* QPs with both queues: number of the first, and the answer to "modify QP" to INIT */
#define MANA_UAPI_PACKET_QPN 0xc00000

struct mana_uapi_modify_packet_qp_resp {
	__u32 sq_id;
	__u32 send_cq_id;
	__u32 rq_id;
	__u32 recv_cq_id;
};

struct mana_uapi_create_raw_qp_resp {
	__u32 sq_id;
	__u32 cq_id;
	__u32 tx_vport_offset;
	__u32 reserved;
};

/*
 * Receive work queue. The stock part makes one whose ring somebody else runs (direct
 * verbs), and which exists with its QP. One with a data path (MANA_HW_EXT_PACKET_SPREAD)
 * leaves it zero; it exists from creation to ERR, on port 1.
 */
struct mana_uapi_create_wq {
	__aligned_u64 address;
	__u32 bytes;
	__u32 reserved;
	/* what OpenMANA adds; absent or zero for a stock queue */
	struct mana_uapi_packet_queue recv;
};

#define MANA_UAPI_CREATE_WQ_STOCK_BYTES 16

struct mana_uapi_create_wq_resp {
	__u32 wq_id;
	__u32 cq_id;
};

/* Raw packet QP that spreads over receive work queues; with a data path: no port, no answer */
#define MANA_UAPI_RSS_TOEPLITZ 1
/* addresses of IPv4 and IPv6, ports of TCP and UDP: all are hashed */
#define MANA_UAPI_RSS_FIELDS 0xffULL
#define MANA_UAPI_RSS_KEY_BYTES 40
#define MANA_UAPI_RSS_QUEUES 64

struct mana_uapi_create_rss_qp {
	__aligned_u64 hash_fields;
	__u8 hash_function;
	__u8 reserved0[7];
	__u32 key_length;
	__u8 key[MANA_UAPI_RSS_KEY_BYTES];
	__u32 port;
};

struct mana_uapi_rss_entry {
	__u32 cq_id;
	__u32 wq_id;
};

struct mana_uapi_create_rss_qp_resp {
	__aligned_u64 entries;
	struct mana_uapi_rss_entry entry[MANA_UAPI_RSS_QUEUES];
};

#endif
