// SPDX-License-Identifier: Apache-2.0
// The wire path of the requester: its requests as packets (ROCE 3).
#include <algorithm>

#include "base/endian.h"
#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

using roce::Opcode;

namespace {

constexpr std::uint32_t kAckRequestEvery = 16;
constexpr std::uint32_t kMaxPsns = 1U << 23;
/// Prepared at once while the rate is limited: it may end behind any of them.
constexpr std::uint32_t kLimitedPackets = 16;
/// Of a window: a burst of fewer packets costs both ends about as much as one of this part, so it
/// waits for room, as TCP's sender does (RFC 1122 4.2.3.4). Smaller windows than that are of who
/// recovers from a loss.
constexpr std::uint32_t kBurstPart = 4;
constexpr std::uint32_t kLeastWindow = 4 * kAckRequestEvery;
/// What follows a burst while its answer is under way is gathered until there is so much.
constexpr std::uint32_t kGatherPackets = 32;
/// What UC adds to the opcodes of RC (ROCE 2.2).
constexpr std::uint8_t kUcOpcodes = 0x20;

Opcode send_opcode(const SendWqe& wqe, bool first, bool last) {
    if (wqe.kind == SegmentKind::kSend) {
        if (first && last) {
            if (wqe.invalidate) return Opcode::kSendOnlyInvalidate;
            return wqe.immediate ? Opcode::kSendOnlyImm : Opcode::kSendOnly;
        }
        if (first) return Opcode::kSendFirst;
        if (!last) return Opcode::kSendMiddle;
        if (wqe.invalidate) return Opcode::kSendLastInvalidate;
        return wqe.immediate ? Opcode::kSendLastImm : Opcode::kSendLast;
    }
    if (first && last) return wqe.immediate ? Opcode::kWriteOnlyImm : Opcode::kWriteOnly;
    if (first) return Opcode::kWriteFirst;
    if (!last) return Opcode::kWriteMiddle;
    return wqe.immediate ? Opcode::kWriteLastImm : Opcode::kWriteLast;
}

}  // namespace

/// PSNs from the oldest not acknowledged on: up to 2^23, which as a distance would be negative.
std::uint32_t Requester::psns_out() const {
    return (send_psn_.value() - una_.value()) & Psn::kMask;
}

std::uint32_t Requester::in_flight() const {
    return psns_out() - read_psns_;
}

/// Whether the peer's credits let this message go on (IBTA 9.7.7.2).
bool Requester::credited(const SendWqe& wqe) {
    if (!credits_.limited() || !wqe.takes_receive()) return true;
    bool go = credits_.allows(wqe.ssn);
    // With all before it acknowledged it may ask, even if a NAK said so, which tells no credits.
    if (!go && send_psn_ == wqe.first) go = credits_.may_ask(wqe.ssn) || una_ == send_psn_;
    // What was begun ends, but for a SEND whose first packet asks whether there is a receive.
    else if (!go)
        go = !asking_ || send_psn_ > wqe.first + 1 || una_ > wqe.first;
    if (!go && !no_credits_) {
        tally(datapath_.counters.credit_waits, qp_.events.credit_waits);
    }
    no_credits_ = !go;
    return go;
}

/// With packets under way, and few that could follow them: whether these wait for more, since the
/// peer has been told to answer and has something to do. What the guest waits for longest, as READs
/// and atomics, never does.
bool Requester::gathers() {
    if (una_ == send_psn_ || !reliable() || qp_.limiter ||
        datapath_.config.gather == base::Duration::zero())
        return false;
    const base::TimePoint end = last_burst_ + datapath_.config.gather;
    if (datapath_.executor.now() >= end) return false;
    std::uint32_t packets = 0;
    for (std::uint32_t i = current_; packets < kGatherPackets; ++i) {
        if (i == queue_.size() && !fetch()) {
            if (packets == 0) return false;
            datapath_.scheduler.gather(qp_, end);
            return true;
        }
        const SendWqe& wqe = queue_.at(i);
        if (wqe.error != 0 || wqe.local || wqe.fetches()) return false;
        packets += wqe.packets;
    }
    return false;
}

