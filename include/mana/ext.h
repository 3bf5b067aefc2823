/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) OR Apache-2.0 */
/*
 * OpenMANA's extension of the RDMA device (docs/extensions.md): what the public
 * ABI lacks, in a command range and a queue format of its own. Drivers that do
 * not ask for it never see it.
 *
 * Little endian, except GIDs and MACs, which are byte strings in wire order.
 */
#ifndef MANA_EXT_H
#define MANA_EXT_H

#include <mana/rnic_queue.h>

/* Negotiation: set in the capabilities of the RNIC, asked for at CREATE_ADAPTER. */
#define MANA_HW_RNIC_CAP_EXTENSIONS (1ULL << 63)
#define MANA_HW_RNIC_FEATURE_EXTENSIONS (1ULL << 63)

enum mana_hw_ext_opcode {
	MANA_HW_EXT_QUERY_CAPS = 0x38000,
	MANA_HW_EXT_CREATE_CQ = 0x38001, /* destroyed by MANA_HW_RNIC_DESTROY_CQ */
	MANA_HW_EXT_RESIZE_CQ = 0x38002,
	MANA_HW_EXT_CREATE_QP = 0x38003, /* its state: MANA_HW_RNIC_SET_QP_STATE */
	MANA_HW_EXT_DESTROY_QP = 0x38004,
	MANA_HW_EXT_QUERY_QP = 0x38005,
	MANA_HW_EXT_CREATE_SRQ = 0x38006,
	MANA_HW_EXT_MODIFY_SRQ = 0x38007,
	MANA_HW_EXT_QUERY_SRQ = 0x38008,
	MANA_HW_EXT_DESTROY_SRQ = 0x38009,
	MANA_HW_EXT_ATTACH_MULTICAST = 0x3800a,
	MANA_HW_EXT_DETACH_MULTICAST = 0x3800b,
	MANA_HW_EXT_QUERY_QP_COUNTERS = 0x3800c,
	MANA_HW_EXT_MODIFY_MR = 0x3800d,
	MANA_HW_EXT_COPY_DM = 0x3800e
};

/* Commands of the Ethernet device (type 2): packet queues and flow rules. */
enum mana_hw_ext_eth_opcode {
	MANA_HW_EXT_CREATE_PACKET_WQ = 0x2f000, /* destroyed by MANA_HW_ETH_DESTROY_WQ_OBJ */
	MANA_HW_EXT_ADD_FLOW = 0x2f001,
	MANA_HW_EXT_REMOVE_FLOW = 0x2f002,
	MANA_HW_EXT_CREATE_SPREAD = 0x2f003,
	MANA_HW_EXT_DESTROY_SPREAD = 0x2f004
};

#define MANA_HW_EXT_VERSION 1

/* Features of MANA_HW_EXT_QUERY_CAPS. */
#define MANA_HW_EXT_RC (1ULL << 0)
#define MANA_HW_EXT_UC (1ULL << 1)
#define MANA_HW_EXT_UD (1ULL << 2) /* and QP1 */
#define MANA_HW_EXT_SRQ (1ULL << 3)
#define MANA_HW_EXT_ATOMICS (1ULL << 4)
#define MANA_HW_EXT_MEMORY_WINDOWS (1ULL << 5)
#define MANA_HW_EXT_FAST_REGISTRATION (1ULL << 6)
#define MANA_HW_EXT_RESIZE (1ULL << 7)
#define MANA_HW_EXT_TIMESTAMPS (1ULL << 8)
#define MANA_HW_EXT_MULTICAST (1ULL << 9)
#define MANA_HW_EXT_QP_COUNTERS (1ULL << 10)
#define MANA_HW_EXT_REREGISTRATION (1ULL << 11) /* MANA_HW_EXT_MODIFY_MR */
#define MANA_HW_EXT_PACKETS (1ULL << 12) /* packet queues, flow rules */
#define MANA_HW_EXT_PACKET_SPREAD (1ULL << 13) /* MANA_HW_EXT_CREATE_SPREAD */
#define MANA_HW_EXT_PACKET_CHECKSUMS (1ULL << 14) /* MANA_HW_EXT_TX_CHECKSUMS */
#define MANA_HW_EXT_DM_COPIES (1ULL << 15) /* MANA_HW_EXT_COPY_DM */

