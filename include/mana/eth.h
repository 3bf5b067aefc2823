/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) OR Apache-2.0 */
/*
 * The Ethernet device (GDMA device type 2): HWC messages, TX work requests and
 * completions. Little endian. A request begins with the 40-byte, a response
 * with the 32-byte header of the hardware channel.
 */
#ifndef MANA_ETH_H
#define MANA_ETH_H

#include <mana/types.h>

#define MANA_HW_ETH_DEVICE_TYPE 2

enum mana_hw_eth_opcode {
	MANA_HW_ETH_QUERY_DEV_CONFIG = 0x20001,
	MANA_HW_ETH_QUERY_GF_STAT = 0x20002,
	MANA_HW_ETH_CONFIG_VPORT_TX = 0x20003,
	MANA_HW_ETH_CREATE_WQ_OBJ = 0x20004,
	MANA_HW_ETH_DESTROY_WQ_OBJ = 0x20005,
	MANA_HW_ETH_FENCE_RQ = 0x20006,
	MANA_HW_ETH_CONFIG_VPORT_RX = 0x20007,
	MANA_HW_ETH_QUERY_VPORT_CONFIG = 0x20008,
	MANA_HW_ETH_QUERY_LINK_CONFIG = 0x2000a,
	MANA_HW_ETH_SET_BW_CLAMP = 0x2000b,
	MANA_HW_ETH_QUERY_PHY_STAT = 0x2000c,
	/* Physical functions only. */
	MANA_HW_ETH_REGISTER_FILTER = 0x28000,
	MANA_HW_ETH_DEREGISTER_FILTER = 0x28001,
	MANA_HW_ETH_REGISTER_HW_PORT = 0x28003,
	MANA_HW_ETH_DEREGISTER_HW_PORT = 0x28004
};

enum mana_hw_eth_wq_type { MANA_HW_ETH_SQ = 1, MANA_HW_ETH_RQ = 2 };

#define MANA_HW_ETH_NO_EQ 0xffffU
#define MANA_HW_ETH_NO_OBJECT 0xffffffffffffffffULL
#define MANA_HW_ETH_KEY_BYTES 40
#define MANA_HW_ETH_HEADER_BYTES 14
#define MANA_HW_ETH_GF_STAT_ALL 0x07ffffffULL

/* GDMA 6.3: what the adapter can do. */
struct mana_hw_eth_dev_config_req {
	uint8_t header[40];
	uint64_t driver_flags[4];
	uint32_t protocol_major;
	uint32_t protocol_minor;
	uint32_t protocol_micro;
	uint32_t reserved;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_dev_config_req, 88);
MANA_HW_AT(struct mana_hw_eth_dev_config_req, driver_flags, 40);
MANA_HW_AT(struct mana_hw_eth_dev_config_req, protocol_major, 72);
MANA_HW_AT(struct mana_hw_eth_dev_config_req, protocol_minor, 76);
MANA_HW_AT(struct mana_hw_eth_dev_config_req, protocol_micro, 80);

/* Answered with the version asked for: 6.12 wants exactly 2, 7.2 wants 3. */
struct mana_hw_eth_dev_config_resp {
	uint8_t header[32];
	uint64_t device_flags[4];
	uint16_t vports;
	uint8_t host_mode; /* version 3: no PF commands */
	uint8_t reserved0;
	uint32_t max_eqs;
	uint16_t mtu; /* version 2: largest frame with its 14-byte header */
	uint16_t reserved1;
	uint32_t reserved2;
} MANA_HW_PACKED;
#define MANA_HW_ETH_DEV_EIGHT_PACKETS (1ULL << 5) /* of device_flags[0]: MANA_HW_ETH_CQE_RX_EIGHT */
MANA_HW_SIZE(struct mana_hw_eth_dev_config_resp, 80);
MANA_HW_AT(struct mana_hw_eth_dev_config_resp, device_flags, 32);
MANA_HW_AT(struct mana_hw_eth_dev_config_resp, vports, 64);
MANA_HW_AT(struct mana_hw_eth_dev_config_resp, host_mode, 66);
MANA_HW_AT(struct mana_hw_eth_dev_config_resp, max_eqs, 68);
MANA_HW_AT(struct mana_hw_eth_dev_config_resp, mtu, 72);

