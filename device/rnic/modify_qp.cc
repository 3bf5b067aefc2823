// SPDX-License-Identifier: Apache-2.0
// SET_QP_STATE (RNIC 2.10), and that of the extension, which knows VLANs. The drivers check neither
// transitions nor completeness, so each request that can be stored is accepted.
#include <algorithm>
#include <optional>

#include "rnic/adapter.h"

namespace openmana::rnic {
namespace {

void store_address(Qp& qp, const mana_hw_rnic_address& address, std::uint16_t tci) {
    QpRoute& route = qp.route;
    QpAttributes& a = qp.attributes;
    std::reverse_copy(std::begin(address.source_gid), std::end(address.source_gid),
                      route.source.begin());
    std::reverse_copy(std::begin(address.dest_gid), std::end(address.dest_gid),
                      route.destination.begin());
    std::reverse_copy(std::begin(address.source_mac), std::end(address.source_mac),
                      a.source_mac.begin());
    std::reverse_copy(std::begin(address.dest_mac), std::end(address.dest_mac),
                      a.destination_mac.begin());
    if (!qp.datapath.addresses.owns(a.source_mac)) a.source_mac = qp.datapath.config.mac;
    a.hop_limit = address.hop_limit == 0 ? 64 : address.hop_limit;
    a.dscp = address.dscp & 0x3f;
    a.udp_source_port = address.udp_source_port;
    a.flow_label = address.flow_label & 0xfffff;
    route.vlan = roce::vlan_of(tci);
    a.priority = static_cast<std::uint8_t>(tci >> 13);
    qp.requester.forget_path();
}

}  // namespace

std::uint32_t Adapter::modify_qp(Qp& qp, const mana_hw_rnic_set_qp_state_req& message, bool whole,
                                 std::uint16_t tci) {
    const std::uint64_t mask = message.attr_mask;
    const auto has = [mask](std::uint64_t bit) { return (mask & bit) != 0; };
    if (has(MANA_HW_RNIC_ATTR_STATE) && message.state > MANA_HW_RNIC_QP_ERR)
        return gdma::kHwcInvalidParameter;
    if (has(MANA_HW_RNIC_ATTR_PATH_MTU) && (message.path_mtu < 1 || message.path_mtu > 5))
        return gdma::kHwcInvalidParameter;

    // What waits is for the peer that the QP had. It may be much, and no visitor has to wait until
    // it is freed.
    const bool resets = has(MANA_HW_RNIC_ATTR_STATE) && message.state == MANA_HW_RNIC_QP_RESET;
    if (qp.receive_wait && (resets || has(MANA_HW_RNIC_ATTR_ADDRESS) ||
                            has(MANA_HW_RNIC_ATTR_DEST_QPN) || has(MANA_HW_RNIC_ATTR_RQ_PSN)))
        qp.receive_wait->clear();
    std::optional<base::Gate::Exclusion> exclusion;
    exclusion.emplace(function.gate(), base::HoldCause{"SET_QP_STATE"});
    base::count_work(1);
    QpRoute& route = qp.route;
    QpAttributes& a = qp.attributes;
    // What is owed is owed to the peer that asked for it, and goes to nobody else; how much of it
    // has gone was counted by the MTU.
    if (has(MANA_HW_RNIC_ATTR_ADDRESS) || has(MANA_HW_RNIC_ATTR_DEST_QPN) ||
        has(MANA_HW_RNIC_ATTR_PATH_MTU))
        qp.responses.clear();
    if (has(MANA_HW_RNIC_ATTR_PATH_MTU))
        route.mtu = static_cast<std::uint16_t>(128U << message.path_mtu);
    if (has(MANA_HW_RNIC_ATTR_DEST_QPN))
        route.dest_qpn = Qpn(message.dest_qpn & MANA_HW_RNIC_24BIT);
    if (has(MANA_HW_RNIC_ATTR_MAX_READ_IN)) a.max_read_in = message.max_read_in;
    if (has(MANA_HW_RNIC_ATTR_RETRY)) a.retry_count = message.retry_count & 7;
    if (has(MANA_HW_RNIC_ATTR_RNR_RETRY)) a.rnr_retry = message.rnr_retry & 7;
    if (has(MANA_HW_RNIC_ATTR_MIN_RNR_TIMER)) a.min_rnr_timer = message.min_rnr_timer & 31;
    if (has(MANA_HW_RNIC_ATTR_ADDRESS)) store_address(qp, message.address, tci);
    if (whole) {
        if (has(MANA_HW_RNIC_ATTR_QKEY)) a.qkey = QKey(message.qkey);
        if (has(MANA_HW_RNIC_ATTR_ACCESS)) route.access = message.access_flags;
        if (has(MANA_HW_RNIC_ATTR_TIMEOUT)) a.timeout = message.timeout & 31;
        if (has(MANA_HW_RNIC_ATTR_MAX_READ_OUT)) a.max_read_out = message.max_read_out;
    }
    if (has(MANA_HW_RNIC_ATTR_RQ_PSN)) qp.responder.start(Psn(message.rq_psn));
    if (has(MANA_HW_RNIC_ATTR_SQ_PSN)) qp.requester.start(Psn(message.sq_psn));
    if (!has(MANA_HW_RNIC_ATTR_STATE)) return gdma::kHwcSuccess;

    switch (message.state) {
        case MANA_HW_RNIC_QP_RESET:
            qp.reset();
            break;
        case MANA_HW_RNIC_QP_ERR:
            // Nobody finds the new attributes in the old state. The rest flushes as much as the
            // queues hold.
            qp.set_state(MANA_HW_RNIC_QP_ERR);
            exclusion.reset();
            qp.enter_error();
            break;
        default:
            if (qp.state() == MANA_HW_RNIC_QP_SQE && message.state == MANA_HW_RNIC_QP_RTS)
                qp.requester.resume();
            qp.set_state(message.state);
            qp.errors->state_changed();
            // Not from here: what a turn does to others must not happen under our own exclusion.
            if (message.state == MANA_HW_RNIC_QP_RTS) datapath.scheduler.schedule(qp);
            break;
    }
    return gdma::kHwcSuccess;
}

}  // namespace openmana::rnic