struct mana_hw_ext_query_caps_resp {
	struct mana_hw_rnic_resp_head head;
	uint64_t features;
	uint32_t version;
	uint32_t max_srq;
	uint32_t max_srq_wr;
	uint32_t max_srq_sge;
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_bytes;
	uint32_t max_cqe;
	uint32_t max_fast_reg_pages;
	uint32_t max_multicast_groups;
	uint32_t max_multicast_qps; /* per group */
	uint32_t clock_khz;         /* of the time stamps */
};
MANA_HW_SIZE(struct mana_hw_ext_query_caps_resp, 96);
MANA_HW_AT(struct mana_hw_ext_query_caps_resp, version, 40);
MANA_HW_AT(struct mana_hw_ext_query_caps_resp, clock_khz, 92);

/*
 * Doorbell records: 64 bytes behind the rings of each queue. The host writes
 * what it owns, the device what it owns; all words start at 0 but `sq_kick` and a
 * CQ's `consumer`, which the device sets when it creates the queue: to 1, and to
 * the number of entries. A QP's kick words are as at the start after RESET.
 */
#define MANA_HW_EXT_RECORD_BYTES 64

struct mana_hw_ext_qp_record {
	uint32_t sq_producer; /* host: units of MANA_HW_EXT_WQE_UNIT, running */
	uint32_t sq_kick;     /* device: not 0: ring the SQ doorbell after sq_producer moved */
	uint32_t rq_producer; /* host: receive WQEs, running; no doorbell is needed */
	uint32_t rq_kick;     /* device: not 0: ring the RQ doorbell (the QP is in ERR) */
	uint32_t reserved[12];
};
MANA_HW_SIZE(struct mana_hw_ext_qp_record, MANA_HW_EXT_RECORD_BYTES);
MANA_HW_AT(struct mana_hw_ext_qp_record, rq_producer, 8);

struct mana_hw_ext_srq_record {
	uint32_t producer; /* host: receive WQEs, running */
	uint32_t reserved[15];
};
MANA_HW_SIZE(struct mana_hw_ext_srq_record, MANA_HW_EXT_RECORD_BYTES);

/* An event is due when the sequence part of `arm` differs from that of the last event. */
struct mana_hw_ext_cq_record {
	uint32_t consumer; /* host: CQEs taken, running from the number of entries on */
	uint32_t arm;      /* host: MANA_HW_EXT_ARM_* */
	uint32_t reserved[14];
};
#define MANA_HW_EXT_ARM_SOLICITED (1u << 0) /* only for solicited receives and errors */
#define MANA_HW_EXT_ARM_SEQUENCE_SHIFT 1
MANA_HW_SIZE(struct mana_hw_ext_cq_record, MANA_HW_EXT_RECORD_BYTES);
MANA_HW_AT(struct mana_hw_ext_cq_record, arm, 4);

/* CREATE_CQ: region = `entries` x 64 bytes, a power of two, and the record. */
struct mana_hw_ext_create_cq_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t region;
	uint32_t entries;
	uint32_t eq_id;
	uint32_t doorbell_page;
	uint32_t reserved;
};
MANA_HW_SIZE(struct mana_hw_ext_create_cq_req, 72);
/* answered with struct mana_hw_rnic_create_cq_resp */

/*
 * RESIZE_CQ: the CQEs that are not taken (by the record's consumer) move to the
 * new region, whose record takes over `consumer` and `arm`. The host does not
 * poll meanwhile. On success the CQ owns the new region and the old one is freed.
 */
struct mana_hw_ext_resize_cq_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t cq;
	uint64_t region;
	uint32_t entries;
	uint32_t reserved;
};
MANA_HW_SIZE(struct mana_hw_ext_resize_cq_req, 72);

struct mana_hw_ext_resize_cq_resp {
	struct mana_hw_rnic_resp_head head;
	uint32_t consumer; /* of the first CQE not taken, in the counting of the new ring */
	uint32_t reserved;
};
MANA_HW_SIZE(struct mana_hw_ext_resize_cq_resp, 40);

