// SPDX-License-Identifier: Apache-2.0
#include "sim/arrivals.h"

#include "rnic/datagrams.h"
#include "rnic/qp_table.h"

namespace openmana::sim {

using roce::Operation;
using roce::Transport;

void Arrivals::count(const base::Frame& frame, const std::function<void()>& deal) {
    ++frames_;
    const auto packet = roce::parse(frame);
    if (packet) return count(*packet, deal);
    switch (roce::drop_reason(packet.error())) {
        case roce::DropReason::kNotRoce:
            ++not_roce_;
            break;
        case roce::DropReason::kMalformed:
            ++malformed_;
            break;
        case roce::DropReason::kIcrc:
            ++icrc_;
            break;
        case roce::DropReason::kVersion:
        case roce::DropReason::kOpcode:
            ++opcode_;
            break;
        case roce::DropReason::kQpn:
            ++nobody_;
            break;
    }
    deal();
}

void Arrivals::count(const roce::Packet& packet, const std::function<void()>& deal) {
    const bool group = roce::is_multicast(packet.destination);
    const Transport transport = roce::transport(packet.opcode);
    std::uint64_t* dropped = nullptr;
    if (packet.vlan() != roce::kNoVlan ||
        (!group && (packet.destination_mac != mac_ || packet.destination != gid_)))
        dropped = &foreign_;
    else if ((packet.pkey & 0x7fff) != 0x7fff)
        dropped = &pkey_;
    else if (group)
        dropped = &to_groups_;  // to so many queue pairs
    else if (transport == Transport::kCnp)
        dropped = &notifications_;
    if (dropped != nullptr) {
        ++*dropped;
        return deal();
    }
    if (transport == Transport::kUd) return datagram(packet, deal);
    rnic::Qp* const qp = nic_.local_peer().qps.find(packet.destination_qpn);
    const rnic::QpType type = transport == Transport::kRc ? rnic::QpType::kRc : rnic::QpType::kUc;
    if (qp == nullptr || qp->type != type) {
        ++qpn_;
        return deal();
    }
    if (packet.source != qp->route.destination || packet.destination != qp->route.source) {
        ++address_;
        return deal();
    }
    if (packet.info().response) return answer(*qp, packet, deal);
    request(*qp, packet, deal);
}

std::size_t Arrivals::waiting(const rnic::Qp& qp) {
    return qp.receive_wait ? qp.receive_wait->size() : 0;
}

void Arrivals::request(rnic::Qp& qp, const roce::Packet& packet,
                       const std::function<void()>& deal) {
    const roce::Psn expected = qp.responder.expected();
    const std::uint64_t bytes = qp.responder.traffic.rx_bytes, messages = qp.responder.messages;
    const Operation operation = packet.info().operation;
    const bool fetches = operation == Operation::kReadRequest ||
                         operation == Operation::kCompareSwap || operation == Operation::kFetchAdd;
    std::uint64_t* kind = nullptr;
    if (fetches && qp.responses.full())
        kind = &owed_;
    else if (!qp.responds())
        kind = &state_;
    else if (qp.type == rnic::QpType::kRc && packet.psn != expected)
        kind = packet.psn > expected ? &ahead_ : &behind_;
    const std::size_t waited = waiting(qp);
    const std::uint64_t told = nic_.counters().rnr_naks_sent.value();
    const std::uint64_t again = nic_.counters().duplicates.value();
    deal();
    if (waited > 0 && nic_.counters().rnr_naks_sent.value() != told)
        kind = &put_off_;  // it ends the wait of all, itself among them
    else if (waiting(qp) > waited)
        kind = &waits_;
    else if (waited > 0 && kind == nullptr && nic_.counters().duplicates.value() != again)
        kind = &behind_;  // a copy of the one that waits
    if (kind == nullptr) {
        // A packet of UC without data is a whole message.
        const bool moved = qp.type == rnic::QpType::kRc ? qp.responder.expected() != expected
                                                        : qp.responder.traffic.rx_bytes != bytes ||
                                                              qp.responder.messages != messages;
        if (moved)
            kind = &taken_;
        else if (qp.state() == MANA_HW_RNIC_QP_ERR)
            kind = &refused_;
        else if (qp.recv_cq->overrun())
            kind = &state_;  // as good as in ERR
        else
            kind = qp.type == rnic::QpType::kRc ? &put_off_ : &lost_;
    }
    ++*kind;
}

void Arrivals::answer(rnic::Qp& qp, const roce::Packet& packet, const std::function<void()>& deal) {
    const std::uint32_t state = qp.state();
    const rnic::RequesterView view = qp.requester.view();
    deal();
    if ((state != MANA_HW_RNIC_QP_RTS && state != MANA_HW_RNIC_QP_SQD) || view.failed)
        ++state_;
    else if (packet.psn >= view.una && packet.psn < view.next)
        ++answers_;
    else  // The NAK of a READ may name its beginning (ROCE 11.1), and ends the queue pair.
        ++(qp.requester.view().failed ? answers_ : unexpected_);
}

void Arrivals::datagram(const roce::Packet& packet, const std::function<void()>& deal) {
    constexpr roce::QKey kGsiQkey(0x80010000);
    rnic::Qp* const qp = nic_.local_peer().qps.find(packet.destination_qpn);
    if (qp == nullptr || qp->connected()) {
        ++qpn_;
        return deal();
    }
    const roce::QKey qkey = qp->type == rnic::QpType::kGsi ? kGsiQkey : qp->attributes.qkey;
    const std::uint64_t messages = qp->responder.messages;
    const bool responds = qp->responds();
    deal();
    if (!responds)
        ++state_;
    else if (packet.deth.qkey != qkey)
        ++qkey_;
    else
        ++(qp->responder.messages != messages ? datagrams_ : useless_);
}

std::string Arrivals::wrong(bool wire_only) const {
    const rnic::RnicCounters& c = nic_.counters();
    std::string text;
    const auto compare = [&](const char* what, std::uint64_t counted, std::uint64_t seen) {
        if (counted != seen && text.empty())
            text = std::string(what) + ": " + std::to_string(counted) + " counted, " +
                   std::to_string(seen) + " seen";
    };
    compare("frames", c.rx_frames.value(), frames_);
    compare("frames that are not RoCE", c.drop_not_roce.value(), not_roce_);
    compare("malformed frames", c.drop_malformed.value(), malformed_);
    compare("wrong ICRCs", c.drop_icrc.value(), icrc_);
    compare("unknown opcodes", c.drop_opcode.value(), opcode_);
    compare("wrong P_Keys", c.drop_pkey.value(), pkey_);
    compare("wrong addresses", c.drop_address.value(), foreign_ + address_);
    compare("answers held back", c.drop_owed.value(), owed_);
    compare("notifications", c.cnps.value() + c.cnps_ignored.value(), notifications_);
    compare("frames in the backlog", c.rx_overflow.value(), 0);
    if (!wire_only) return text;
    compare("no such QP", c.drop_qpn.value(), nobody_ + qpn_);
    compare("requests ahead", c.out_of_sequence.value(), ahead_);
    compare("duplicates", c.duplicates.value(), behind_);
    compare("unexpected acknowledgements", c.unexpected_acks.value(), unexpected_);
    compare("packets that wait for a receive", c.waiting_packets.value(), waits_);
    const std::uint64_t late = c.rnr_naks_sent.value() - put_off_;
    if (late > c.receive_waits.value() && text.empty()) text = "more waits end than begin";
    if (late > c.drop_waiting.value() && text.empty()) text = "waits end and drop nothing";
    if (c.drop_waiting.value() > waits_ && text.empty()) text = "more is dropped than waits";
    compare("packets of UC lost", c.drop_unreliable.value(), lost_);
    // A group's datagram is counted for each of its queue pairs, and one's own needs no frame.
    if (!nic_.local_peer().datagrams.any_group()) {
        compare("wrong states", c.drop_state.value(), state_);
        compare("wrong Q_Keys", c.drop_qkey.value(), qkey_);
        compare("datagrams without a receive", c.drop_no_receive.value(), useless_);
    }
    const std::uint64_t unread = c.drop_not_roce.value() + c.drop_malformed.value() +
                                 c.drop_icrc.value() + c.drop_opcode.value() + c.drop_pkey.value() +
                                 nobody_ + foreign_;
    compare("packets", c.rx_packets.value() + unread, frames_);
    // The invariant itself: each packet is accepted, refused by an answer, or dropped by name.
    const std::uint64_t accepted =
        taken_ + waits_ + answers_ + notifications_ + datagrams_ + to_groups_;
    const std::uint64_t named =
        (c.drop_qpn.value() - nobody_) + (c.drop_address.value() - foreign_) + state_ +
        c.drop_owed.value() + c.out_of_sequence.value() + c.duplicates.value() +
        c.unexpected_acks.value() + c.drop_unreliable.value() + qkey_ + useless_;
    compare("packets in all", c.rx_packets.value(), accepted + put_off_ + refused_ + named);
    return text;
}

}  // namespace openmana::sim
