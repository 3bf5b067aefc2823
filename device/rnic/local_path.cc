// SPDX-License-Identifier: Apache-2.0
// The local path: the peer's QP lives in this process, so a request is executed on the requester's
// thread, from guest memory to guest memory.
#include <algorithm>
#include <optional>

#include "base/hold_meter.h"
#include "rnic/datapath.h"
#include "rnic/qp_table.h"

namespace openmana::rnic {

namespace {

/// Copied during one visit before it ends, by one request and during a visit of its own for a READ.
/// So the owner of the peer waits at most for twice as much.
constexpr std::uint64_t kVisitBytes = 256U << 10;
/// Copied as a unit of work.
constexpr std::uint64_t kWorkBytes = 4096;

}  // namespace

void Requester::turn_local(const LocalEnd& end, Budget& budget) {
    const LocalPeer& peer = *end.peer;
    bool more = true;
    while (more && budget.bytes > 0 && budget.wqes > 0) {
        std::optional<base::Gate::Visit> visit;
        if (&peer.gate != &datapath_.self.gate) visit.emplace(peer.gate);
        if (peer.gate.away()) [[unlikely]] {
            // Since this turn has begun. Where it is by now, only packets can find out.
            local_ = LocalEnd();
            path_generation_ = 0;
            return;
        }
        datapath_.counters.local_visits.add();
        Qp* const target = find_peer(peer);
        const bool reached = target != nullptr && target->type == qp_.type &&
                             target->route.dest_qpn == qp_.qpn() &&
                             target->route.meets(qp_.route, end.vlan);
        if (!reached) {
            SendWqe* const wqe = next();
            if (wqe == nullptr) return;
            peer.counters.drop_qpn.add();
            if (reliable()) {
                stall();
                return;
            }
            discard(*wqe);
            --budget.wqes;
            continue;
        }
        const std::lock_guard lock(target->responder.mutex);
        const bool cold = datapath_.keys.large() || peer.keys.large();
        std::uint64_t copied = 0;
        while (copied < kVisitBytes && budget.bytes > 0 && budget.wqes > 0) {
            if (cold) qp_.sends->prefetch_keys(datapath_.keys, peer.keys);
            SendWqe* wqe = next();
            const gdma::KeyUse use;
            if (wqe == nullptr || local_request(*wqe, *target, copied, budget) != Step::kGo) {
                more = false;
                break;
            }
        }
    }
}

/// The QP that the connection names, if there is one; which need not be connected with ours. During
/// a visit.
Qp* Requester::find_peer(const LocalPeer& peer) {
    const Qpn qpn = qp_.route.dest_qpn;
    if (peer_generation_ == peer.qps.generation() && peer_ != nullptr && peer_->qpn() == qpn)
        return peer_;
    peer_ = peer.qps.find(qpn);
    peer_generation_ = peer.qps.generation();
    if (peer_ != nullptr) {
        const auto memory = peer_->responder_memory();
        datapath_.sqs.set_beyond(qp_.ids.sq, memory.data(),
                                 static_cast<std::uint16_t>(memory.size()));
    }
    return peer_;
}

Requester::Step Requester::local_request(SendWqe& wqe, Qp& target, std::uint64_t& copied,
                                         Budget& budget) {
    const std::uint32_t begun = static_cast<std::uint32_t>(send_psn_ - wqe.first);
    const std::uint64_t offset = std::uint64_t{begun} * wqe.mtu;
    const std::uint64_t before = copied;
    Segment segment;
    segment.kind = wqe.kind;
    segment.psn = send_psn_;
    segment.ack_request = true;
    segment.reth = {wqe.address + offset, wqe.rkey,
                    static_cast<std::uint32_t>(wqe.length - offset)};
    segment.packets = wqe.packets - begun;
    if (wqe.is_atomic()) {
        segment.packets = 1;
        segment.atomic = wqe.atomic;
    } else if (wqe.is_read()) {
        const std::uint32_t end = part_end(wqe, begun);
        segment.continued = begun > part_begin(begun);
        segment.packets = end - begun;
        segment.reth.length = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(wqe.length, std::uint64_t{end} * wqe.mtu) - offset);
    } else {
        segment.packets = std::min<std::uint32_t>(segment.packets, kVisitBytes / wqe.mtu);
        segment.length = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(wqe.length - offset, std::uint64_t{segment.packets} * wqe.mtu));
        segment.first = begun == 0;
        segment.last = begun + segment.packets == wqe.packets;
        segment.immediate = wqe.immediate && segment.last;
        segment.invalidate = wqe.invalidate && segment.last;
        segment.solicited = wqe.solicited && segment.last;
        segment.value = wqe.value;
        gdma::SpanList& from = datapath_.scratch.from;
        from.clear();
        const gdma::MrFault fault =
            gather_payload(datapath_.keys, qp_.pd->id, wqe, offset, segment.length, from);
        if (fault != gdma::MrFault::kNone) {
            tally(datapath_.counters.send_protection, qp_.events.send_protection);
            fail(gather_error(fault));
            return Step::kLeave;
        }
        segment.payload = from;
        copied += segment.length;
    }
    const Psn last = send_psn_ + (segment.packets - 1);
    const Answer answer = target.responder.execute(segment);
    if (next_psn_ <= last) next_psn_ = last + 1;
    if (answer.kind == Answer::Kind::kWait) {
        base::count_work(1);
        wait_for_receive(target.responder.begin_wait());
        return Step::kLeave;
    }
    tally(datapath_.counters.tx_packets, traffic.tx_packets, segment.packets);
    tally(target.datapath.counters.rx_packets, target.responder.traffic.rx_packets,
          segment.packets);
    Step step = Step::kGo;
    if (answer.kind == Answer::Kind::kRead) {
        step = local_read(wqe, target, answer, copied);
    } else if (answer.kind == Answer::Kind::kAtomic) {
        step = local_atomic(wqe, answer);
    } else if (!reliable()) {
        if (segment.last)
            discard(wqe);
        else
            una_ = send_psn_ = last + 1;
    } else {
        send_psn_ = last + 1;
        if (segment.last) ++current_;
        step = local_outcome(answer);
    }
    base::count_work(1 + (copied - before) / kWorkBytes);
    budget.bytes -= std::min(budget.bytes, copied - before);
    --budget.wqes;
    return step;
}