/* Types of QPs, IB numbering. */
enum mana_hw_ext_qp_type {
	MANA_HW_EXT_QP_GSI = 1,
	MANA_HW_EXT_QP_RC = 2,
	MANA_HW_EXT_QP_UC = 3,
	MANA_HW_EXT_QP_UD = 4
};

/* May use bus addresses: fast registration. Only for QPs of the kernel. */
#define MANA_HW_EXT_QP_PRIVILEGED (1u << 0)

/*
 * CREATE_QP: region = SQ ring, RQ ring, record, in this order. Ring sizes are
 * powers of two. With an SRQ rq_bytes is 0.
 */
struct mana_hw_ext_create_qp_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t pd;
	uint64_t send_cq;
	uint64_t recv_cq;
	uint64_t srq; /* 0: none */
	uint64_t region;
	uint32_t type;
	uint32_t flags;
	uint32_t doorbell_page;
	uint32_t sq_bytes;
	uint32_t rq_bytes;
	uint32_t rq_stride; /* bytes of a receive WQE: a power of two, 32 to 1024 */
};
MANA_HW_SIZE(struct mana_hw_ext_create_qp_req, 112);
MANA_HW_AT(struct mana_hw_ext_create_qp_req, region, 80);
MANA_HW_AT(struct mana_hw_ext_create_qp_req, rq_stride, 108);

struct mana_hw_ext_create_qp_resp {
	struct mana_hw_rnic_resp_head head;
	uint64_t qp;
	uint32_t sq_id;
	uint32_t rq_id; /* the QP number */
};
MANA_HW_SIZE(struct mana_hw_ext_create_qp_resp, 48);
/* DESTROY_QP, QUERY_QP, QUERY_QP_COUNTERS: struct mana_hw_rnic_destroy_qp_req */

struct mana_hw_ext_query_qp_resp {
	struct mana_hw_rnic_resp_head head;
	uint32_t state; /* enum mana_hw_rnic_qp_state */
	uint32_t sq_psn; /* next to be sent */
	uint32_t rq_psn; /* next expected */
	uint32_t sq_draining;
};
MANA_HW_SIZE(struct mana_hw_ext_query_qp_resp, 48);
/*
 * QUERY_QP_COUNTERS is answered with struct mana_hw_rnic_vf_counters_resp, of
 * this QP; nak_invalid_read, general_hardware_errors and current_rate are 0.
 */

/* SRQ: region = ring, record. */
struct mana_hw_ext_create_srq_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t pd;
	uint64_t region;
	uint32_t ring_bytes;
	uint32_t stride;
	uint32_t doorbell_page;
	uint32_t limit; /* 0: no limit event */
};
MANA_HW_SIZE(struct mana_hw_ext_create_srq_req, 80);

struct mana_hw_ext_create_srq_resp {
	struct mana_hw_rnic_resp_head head;
	uint64_t srq;
	uint32_t srq_id;
	uint32_t reserved;
};
MANA_HW_SIZE(struct mana_hw_ext_create_srq_resp, 48);

/* Also QUERY_SRQ and DESTROY_SRQ, which ignore `limit`. */
struct mana_hw_ext_srq_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t srq;
	uint32_t limit;
	uint32_t reserved;
};
MANA_HW_SIZE(struct mana_hw_ext_srq_req, 64);

struct mana_hw_ext_query_srq_resp {
	struct mana_hw_rnic_resp_head head;
	uint32_t limit; /* 0 once its event was sent */
	uint32_t posted; /* receives that no message has taken */
};
MANA_HW_SIZE(struct mana_hw_ext_query_srq_resp, 40);

/* ATTACH_MULTICAST, DETACH_MULTICAST: UD QPs */
struct mana_hw_ext_multicast_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t qp;
	uint8_t gid[16];
};
MANA_HW_SIZE(struct mana_hw_ext_multicast_req, 72);

/*
 * CREATE_MR (GDMA) knows one more type with the extension: a key without
 * memory, for fast registration. Of its fields only max_pages counts, where the
 * region handle of the other types is (a 64-bit word).
 */
