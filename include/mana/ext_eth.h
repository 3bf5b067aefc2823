/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) OR Apache-2.0 */
/*
 * Packet queues and flow rules (docs/extensions.md): commands of the Ethernet
 * device for who has negotiated the extension with the RDMA device. Little
 * endian; what a flow rule looks at is byte strings in wire order.
 */
#ifndef MANA_EXT_ETH_H
#define MANA_EXT_ETH_H

#include <mana/eth.h>

enum mana_hw_ext_eth_opcode {
	MANA_HW_EXT_CREATE_PACKET_WQ = 0x2f000, /* destroyed by MANA_HW_ETH_DESTROY_WQ_OBJ */
	MANA_HW_EXT_ADD_FLOW = 0x2f001,
	MANA_HW_EXT_REMOVE_FLOW = 0x2f002,
	MANA_HW_EXT_CREATE_SPREAD = 0x2f003,
	MANA_HW_EXT_DESTROY_SPREAD = 0x2f004
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