/* GDMA 6.4: queues and address of a port. */
struct mana_hw_eth_vport_config_req {
	uint8_t header[40];
	uint32_t port;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_vport_config_req, 44);
MANA_HW_AT(struct mana_hw_eth_vport_config_req, port, 40);

struct mana_hw_eth_vport_config_resp {
	uint8_t header[32];
	uint32_t max_sqs;
	uint32_t max_rqs;
	uint32_t table_entries;
	uint32_t reserved0;
	uint8_t mac[6];
	uint16_t reserved1;
	uint64_t vport;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_vport_config_resp, 64);
MANA_HW_AT(struct mana_hw_eth_vport_config_resp, max_sqs, 32);
MANA_HW_AT(struct mana_hw_eth_vport_config_resp, max_rqs, 36);
MANA_HW_AT(struct mana_hw_eth_vport_config_resp, table_entries, 40);
MANA_HW_AT(struct mana_hw_eth_vport_config_resp, mac, 48);
MANA_HW_AT(struct mana_hw_eth_vport_config_resp, vport, 56);

/* GDMA 6.5: binds the queues created afterwards to a PD and a doorbell page. */
struct mana_hw_eth_vport_tx_req {
	uint8_t header[40];
	uint64_t vport;
	uint32_t pd_id;
	uint32_t doorbell_page;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_vport_tx_req, 56);
MANA_HW_AT(struct mana_hw_eth_vport_tx_req, vport, 40);
MANA_HW_AT(struct mana_hw_eth_vport_tx_req, pd_id, 48);
MANA_HW_AT(struct mana_hw_eth_vport_tx_req, doorbell_page, 52);

struct mana_hw_eth_vport_tx_resp {
	uint8_t header[32];
	uint16_t vport_offset; /* to be put into each TX WQE */
	uint8_t short_oob_allowed;
	uint8_t reserved;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_vport_tx_resp, 36);
MANA_HW_AT(struct mana_hw_eth_vport_tx_resp, vport_offset, 32);
MANA_HW_AT(struct mana_hw_eth_vport_tx_resp, short_oob_allowed, 34);

/* GDMA 6.6: a work queue with its completion queue. */
struct mana_hw_eth_create_wq_req {
	uint8_t header[40];
	uint64_t vport;
	uint32_t wq_type;
	uint32_t reserved;
	uint64_t wq_region;
	uint64_t cq_region;
	uint32_t wq_bytes;
	uint32_t cq_bytes;
	uint32_t moderation;
	uint32_t eq_id; /* version 1 of the request ends here */
	uint8_t rq_chain; /* version 2 */
	uint8_t moderated; /* version 3, as the rest */
	uint16_t moderation_count;
	uint16_t moderation_usec;
	uint16_t reserved1;
} MANA_HW_PACKED;
#define MANA_HW_ETH_CREATE_WQ_V1_SIZE 88
MANA_HW_SIZE(struct mana_hw_eth_create_wq_req, 96);
MANA_HW_AT(struct mana_hw_eth_create_wq_req, rq_chain, MANA_HW_ETH_CREATE_WQ_V1_SIZE);
MANA_HW_AT(struct mana_hw_eth_create_wq_req, moderation_count, 90);
MANA_HW_AT(struct mana_hw_eth_create_wq_req, moderation_usec, 92);
MANA_HW_AT(struct mana_hw_eth_create_wq_req, vport, 40);
MANA_HW_AT(struct mana_hw_eth_create_wq_req, wq_type, 48);
MANA_HW_AT(struct mana_hw_eth_create_wq_req, wq_region, 56);
MANA_HW_AT(struct mana_hw_eth_create_wq_req, cq_region, 64);
MANA_HW_AT(struct mana_hw_eth_create_wq_req, wq_bytes, 72);
MANA_HW_AT(struct mana_hw_eth_create_wq_req, cq_bytes, 76);
MANA_HW_AT(struct mana_hw_eth_create_wq_req, moderation, 80);
MANA_HW_AT(struct mana_hw_eth_create_wq_req, eq_id, 84);

