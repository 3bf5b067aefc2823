// SPDX-License-Identifier: Apache-2.0
#include "rnic/datagrams.h"

#include <algorithm>
#include <mutex>

#include "base/hold_meter.h"
#include "gdma/types.h"
#include "rnic/qp_table.h"
#include "rnic/qp_tasks.h"

namespace openmana::rnic {

void Datagrams::deliver(const roce::Packet& packet, Spans payload, std::size_t length) const {
    // ROCE 2.2. A frame may be longer, if an uplink carries it; what roce::write_grh() can say is
    // not.
    if (length > port_mtu_) {
        counters_.drop_length.add();
        return;
    }
    Qp* qp = qps_.find(packet.destination_qpn);
    if (qp == nullptr || qp->connected()) {
        counters_.drop_qpn.add();
        return;
    }
    const gdma::KeyUse use;
    const std::lock_guard lock(qp->responder.mutex);
    qp->responder.deliver_datagram(packet, payload, length);
}

/// The stock ABI has no command to join a group: a QP listens to all groups whose datagrams carry
/// its Q_Key, the sender's own among them (ROCE 5.5). Extended QPs join, in all
/// VLANs that their adapter is in.
void Datagrams::deliver_to_group(const roce::Packet& packet, std::span<std::byte> payload) {
    if (payload.size() > port_mtu_) {
        counters_.drop_length.add();
        return;
    }
    if (busy_) {
        counters_.rx_overflow.add();
        return;
    }
    Place place;
    // The completions of listeners could not tell of a VLAN.
    place.members = packet.vlan() != roce::kNoVlan;
    if (deliver_from(place, packet, payload)) return;
    busy_ = true;
    packet_ = packet;
    packet_.payload = {};
    payload_.assign(payload.begin(), payload.end());
    place_ = place;
    tasks_.post([this] { go_on(); });
}

void Datagrams::go_on() {
    if (!busy_) return;
    if (deliver_from(place_, packet_, payload_))
        busy_ = false;
    else
        tasks_.post([this] { go_on(); });
}

/// To kTurnReceivers at most; true if nobody is left.
bool Datagrams::deliver_from(Place& place, const roce::Packet& packet,
                             std::span<std::byte> payload) const {
    unsigned left = kTurnReceivers;
    const auto deliver_to = [&](const std::vector<roce::Qpn>& qpns) {
        for (auto at = std::ranges::lower_bound(qpns, place.next); at != qpns.end(); ++at) {
            if (left == 0) {
                place.next = *at;
                return false;
            }
            --left;
            base::count_work(1);
            Qp& qp = *qps_.find(*at);
            if (packet.deth.qkey != qp.attributes.qkey) continue;
            // Of the keys of one receiver: there may be as many of these as queue pairs, and who
            // ends one of the keys waits.
            const gdma::KeyUse use;
            const std::lock_guard lock(qp.responder.mutex);
            qp.responder.deliver_datagram(packet, Spans(&payload, 1), payload.size());
        }
        return true;
    };
    if (!place.members) {
        if (!deliver_to(listeners_)) return false;
        place = {.members = true};
    }
    const auto group = std::ranges::find(groups_, packet.destination, &Group::gid);
    return group == groups_.end() || deliver_to(group->qpns);
}

void Datagrams::listen(roce::Qpn qpn) {
    listeners_.insert(std::ranges::upper_bound(listeners_, qpn), qpn);
    tell_listened();
}

std::uint32_t Datagrams::join(const roce::Gid& gid, roce::Qpn qpn) {
    auto group = std::find_if(groups_.begin(), groups_.end(),
                              [&](const Group& other) { return other.gid == gid; });
    if (group == groups_.end()) {
        if (groups_.size() >= kMaxGroups) return gdma::kHwcNoResources;
        groups_.push_back({gid, {qpn}});
        tell_listened();
        return gdma::kHwcSuccess;
    }
    std::vector<roce::Qpn>& members = group->qpns;
    const auto place = std::ranges::lower_bound(members, qpn);
    if (place != members.end() && *place == qpn) return gdma::kHwcSuccess;
    if (members.size() >= kMaxGroupQps) return gdma::kHwcNoResources;
    members.insert(place, qpn);
    return gdma::kHwcSuccess;
}

std::uint32_t Datagrams::leave(const roce::Gid& gid, roce::Qpn qpn) {
    const auto group = std::find_if(groups_.begin(), groups_.end(),
                                    [&](const Group& other) { return other.gid == gid; });
    if (group == groups_.end() || std::erase(group->qpns, qpn) == 0) return gdma::kHwcNotFound;
    if (group->qpns.empty()) groups_.erase(group);
    tell_listened();
    return gdma::kHwcSuccess;
}

void Datagrams::remove(roce::Qpn qpn) {
    std::erase(listeners_, qpn);
    for (Group& group : groups_) std::erase(group.qpns, qpn);
    std::erase_if(groups_, [](const Group& group) { return group.qpns.empty(); });
    tell_listened();
}

void Datagrams::clear() {
    busy_ = false;
    listeners_.clear();
    groups_.clear();
    tell_listened();
}

}  // namespace openmana::rnic
