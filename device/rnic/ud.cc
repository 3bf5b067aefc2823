// SPDX-License-Identifier: Apache-2.0
// Datagrams that UD QPs and the GSI QP send (RNIC 7, ROCE 5.3).
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "rnic/datapath.h"
#include "rnic/qp.h"
#include "rnic/task_work.h"

namespace openmana::rnic {

namespace {

/// Beyond what the kernel's MAD queue holds: a doorbell of its own is served whole, since its ring
/// may be overwritten right after (RNIC 7.2).
constexpr unsigned kTurnDatagrams = 256;

/// As Requester::find_path(), for datagrams, each of which may go elsewhere.
LocalEnd find_peer(Datapath& datapath, const Ends& ends) {
    DatagramPath& last = datapath.datagram_path;
    const std::uint64_t generation = datapath.network.generation();
    if (generation == 0 || generation != last.generation || ends != last.ends)
        last = {ends, generation, datapath.network.local_peer(datapath.self, ends)};
    return last.end;
}

}  // namespace

bool Qp::send_datagrams() {
    const TaskWork work;
    for (unsigned n = 0; n < kTurnDatagrams; ++n) {
        if (state() != MANA_HW_RNIC_QP_RTS) return false;
        // The ring of the kernel's MAD queue may be overwritten: see above.
        if (type != QpType::kGsi && sends->posted()) {
            if (datapath.scheduler.hold_back(*this)) return false;
            if (work.done() || datapath.datagrams.busy()) return true;
        }
        Datagram datagram;
        datagram.payload = &datapath.scratch.from;
        bool to_ours = false;
        {
            const gdma::KeyUse use;
            switch (sends->next_datagram(datagram)) {
                case SendFormat::Next::kNone:
                    return false;
                case SendFormat::Next::kSend:
                    to_ours = send_datagram(datagram);
                    break;
                case SendFormat::Next::kDrop:
                    datapath.counters.drop_datagram.add();
                    break;
                case SendFormat::Next::kFailed:
                    errors->datagram_failed();
                    return false;
            }
        }
        // The MAD queue does not wait, so what would take long is lost to our own.
        if (to_ours && (type != QpType::kGsi || !work.done()))
            datapath.datagrams.deliver_to_group(datagram.packet, datapath.scratch.datagram);
        sends->complete_datagram();
    }
    return true;
}

/// True if it is for a group of which our own queue pairs may be: a copy is in the scratch memory.
bool Qp::send_datagram(Datagram& datagram) {
    RnicCounters& counters = datapath.counters;
    roce::Packet& packet = datagram.packet;
    if (packet.hop_limit == 0) packet.hop_limit = 64;
    packet.deth.source = qpn();
    if (type == QpType::kGsi)
        packet.deth.qkey = roce::kGsiQKey;
    else if (roce::is_controlled(packet.deth.qkey))
        packet.deth.qkey = attributes.qkey;
    if (!datapath.addresses.sends_from({packet.source, packet.vlan()}) ||
        roce::is_ipv4(packet.source) != roce::is_ipv4(packet.destination)) {
        counters.drop_source.add();
        return false;
    }
    packet.source_mac = datapath.addresses.sends_by();
    if (!pd->may_send_from({packet.source, packet.vlan()})) {
        counters.drop_foreign_source.add();
        return false;
    }
    ++requester.messages;
    tally(counters.tx_bytes, requester.traffic.tx_bytes, datagram.length);
    datapath.figures.add_bytes(RequestKind::kDatagram, datagram.length);
    const LocalEnd end = find_peer(datapath, {packet.source, packet.destination, packet.source_mac,
                                              packet.destination_mac, packet.vlan()});
    const LocalPeer* const peer = end.peer;
    requester.path = peer != nullptr ? "local" : "wire";
    if (peer == nullptr) {
        // Without ECT: a datagram QP has no rate that a notification could lower.
        datapath.transmitter.send(requester.traffic, packet, *datagram.payload);
        if (!roce::is_multicast(packet.destination) || !datapath.datagrams.any_listener())
            return false;
        std::vector<std::byte>& copy = datapath.scratch.datagram;
        copy.resize(datagram.length);
        const std::span<std::byte> to(copy);
        copy_spans(*datagram.payload, Spans(&to, 1), datagram.length);
        return true;
    }
    if (packet.vlan() != end.vlan) {
        const int priority = packet.vlan_tci.value_or(0) & ~roce::kVlanMask;
        packet.vlan_tci.reset();
        packet.set_tag(static_cast<std::uint16_t>(priority | end.vlan));
    }
    tally(counters.tx_packets, requester.traffic.tx_packets);
    std::optional<base::Gate::Visit> visit;
    if (&peer->gate != &datapath.self.gate) visit.emplace(peer->gate);
    if (peer->gate.away()) return false;  // lost
    peer->counters.rx_packets.add();
    peer->datagrams.deliver(packet, *datagram.payload, datagram.length);
    return false;
}

}  // namespace openmana::rnic
