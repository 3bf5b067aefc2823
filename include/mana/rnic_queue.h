/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) OR Apache-2.0 */
/*
 * Queue entries of the RDMA device: the client part of its WQEs, its CQEs and
 * the values of its doorbells. Little endian; words are split with the masks
 * beside them.
 */
#ifndef MANA_RNIC_QUEUE_H
#define MANA_RNIC_QUEUE_H

#include <mana/rnic.h>
#include <mana/status.h>

/* Opcodes of SQ WQEs. */
enum mana_hw_rnic_wqe_opcode {
	MANA_HW_RNIC_WQE_UD_SEND = 0,
	MANA_HW_RNIC_WQE_UD_SEND_IMM = 1,
	MANA_HW_RNIC_WQE_SEND = 2,
	MANA_HW_RNIC_WQE_SEND_IMM = 3,
	MANA_HW_RNIC_WQE_SEND_INV = 4,
	MANA_HW_RNIC_WQE_WRITE = 5,
	MANA_HW_RNIC_WQE_WRITE_IMM = 6,
	MANA_HW_RNIC_WQE_READ = 7
};

/* Word 0 of the OOB. */
#define MANA_HW_RNIC_OOB_OPCODE 0x1fu
#define MANA_HW_RNIC_OOB_FENCE (1u << 5)
#define MANA_HW_RNIC_OOB_SIGNALED (1u << 6)
#define MANA_HW_RNIC_OOB_SOLICITED (1u << 7)
#define MANA_HW_RNIC_OOB_PSN_SHIFT 8
#define MANA_HW_RNIC_24BIT 0xffffffu

/* OOB of an SQ WQE: behind the 8 bytes of the WQE header. */
struct mana_hw_rnic_send_oob {
	uint32_t flags_psn;
	uint32_t ssn; /* UD: destination QPN */
	union {
		uint32_t words[4];
		struct {
			uint32_t qkey;
			uint32_t immediate;
		} ud;
		uint32_t send_immediate;
		uint32_t send_invalidate_rkey;
		struct {
			uint32_t address_high;
			uint32_t address_low;
			uint32_t rkey;
			uint32_t length;
		} rdma;
	} u;
};
MANA_HW_SIZE(struct mana_hw_rnic_send_oob, 24);
MANA_HW_AT(struct mana_hw_rnic_send_oob, u, 8);
MANA_HW_AT(struct mana_hw_rnic_send_oob, u.rdma.length, 20);

/* What the 40-byte OOB adds: WRITE with immediate. */
struct mana_hw_rnic_send_oob_large {
	struct mana_hw_rnic_send_oob oob;
	uint32_t immediate;
	uint32_t reserved[3];
};
MANA_HW_SIZE(struct mana_hw_rnic_send_oob_large, 40);
MANA_HW_AT(struct mana_hw_rnic_send_oob_large, immediate, 24);

/* OOB of an RQ WQE. In the requester RQ: the PSN of the READ. */
struct mana_hw_rnic_recv_oob {
	uint32_t psn;
	uint32_t psn_range;
};
MANA_HW_SIZE(struct mana_hw_rnic_recv_oob, 8);

#define MANA_HW_RNIC_OOB_CODE_RECV 2u
#define MANA_HW_RNIC_OOB_CODE_SEND 6u
#define MANA_HW_RNIC_OOB_CODE_SEND_LARGE 7u

/* SGE that stands for "no SGE": its key is not looked at. */
#define MANA_HW_RNIC_DUMMY_SGE_ADDRESS 1u

/* Behind the requester SQ ring: written by the driver for go-back-N. */
struct mana_hw_rnic_rollback {
	uint32_t signature;
	uint32_t size;
	uint32_t left;  /* BU index behind the last retired WQE */
	uint32_t right; /* BU index of the newest WQE */
};
#define MANA_HW_RNIC_ROLLBACK_SIGNATURE 0x4b424c52u
MANA_HW_SIZE(struct mana_hw_rnic_rollback, 16);

