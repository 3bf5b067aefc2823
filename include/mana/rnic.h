/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) OR Apache-2.0 */
/*
 * HWC messages of the RDMA device (GDMA device type 3). Little endian. Each
 * message begins with the request (40 bytes) or response (32 bytes) header of
 * the hardware channel, kept opaque here.
 */
#ifndef MANA_RNIC_H
#define MANA_RNIC_H

#include <mana/types.h>

#define MANA_HW_RNIC_DEVICE_TYPE 3

enum mana_hw_rnic_opcode {
	MANA_HW_RNIC_QUERY_CAPS = 0x30001,
	MANA_HW_RNIC_CREATE_ADAPTER = 0x30002,
	MANA_HW_RNIC_DESTROY_ADAPTER = 0x30003,
	MANA_HW_RNIC_CONFIG_ADDRESS = 0x30004,
	MANA_HW_RNIC_CONFIG_MAC = 0x30005,
	MANA_HW_RNIC_CREATE_UD_QP = 0x30006,
	MANA_HW_RNIC_DESTROY_UD_QP = 0x30007,
	MANA_HW_RNIC_CREATE_CQ = 0x30008,
	MANA_HW_RNIC_DESTROY_CQ = 0x30009,
	MANA_HW_RNIC_CREATE_RC_QP = 0x3000a,
	MANA_HW_RNIC_DESTROY_RC_QP = 0x3000b, /* and UC */
	MANA_HW_RNIC_SET_QP_STATE = 0x3000d,
	MANA_HW_RNIC_CREATE_UC_QP = 0x30020,
	MANA_HW_RNIC_QUERY_VF_COUNTERS = 0x30022,
	MANA_HW_RNIC_QUERY_DEVICE_COUNTERS = 0x30023
};

/* Adapter capabilities and requested features. */
#define MANA_HW_RNIC_CAP_ERROR_CQES (1ULL << 4)
#define MANA_HW_RNIC_CAP_DEVICE_COUNTERS (1ULL << 5)
#define MANA_HW_RNIC_CAP_MULTI_PORT (1ULL << 6)
#define MANA_HW_RNIC_FEATURE_ERROR_CQES (1ULL << 1)

enum mana_hw_rnic_config_op { MANA_HW_RNIC_CONFIG_ADD = 1, MANA_HW_RNIC_CONFIG_REMOVE = 2 };
enum mana_hw_rnic_address_type { MANA_HW_RNIC_ADDRESS_IPV4 = 1, MANA_HW_RNIC_ADDRESS_IPV6 = 2 };

/* Where the fields of a message start. */
struct mana_hw_rnic_req_head {
	uint32_t words[10];
};
struct mana_hw_rnic_resp_head {
	uint32_t words[8];
};
MANA_HW_SIZE(struct mana_hw_rnic_req_head, 40);
MANA_HW_SIZE(struct mana_hw_rnic_resp_head, 32);

struct mana_hw_rnic_query_caps_resp {
	struct mana_hw_rnic_resp_head head;
	uint32_t max_sq_id;
	uint32_t max_rq_id;
	uint32_t max_cq_id;
	uint32_t max_qp;
	uint32_t max_cq;
	uint32_t max_mr;
	uint32_t max_pd;
	uint32_t max_inbound_reads;
	uint32_t max_outbound_reads;
	uint32_t max_mw;
	uint32_t max_srq;
	uint32_t requester_sq_bytes;
	uint32_t responder_sq_bytes;
	uint32_t requester_rq_bytes;
	uint32_t responder_rq_bytes;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_bytes;
	uint64_t features; /* absent in the 104-byte response of older drivers */
};
MANA_HW_SIZE(struct mana_hw_rnic_query_caps_resp, 112);
MANA_HW_AT(struct mana_hw_rnic_query_caps_resp, max_sq_id, 32);
MANA_HW_AT(struct mana_hw_rnic_query_caps_resp, max_qp, 44);
MANA_HW_AT(struct mana_hw_rnic_query_caps_resp, max_inbound_reads, 60);
MANA_HW_AT(struct mana_hw_rnic_query_caps_resp, max_mw, 68);
MANA_HW_AT(struct mana_hw_rnic_query_caps_resp, requester_sq_bytes, 76);
MANA_HW_AT(struct mana_hw_rnic_query_caps_resp, max_send_sge, 92);
MANA_HW_AT(struct mana_hw_rnic_query_caps_resp, features, 104);