#define MANA_HW_EXT_MR_FAST_REGISTER 16

/*
 * MODIFY_MR: gives an MR that CREATE_MR (GDMA) made another PD, other rights or
 * other memory; handle and keys stay. Refused as long as windows show it, and
 * for windows, fast-register keys and keys of all of memory; device memory keeps
 * its bytes. On success the MR owns the new region and the old one is freed.
 */
#define MANA_HW_EXT_MODIFY_PD (1u << 0)
#define MANA_HW_EXT_MODIFY_ACCESS (1u << 1)
#define MANA_HW_EXT_MODIFY_MEMORY (1u << 2) /* region, address */

struct mana_hw_ext_modify_mr_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t mr;
	uint64_t pd;
	uint64_t region;
	uint64_t address; /* of the first byte; zero-based: 0 */
	uint32_t access;
	uint32_t flags;
};
MANA_HW_SIZE(struct mana_hw_ext_modify_mr_req, 88);
MANA_HW_AT(struct mana_hw_ext_modify_mr_req, region, 64);
MANA_HW_AT(struct mana_hw_ext_modify_mr_req, access, 80);

/*
 * COPY_DM: copies between device memory (ALLOC_DM of GDMA) and memory of the host,
 * which is in one piece at a bus address. Done when the answer comes; a command that
 * is refused has copied nothing.
 */
#define MANA_HW_EXT_COPY_DM_BYTES 65536u /* of one command, at most */

enum mana_hw_ext_copy_direction {
	MANA_HW_EXT_COPY_TO_DM = 0,
	MANA_HW_EXT_COPY_FROM_DM = 1
};

struct mana_hw_ext_copy_dm_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t dm;
	uint64_t offset; /* in the device memory */
	uint64_t address;
	uint32_t length; /* not 0 */
	uint32_t direction;
};
MANA_HW_SIZE(struct mana_hw_ext_copy_dm_req, 80);
MANA_HW_AT(struct mana_hw_ext_copy_dm_req, address, 64);
MANA_HW_AT(struct mana_hw_ext_copy_dm_req, direction, 76);

/*
 * Keys are index << 8 | tag. Bind and fast registration may change the tag; a
 * memory window or fast-register key that is not bound refuses every access.
 */
#define MANA_HW_EXT_KEY_TAG 0xffu

/*
 * Send WQE: control segment, then by opcode, then SGEs or inline bytes. It
 * starts at a multiple of the unit and may wrap at the end of the ring.
 */
#define MANA_HW_EXT_WQE_UNIT 64
#define MANA_HW_EXT_WQE_MAX_BYTES 1024

enum mana_hw_ext_wqe_opcode {
	MANA_HW_EXT_WQE_SEND = 0,           /* [UD segment] data */
	MANA_HW_EXT_WQE_SEND_IMM = 1,       /* [UD segment] data */
	MANA_HW_EXT_WQE_SEND_INV = 2,       /* data */
	MANA_HW_EXT_WQE_WRITE = 3,          /* remote segment, data */
	MANA_HW_EXT_WQE_WRITE_IMM = 4,      /* remote segment, data */
	MANA_HW_EXT_WQE_READ = 5,           /* remote segment, data */
	MANA_HW_EXT_WQE_CMP_SWAP = 6,       /* remote segment, atomic segment, one SGE of 8 bytes */
	MANA_HW_EXT_WQE_FETCH_ADD = 7,      /* remote segment, atomic segment, one SGE of 8 bytes */
	MANA_HW_EXT_WQE_LOCAL_INV = 8,      /* control segment only */
	MANA_HW_EXT_WQE_BIND_MW = 9,        /* bind segment */
	MANA_HW_EXT_WQE_FAST_REGISTER = 10, /* register segment; privileged QPs */
	/* receive completions, in CQEs only */
	MANA_HW_EXT_WC_RECV = 0x80,
	MANA_HW_EXT_WC_RECV_WRITE_IMM = 0x81
};

#define MANA_HW_EXT_WQE_SIGNALED (1u << 0)
#define MANA_HW_EXT_WQE_SOLICITED (1u << 1)
#define MANA_HW_EXT_WQE_FENCE (1u << 2)
#define MANA_HW_EXT_WQE_INLINE (1u << 3) /* data = inline_bytes bytes, behind the segments */