/* Address vector: first SGE of a UD send. */
struct mana_hw_rnic_av {
	/* IPv6: last byte first. IPv4: ff ff at 10, address last byte first at 12 */
	uint8_t dest[16];
	uint8_t dest_mac[6]; /* last byte first */
	uint16_t udp_source_port;
	uint8_t source[16]; /* IPv6: last byte first. IPv4: address last byte first at 12 */
	uint32_t path;
	uint32_t reserved;
};
#define MANA_HW_RNIC_AV_HOP_LIMIT 0xffu
#define MANA_HW_RNIC_AV_DSCP_SHIFT 20
#define MANA_HW_RNIC_AV_DSCP 0x3fu
#define MANA_HW_RNIC_AV_IPV6 (1u << 31)
MANA_HW_SIZE(struct mana_hw_rnic_av, 48);
MANA_HW_AT(struct mana_hw_rnic_av, udp_source_port, 22);
MANA_HW_AT(struct mana_hw_rnic_av, path, 40);

/* Types of CQEs. */
enum mana_hw_rnic_cqe_type {
	MANA_HW_RNIC_CQE_UD = 1,
	MANA_HW_RNIC_CQE_UD_IMM = 2,
	MANA_HW_RNIC_CQE_SEND = 3,
	MANA_HW_RNIC_CQE_SEND_IMM = 4,
	MANA_HW_RNIC_CQE_SEND_INV = 5,
	MANA_HW_RNIC_CQE_WRITE_IMM = 6,
	MANA_HW_RNIC_CQE_ARMED = 7,
	MANA_HW_RNIC_CQE_ERROR = 34
};

/* Word 0 of each CQE: type, and the vendor error (10 bits; 9 for UD sends). */
#define MANA_HW_RNIC_CQE_TYPE 0xffu
#define MANA_HW_RNIC_CQE_VENDOR_SHIFT 8
#define MANA_HW_RNIC_CQE_VENDOR 0x3ffu

struct mana_hw_rnic_recv_cqe {
	uint32_t type;
	uint32_t length;
	uint32_t psn;
	uint32_t immediate; /* or the invalidated rkey */
	uint32_t wqe_offset; /* running byte counter */
	uint32_t zero[10];
};
MANA_HW_SIZE(struct mana_hw_rnic_recv_cqe, 60);
MANA_HW_AT(struct mana_hw_rnic_recv_cqe, wqe_offset, 16);

struct mana_hw_rnic_armed_cqe {
	uint32_t type;
	uint32_t msn_syndrome; /* MSN in 23:0, syndrome in 31:24 */
	uint32_t psn;
	uint32_t zero[12];
};
#define MANA_HW_RNIC_CQE_SYNDROME_SHIFT 24
MANA_HW_SIZE(struct mana_hw_rnic_armed_cqe, 60);

struct mana_hw_rnic_error_cqe {
	uint32_t type_vendor;
	uint32_t msn_syndrome;
	uint32_t psn_opcode;
	uint32_t responder_msn;
	uint32_t responder_psn; /* all ones: older providers read a WQE offset here */
	uint32_t zero[10];
};
MANA_HW_SIZE(struct mana_hw_rnic_error_cqe, 60);
MANA_HW_AT(struct mana_hw_rnic_error_cqe, responder_psn, 16);

struct mana_hw_rnic_ud_send_cqe {
	uint32_t type_vendor;
	uint32_t wqe_offset; /* SGE offset in 4:0, WQE offset in BU in 31:5 */
	uint32_t zero[13];
};
MANA_HW_SIZE(struct mana_hw_rnic_ud_send_cqe, 60);

struct mana_hw_rnic_ud_recv_cqe {
	uint32_t type;
	uint32_t length; /* with the 40 bytes of the GRH area */
	uint32_t source_qpn;
	uint32_t immediate;
	uint32_t wqe_offset;
	uint32_t zero[10];
};
MANA_HW_SIZE(struct mana_hw_rnic_ud_recv_cqe, 60);

/* Doorbell 0x408: requester RQ id in 23:0, 1 in 31:24, PSN in 63:32. */
#define MANA_HW_RNIC_DOORBELL_ARM_CLIENT 0x408
#define MANA_HW_RNIC_ARM_CLIENT_CODE 1u

#endif