struct mana_hw_rnic_create_adapter_req {
	struct mana_hw_rnic_req_head head;
	uint32_t event_eq;
	uint32_t reserved;
	uint64_t features;
};
MANA_HW_SIZE(struct mana_hw_rnic_create_adapter_req, 56);
MANA_HW_AT(struct mana_hw_rnic_create_adapter_req, event_eq, 40);
MANA_HW_AT(struct mana_hw_rnic_create_adapter_req, features, 48);

struct mana_hw_rnic_create_adapter_resp {
	struct mana_hw_rnic_resp_head head;
	uint64_t adapter;
};
MANA_HW_SIZE(struct mana_hw_rnic_create_adapter_resp, 40);

struct mana_hw_rnic_destroy_adapter_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
};
MANA_HW_SIZE(struct mana_hw_rnic_destroy_adapter_req, 48);

struct mana_hw_rnic_config_address_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint32_t operation;
	uint32_t type;
	uint8_t gid[16]; /* last byte first */
};
MANA_HW_SIZE(struct mana_hw_rnic_config_address_req, 72);
MANA_HW_AT(struct mana_hw_rnic_config_address_req, operation, 48);
MANA_HW_AT(struct mana_hw_rnic_config_address_req, gid, 56);

struct mana_hw_rnic_config_mac_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint32_t operation;
	uint8_t mac[6]; /* last byte first */
	uint8_t reserved[6];
};
MANA_HW_SIZE(struct mana_hw_rnic_config_mac_req, 64);
MANA_HW_AT(struct mana_hw_rnic_config_mac_req, mac, 52);

enum mana_hw_rnic_ud_type { MANA_HW_RNIC_UD_GSI = 1, MANA_HW_RNIC_UD_USER = 4 };

struct mana_hw_rnic_create_ud_qp_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t pd;
	uint64_t send_cq;
	uint64_t recv_cq;
	uint64_t sq_region;
	uint64_t rq_region;
	uint32_t type;
	uint32_t doorbell_page;
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
};
MANA_HW_SIZE(struct mana_hw_rnic_create_ud_qp_req, 112);
MANA_HW_AT(struct mana_hw_rnic_create_ud_qp_req, sq_region, 72);
MANA_HW_AT(struct mana_hw_rnic_create_ud_qp_req, type, 88);

struct mana_hw_rnic_create_ud_qp_resp {
	struct mana_hw_rnic_resp_head head;
	uint64_t qp;
	uint32_t sq_id;
	uint32_t rq_id; /* the QP number */
};
MANA_HW_SIZE(struct mana_hw_rnic_create_ud_qp_resp, 48);

/* Also for RC and UC QPs. */
struct mana_hw_rnic_destroy_qp_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t qp;
};
MANA_HW_SIZE(struct mana_hw_rnic_destroy_qp_req, 56);

struct mana_hw_rnic_create_cq_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t region;
	uint32_t eq_id;
	uint32_t doorbell_page;
};
MANA_HW_SIZE(struct mana_hw_rnic_create_cq_req, 64);
MANA_HW_AT(struct mana_hw_rnic_create_cq_req, region, 48);
MANA_HW_AT(struct mana_hw_rnic_create_cq_req, eq_id, 56);

struct mana_hw_rnic_create_cq_resp {
	struct mana_hw_rnic_resp_head head;
	uint64_t cq;
	uint32_t cq_id;
	uint32_t reserved;
};
MANA_HW_SIZE(struct mana_hw_rnic_create_cq_resp, 48);

struct mana_hw_rnic_destroy_cq_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t cq;
};
MANA_HW_SIZE(struct mana_hw_rnic_destroy_cq_req, 56);

/* Queues of an RC QP, in the order of regions and ids. */
enum mana_hw_rnic_rc_queue {
	MANA_HW_RNIC_REQUESTER_SQ = 0,
	MANA_HW_RNIC_RESPONDER_SQ = 1,
	MANA_HW_RNIC_FAST_REGISTER_SQ = 2,
	MANA_HW_RNIC_REQUESTER_RQ = 3,
	MANA_HW_RNIC_RESPONDER_RQ = 4, /* its id is the QP number */
	MANA_HW_RNIC_RC_QUEUES = 5
};

struct mana_hw_rnic_create_rc_qp_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t pd;
	uint64_t send_cq;
	uint64_t recv_cq;
	uint64_t regions[MANA_HW_RNIC_RC_QUEUES];
	uint64_t obsolete[2];
	uint64_t flags;
	uint32_t doorbell_page;
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t reserved;
};
#define MANA_HW_RNIC_RC_NO_FAST_REGISTER (1ULL << 1)
MANA_HW_SIZE(struct mana_hw_rnic_create_rc_qp_req, 160);
MANA_HW_AT(struct mana_hw_rnic_create_rc_qp_req, regions, 72);
MANA_HW_AT(struct mana_hw_rnic_create_rc_qp_req, flags, 128);
MANA_HW_AT(struct mana_hw_rnic_create_rc_qp_req, doorbell_page, 136);

