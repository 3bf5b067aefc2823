/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) OR Apache-2.0 */
/*
 * OpenMANA's extension of the RDMA device (docs/extensions.md): what the public
 * ABI lacks, in a command range and a queue format of its own. Drivers that do
 * not ask for it never see it. Its queues: ext_queue.h; its commands of the
 * Ethernet device: ext_eth.h.
 *
 * Little endian, except GIDs and MACs, which are byte strings in wire order.
 */
#ifndef MANA_EXT_H
#define MANA_EXT_H

#include <mana/ext_queue.h>

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
	MANA_HW_EXT_COPY_DM = 0x3800e,
	MANA_HW_EXT_GRANT_SOURCE = 0x3800f,
	MANA_HW_EXT_REVOKE_SOURCE = 0x38010,
	MANA_HW_EXT_CONFIG_ADDRESS = 0x38011,
	MANA_HW_EXT_SET_QP_STATE = 0x38012
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
#define MANA_HW_EXT_SOURCES (1ULL << 16) /* MANA_HW_EXT_GRANT_SOURCE */
#define MANA_HW_EXT_VLANS (1ULL << 17) /* MANA_HW_EXT_CONFIG_ADDRESS, MANA_HW_EXT_VLAN_ID */
#define MANA_HW_EXT_MACS (1ULL << 18) /* struct mana_hw_ext_config_mac_address_req */

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
 * A program writes its datagrams itself, with the address that they come from. So that
 * it is one of its own, CREATE_PD (GDMA) knows one more flag with the extension: from a
 * PD that has it, datagrams leave only if their source was granted to it. That is so
 * for queue pairs of both formats; connected ones have the source that the driver set.
 *
 * GRANT_SOURCE: the PD may send from an address, which the driver knows by a number.
 * The same number once more: another address takes the place of the first. The adapter
 * still has to have the address (CONFIG_ADDRESS).
 * REVOKE_SOURCE: no PD may by this number any more; done when the answer comes.
 */
#define MANA_HW_EXT_PD_GRANTED_SOURCES (1u << 31)
#define MANA_HW_EXT_PD_SOURCES 16 /* numbers are below */

struct mana_hw_ext_grant_source_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t pd;
	uint8_t gid[16];
	uint32_t number;
	uint16_t vlan; /* MANA_HW_EXT_VLANS: id of the address's VLAN; 0: none */
	uint16_t reserved;
};
MANA_HW_SIZE(struct mana_hw_ext_grant_source_req, 80);
MANA_HW_AT(struct mana_hw_ext_grant_source_req, vlan, 76);
MANA_HW_AT(struct mana_hw_ext_grant_source_req, gid, 56);
MANA_HW_AT(struct mana_hw_ext_grant_source_req, number, 72);

struct mana_hw_ext_revoke_source_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint32_t number;
	uint32_t reserved;
};
MANA_HW_SIZE(struct mana_hw_ext_revoke_source_req, 56);
MANA_HW_AT(struct mana_hw_ext_revoke_source_req, number, 48);

/*
 * VLANs: to the adapter an address is a GID and the id of a VLAN (0: none). What the
 * public commands say is without a VLAN.
 *
 * CONFIG_ADDRESS: as MANA_HW_RNIC_CONFIG_ADDRESS, the GID in wire order.
 * SET_QP_STATE: as MANA_HW_RNIC_SET_QP_STATE of version 3, for queue pairs of either
 * format; what it says of a VLAN counts with MANA_HW_RNIC_ATTR_ADDRESS.
 */
struct mana_hw_ext_config_address_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint8_t gid[16];
	uint32_t operation; /* MANA_HW_RNIC_CONFIG_ADD, MANA_HW_RNIC_CONFIG_REMOVE */
	uint16_t vlan;
	uint16_t reserved;
};
MANA_HW_SIZE(struct mana_hw_ext_config_address_req, 72);
MANA_HW_AT(struct mana_hw_ext_config_address_req, gid, 48);
MANA_HW_AT(struct mana_hw_ext_config_address_req, vlan, 68);

/*
 * CONFIG_ADDRESS with MANA_HW_EXT_MACS: the MAC address that the address is reached by;
 * zeros, and the shorter request: that of the NIC.
 */
struct mana_hw_ext_config_mac_address_req {
	struct mana_hw_ext_config_address_req base;
	uint8_t mac[6];
	uint8_t reserved[2];
};
MANA_HW_SIZE(struct mana_hw_ext_config_mac_address_req, 80);
MANA_HW_AT(struct mana_hw_ext_config_mac_address_req, mac, 72);

struct mana_hw_ext_set_qp_state_req {
	struct mana_hw_rnic_set_qp_state_req base;
	uint16_t vlan; /* MANA_HW_EXT_VLAN_* */
	uint16_t reserved1;
	uint32_t reserved2;
};
MANA_HW_SIZE(struct mana_hw_ext_set_qp_state_req, 192);
MANA_HW_AT(struct mana_hw_ext_set_qp_state_req, vlan, 184);

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

#endif