Requester::Step Requester::local_atomic(SendWqe& wqe, const Answer& answer) {
    if (!place_original(wqe, answer.original)) return Step::kLeave;
    una_ = send_psn_ = wqe.last() + 1;
    complete_front();
    current_ = 0;
    progress();
    return Step::kGo;
}

Requester::Step Requester::local_read(SendWqe& wqe, Qp& target, const Answer& answer,
                                      std::uint64_t& copied) {
    const std::uint64_t offset = std::uint64_t{wqe.done} * wqe.mtu;
    const std::uint64_t length = std::min<std::uint64_t>(answer.read.length, kVisitBytes);
    const std::uint32_t packets = packets_of(length, wqe.mtu);
    gdma::SpanList& from = datapath_.scratch.from;
    gdma::SpanList& to = datapath_.scratch.to;
    from.clear();
    to.clear();
    if (target.datapath.keys.resolve(gdma::Key(answer.read.rkey.value()), target.pd->id,
                                     answer.read.address, length, gdma::kRemoteRead, from,
                                     target.scope()) != gdma::MrFault::kNone) {
        const Answer refused = target.responder.refuse_read(answer.psn);
        send_psn_ = una_ + 1;
        return local_outcome(refused);
    }
    const gdma::MrFault fault =
        gather(datapath_.keys, qp_.pd->id, wqe.sges, offset, length, gdma::kLocalWrite, to);
    if (fault != gdma::MrFault::kNone) {
        tally(datapath_.counters.send_protection, qp_.events.send_protection);
        fail(scatter_error(fault), true);
        return Step::kLeave;
    }
    copy_spans(from, to, length);
    copied += length;
    tally(target.datapath.counters.tx_bytes, target.responder.traffic.tx_bytes, length);
    tally(datapath_.counters.rx_bytes, traffic.rx_bytes, length);
    wqe.done += packets;
    send_psn_ = wqe.first + wqe.done;
    una_ = send_psn_;
    if (wqe.done == wqe.packets) {
        complete_front();
        current_ = 0;
    }
    progress();
    return Step::kGo;
}

}  // namespace openmana::rnic
