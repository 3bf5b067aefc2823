// SPDX-License-Identifier: Apache-2.0
// Datagrams: UD QPs and the GSI QP (RNIC 7, ROCE 5.3).
#include <algorithm>
#include <optional>

#include "rnic/adapter.h"

namespace openmana::rnic {

namespace {

constexpr std::uint32_t kGsiQkey = 0x80010000;
/// Beyond what the kernel's MAD queue holds: a doorbell of its own is served whole, since its ring
/// may be overwritten right after (RNIC 7.2).
constexpr unsigned kTurnDatagrams = 256;

}  // namespace

bool Qp::send_datagrams() {
    for (unsigned n = 0; n < kTurnDatagrams; ++n) {
        if (state() != MANA_HW_RNIC_QP_RTS) return false;
        // The ring of the kernel's MAD queue may be overwritten: see above.
        if (type != QpType::kGsi && queues->sends_posted() && adapter.scheduler.hold_back(*this))
            return false;
        const gdma::KeyUse use;
        Datagram datagram;
        datagram.payload = &adapter.scratch.from;
        switch (queues->next_datagram(datagram)) {
            case QueueFormat::Next::kNone:
                return false;
            case QueueFormat::Next::kSend:
                send_datagram(datagram);
                break;
            case QueueFormat::Next::kDrop:
                adapter.counters.drop_datagram.add();
                break;
        }
        queues->datagram_done();
    }
    return true;
}

void Qp::send_datagram(Datagram& datagram) {
    RnicCounters& counters = adapter.counters;
    roce::Packet& packet = datagram.packet;
    packet.source_mac = adapter.config.mac;
    if (packet.hop_limit == 0) packet.hop_limit = 64;
    packet.deth.source = roce::Qpn(qpn());
    if (type == QpType::kGsi)
        packet.deth.qkey = kGsiQkey;
    else if ((packet.deth.qkey & 0x80000000U) != 0)
        packet.deth.qkey = attributes.qkey;
    if (!adapter.addresses.owns(packet.source) ||
        roce::is_ipv4(packet.source) != roce::is_ipv4(packet.destination)) {
        counters.drop_source.add();
        return;
    }
    ++requester.messages;
    tally(counters.tx_bytes, requester.traffic.tx_bytes, datagram.length);
    Rnic* peer =
        adapter.network.local_peer(adapter.owner, packet.destination, packet.destination_mac);
    requester.path = peer != nullptr ? "local" : "wire";
    if (peer == nullptr) {
        // Without ECT: a datagram QP has no rate that a notification could lower.
        adapter.transmit(*this, packet, *datagram.payload);
        if (roce::is_multicast(packet.destination))
            adapter.deliver_to_group(packet, *datagram.payload, datagram.length);
        return;
    }
    tally(counters.tx_packets, requester.traffic.tx_packets);
    Adapter& other = peer->adapter();
    std::optional<base::Gate::Visit> visit;
    if (&other != &adapter) visit.emplace(other.function.gate());
    other.counters.rx_packets.add();
    other.deliver_datagram(packet, *datagram.payload, datagram.length);
}

/// The stock ABI has no command to join a group: a QP listens to all groups whose datagrams carry
/// its Q_Key, the sender's own among them (ROCE 5.5). Extended QPs join.
void Adapter::deliver_to_group(const roce::Packet& packet, Spans payload, std::size_t length) {
    if (length > config.port_mtu) {
        counters.drop_length.add();
        return;
    }
    const auto deliver = [&](const std::vector<std::uint32_t>& members) {
        for (const std::uint32_t qpn : members) {
            Qp& qp = *qps.find(qpn);
            if (packet.deth.qkey != qp.attributes.qkey) continue;
            const std::lock_guard lock(qp.responder.mutex);
            qp.responder.deliver_datagram(packet, payload, length);
        }
    };
    deliver(datagram_qps);
    for (const Group& group : groups)
        if (group.gid == packet.destination) deliver(group.qpns);
}

void Adapter::deliver_datagram(const roce::Packet& packet, Spans payload, std::size_t length) {
    // ROCE 2.2. A frame may be longer, if an uplink carries it; what roce::write_grh() can say is
    // not.
    if (length > config.port_mtu) {
        counters.drop_length.add();
        return;
    }
    Qp* qp = find_qp(packet.destination_qpn.value());
    if (qp == nullptr || qp->connected()) {
        counters.drop_qpn.add();
        return;
    }
    const std::lock_guard lock(qp->responder.mutex);
    qp->responder.deliver_datagram(packet, payload, length);
}

}  // namespace openmana::rnic