struct mana_hw_eth_create_wq_resp {
	uint8_t header[32];
	uint32_t wq_id;
	uint32_t cq_id;
	uint64_t wq_object;
	uint16_t moderation_count; /* version 2, as the rest */
	uint16_t moderation_usec;
	uint8_t moderated;
	uint8_t reserved[3];
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_create_wq_resp, 56);
MANA_HW_AT(struct mana_hw_eth_create_wq_resp, moderation_count, 48);
MANA_HW_AT(struct mana_hw_eth_create_wq_resp, moderated, 52);
MANA_HW_AT(struct mana_hw_eth_create_wq_resp, wq_id, 32);
MANA_HW_AT(struct mana_hw_eth_create_wq_resp, cq_id, 36);
MANA_HW_AT(struct mana_hw_eth_create_wq_resp, wq_object, 40);

struct mana_hw_eth_destroy_wq_req {
	uint8_t header[40];
	uint32_t wq_type;
	uint32_t reserved;
	uint64_t wq_object;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_destroy_wq_req, 56);
MANA_HW_AT(struct mana_hw_eth_destroy_wq_req, wq_type, 40);
MANA_HW_AT(struct mana_hw_eth_destroy_wq_req, wq_object, 48);

/* GDMA 6.7: asks for a fence CQE behind all earlier receives. */
struct mana_hw_eth_fence_rq_req {
	uint8_t header[40];
	uint64_t wq_object;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_fence_rq_req, 48);
MANA_HW_AT(struct mana_hw_eth_fence_rq_req, wq_object, 40);

/*
 * GDMA 6.8: receive state and steering. The table, table_entries handles of 8
 * bytes, is at table_offset.
 */
struct mana_hw_eth_vport_rx_req {
	uint8_t header[40];
	uint64_t vport;
	uint16_t table_entries;
	uint16_t table_offset;
	uint32_t rx_enable;
	uint32_t rss_enable;
	uint8_t update_default;
	uint8_t update_key;
	uint8_t update_table;
	uint8_t reserved0;
	uint64_t default_rq;
	uint8_t key[MANA_HW_ETH_KEY_BYTES];
	uint8_t coalescing; /* up to four packets a CQE */
	uint8_t reserved1[3];
	uint16_t hash_types; /* version 5, as the rest */
	uint8_t eight_packets; /* a CQE, where coalescing is 1 */
	uint8_t reserved2;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_vport_rx_req, 120);
MANA_HW_AT(struct mana_hw_eth_vport_rx_req, vport, 40);
MANA_HW_AT(struct mana_hw_eth_vport_rx_req, table_entries, 48);
MANA_HW_AT(struct mana_hw_eth_vport_rx_req, table_offset, 50);
MANA_HW_AT(struct mana_hw_eth_vport_rx_req, rx_enable, 52);
MANA_HW_AT(struct mana_hw_eth_vport_rx_req, rss_enable, 56);
MANA_HW_AT(struct mana_hw_eth_vport_rx_req, update_default, 60);
MANA_HW_AT(struct mana_hw_eth_vport_rx_req, update_key, 61);
MANA_HW_AT(struct mana_hw_eth_vport_rx_req, update_table, 62);
MANA_HW_AT(struct mana_hw_eth_vport_rx_req, default_rq, 64);
MANA_HW_AT(struct mana_hw_eth_vport_rx_req, key, 72);
MANA_HW_AT(struct mana_hw_eth_vport_rx_req, coalescing, 112);
MANA_HW_AT(struct mana_hw_eth_vport_rx_req, eight_packets, 118);

/* 6.12 takes only the first 32 bytes. */
struct mana_hw_eth_vport_rx_resp {
	uint8_t header[32];
	uint32_t coalescing_ns;
	uint32_t reserved;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_vport_rx_resp, 40);
MANA_HW_AT(struct mana_hw_eth_vport_rx_resp, coalescing_ns, 32);

/* GDMA 6.9: QUERY_GF_STAT and QUERY_PHY_STAT. */
struct mana_hw_eth_stat_req {
	uint8_t header[40];
	uint64_t wanted;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_stat_req, 48);