struct mana_hw_ext_control {
	uint8_t opcode;
	uint8_t flags;
	uint16_t size; /* of the WQE in units of 16 bytes, this segment included */
	uint32_t value; /* immediate as a number, or the rkey to invalidate */
	uint32_t inline_bytes;
	uint32_t reserved;
};
MANA_HW_SIZE(struct mana_hw_ext_control, 16);
MANA_HW_AT(struct mana_hw_ext_control, inline_bytes, 8);

struct mana_hw_ext_remote {
	uint64_t address;
	uint32_t rkey;
	uint32_t reserved;
};
MANA_HW_SIZE(struct mana_hw_ext_remote, 16);

struct mana_hw_ext_atomic {
	uint64_t swap_add;
	uint64_t compare;
};
MANA_HW_SIZE(struct mana_hw_ext_atomic, 16);

struct mana_hw_ext_ud {
	uint8_t dest_gid[16];
	uint8_t source_gid[16];
	uint8_t dest_mac[6];
	uint16_t udp_source_port;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint16_t reserved1;
	uint32_t flow_label;
	uint32_t dest_qpn;
	uint32_t qkey;
	uint32_t reserved2[2];
};
MANA_HW_SIZE(struct mana_hw_ext_ud, 64);
MANA_HW_AT(struct mana_hw_ext_ud, udp_source_port, 38);
MANA_HW_AT(struct mana_hw_ext_ud, flow_label, 44);
MANA_HW_AT(struct mana_hw_ext_ud, qkey, 52);

/* Access of bind and register segments: the bits of MANA_HW_CREATE_MR, and: */
#define MANA_HW_EXT_ACCESS_ZERO_BASED (1u << 6)

/* length 0 unbinds a window */
struct mana_hw_ext_bind {
	uint32_t mw_key; /* its index counts, not its tag: a bind that was refused changed none */
	uint32_t new_key; /* as it shall be: another tag */
	uint32_t mr_key;
	uint32_t access;
	uint64_t address;
	uint64_t length;
};
MANA_HW_SIZE(struct mana_hw_ext_bind, 32);

/* The pages' bus addresses are an array of 64-bit words at page_list. */
struct mana_hw_ext_register {
	uint32_t key; /* with the new tag */
	uint32_t access;
	uint64_t iova; /* its offset in a page is that of the first byte */
	uint64_t length;
	uint64_t page_list; /* bus address */
	uint32_t pages;
	uint32_t page_shift; /* 12 to 31 */
	uint64_t reserved;
};
MANA_HW_SIZE(struct mana_hw_ext_register, 48);
MANA_HW_AT(struct mana_hw_ext_register, page_list, 24);

/* Receive WQE: one stride: this header, then SGEs (struct mana_hw_sge). */
struct mana_hw_ext_receive {
	uint32_t sge_count;
	uint32_t cookie; /* comes back in the CQE */
	uint64_t reserved;
};
MANA_HW_SIZE(struct mana_hw_ext_receive, 16);

/* CQE data of extended QPs: type MANA_HW_EXT_CQE. The queue id of the frame is the QPN. */
#define MANA_HW_EXT_CQE 0x40

#define MANA_HW_EXT_CQE_GRH (1u << 0)       /* 40 bytes of GRH area lie before the payload */
#define MANA_HW_EXT_CQE_IMMEDIATE (1u << 1) /* `value` is an immediate */
#define MANA_HW_EXT_CQE_INVALIDATED (1u << 2) /* `value` is an rkey */
#define MANA_HW_EXT_CQE_IPV4 (1u << 3)
#define MANA_HW_EXT_CQE_SOLICITED (1u << 4)

