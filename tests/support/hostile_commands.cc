// SPDX-License-Identifier: Apache-2.0
// The commands that a hostile driver knows: their messages as the ABI's structures have them, and
// what kind of value each field wants.
#include <mana/eth.h>
#include <mana/ext.h>
#include <mana/ext_eth.h>
#include <mana/gdma.h>
#include <mana/rnic.h>

#include <cstddef>

#include "support/hostile_driver.h"

namespace openmana::test {
namespace {

using Field = HostileDriver::Field;
using Command = HostileDriver::Command;
using enum HostileDriver::Kind;

constexpr std::uint16_t kEth = MANA_HW_ETH_DEVICE_TYPE;
constexpr std::uint16_t kRnic = MANA_HW_RNIC_DEVICE_TYPE;

/// A message of so many bytes without fields that matter here.
template <std::size_t Size>
struct Bytes {
    std::byte bytes[Size];
};
using Plain = Bytes<40>;  // a request that is a header
using Done = Bytes<32>;   // an answer that is one

/// A message with an array of addresses or handles behind it.
template <typename Head, std::size_t Count>
struct Followed {
    Head head;
    std::uint64_t more[Count];
};

// Within COMMAND: a field of the request, the first bytes of one, bytes at an offset; a field of
// the answer. The third argument of a small field is its value in the plainest run.
#define AT(offset, bytes, ...)     \
    Field {                        \
        offset, bytes, __VA_ARGS__ \
    }
#define IN_BYTES(member, bytes, ...) AT(offsetof(Request, member), bytes, __VA_ARGS__)
#define IN(member, ...) IN_BYTES(member, sizeof(Request::member), __VA_ARGS__)
#define OUT(member, kind) AT(offsetof(Answer, member), sizeof(Answer::member), kind)

#define BARE(...) __VA_ARGS__
#define COMMAND(opcode, device, version, request, answer, fields, results) \
    [] {                                                                   \
        using Request = BARE request;                                      \
        using Answer = BARE answer;                                        \
        return Command{opcode,  sizeof(Request), sizeof(Answer), device,   \
                       version, {BARE fields},   {BARE results}};          \
    }()

/// GDMA 5.
std::vector<Command> gdma_commands() {
    return {
        COMMAND(MANA_HW_VERIFY_DRIVER_VERSION, 0, 1, (Bytes<256>), (Bytes<296>),
                (AT(offsetof(mana_hw_verify_version_req, protocol_min), 8, kSmall, 1),
                 AT(offsetof(mana_hw_verify_version_req, protocol_max), 8, kSmall, 1)),
                ()),
        COMMAND(MANA_HW_QUERY_HWC_TIMEOUT, 0, 1, (mana_hw_hwc_timeout_req),
                (mana_hw_hwc_timeout_resp), (IN(timeout_ms, kNumber)), ()),
        COMMAND(MANA_HW_QUERY_MAX_RESOURCES, 0, 1, (Plain), (mana_hw_max_resources_resp), (), ()),
        COMMAND(MANA_HW_LIST_DEVICES, 0, 1, (Plain), (mana_hw_list_devices_resp), (), ()),
        COMMAND(MANA_HW_REGISTER_DEVICE, kRnic, 1, (Plain), (mana_hw_register_device_resp), (),
                (OUT(pd_id, kPdId), OUT(doorbell_page, kPage))),
        COMMAND(MANA_HW_REGISTER_DEVICE, kEth, 1, (Plain), (mana_hw_register_device_resp), (),
                (OUT(pd_id, kPdId), OUT(doorbell_page, kPage))),
        COMMAND(MANA_HW_DEREGISTER_DEVICE, kRnic, 1, (Plain), (Done), (), ()),
        COMMAND(MANA_HW_DEREGISTER_DEVICE, kEth, 1, (Plain), (Done), (), ()),
        COMMAND(MANA_HW_GENERATE_TEST_EQE, kRnic, 1, (mana_hw_test_eqe_req), (Done),
                (IN(eq_id, kEq)), ()),
        COMMAND(MANA_HW_CREATE_QUEUE, kRnic, 1, (mana_hw_create_queue_req),
                (mana_hw_create_queue_resp),
                (IN(type, kSmall, 4), IN(pd_id, kPdId), IN(doorbell_page, kPage),
                 IN(region, kRegion), IN(bytes, kSmall, 4096), IN(log2_throttle_limit, kSmall, 3),
                 IN(msix_index, kSmall, 1), IN(parent_eq, kEq)),
                (OUT(queue_id, kEq))),
        COMMAND(MANA_HW_DISABLE_QUEUE, kRnic, 1, (mana_hw_disable_queue_req), (Done),
                (IN(type, kSmall, 4), IN(queue_id, kEq), IN(id_allocated_on_creation, kSmall, 1)),
                ()),
        COMMAND(MANA_HW_ALLOCATE_RESOURCE_RANGE, 0, 1, (mana_hw_allocate_range_req),
                (mana_hw_allocate_range_resp),
                (IN(type, kSmall, 27), IN(count, kSmall, 1), IN(alignment, kSmall, 1),
                 IN(first_allowed, kSmall, 0)),
                (OUT(first, kPage))),
        COMMAND(MANA_HW_DESTROY_RESOURCE_RANGE, 0, 1, (mana_hw_destroy_range_req), (Done),
                (IN(type, kSmall, 27), IN(count, kSmall, 1), IN(first, kPage)), ()),
        COMMAND(MANA_HW_CREATE_DMA_REGION, 0, 1, (Followed<mana_hw_create_region_req, 3>),
                (mana_hw_create_region_resp),
                (IN(head.length, kSmall, 8192), IN(head.first_offset, kSmall, 0),
                 IN(head.page_type, kSmall, 0), IN(head.page_count, kSmall, 2),
                 IN(head.pages_here, kSmall, 2), IN(more[0], kAddress), IN(more[1], kAddress),
                 IN(more[2], kAddress)),
                (OUT(region, kRegion))),
        // The addresses come later.
        COMMAND(MANA_HW_CREATE_DMA_REGION, 0, 1, (mana_hw_create_region_req),
                (mana_hw_create_region_resp),
                (IN(length, kSmall, 8192), IN(first_offset, kSmall, 0), IN(page_type, kSmall, 0),
                 IN(page_count, kSmall, 2), IN(pages_here, kSmall, 0)),
                (OUT(region, kRegion))),
        COMMAND(MANA_HW_DMA_REGION_ADD_PAGES, 0, 1, (Followed<mana_hw_add_pages_req, 2>), (Done),
                (IN(head.region, kRegion), IN(head.pages_here, kSmall, 2), IN(more[0], kAddress),
                 IN(more[1], kAddress)),
                ()),
        COMMAND(MANA_HW_DESTROY_DMA_REGION, 0, 1, (mana_hw_destroy_region_req), (Done),
                (IN(region, kRegion)), ()),
    };
}

/// GDMA 5.14 to 5.18: protection domains, memory regions, device memory.
std::vector<Command> memory_commands() {
    return {
        COMMAND(MANA_HW_CREATE_PD, 0, 1, (mana_hw_create_pd_req), (mana_hw_create_pd_resp),
                (IN(flags, kSmall, 0)), (OUT(pd, kPd), OUT(pd_id, kPdId))),
        COMMAND(MANA_HW_CREATE_PD, 0, 1, (mana_hw_create_pd_req), (mana_hw_create_pd_resp),
                (IN(flags, kSmall, MANA_HW_EXT_PD_GRANTED_SOURCES)),
                (OUT(pd, kPd), OUT(pd_id, kPdId))),
        COMMAND(MANA_HW_DESTROY_PD, 0, 1, (mana_hw_destroy_pd_req), (Done), (IN(pd, kPd)), ()),
        COMMAND(MANA_HW_CREATE_MR, 0, 2, (mana_hw_create_mr_req), (mana_hw_create_mr_resp),
                (IN(pd, kPd), IN(type, kSmall, 2), IN(u.gva.region, kRegion),
                 IN(u.gva.virtual_address, kAddress), IN(u.gva.access, kAccess),
                 IN(dm_length, kSmall, 0)),
                (OUT(mr, kMr))),
        COMMAND(MANA_HW_CREATE_MR, 0, 2, (mana_hw_create_mr_req), (mana_hw_create_mr_resp),
                (IN(pd, kPd), IN(type, kSmall, 5), IN(u.dm.dm, kDm), IN(u.dm.offset, kSmall, 0),
                 IN(u.dm.access, kAccess), IN(dm_length, kSmall, 4096)),
                (OUT(mr, kMr))),
        COMMAND(MANA_HW_CREATE_MR, 0, 2, (mana_hw_create_mr_req), (mana_hw_create_mr_resp),
                (IN(pd, kPd), IN(type, kSmall, 4), IN(u.zero_based.region, kRegion),
                 IN(u.zero_based.access, kAccess)),
                (OUT(mr, kMr))),
        COMMAND(MANA_HW_CREATE_MR, 0, 2, (mana_hw_create_mr_req), (mana_hw_create_mr_resp),
                (IN(pd, kPd), IN(type, kSmall, 6)), (OUT(mr, kMr))),
        COMMAND(MANA_HW_CREATE_MR, 0, 2, (mana_hw_create_mr_req), (mana_hw_create_mr_resp),
                (IN(pd, kPd), IN(type, kSmall, MANA_HW_EXT_MR_FAST_REGISTER),
                 IN(u.gva.region, kSmall, 8)),
                (OUT(mr, kMr))),
        COMMAND(MANA_HW_DESTROY_MR, 0, 1, (mana_hw_destroy_mr_req), (Done), (IN(mr, kMr)), ()),
        COMMAND(MANA_HW_ALLOC_DM, 0, 1, (mana_hw_alloc_dm_req), (mana_hw_alloc_dm_resp),
                (IN(length, kSmall, 8192), IN(log2_alignment, kSmall, 12)), (OUT(dm, kDm))),
        COMMAND(MANA_HW_DESTROY_DM, 0, 1, (mana_hw_destroy_dm_req), (Done), (IN(dm, kDm)), ()),
    };
}

/// GDMA 6.
std::vector<Command> ethernet_commands() {
    return {
        COMMAND(MANA_HW_ETH_QUERY_DEV_CONFIG, kEth, 1, (mana_hw_eth_dev_config_req),
                (mana_hw_eth_dev_config_resp), (IN(protocol_minor, kSmall, 1)), ()),
        COMMAND(MANA_HW_ETH_QUERY_GF_STAT, kEth, 1, (mana_hw_eth_stat_req),
                (mana_hw_eth_gf_stat_resp), (IN(wanted, kNumber)), ()),
        COMMAND(MANA_HW_ETH_CONFIG_VPORT_TX, kEth, 1, (mana_hw_eth_vport_tx_req),
                (mana_hw_eth_vport_tx_resp),
                (IN(vport, kVport), IN(pd_id, kPdId), IN(doorbell_page, kPage)), ()),
        COMMAND(MANA_HW_ETH_CREATE_WQ_OBJ, kEth, 1, (mana_hw_eth_create_wq_req),
                (mana_hw_eth_create_wq_resp),
                (IN(vport, kVport), IN(wq_type, kSmall, 2), IN(wq_region, kRegion),
                 IN(cq_region, kRegion), IN(wq_bytes, kSmall, 4096), IN(cq_bytes, kSmall, 4096),
                 IN(eq_id, kEq)),
                (OUT(wq_object, kWq))),
        COMMAND(MANA_HW_ETH_DESTROY_WQ_OBJ, kEth, 1, (mana_hw_eth_destroy_wq_req), (Done),
                (IN(wq_type, kSmall, 2), IN(wq_object, kWq)), ()),
        COMMAND(MANA_HW_ETH_FENCE_RQ, kEth, 1, (mana_hw_eth_fence_rq_req), (Done),
                (IN(wq_object, kWq)), ()),
        COMMAND(MANA_HW_ETH_CONFIG_VPORT_RX, kEth, 2, (Followed<mana_hw_eth_vport_rx_req, 4>),
                (mana_hw_eth_vport_rx_resp),
                (IN(head.vport, kVport), IN(head.table_entries, kSmall, 4),
                 IN(head.table_offset, kSmall, 120), IN(head.rx_enable, kSmall, 1),
                 IN(head.rss_enable, kSmall, 1), IN(head.update_default, kSmall, 1),
                 IN(head.update_key, kSmall, 1), IN(head.update_table, kSmall, 1),
                 IN(head.default_rq, kWq), IN_BYTES(head.key, 8, kNumber),
                 IN(head.coalescing, kSmall, 0), IN(more[0], kWq), IN(more[1], kWq),
                 IN(more[2], kWq), IN(more[3], kWq)),
                ()),
        COMMAND(MANA_HW_ETH_QUERY_VPORT_CONFIG, kEth, 1, (mana_hw_eth_vport_config_req),
                (mana_hw_eth_vport_config_resp), (IN(port, kSmall, 0)), (OUT(vport, kVport))),
        COMMAND(MANA_HW_ETH_QUERY_LINK_CONFIG, kEth, 1, (mana_hw_eth_link_config_req),
                (mana_hw_eth_link_config_resp), (IN(vport, kVport)), ()),
        COMMAND(MANA_HW_ETH_SET_BW_CLAMP, kEth, 1, (mana_hw_eth_bw_clamp_req),
                (mana_hw_eth_bw_clamp_resp),
                (IN(vport, kVport), IN(clamp, kSmall, 1), IN(speed, kNumber)), ()),
        COMMAND(MANA_HW_ETH_QUERY_PHY_STAT, kEth, 1, (mana_hw_eth_stat_req),
                (mana_hw_eth_phy_stat_resp), (IN(wanted, kNumber)), ()),
    };
}

/// RNIC 2.
std::vector<Command> rnic_commands() {
    return {
        COMMAND(MANA_HW_RNIC_QUERY_CAPS, kRnic, 1, (Plain), (mana_hw_rnic_query_caps_resp), (), ()),
        COMMAND(MANA_HW_RNIC_CREATE_ADAPTER, kRnic, 2, (mana_hw_rnic_create_adapter_req),
                (mana_hw_rnic_create_adapter_resp), (IN(event_eq, kEq), IN(features, kNumber)),
                (OUT(adapter, kAdapter))),
        COMMAND(MANA_HW_RNIC_DESTROY_ADAPTER, kRnic, 1, (mana_hw_rnic_destroy_adapter_req), (Done),
                (IN(adapter, kAdapter)), ()),
        COMMAND(MANA_HW_RNIC_CONFIG_ADDRESS, kRnic, 1, (mana_hw_rnic_config_address_req), (Done),
                (IN(adapter, kAdapter), IN(operation, kSmall, 1), IN(type, kIpType), IN(gid, kGid)),
                ()),
        COMMAND(MANA_HW_RNIC_CONFIG_MAC, kRnic, 1, (mana_hw_rnic_config_mac_req), (Done),
                (IN(adapter, kAdapter), IN(operation, kSmall, 1), IN(mac, kMac)), ()),
        COMMAND(MANA_HW_RNIC_CREATE_UD_QP, kRnic, 1, (mana_hw_rnic_create_ud_qp_req),
                (mana_hw_rnic_create_ud_qp_resp),
                (IN(adapter, kAdapter), IN(pd, kPd), IN(send_cq, kCq), IN(recv_cq, kCq),
                 IN(sq_region, kRegion), IN(rq_region, kRegion), IN(type, kSmall, 4),
                 IN(doorbell_page, kPage), IN(max_send_wr, kSmall, 8), IN(max_recv_wr, kSmall, 8),
                 IN(max_send_sge, kSmall, 4), IN(max_recv_sge, kSmall, 4)),
                (OUT(qp, kQp))),
        COMMAND(MANA_HW_RNIC_DESTROY_UD_QP, kRnic, 1, (mana_hw_rnic_destroy_qp_req), (Done),
                (IN(adapter, kAdapter), IN(qp, kQp)), ()),
        COMMAND(
            MANA_HW_RNIC_CREATE_CQ, kRnic, 1, (mana_hw_rnic_create_cq_req),
            (mana_hw_rnic_create_cq_resp),
            (IN(adapter, kAdapter), IN(region, kRegion), IN(eq_id, kEq), IN(doorbell_page, kPage)),
            (OUT(cq, kCq))),
        COMMAND(MANA_HW_RNIC_DESTROY_CQ, kRnic, 1, (mana_hw_rnic_destroy_cq_req), (Done),
                (IN(adapter, kAdapter), IN(cq, kCq)), ()),
        COMMAND(MANA_HW_RNIC_CREATE_RC_QP, kRnic, 1, (mana_hw_rnic_create_rc_qp_req),
                (mana_hw_rnic_create_rc_qp_resp),
                (IN(adapter, kAdapter), IN(pd, kPd), IN(send_cq, kCq), IN(recv_cq, kCq),
                 IN(regions[0], kRegion), IN(regions[1], kRegion), IN(regions[3], kRegion),
                 IN(regions[4], kRegion), IN(flags, kSmall, 2), IN(doorbell_page, kPage),
                 IN(max_send_wr, kSmall, 8), IN(max_recv_wr, kSmall, 8),
                 IN(max_send_sge, kSmall, 4), IN(max_recv_sge, kSmall, 4)),
                (OUT(qp, kQp))),
        COMMAND(MANA_HW_RNIC_CREATE_UC_QP, kRnic, 1, (mana_hw_rnic_create_uc_qp_req),
                (mana_hw_rnic_create_uc_qp_resp),
                (IN(adapter, kAdapter), IN(pd, kPd), IN(send_cq, kCq), IN(recv_cq, kCq),
                 IN(regions[0], kRegion), IN(regions[1], kRegion), IN(regions[2], kRegion),
                 IN(doorbell_page, kPage), IN(max_send_wr, kSmall, 8)),
                (OUT(qp, kQp))),
        COMMAND(MANA_HW_RNIC_DESTROY_RC_QP, kRnic, 1, (mana_hw_rnic_destroy_qp_req), (Done),
                (IN(adapter, kAdapter), IN(qp, kQp)), ()),
        COMMAND(
            MANA_HW_RNIC_SET_QP_STATE, kRnic, 3, (mana_hw_rnic_set_qp_state_req), (Done),
            (IN(adapter, kAdapter), IN(qp, kQp), IN(attr_mask, kNumber), IN(state, kSmall, 3),
             IN(path_mtu, kSmall, 3), IN(rq_psn, kSmall, 0), IN(sq_psn, kSmall, 0),
             IN(dest_qpn, kNumber), IN(max_read_in, kSmall, 16), IN(retry_count, kSmall, 7),
             IN(rnr_retry, kSmall, 7), IN(min_rnr_timer, kSmall, 1), IN(address.source_gid, kGid),
             IN(address.dest_gid, kGid), IN(address.source_mac, kMac), IN(address.dest_mac, kMac),
             IN(address.source_type, kIpType), IN(address.dest_type, kIpType),
             IN(address.udp_source_port, kNumber), IN(address.udp_dest_port, kSmall, 4791),
             IN(qkey, kNumber), IN(access_flags, kSmall, 7), IN(timeout, kSmall, 14),
             IN(max_read_out, kSmall, 16)),
            ()),
        COMMAND(MANA_HW_RNIC_QUERY_VF_COUNTERS, kRnic, 1, (mana_hw_rnic_query_counters_req),
                (mana_hw_rnic_vf_counters_resp), (IN(adapter, kAdapter)), ()),
        COMMAND(MANA_HW_RNIC_QUERY_DEVICE_COUNTERS, kRnic, 1, (mana_hw_rnic_query_counters_req),
                (mana_hw_rnic_device_counters_resp), (IN(adapter, kAdapter)), ()),
    };
}

/// docs/extensions.md.
std::vector<Command> extension_commands() {
    return {
        COMMAND(MANA_HW_EXT_QUERY_CAPS, kRnic, 1, (Plain), (mana_hw_ext_query_caps_resp), (), ()),
        COMMAND(MANA_HW_EXT_CREATE_CQ, kRnic, 1, (mana_hw_ext_create_cq_req),
                (mana_hw_rnic_create_cq_resp),
                (IN(adapter, kAdapter), IN(region, kRegion), IN(entries, kSmall, 32),
                 IN(eq_id, kEq), IN(doorbell_page, kPage)),
                (OUT(cq, kCq))),
        COMMAND(MANA_HW_EXT_RESIZE_CQ, kRnic, 1, (mana_hw_ext_resize_cq_req),
                (mana_hw_ext_resize_cq_resp),
                (IN(adapter, kAdapter), IN(cq, kCq), IN(region, kRegion), IN(entries, kSmall, 32)),
                ()),
        COMMAND(MANA_HW_EXT_CREATE_QP, kRnic, 1, (mana_hw_ext_create_qp_req),
                (mana_hw_ext_create_qp_resp),
                (IN(adapter, kAdapter), IN(pd, kPd), IN(send_cq, kCq), IN(recv_cq, kCq),
                 IN(srq, kSmall, 0), IN(region, kRegion), IN(type, kSmall, 2), IN(flags, kSmall, 0),
                 IN(doorbell_page, kPage), IN(sq_bytes, kSmall, 1024), IN(rq_bytes, kSmall, 1024),
                 IN(rq_stride, kSmall, 64)),
                (OUT(qp, kQp))),
        COMMAND(MANA_HW_EXT_CREATE_QP, kRnic, 1, (mana_hw_ext_create_qp_req),
                (mana_hw_ext_create_qp_resp),
                (IN(adapter, kAdapter), IN(pd, kPd), IN(send_cq, kCq), IN(recv_cq, kCq),
                 IN(srq, kSrq), IN(region, kRegion), IN(type, kSmall, 4), IN(flags, kSmall, 1),
                 IN(doorbell_page, kPage), IN(sq_bytes, kSmall, 1024), IN(rq_bytes, kSmall, 0)),
                (OUT(qp, kQp))),
        COMMAND(MANA_HW_EXT_DESTROY_QP, kRnic, 1, (mana_hw_rnic_destroy_qp_req), (Done),
                (IN(adapter, kAdapter), IN(qp, kQp)), ()),
        COMMAND(MANA_HW_EXT_QUERY_QP, kRnic, 1, (mana_hw_rnic_destroy_qp_req),
                (mana_hw_ext_query_qp_resp), (IN(adapter, kAdapter), IN(qp, kQp)), ()),
        COMMAND(MANA_HW_EXT_QUERY_QP_COUNTERS, kRnic, 1, (mana_hw_rnic_destroy_qp_req),
                (mana_hw_rnic_vf_counters_resp), (IN(adapter, kAdapter), IN(qp, kQp)), ()),
        COMMAND(MANA_HW_EXT_MODIFY_MR, kRnic, 1, (mana_hw_ext_modify_mr_req), (Done),
                (IN(adapter, kAdapter), IN(mr, kMr), IN(pd, kPd), IN(region, kRegion),
                 IN(address, kNumber), IN(access, kSmall, 63), IN(flags, kSmall, 7)),
                ()),
        COMMAND(MANA_HW_EXT_COPY_DM, kRnic, 1, (mana_hw_ext_copy_dm_req), (Done),
                (IN(adapter, kAdapter), IN(dm, kDm), IN(offset, kSmall, 64), IN(address, kAddress),
                 IN(length, kSmall, 64), IN(direction, kSmall, 1)),
                ()),
        COMMAND(MANA_HW_EXT_GRANT_SOURCE, kRnic, 1, (mana_hw_ext_grant_source_req), (Done),
                (IN(adapter, kAdapter), IN(pd, kPd), IN(gid, kGid), IN(number, kSmall, 3),
                 IN(vlan, kSmall, 1)),
                ()),
        COMMAND(MANA_HW_EXT_REVOKE_SOURCE, kRnic, 1, (mana_hw_ext_revoke_source_req), (Done),
                (IN(adapter, kAdapter), IN(number, kSmall, 3)), ()),
        COMMAND(
            MANA_HW_EXT_CONFIG_ADDRESS, kRnic, 1, (mana_hw_ext_config_address_req), (Done),
            (IN(adapter, kAdapter), IN(gid, kGid), IN(operation, kSmall, 1), IN(vlan, kSmall, 1)),
            ()),
        COMMAND(MANA_HW_EXT_CONFIG_ADDRESS, kRnic, 1, (mana_hw_ext_config_mac_address_req), (Done),
                (IN(base.adapter, kAdapter), IN(base.gid, kGid), IN(base.operation, kSmall, 1),
                 IN(base.vlan, kSmall, 1), IN(mac, kWireMac)),
                ()),
        COMMAND(MANA_HW_EXT_SET_QP_STATE, kRnic, 3, (mana_hw_ext_set_qp_state_req), (Done),
                (IN(base.adapter, kAdapter), IN(base.qp, kQp), IN(base.attr_mask, kNumber),
                 IN(base.state, kSmall, 3), IN(vlan, kSmall, 1)),
                ()),
        COMMAND(
            MANA_HW_EXT_CREATE_SRQ, kRnic, 1, (mana_hw_ext_create_srq_req),
            (mana_hw_ext_create_srq_resp),
            (IN(adapter, kAdapter), IN(pd, kPd), IN(region, kRegion), IN(ring_bytes, kSmall, 2048),
             IN(stride, kSmall, 64), IN(doorbell_page, kPage), IN(limit, kSmall, 0)),
            (OUT(srq, kSrq))),
        COMMAND(MANA_HW_EXT_MODIFY_SRQ, kRnic, 1, (mana_hw_ext_srq_req), (Done),
                (IN(adapter, kAdapter), IN(srq, kSrq), IN(limit, kSmall, 2)), ()),
        COMMAND(MANA_HW_EXT_QUERY_SRQ, kRnic, 1, (mana_hw_ext_srq_req),
                (mana_hw_ext_query_srq_resp), (IN(adapter, kAdapter), IN(srq, kSrq)), ()),
        COMMAND(MANA_HW_EXT_DESTROY_SRQ, kRnic, 1, (mana_hw_ext_srq_req), (Done),
                (IN(adapter, kAdapter), IN(srq, kSrq)), ()),
        COMMAND(MANA_HW_EXT_ATTACH_MULTICAST, kRnic, 1, (mana_hw_ext_multicast_req), (Done),
                (IN(adapter, kAdapter), IN(qp, kQp), IN(gid, kGroup)), ()),
        COMMAND(MANA_HW_EXT_DETACH_MULTICAST, kRnic, 1, (mana_hw_ext_multicast_req), (Done),
                (IN(adapter, kAdapter), IN(qp, kQp), IN(gid, kGroup)), ()),
    };
}

/// The same, of the Ethernet device.
std::vector<Command> packet_commands() {
    return {
        COMMAND(MANA_HW_EXT_CREATE_PACKET_WQ, kEth, 1, (mana_hw_ext_create_packet_wq_req),
                (mana_hw_eth_create_wq_resp),
                (IN(vport, kVport), IN(wq_region, kRegion), IN(cq_region, kRegion),
                 IN(wq_type, kSmall, 2), IN(wq_bytes, kSmall, 4096), IN(cq_bytes, kSmall, 4096),
                 IN(eq_id, kEq), IN(pd_id, kPdId), IN(doorbell_page, kPage)),
                (OUT(wq_object, kWq))),
        COMMAND(MANA_HW_EXT_ADD_FLOW, kEth, 1, (mana_hw_ext_add_flow_req),
                (mana_hw_ext_add_flow_resp),
                (IN(rq, kWq), IN(priority, kSmall, 3), IN(value.dest_mac, kWireMac),
                 IN(value.tagged, kSmall, 0), IN(mask.dest_mac, kOnes), IN(mask.source_mac, kSmall),
                 IN(mask.tagged, kSmall, 1)),
                (OUT(flow, kFlow))),
        COMMAND(
            MANA_HW_EXT_ADD_FLOW, kEth, 1, (mana_hw_ext_add_flow_req), (mana_hw_ext_add_flow_resp),
            (IN(rq, kSpread), IN(priority, kSmall, 3), IN(value.protocol, kSmall, 17),
             IN_BYTES(value.dest_port, 2, kNumber), IN_BYTES(value.dest_ip, 8, kNumber),
             IN(mask.protocol, kOnes), IN(mask.dest_port, kOnes), IN_BYTES(mask.dest_ip, 8, kOnes)),
            (OUT(flow, kFlow))),
        COMMAND(MANA_HW_EXT_REMOVE_FLOW, kEth, 1, (mana_hw_ext_remove_flow_req), (Done),
                (IN(flow, kFlow)), ()),
        COMMAND(MANA_HW_EXT_CREATE_SPREAD, kEth, 1, (mana_hw_ext_create_spread_req),
                (mana_hw_ext_create_spread_resp),
                (IN_BYTES(fields, 1, kNumber), IN(entries, kSmall, 2), IN_BYTES(key, 8, kNumber),
                 IN(rq[0], kWq), IN(rq[1], kWq)),
                (OUT(spread, kSpread))),
        COMMAND(MANA_HW_EXT_DESTROY_SPREAD, kEth, 1, (mana_hw_ext_destroy_spread_req), (Done),
                (IN(spread, kSpread)), ()),
    };
}

}  // namespace

const std::vector<Command>& HostileDriver::commands() {
    static const std::vector<Command> table = [] {
        std::vector<Command> all;
        for (const auto& some : {gdma_commands(), memory_commands(), ethernet_commands(),
                                 rnic_commands(), extension_commands(), packet_commands()})
            all.insert(all.end(), some.begin(), some.end());
        return all;
    }();
    return table;
}

}  // namespace openmana::test