MANA_HW_AT(struct mana_hw_eth_stat_req, wanted, 40);

/* Broadcast comes before multicast here, but after it in the mask. */
struct mana_hw_eth_gf_stat_resp {
	uint8_t header[32];
	uint64_t reported;
	uint64_t rx_no_wqe;
	uint64_t rx_vport_disabled;
	uint64_t rx_bytes;
	uint64_t rx_unicast_packets;
	uint64_t rx_unicast_bytes;
	uint64_t rx_broadcast_packets;
	uint64_t rx_broadcast_bytes;
	uint64_t rx_multicast_packets;
	uint64_t rx_multicast_bytes;
	uint64_t tx_function_disabled;
	uint64_t tx_vport_disabled;
	uint64_t tx_vport_offset;
	uint64_t tx_vlan;
	uint64_t tx_ethertype;
	uint64_t tx_source;
	uint64_t tx_sq_pd;
	uint64_t tx_cq_pd;
	uint64_t tx_mtu;
	uint64_t tx_oob;
	uint64_t tx_bytes;
	uint64_t tx_unicast_packets;
	uint64_t tx_unicast_bytes;
	uint64_t tx_broadcast_packets;
	uint64_t tx_broadcast_bytes;
	uint64_t tx_multicast_packets;
	uint64_t tx_multicast_bytes;
	uint64_t tx_gdma;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_gf_stat_resp, 256);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, reported, 32);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, rx_no_wqe, 40);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, rx_vport_disabled, 48);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, rx_bytes, 56);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, rx_unicast_packets, 64);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, rx_unicast_bytes, 72);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, rx_broadcast_packets, 80);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, rx_broadcast_bytes, 88);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, rx_multicast_packets, 96);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, rx_multicast_bytes, 104);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_function_disabled, 112);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_vport_disabled, 120);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_vport_offset, 128);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_vlan, 136);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_ethertype, 144);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_source, 152);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_sq_pd, 160);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_cq_pd, 168);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_mtu, 176);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_oob, 184);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_bytes, 192);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_unicast_packets, 200);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_unicast_bytes, 208);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_broadcast_packets, 216);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_broadcast_bytes, 224);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_multicast_packets, 232);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_multicast_bytes, 240);
MANA_HW_AT(struct mana_hw_eth_gf_stat_resp, tx_gdma, 248);

/* Per traffic class: receive and transmit in turn. */
struct mana_hw_eth_phy_stat_resp {
	uint8_t header[32];
	uint64_t reported;
	uint64_t rx_drops;
	uint64_t tx_drops;
	uint64_t packets[16];
	uint64_t bytes[16];
	uint64_t pauses[16];
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_phy_stat_resp, 440);
MANA_HW_AT(struct mana_hw_eth_phy_stat_resp, reported, 32);
MANA_HW_AT(struct mana_hw_eth_phy_stat_resp, rx_drops, 40);
MANA_HW_AT(struct mana_hw_eth_phy_stat_resp, tx_drops, 48);
MANA_HW_AT(struct mana_hw_eth_phy_stat_resp, packets, 56);
MANA_HW_AT(struct mana_hw_eth_phy_stat_resp, bytes, 184);
MANA_HW_AT(struct mana_hw_eth_phy_stat_resp, pauses, 312);

/* GDMA 6.10: speeds in Mbit/s. */
struct mana_hw_eth_link_config_req {
	uint8_t header[40];
	uint64_t vport;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_link_config_req, 48);
MANA_HW_AT(struct mana_hw_eth_link_config_req, vport, 40);

struct mana_hw_eth_link_config_resp {
	uint8_t header[32];
	uint32_t max_speed;
	uint8_t qos_unconfigured;
	uint8_t reserved0[3];
	uint32_t current_speed;
	uint32_t reserved1;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_link_config_resp, 48);
MANA_HW_AT(struct mana_hw_eth_link_config_resp, max_speed, 32);
MANA_HW_AT(struct mana_hw_eth_link_config_resp, qos_unconfigured, 36);
MANA_HW_AT(struct mana_hw_eth_link_config_resp, current_speed, 40);

