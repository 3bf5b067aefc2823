// SPDX-License-Identifier: Apache-2.0
#include "rnic/responses.h"

#include <algorithm>

#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

using roce::Opcode;

namespace {

constexpr std::uint64_t kTurnBytes = 1U << 20;
constexpr std::uint32_t kStepPackets = 64;
constexpr std::uint32_t kLimitedPackets = 8;

}  // namespace

void Responses::add(const Answer& answer) {
    switch (answer.kind) {
        case Answer::Kind::kDrop:
        case Answer::Kind::kSilent:
        case Answer::Kind::kWait:
            return;
        case Answer::Kind::kAck:
            if (queue_.empty()) {
                ack_ = answer;
                return;
            }
            ack_.reset();
            if (queue_.back().kind == Answer::Kind::kAck)
                queue_.back() = answer;
            else
                queue_.push_back(answer);
            return;
        case Answer::Kind::kRead: {
            implied(answer);
            const std::uint32_t mtu = qp_.route.mtu;
            const auto last = [mtu](const Answer& a) {
                return a.read.psn + (packets_of(a.read.length, mtu) - 1);
            };
            // The newest request for the same data replaces an older one, so the queue stays
            // bounded.
            for (Answer& queued : queue_)
                if (queued.kind == Answer::Kind::kRead && last(queued) == last(answer)) {
                    queued = answer;
                    return;
                }
            queue_.push_back(answer);
            return;
        }
        case Answer::Kind::kAtomic: {
            implied(answer);
            for (const Answer& queued : queue_)
                if (queued.kind == Answer::Kind::kAtomic && queued.psn == answer.psn) return;
            queue_.push_back(answer);
            return;
        }
        case Answer::Kind::kNak:
        case Answer::Kind::kRnr:
            ack_.reset();
            // It says all that the ones before it say, back to the last answer that brings data.
            while (!queue_.empty() && queue_.back().kind != Answer::Kind::kRead &&
                   queue_.back().kind != Answer::Kind::kAtomic)
                queue_.pop_back();
            queue_.push_back(answer);
            return;
    }
}

/// What a READ or an atomic brings acknowledges what came before it; a duplicate does not.
void Responses::implied(const Answer& answer) {
    if (ack_ && answer.psn > ack_->psn) ack_.reset();
}

bool Responses::send() {
    if (empty()) return false;
    if (!qp_.datapath.addresses.sends_from({qp_.route.source, qp_.route.vlan})) {
        // As if the network dropped them: the peer asks again.
        qp_.datapath.counters.drop_source.add();
        clear();
        return false;
    }
    std::uint64_t budget = kTurnBytes;
    // What waits says how many messages are done by now, so that the number never goes back
    // (ROCE 2.6).
    std::uint32_t msn = 0;
    if (!queue_.empty()) {
        const std::lock_guard lock(qp_.responder.mutex);
        msn = qp_.responder.msn();
        if (ack_) ack_->msn = msn;
    }
    while (!queue_.empty()) {
        Answer& answer = queue_.front();
        answer.msn = msn;
        if (answer.kind == Answer::Kind::kRead) {
            switch (send_read(answer, budget)) {
                case Sent::kPart:
                    return true;
                case Sent::kLimited:
                    return false;  // who holds it back gives the QP a turn
                case Sent::kRefused:
                    clear();
                    return false;
                case Sent::kAll:
                    break;
            }
        } else {
            send_aeth(answer);
        }
        queue_.pop_front();
    }
    if (ack_) {
        send_aeth(*ack_);
        ack_.reset();
    }
    return false;
}

Responses::Sent Responses::send_read(Answer& answer, std::uint64_t& budget) {
    Datapath& datapath = qp_.datapath;
    ReadJob& job = answer.read;
    const std::uint32_t mtu = qp_.route.mtu;
    const std::uint32_t total = packets_of(job.length, mtu);
    roce::Packet packet = qp_.packet();
    packet.aeth = {answer.syndrome, answer.msn};
    while (job.done < total) {
        if (budget == 0) return Sent::kPart;
        if (qp_.limiter && !qp_.limiter->open()) return Sent::kLimited;
        if (datapath.scheduler.hold_back(qp_)) return Sent::kLimited;
        const std::uint32_t count =
            std::min(total - job.done, qp_.limiter ? kLimitedPackets : kStepPackets);
        const std::uint64_t offset = std::uint64_t{job.done} * mtu;
        std::uint64_t left =
            std::min<std::uint64_t>(job.length - offset, std::uint64_t{count} * mtu);
        const gdma::KeyUse use;
        gdma::SpanList& from = datapath.scratch.from;
        from.clear();
        if (datapath.keys.resolve(gdma::Key(job.rkey.value()), qp_.pd->id, job.address + offset,
                                  left, gdma::kRemoteRead, from,
                                  qp_.scope()) != gdma::MrFault::kNone) {
            Answer refused;
            {
                const std::lock_guard lock(qp_.responder.mutex);
                refused = qp_.responder.refuse_read(job.psn + job.done);
            }
            if (refused.kind == Answer::Kind::kNak) send_aeth(refused);
            return Sent::kRefused;
        }
        budget -= std::min(budget, std::max<std::uint64_t>(left, 1));
        tally(datapath.counters.tx_bytes, qp_.requester.traffic.tx_bytes, left);
        Spans rest = from;
        std::size_t at = 0;
        for (std::uint32_t i = 0; i < count; ++i, ++job.done) {
            std::uint64_t bytes = std::min<std::uint64_t>(left, mtu);
            left -= bytes;
            gdma::SpanList& cut = datapath.scratch.cut;
            cut.clear();
            while (bytes > 0) {
                const std::size_t n = static_cast<std::size_t>(
                    std::min<std::uint64_t>(bytes, rest.front().size() - at));
                if (n > 0) cut.push_back(rest.front().subspan(at, n));
                bytes -= n;
                at += n;
                if (at == rest.front().size()) {
                    rest = rest.subspan(1);
                    at = 0;
                }
            }
            const bool last = job.done + 1 == total;
            if (job.done == 0)
                packet.opcode = last ? Opcode::kReadResponseOnly : Opcode::kReadResponseFirst;
            else
                packet.opcode = last ? Opcode::kReadResponseLast : Opcode::kReadResponseMiddle;
            packet.psn = job.psn + job.done;
            const std::size_t sent = datapath.transmitter.send(qp_.requester.traffic, packet, cut);
            if (qp_.limiter) qp_.limiter->charge(sent);
        }
    }
    return Sent::kAll;
}

void Responses::send_aeth(const Answer& answer) {
    roce::Packet packet = qp_.packet();
    packet.opcode =
        answer.kind == Answer::Kind::kAtomic ? Opcode::kAtomicAcknowledge : Opcode::kAcknowledge;
    packet.psn = answer.psn;
    packet.aeth = {answer.syndrome, answer.msn};
    packet.atomic_original = answer.original;
    qp_.datapath.transmitter.send(qp_.requester.traffic, packet, {});
}

}  // namespace openmana::rnic