struct mana_hw_ext_cqe {
	uint8_t type;
	uint8_t opcode; /* that of the WQE, or MANA_HW_EXT_WC_* */
	uint8_t status; /* IB work completion status */
	uint8_t flags;
	uint32_t length; /* UD: with the GRH area */
	uint32_t cookie; /* of the receive WQE; sends: where the WQE starts, in units, running */
	uint32_t value;
	uint32_t source_qpn;
	uint32_t vendor_error; /* enum mana_hw_rnic_vendor_error, or MANA_HW_EXT_VE_* */
	uint64_t timestamp;
	uint8_t source_mac[6]; /* UD */
	uint8_t reserved[22];
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_ext_cqe, 60);
MANA_HW_AT(struct mana_hw_ext_cqe, source_qpn, 16);
MANA_HW_AT(struct mana_hw_ext_cqe, timestamp, 24);
MANA_HW_AT(struct mana_hw_ext_cqe, source_mac, 32);

/*
 * Event on the adapter's event EQ, of type MANA_HW_EQE_QP_FATAL (older parents
 * hand on no unknown type): data[0] = QPN, SRQ id or CQ id, data[1] =
 * MANA_HW_EXT_EVENT_MARK | IB event number. Plain QP-fatal events have data[1] = 0.
 */
#define MANA_HW_EXT_EVENT_MARK 0x80000000u

enum mana_hw_ext_event {
	MANA_HW_EXT_EVENT_CQ_ERROR = 0,
	MANA_HW_EXT_EVENT_QP_FATAL = 1,
	MANA_HW_EXT_EVENT_QP_REQUEST_ERROR = 2,
	MANA_HW_EXT_EVENT_QP_ACCESS_ERROR = 3,
	MANA_HW_EXT_EVENT_COMMUNICATION_ESTABLISHED = 4,
	MANA_HW_EXT_EVENT_SQ_DRAINED = 5,
	MANA_HW_EXT_EVENT_SRQ_ERROR = 14,
	MANA_HW_EXT_EVENT_SRQ_LIMIT = 15,
	MANA_HW_EXT_EVENT_LAST_WQE_REACHED = 16
};

/*
 * CREATE_PACKET_WQ: an SQ or RQ of a port with its CQ, as CREATE_WQ_OBJ makes them
 * (GDMA 6.6), beside those of the port's interface and independent of
 * CONFIG_VPORT_TX and CONFIG_VPORT_RX. Such an RQ gets what flow rules give it, and
 * frames as they are, VLAN tag included. Answered with struct
 * mana_hw_eth_create_wq_resp.
 */
struct mana_hw_ext_create_packet_wq_req {
	uint8_t header[40];
	uint64_t vport;
	uint64_t wq_region;
	uint64_t cq_region;
	uint32_t wq_type; /* enum mana_hw_eth_wq_type */
	uint32_t wq_bytes;
	uint32_t cq_bytes;
	uint32_t eq_id;
	uint32_t pd_id;
	uint32_t doorbell_page;
};
MANA_HW_SIZE(struct mana_hw_ext_create_packet_wq_req, 88);
MANA_HW_AT(struct mana_hw_ext_create_packet_wq_req, wq_type, 64);
MANA_HW_AT(struct mana_hw_ext_create_packet_wq_req, doorbell_page, 84);

/*
 * All offload flags of a TX OOB at once (GDMA 6.12), which make no sense on queues of
 * the interface: the device finds out what the packet is, VLAN tag or not, and puts
 * in the IPv4 header checksum, and that of TCP or UDP with its pseudo header unless
 * this is a fragment. Other packets are sent as they are.
 */
#define MANA_HW_EXT_TX_CHECKSUMS 0x7cu

/*
 * What a flow rule looks at: byte strings as they are in the frame. What a frame
 * does not have is zero; ports and protocol are those of TCP and UDP in IPv4 or IPv6,
 * ports only of packets that are no fragments. An IPv4 address fills the first 4
 * bytes.
 */
struct mana_hw_ext_flow_fields {
	uint8_t dest_mac[6];
	uint8_t source_mac[6];
	uint8_t ether_type[2]; /* behind the VLAN tag, if there is one */
	uint8_t vlan[2]; /* PCP, DEI, VLAN id of the outer 802.1Q tag */
	uint8_t tagged; /* 1 if there is one */
	uint8_t protocol;
	uint8_t traffic_class; /* IPv4: type of service */
	uint8_t reserved;
	uint8_t source_port[2];
	uint8_t dest_port[2];
	uint8_t source_ip[16];
	uint8_t dest_ip[16];
};
MANA_HW_SIZE(struct mana_hw_ext_flow_fields, 56);
MANA_HW_AT(struct mana_hw_ext_flow_fields, ether_type, 12);
MANA_HW_AT(struct mana_hw_ext_flow_fields, source_port, 20);
MANA_HW_AT(struct mana_hw_ext_flow_fields, dest_ip, 40);