struct mana_hw_rnic_create_rc_qp_resp {
	struct mana_hw_rnic_resp_head head;
	uint64_t qp;
	uint32_t queue_ids[MANA_HW_RNIC_RC_QUEUES];
	uint32_t reserved;
};
MANA_HW_SIZE(struct mana_hw_rnic_create_rc_qp_resp, 64);

/* Queues of a UC QP, in the order of regions and ids (RNIC 2.13, 3.13). */
enum mana_hw_rnic_uc_queue {
	MANA_HW_RNIC_UC_SQ = 0,
	MANA_HW_RNIC_UC_RQ = 1, /* its id is the QP number */
	MANA_HW_RNIC_UC_MEMORY_SQ = 2, /* memory management */
	MANA_HW_RNIC_UC_QUEUES = 3
};

struct mana_hw_rnic_create_uc_qp_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t pd;
	uint64_t send_cq;
	uint64_t recv_cq;
	uint64_t regions[MANA_HW_RNIC_UC_QUEUES];
	uint64_t flags;
	uint32_t doorbell_page;
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t reserved;
};
MANA_HW_SIZE(struct mana_hw_rnic_create_uc_qp_req, 128);
MANA_HW_AT(struct mana_hw_rnic_create_uc_qp_req, regions, 72);
MANA_HW_AT(struct mana_hw_rnic_create_uc_qp_req, flags, 96);
MANA_HW_AT(struct mana_hw_rnic_create_uc_qp_req, doorbell_page, 104);

struct mana_hw_rnic_create_uc_qp_resp {
	struct mana_hw_rnic_resp_head head;
	uint64_t qp;
	uint32_t queue_ids[MANA_HW_RNIC_UC_QUEUES];
	uint32_t reserved;
};
MANA_HW_SIZE(struct mana_hw_rnic_create_uc_qp_resp, 56);

/* Path of a QP. GIDs and MACs are stored last byte first. */
struct mana_hw_rnic_address {
	uint8_t source_gid[16];
	uint8_t dest_gid[16];
	uint8_t source_mac[6];
	uint8_t dest_mac[6];
	uint8_t source_type;
	uint8_t dest_type;
	uint8_t hop_limit;
	uint8_t dscp;
	uint16_t udp_source_port;
	uint16_t udp_dest_port;
	uint32_t flow_label;
};
MANA_HW_SIZE(struct mana_hw_rnic_address, 56);
MANA_HW_AT(struct mana_hw_rnic_address, source_mac, 32);
MANA_HW_AT(struct mana_hw_rnic_address, source_type, 44);
MANA_HW_AT(struct mana_hw_rnic_address, udp_source_port, 48);

enum mana_hw_rnic_qp_state {
	MANA_HW_RNIC_QP_RESET = 0,
	MANA_HW_RNIC_QP_INIT = 1,
	MANA_HW_RNIC_QP_RTR = 2,
	MANA_HW_RNIC_QP_RTS = 3,
	MANA_HW_RNIC_QP_SQD = 4,
	MANA_HW_RNIC_QP_SQE = 5,
	MANA_HW_RNIC_QP_ERR = 6
};

/* Attribute mask of SET_QP_STATE: a field counts only if its bit is set. */
#define MANA_HW_RNIC_ATTR_STATE (1ULL << 0)
#define MANA_HW_RNIC_ATTR_ACCESS (1ULL << 3)
#define MANA_HW_RNIC_ATTR_QKEY (1ULL << 6)
#define MANA_HW_RNIC_ATTR_ADDRESS (1ULL << 7)
#define MANA_HW_RNIC_ATTR_PATH_MTU (1ULL << 8)
#define MANA_HW_RNIC_ATTR_TIMEOUT (1ULL << 9)
#define MANA_HW_RNIC_ATTR_RETRY (1ULL << 10)
#define MANA_HW_RNIC_ATTR_RNR_RETRY (1ULL << 11)
#define MANA_HW_RNIC_ATTR_RQ_PSN (1ULL << 12)
#define MANA_HW_RNIC_ATTR_MAX_READ_OUT (1ULL << 13)
#define MANA_HW_RNIC_ATTR_MIN_RNR_TIMER (1ULL << 15)
#define MANA_HW_RNIC_ATTR_SQ_PSN (1ULL << 16)
#define MANA_HW_RNIC_ATTR_MAX_READ_IN (1ULL << 17)
#define MANA_HW_RNIC_ATTR_DEST_QPN (1ULL << 20)
#define MANA_HW_RNIC_ATTR_RATE_LIMIT (1ULL << 25)