struct mana_hw_eth_bw_clamp_req {
	uint8_t header[40];
	uint64_t vport;
	uint32_t clamp; /* 1: set, 0: remove */
	uint32_t speed;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_bw_clamp_req, 56);
MANA_HW_AT(struct mana_hw_eth_bw_clamp_req, vport, 40);
MANA_HW_AT(struct mana_hw_eth_bw_clamp_req, clamp, 48);
MANA_HW_AT(struct mana_hw_eth_bw_clamp_req, speed, 52);

struct mana_hw_eth_bw_clamp_resp {
	uint8_t header[32];
	uint8_t qos_unconfigured;
	uint8_t reserved[7];
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_bw_clamp_resp, 40);
MANA_HW_AT(struct mana_hw_eth_bw_clamp_resp, qos_unconfigured, 32);

/* flags of struct mana_hw_eth_tx_oob. */
#define MANA_HW_ETH_TX_FORMAT MANA_HW_BITS32(1, 0)
#define MANA_HW_ETH_TX_FORMAT_SHORT 0U
#define MANA_HW_ETH_TX_FORMAT_LONG 1U
#define MANA_HW_ETH_TX_IPV4 (1U << 2)
#define MANA_HW_ETH_TX_IPV6 (1U << 3)
#define MANA_HW_ETH_TX_IP_CHECKSUM (1U << 4)
#define MANA_HW_ETH_TX_TCP_CHECKSUM (1U << 5)
#define MANA_HW_ETH_TX_UDP_CHECKSUM (1U << 6)
#define MANA_HW_ETH_TX_NO_COMPLETION (1U << 7)
#define MANA_HW_ETH_TX_CQ_SHIFT 8
/* place: of the transport header, of the SQ, of the vPort. */
#define MANA_HW_ETH_TX_TRANSPORT MANA_HW_BITS32(9, 0)
#define MANA_HW_ETH_TX_SQ MANA_HW_BITS32(23, 10)
#define MANA_HW_ETH_TX_SQ_SHIFT 10
#define MANA_HW_ETH_TX_VPORT_SHIFT 24
/* vlan: tag to be inserted. */
#define MANA_HW_ETH_TX_ENCAPSULATED (1U << 0)
#define MANA_HW_ETH_TX_INSERT_VLAN (1U << 3)
#define MANA_HW_ETH_TX_PCP_SHIFT 16
#define MANA_HW_ETH_TX_DEI (1U << 19)
#define MANA_HW_ETH_TX_VLAN_SHIFT 20
/* inner: vPort offset of the long form. */
#define MANA_HW_ETH_TX_LONG_VPORT MANA_HW_BITS32(27, 16)
#define MANA_HW_ETH_TX_LONG_VPORT_SHIFT 16

/* Word 0 of both CQEs: type, client type (1), vendor error. */
#define MANA_HW_ETH_CQE_TYPE MANA_HW_BITS32(5, 0)
#define MANA_HW_ETH_CQE_CLIENT (1U << 6)
#define MANA_HW_ETH_CQE_VENDOR_SHIFT 8

enum mana_hw_eth_cqe_type {
	MANA_HW_ETH_CQE_RX_OK = 1,
	MANA_HW_ETH_CQE_RX_COALESCED = 2,
	MANA_HW_ETH_CQE_RX_FENCE = 3,
	MANA_HW_ETH_CQE_RX_TRUNCATED = 4,
	MANA_HW_ETH_CQE_RX_EIGHT = 7,
	MANA_HW_ETH_CQE_TX_OK = 32,
	MANA_HW_ETH_CQE_TX_SOURCE = 33,
	MANA_HW_ETH_CQE_TX_MTU = 34,
	MANA_HW_ETH_CQE_TX_OOB = 35,
	MANA_HW_ETH_CQE_TX_ETHERTYPE = 36,
	MANA_HW_ETH_CQE_TX_HEADERS = 37,
	MANA_HW_ETH_CQE_TX_VF_DISABLED = 38,
	MANA_HW_ETH_CQE_TX_VPORT_INDEX = 39,
	MANA_HW_ETH_CQE_TX_VPORT_DISABLED = 40,
	MANA_HW_ETH_CQE_TX_VLAN = 41
};