/*
 * ADD_FLOW: frames that the port accepts (its MAC, broadcast, multicast) and whose
 * fields are `value` under `mask` go to this RQ and to nobody else. Of several rules
 * the one with the lowest priority counts, then the oldest. The rules of an RQ end
 * with it.
 */
struct mana_hw_ext_add_flow_req {
	uint8_t header[40];
	uint64_t rq; /* object of CREATE_PACKET_WQ, or of CREATE_SPREAD */
	uint32_t priority;
	uint32_t reserved;
	struct mana_hw_ext_flow_fields value; /* zero where the mask is */
	struct mana_hw_ext_flow_fields mask;
};
MANA_HW_SIZE(struct mana_hw_ext_add_flow_req, 168);
MANA_HW_AT(struct mana_hw_ext_add_flow_req, value, 56);
MANA_HW_AT(struct mana_hw_ext_add_flow_req, mask, 112);

struct mana_hw_ext_add_flow_resp {
	uint8_t header[32];
	uint64_t flow;
};
MANA_HW_SIZE(struct mana_hw_ext_add_flow_resp, 40);

struct mana_hw_ext_remove_flow_req {
	uint8_t header[40];
	uint64_t flow;
};
MANA_HW_SIZE(struct mana_hw_ext_remove_flow_req, 48);

/*
 * CREATE_SPREAD: frames of a rule go to several RQs, each by the Toeplitz hash of
 * those of its fields that are asked for and that it has, in this order: source IP,
 * destination IP, source port, destination port. The hash modulo `entries` is the
 * place in the table. An RQ that ends leaves its places empty: frames for them are
 * dropped. Rules of a spread end with it.
 */
#define MANA_HW_EXT_SPREAD_SOURCE_IPV4 (1u << 0)
#define MANA_HW_EXT_SPREAD_DEST_IPV4 (1u << 1)
#define MANA_HW_EXT_SPREAD_SOURCE_IPV6 (1u << 2)
#define MANA_HW_EXT_SPREAD_DEST_IPV6 (1u << 3)
#define MANA_HW_EXT_SPREAD_SOURCE_PORT_TCP (1u << 4)
#define MANA_HW_EXT_SPREAD_DEST_PORT_TCP (1u << 5)
#define MANA_HW_EXT_SPREAD_SOURCE_PORT_UDP (1u << 6)
#define MANA_HW_EXT_SPREAD_DEST_PORT_UDP (1u << 7)
#define MANA_HW_EXT_SPREAD_FIELDS 0xffu
#define MANA_HW_EXT_SPREAD_KEY_BYTES 40
#define MANA_HW_EXT_SPREAD_ENTRIES 64

struct mana_hw_ext_create_spread_req {
	uint8_t header[40];
	uint32_t fields;
	uint32_t entries; /* a power of two */
	uint8_t key[MANA_HW_EXT_SPREAD_KEY_BYTES];
	uint64_t rq[MANA_HW_EXT_SPREAD_ENTRIES]; /* of CREATE_PACKET_WQ; zero behind entries */
};
MANA_HW_SIZE(struct mana_hw_ext_create_spread_req, 600);
MANA_HW_AT(struct mana_hw_ext_create_spread_req, key, 48);
MANA_HW_AT(struct mana_hw_ext_create_spread_req, rq, 88);

struct mana_hw_ext_create_spread_resp {
	uint8_t header[32];
	uint64_t spread;
};
MANA_HW_SIZE(struct mana_hw_ext_create_spread_resp, 40);

struct mana_hw_ext_destroy_spread_req {
	uint8_t header[40];
	uint64_t spread;
};
MANA_HW_SIZE(struct mana_hw_ext_destroy_spread_req, 48);

#endif
