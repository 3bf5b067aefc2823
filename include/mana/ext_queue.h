/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) OR Apache-2.0 */
/*
 * Extended queues (docs/extensions.md): doorbell records, work requests and
 * completions. Little endian, except GIDs and MACs, which are byte strings in
 * wire order.
 */
#ifndef MANA_EXT_QUEUE_H
#define MANA_EXT_QUEUE_H

#include <mana/rnic_queue.h>

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

/* A tag of 802.1Q, as in a frame; with the id 0 there is none. DEI is 0 in what is sent. */
#define MANA_HW_EXT_VLAN_ID 0xfffu
#define MANA_HW_EXT_VLAN_PRIORITY_SHIFT 13

struct mana_hw_ext_ud {
	uint8_t dest_gid[16];
	uint8_t source_gid[16];
	uint8_t dest_mac[6];
	uint16_t udp_source_port;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint16_t vlan; /* MANA_HW_EXT_VLANS: that of the source, and a priority */
	uint32_t flow_label;
	uint32_t dest_qpn;
	uint32_t qkey;
	uint32_t reserved[2];
};
MANA_HW_SIZE(struct mana_hw_ext_ud, 64);
MANA_HW_AT(struct mana_hw_ext_ud, udp_source_port, 38);
MANA_HW_AT(struct mana_hw_ext_ud, vlan, 42);
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
	uint16_t vlan; /* UD: tag of the frame, or 0 */
	uint8_t reserved[20];
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_ext_cqe, 60);
MANA_HW_AT(struct mana_hw_ext_cqe, source_qpn, 16);
MANA_HW_AT(struct mana_hw_ext_cqe, timestamp, 24);
MANA_HW_AT(struct mana_hw_ext_cqe, source_mac, 32);
MANA_HW_AT(struct mana_hw_ext_cqe, vlan, 38);

#endif
