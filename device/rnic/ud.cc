// SPDX-License-Identifier: Apache-2.0
// Datagrams: UD QPs and the GSI QP (RNIC 7, ROCE 5.3).
#include <algorithm>
#include <cstring>
#include <optional>

#include "base/endian.h"
#include "rnic/adapter.h"

namespace openmana::rnic {

namespace {

constexpr std::uint32_t kGsiQkey = 0x80010000;
/// Beyond what the kernel's MAD queue holds: a doorbell of its own is served whole, since its ring
/// may be overwritten right after (RNIC 7.2).
constexpr unsigned kTurnDatagrams = 256;

roce::Gid gid_of_av(const std::uint8_t (&bytes)[16], bool ipv6) {
    roce::Gid gid{};
    if (ipv6) {
        std::reverse_copy(std::begin(bytes), std::end(bytes), gid.begin());
    } else {
        gid[10] = gid[11] = 0xff;
        std::reverse_copy(bytes + 12, bytes + 16, gid.begin() + 12);
    }
    return gid;
}

}  // namespace

void Qp::ring_datagrams(std::uint32_t position) {
    if (position - datagram_consumer_ > requester.send_ring().bytes()) {
        adapter.counters.bad_doorbell.add();
        return;
    }
    if (static_cast<std::int32_t>(position - datagram_producer_) > 0) datagram_producer_ = position;
    if (!scheduled && send_datagrams()) adapter.schedule(*this);
}

bool Qp::send_datagrams() {
    for (unsigned n = 0; n < kTurnDatagrams; ++n) {
        if (state() != MANA_HW_RNIC_QP_RTS || datagram_consumer_ == datagram_producer_)
            return false;
        const auto wqe =
            gdma::Wqe::fetch(requester.send_ring(), datagram_consumer_,
                             datagram_producer_ - datagram_consumer_, gdma::Wqe::kMaxSendBytes);
        if (!wqe) {
            // Where the next one starts is unknown, and UD send CQEs carry no errors (RNIC 7.4).
            adapter.counters.malformed_sends.add();
            {
                const std::lock_guard lock(responder.mutex);
                set_state(MANA_HW_RNIC_QP_ERR);
            }
            adapter.post_fatal_event(*this);
            return false;
        }
        datagram_consumer_ += wqe->size();
        send_datagram(*wqe);
        mana_hw_rnic_ud_send_cqe cqe{};
        cqe.type_vendor = MANA_HW_RNIC_CQE_UD;
        cqe.wqe_offset = wqe->position();
        send_cq.post(std::as_bytes(std::span(&cqe, 1)), ids.sq.value(), true);
    }
    return true;
}

/// Sends it, or drops it without a word: the network could have done that as well.
void Qp::send_datagram(const gdma::Wqe& wqe) {
    RnicCounters& counters = adapter.counters;
    mana_hw_rnic_send_oob oob{};
    std::memcpy(&oob, wqe.oob().data(), std::min(wqe.oob().size(), sizeof oob));
    const std::uint32_t opcode = oob.flags_psn & MANA_HW_RNIC_OOB_OPCODE;
    const auto sges = wqe.sges();
    mana_hw_rnic_av av{};
    gdma::SpanList& from = adapter.scratch.from;
    from.clear();
    if (wqe.oob().size() < sizeof oob || opcode > MANA_HW_RNIC_WQE_UD_SEND_IMM ||
        !wqe.oob_in_sgl() || sges.empty() || sges[0].length < sizeof av ||
        gather(adapter.keys(), pd.id, sges.first(1), 0, sizeof av, gdma::kLocalRead, from) !=
            gdma::MrFault::kNone) {
        counters.drop_datagram.add();
        return;
    }
    std::size_t at = 0;
    for (const auto& span : from) {
        std::memcpy(reinterpret_cast<std::byte*>(&av) + at, span.data(), span.size());
        at += span.size();
    }

    const bool ipv6 = (av.path & MANA_HW_RNIC_AV_IPV6) != 0;
    roce::Packet packet;
    packet.opcode = opcode == MANA_HW_RNIC_WQE_UD_SEND ? roce::Opcode::kUdSendOnly
                                                       : roce::Opcode::kUdSendOnlyImm;
    packet.source = gid_of_av(av.source, ipv6);
    packet.destination = gid_of_av(av.dest, ipv6);
    packet.source_mac = adapter.config.mac;
    std::reverse_copy(std::begin(av.dest_mac), std::end(av.dest_mac),
                      packet.destination_mac.begin());
    packet.dscp =
        static_cast<std::uint8_t>(av.path >> MANA_HW_RNIC_AV_DSCP_SHIFT & MANA_HW_RNIC_AV_DSCP);
    packet.hop_limit = static_cast<std::uint8_t>(av.path & MANA_HW_RNIC_AV_HOP_LIMIT);
    if (packet.hop_limit == 0) packet.hop_limit = 64;
    packet.udp_source_port = av.udp_source_port;
    packet.solicited = (oob.flags_psn & MANA_HW_RNIC_OOB_SOLICITED) != 0;
    packet.destination_qpn = roce::Qpn(oob.ssn & MANA_HW_RNIC_24BIT);
    packet.psn = Psn(oob.flags_psn >> MANA_HW_RNIC_OOB_PSN_SHIFT);
    packet.deth.source = roce::Qpn(qpn());
    packet.deth.qkey = oob.u.ud.qkey;
    if (type == QpType::kGsi)
        packet.deth.qkey = kGsiQkey;
    else if ((packet.deth.qkey & 0x80000000U) != 0)
        packet.deth.qkey = attributes.qkey;
    base::store_be<std::uint32_t>(packet.immediate.data(), oob.u.ud.immediate);

    const auto payload = sges.subspan(1);
    const std::uint64_t length = total_length(payload);
    from.clear();
    if (length > std::min<std::uint64_t>(wqe.client_data_unit(), 4096) ||
        gather(adapter.keys(), pd.id, payload, 0, length, gdma::kLocalRead, from) !=
            gdma::MrFault::kNone) {
        counters.drop_datagram.add();
        return;
    }
    if (!adapter.owns(packet.source) ||
        roce::is_ipv4(packet.source) != roce::is_ipv4(packet.destination)) {
        counters.drop_source.add();
        return;
    }
    ++requester.messages;
    requester.bytes += length;
    counters.tx_bytes.add(length);
    Rnic* peer =
        adapter.network.local_peer(adapter.owner, packet.destination, packet.destination_mac);
    requester.path = peer != nullptr ? "local" : "wire";
    if (peer == nullptr) {
        // Without ECT: a datagram QP has no rate that a notification could lower.
        adapter.transmit(packet, from);
        if (roce::is_multicast(packet.destination)) adapter.deliver_to_group(packet, from, length);
        return;
    }
    counters.tx_packets.add();
    Adapter& other = peer->impl();
    std::optional<base::Gate::Visit> visit;
    if (&other != &adapter) visit.emplace(other.function.gate());
    other.counters.rx_packets.add();
    other.deliver_datagram(packet, from, length);
}

/// The ABI has no command to join a group: a QP listens to all groups whose datagrams carry its
/// Q_Key, the sender's own among them (ROCE 5.5).
void Rnic::Impl::deliver_to_group(const roce::Packet& packet, Spans payload, std::size_t length) {
    for (const std::uint32_t qpn : datagram_qps) {
        Qp& qp = *qps[qpn];
        if (packet.deth.qkey != qp.attributes.qkey) continue;
        const std::lock_guard lock(qp.responder.mutex);
        qp.responder.deliver_datagram(packet, payload, length);
    }
}

void Rnic::Impl::deliver_datagram(const roce::Packet& packet, Spans payload, std::size_t length) {
    Qp* qp = find_qp(packet.destination_qpn.value());
    if (qp == nullptr || qp->type == QpType::kRc) {
        counters.drop_qpn.add();
        return;
    }
    const std::lock_guard lock(qp->responder.mutex);
    qp->responder.deliver_datagram(packet, payload, length);
}

}  // namespace openmana::rnic