/* Rights of a QP, IB numbering. */
#define MANA_HW_RNIC_QP_ACCESS_REMOTE_WRITE 0x2u
#define MANA_HW_RNIC_QP_ACCESS_REMOTE_READ 0x4u
#define MANA_HW_RNIC_QP_ACCESS_REMOTE_ATOMIC 0x8u

struct mana_hw_rnic_set_qp_state_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
	uint64_t qp;
	uint64_t attr_mask;
	uint32_t state;
	uint32_t path_mtu; /* 1 = 256 ... 5 = 4096 */
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qpn;
	uint32_t max_read_in;
	uint32_t retry_count;
	uint32_t rnr_retry;
	uint32_t min_rnr_timer;
	uint32_t rate_limit;
	struct mana_hw_rnic_address address;
	uint64_t reserved1; /* version 1 of the request ends here */
	uint32_t qkey;
	uint32_t access_flags;
	uint8_t timeout;
	uint8_t max_read_out;
	uint16_t reserved2;
	uint32_t reserved3;
};
#define MANA_HW_RNIC_SET_QP_STATE_V1_SIZE 160
MANA_HW_SIZE(struct mana_hw_rnic_set_qp_state_req, 184);
MANA_HW_AT(struct mana_hw_rnic_set_qp_state_req, attr_mask, 56);
MANA_HW_AT(struct mana_hw_rnic_set_qp_state_req, state, 64);
MANA_HW_AT(struct mana_hw_rnic_set_qp_state_req, max_read_in, 84);
MANA_HW_AT(struct mana_hw_rnic_set_qp_state_req, rate_limit, 100);
MANA_HW_AT(struct mana_hw_rnic_set_qp_state_req, address, 104);
MANA_HW_AT(struct mana_hw_rnic_set_qp_state_req, reserved1, MANA_HW_RNIC_SET_QP_STATE_V1_SIZE);
MANA_HW_AT(struct mana_hw_rnic_set_qp_state_req, qkey, 168);
MANA_HW_AT(struct mana_hw_rnic_set_qp_state_req, timeout, 176);

struct mana_hw_rnic_query_counters_req {
	struct mana_hw_rnic_req_head head;
	uint64_t adapter;
};
MANA_HW_SIZE(struct mana_hw_rnic_query_counters_req, 48);

struct mana_hw_rnic_vf_counters_resp {
	struct mana_hw_rnic_resp_head head;
	uint64_t requester_timeouts;
	uint64_t requester_oos_naks;
	uint64_t requester_rnr_naks;
	uint64_t responder_rnr_naks;
	uint64_t responder_out_of_sequence;
	uint64_t responder_duplicates;
	uint64_t requester_implicit_naks;
	uint64_t read_response_psn_mismatches;
	uint64_t nak_invalid_request;
	uint64_t nak_access_error;
	uint64_t nak_operation_error;
	uint64_t nak_invalid_read;
	uint64_t responder_local_length_errors;
	uint64_t requester_local_protection_errors;
	uint64_t responder_remote_access_errors;
	uint64_t responder_local_qp_errors;
	uint64_t responder_malformed_wqes;
	uint64_t general_hardware_errors;
	uint64_t requester_rnr_retries_exceeded;
	uint64_t requester_retries_exceeded;
	uint64_t fatal_errors;
	uint64_t received_cnps;
	uint64_t congested_qps;
	uint64_t rate_increases;
	uint64_t recovered_qps;
	uint64_t current_rate;
	uint64_t duplicate_rx_requests;
	uint64_t tx_bytes;
	uint64_t rx_bytes;
	uint64_t rx_sends;
	uint64_t rx_writes;
	uint64_t rx_reads;
	uint64_t tx_packets;
	uint64_t rx_packets;
};
MANA_HW_SIZE(struct mana_hw_rnic_vf_counters_resp, 304);
MANA_HW_AT(struct mana_hw_rnic_vf_counters_resp, responder_local_length_errors, 128);
MANA_HW_AT(struct mana_hw_rnic_vf_counters_resp, rx_packets, 296);

struct mana_hw_rnic_device_counters_resp {
	struct mana_hw_rnic_resp_head head;
	uint32_t sent_cnps;
	uint32_t received_ecns;
	uint32_t reserved1;
	uint32_t received_cnps;
	uint32_t congested_qps;
	uint32_t recovered_qps;
	uint32_t rate_increases;
	uint32_t reserved2;
};
MANA_HW_SIZE(struct mana_hw_rnic_device_counters_resp, 64);

#endif