/* flags of struct mana_hw_eth_rx_cqe. */
#define MANA_HW_ETH_RX_VLAN_ID MANA_HW_BITS32(11, 0)
#define MANA_HW_ETH_RX_VLAN_STRIPPED (1U << 12)
#define MANA_HW_ETH_RX_HASH_SHIFT 16
#define MANA_HW_ETH_RX_IP_GOOD (1U << 25)
#define MANA_HW_ETH_RX_IP_BAD (1U << 26)
#define MANA_HW_ETH_RX_TCP_GOOD (1U << 27)
#define MANA_HW_ETH_RX_TCP_BAD (1U << 28)
#define MANA_HW_ETH_RX_UDP_GOOD (1U << 29)
#define MANA_HW_ETH_RX_UDP_BAD (1U << 30)
/* Hash types, to be shifted by MANA_HW_ETH_RX_HASH_SHIFT. */
#define MANA_HW_ETH_HASH_IPV4 (1U << 0)
#define MANA_HW_ETH_HASH_TCP_IPV4 (1U << 1)
#define MANA_HW_ETH_HASH_UDP_IPV4 (1U << 2)
#define MANA_HW_ETH_HASH_IPV6 (1U << 3)
#define MANA_HW_ETH_HASH_TCP_IPV6 (1U << 4)
#define MANA_HW_ETH_HASH_UDP_IPV6 (1U << 5)

/* GDMA 6.12: client OOB of a TX WQE; the short form is its first two words. */
struct mana_hw_eth_tx_oob {
	uint32_t flags;
	uint32_t place;
	uint32_t vlan;
	uint32_t inner;
	uint32_t reserved[2];
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_tx_oob, 24);
MANA_HW_AT(struct mana_hw_eth_tx_oob, flags, 0);
MANA_HW_AT(struct mana_hw_eth_tx_oob, place, 4);
MANA_HW_AT(struct mana_hw_eth_tx_oob, vlan, 8);
MANA_HW_AT(struct mana_hw_eth_tx_oob, inner, 12);

/* GDMA 6.13: one per TX WQE, in order. */
struct mana_hw_eth_tx_cqe {
	uint32_t type;
	uint32_t data_offset;
	uint32_t wqe_offset; /* bytes from the start of the ring; bits 4:0 zero */
	uint32_t reserved[12];
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_tx_cqe, 60);
MANA_HW_AT(struct mana_hw_eth_tx_cqe, type, 0);
MANA_HW_AT(struct mana_hw_eth_tx_cqe, data_offset, 4);
MANA_HW_AT(struct mana_hw_eth_tx_cqe, wqe_offset, 8);

/* One packet of an RX CQE; length 0 ends the list. */
struct mana_hw_eth_rx_packet {
	uint16_t length;
	uint16_t reserved0;
	uint32_t reserved1;
	uint32_t hash;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_rx_packet, 12);
MANA_HW_AT(struct mana_hw_eth_rx_packet, length, 0);
MANA_HW_AT(struct mana_hw_eth_rx_packet, hash, 8);

/* In a CQE of MANA_HW_ETH_CQE_RX_EIGHT, in the place of one; length 0 ends the list. */
struct mana_hw_eth_rx_pair {
	uint32_t hash0;
	uint16_t length0;
	uint16_t length1;
	uint32_t hash1;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_rx_pair, 12);
MANA_HW_AT(struct mana_hw_eth_rx_pair, length0, 4);
MANA_HW_AT(struct mana_hw_eth_rx_pair, length1, 6);

/* GDMA 6.15: receive completion. */
struct mana_hw_eth_rx_cqe {
	uint32_t type;
	uint32_t flags;
	struct mana_hw_eth_rx_packet packets[4];
	uint32_t wqe_offset; /* bytes from the start of the ring */
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_eth_rx_cqe, 60);
MANA_HW_AT(struct mana_hw_eth_rx_cqe, flags, 4);
MANA_HW_AT(struct mana_hw_eth_rx_cqe, packets, 8);
MANA_HW_AT(struct mana_hw_eth_rx_cqe, wqe_offset, 56);

#endif /* MANA_ETH_H */