void Requester::turn_wire(Budget& budget) {
    if (gathers()) return;
    const Psn begin = send_psn_;
    while (budget.bytes > 0 && budget.wqes > 0 && failure_ == 0) {
        SendWqe* wqe = next();
        if (wqe == nullptr || !credited(*wqe)) break;
        if (qp_.limiter && !qp_.limiter->open()) break;
        if (datapath_.scheduler.hold_back(qp_)) break;
        if (wqe->is_read()) {
            const auto begun = static_cast<std::uint32_t>(send_psn_ - wqe->first);
            if (!read_fits(part_end(*wqe, begun) - begun)) break;
            send_read(*wqe);
        } else if (wqe->is_atomic()) {
            if (psns_out() >= kMaxPsns) break;
            send_atomic(*wqe);
        } else if (!send_packets(*wqe, budget)) {
            break;
        }
        --budget.wqes;
    }
    // Who had more to send than a turn takes goes on in the next one.
    if (budget.wqes == 0 || budget.bytes == 0)
        end_gathering();
    else if (send_psn_ != begin)
        last_burst_ = datapath_.executor.now();
    if (!ack_timer_.armed()) watch();
}

/// Whether the answers to one more READ, or part of one, are to be under way with what is. Who
/// sends them has no window of its own, and two keep the path busy while more is asked for. After a
/// loss they count as what we send does.
bool Requester::read_fits(std::uint32_t takes) const {
    const std::uint32_t under_way = psns_out();
    const std::uint32_t whole = datapath_.config.window_packets;
    const std::uint32_t most = std::min(window_ < whole ? window_ : 2 * whole, kMaxPsns);
    return under_way == 0 || under_way + takes <= most;
}

/// A READ, or one part of it: what is left of that if some of its data are here.
void Requester::send_read(const SendWqe& wqe) {
    const auto begun = static_cast<std::uint32_t>(send_psn_ - wqe.first);
    const std::uint32_t end = part_end(wqe, begun);
    const std::uint64_t offset = std::uint64_t{begun} * wqe.mtu;
    roce::Packet packet = qp_.packet();
    packet.opcode = Opcode::kReadRequest;
    packet.psn = send_psn_;
    packet.ack_request = true;
    packet.reth = {wqe.address + offset, wqe.rkey,
                   static_cast<std::uint32_t>(
                       std::min<std::uint64_t>(wqe.length, std::uint64_t{end} * wqe.mtu) - offset)};
    send_psn_ = wqe.first + end;
    if (next_psn_ < send_psn_) next_psn_ = send_psn_;
    ++reads_out_;
    read_psns_ += end - begun - 1;
    if (end == wqe.packets) ++current_;
    const std::size_t sent = datapath_.transmitter.send(traffic, packet, {});
    if (qp_.limiter) qp_.limiter->charge(sent);
}

void Requester::send_atomic(const SendWqe& wqe) {
    roce::Packet packet = qp_.packet();
    packet.opcode = wqe.atomic.swap ? Opcode::kCompareSwap : Opcode::kFetchAdd;
    packet.psn = send_psn_;
    packet.ack_request = true;
    packet.atomic = {wqe.address, wqe.rkey, wqe.atomic.swap_add, wqe.atomic.compare};
    ++send_psn_;
    if (next_psn_ < send_psn_) next_psn_ = send_psn_;
    ++reads_out_;
    ++current_;
    const std::size_t sent = datapath_.transmitter.send(traffic, packet, {});
    if (qp_.limiter) qp_.limiter->charge(sent);
}

/// Packets that the window has room for, if it is worth to send the next of `left`.
std::uint32_t Requester::room_for(std::uint32_t left) const {
    const std::uint32_t under_way = in_flight();
    if (under_way >= window_) return 0;
    const std::uint32_t free = window_ - under_way;
    if (under_way > 0 && window_ >= kLeastWindow && free < window_ / kBurstPart && left > free)
        return 0;
    return std::min(free, kMaxPsns - psns_out());
}

/// As many packets of the message as window and budget allow. False if it has to stop here.
bool Requester::send_packets(SendWqe& wqe, Budget& budget) {
    const auto begun = static_cast<std::uint32_t>(send_psn_ - wqe.first);
    const std::uint32_t room = room_for(wqe.packets - begun);
    if (room == 0) return false;
    const auto affordable =
        static_cast<std::uint32_t>(std::max<std::uint64_t>(1, budget.bytes / wqe.mtu));
    std::uint32_t count = std::min({wqe.packets - begun, room, affordable});
    if (qp_.limiter) count = std::min(count, kLimitedPackets);
    // The receive of a SEND is taken by its first packet, that of a WRITE by its last.
    asking_ = begun == 0 && wqe.kind == SegmentKind::kSend && !credits_.allows(wqe.ssn);
    if (asking_) count = 1;
    const std::uint64_t fits = datapath_.network.transmit_room() / wqe.mtu;
    if (fits < count) count = std::max(1U, static_cast<std::uint32_t>(fits));
    const std::uint64_t offset = std::uint64_t{begun} * wqe.mtu;
    std::uint64_t left =
        std::min<std::uint64_t>(wqe.length - offset, std::uint64_t{count} * wqe.mtu);
    const gdma::KeyUse use;
    gdma::SpanList& from = datapath_.scratch.from;
    from.clear();
    const auto fault = gather_payload(datapath_.keys, qp_.pd->id, wqe, offset, left, from);
    if (fault != gdma::MrFault::kNone) {
        tally(datapath_.counters.send_protection, qp_.events.send_protection);
        wqe.error = gather_error(fault);
        next();  // notes the failure if all earlier work is done
        return false;
    }
    budget.bytes -= std::min(budget.bytes, std::max<std::uint64_t>(left, 1));
    Spans rest = from;
    std::size_t at = 0;  // in the first of `rest`
    roce::Packet packet = qp_.packet();
    for (std::uint32_t i = 0; i < count; ++i) {
        const bool first = begun + i == 0;
        const bool last = begun + i + 1 == wqe.packets;
        std::uint64_t bytes = std::min<std::uint64_t>(left, wqe.mtu);
        left -= bytes;
        gdma::SpanList& cut = datapath_.scratch.cut;
        cut.clear();
        while (bytes > 0) {
            const std::size_t n =
                static_cast<std::size_t>(std::min<std::uint64_t>(bytes, rest.front().size() - at));
            if (n > 0) cut.push_back(rest.front().subspan(at, n));
            bytes -= n;
            at += n;
            if (at == rest.front().size()) {
                rest = rest.subspan(1);
                at = 0;
            }
        }
        packet.opcode = send_opcode(wqe, first, last);
        if (!reliable())
            packet.opcode =
                static_cast<Opcode>(static_cast<std::uint8_t>(packet.opcode) | kUcOpcodes);
        packet.psn = send_psn_;
        packet.solicited =
            wqe.solicited && last && (wqe.kind == SegmentKind::kSend || wqe.immediate);
        packet.reth = {wqe.address, wqe.rkey, wqe.length};
        base::store_be<std::uint32_t>(packet.immediate.data(), wqe.value);
        packet.invalidate_rkey = RKey(wqe.value);
        ++since_ack_request_;
        packet.ack_request = last || since_ack_request_ >= std::min(kAckRequestEvery, window_) ||
                             (i + 1 == count && (count == room || asking_));
        packet.ack_request = packet.ack_request && reliable();
        if (packet.ack_request) since_ack_request_ = 0;
        ++send_psn_;
        const std::size_t sent = datapath_.transmitter.send(traffic, packet, cut);
        if (qp_.limiter) {
            qp_.limiter->charge(sent);
            if (i + 1 < count && !qp_.limiter->open()) break;
        }
    }
    if (next_psn_ < send_psn_) next_psn_ = send_psn_;
    if (!reliable()) {
        una_ = send_psn_;
        if (send_psn_ > wqe.last()) discard(wqe);
        return true;
    }
    if (send_psn_ > wqe.last()) ++current_;
    return true;
}

}  // namespace openmana::rnic
