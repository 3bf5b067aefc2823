// SPDX-License-Identifier: Apache-2.0
#include "rnic/responder.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

using roce::NakCode;

namespace {

constexpr std::uint32_t kMaxMessage = 1U << 31;

/// Spans of the request that a thread executes. Not of the QP: they would be in no cache when its
/// turn comes.
struct ThreadSpans {
    gdma::SpanList to;
    gdma::SpanList from;  ///< datagrams: GRH area and payload
};
thread_local ThreadSpans spans;

/// Between two looks for the receive of a message that waits: a share of how long it has waited, so
/// that looking costs little and is late by little.
constexpr base::Duration kShortestDelay = std::chrono::microseconds(10);
constexpr int kDelayShare = 8;

/// How long a message may wait for its receive. Not as long as its sender waits for an answer,
/// which nobody tells: mostly both ends wait alike.
base::Duration patience(const Qp& qp) {
    const base::Duration most = qp.datapath.config.receive_wait;
    const std::uint32_t timeout = qp.attributes.timeout;
    return timeout == 0 ? most : std::min(most, roce::ack_timeout(timeout) / 2);
}

}  // namespace

void Responder::start(Psn expected) {
    expected_ = expected;
    nak_sent_ = waiting_ = unanswered_ = false;
    message_ = SegmentKind::kInvalid;
    reads_.clear();
    next_read_ = 0;
}

void Responder::reset() {
    msn_ = 0;
    start(Psn(0));
    established_ = failing_ = false;
    offset_ = 0;
    taken_ = false;
}

Answer Responder::nak_sequence() {
    nak_sent_ = true;
    unanswered_ = false;
    return {Answer::Kind::kNak, roce::nak_syndrome(NakCode::kSequenceError), expected_, msn_, {}};
}

Answer Responder::fatal(NakCode code, std::uint16_t receive_error, bool nak) {
    RnicCounters& counters = qp_.datapath.counters;
    tally(counters.fatal_errors, qp_.events.fatal_errors);
    qp_.set_state(MANA_HW_RNIC_QP_ERR);
    qp_.errors->receive_failed(code, receive_error);
    failing_ = true;
    qp_.datapath.tasks.post(qp_, [](Qp& qp) { qp.responder_failed(); });
    if (!nak) return {};
    return {Answer::Kind::kNak, roce::nak_syndrome(code), expected_, msn_, {}};
}

Answer Responder::refuse_read(Psn psn) {
    if (!qp_.responds()) return {};
    tally(qp_.datapath.counters.remote_access, qp_.events.remote_access);
    Answer answer = fatal(NakCode::kRemoteAccess, 0);
    answer.psn = psn;
    return answer;
}

Answer Responder::refuse(const Segment& segment, NakCode code, std::uint16_t receive_error) {
    return qp_.type == QpType::kUc ? discard(segment) : fatal(code, receive_error);
}

Answer Responder::discard(const Segment& segment) {
    qp_.datapath.counters.drop_unreliable.add();
    abandon();
    expected_ = segment.psn + segment.packets;
    return {};
}

/// UC: the message in progress will not be whole.
void Responder::abandon() {
    message_ = SegmentKind::kInvalid;
    if (taken_ && receives->complete_aborted(receive_)) taken_ = false;
}

/// UC (ROCE 5.2): a message that is not whole is abandoned; the next one that starts is taken, at
/// whatever PSN.
bool Responder::follows(const Segment& segment) {
    const SegmentKind before = segment.first ? SegmentKind::kInvalid : segment.kind;
    if (segment.psn == expected_ && message_ == before) return true;
    abandon();
    expected_ = segment.psn;
    return segment.first;
}

ReceiveFormat::Take Responder::take_receive() {
    const ReceiveFormat::Take take = receives->take(receive_);
    taken_ = take == ReceiveFormat::Take::kOk ||
             (take == ReceiveFormat::Take::kMalformed && receive_.named);
    return take;
}

void Responder::complete_receive(const Segment& segment) {
    Received message;
    message.kind = segment.kind;
    message.immediate = segment.immediate;
    message.invalidate = segment.invalidate;
    message.solicited = segment.solicited;
    message.length = offset_;
    message.value = segment.value;
    message.psn = expected_ - 1;
    taken_ = false;
    receives->complete(receive_, message);
}

/// A message waits once for its receive, and then not again (ROCE 4.8).
Answer Responder::no_receive() {
    const base::TimePoint now = qp_.datapath.executor.now();
    if (!waiting_) {
        waiting_ = true;
        wait_counted_ = false;
        wait_since_ = now;
        wait_until_ = now + patience(qp_);
    }
    if (now >= wait_until_) return nak_rnr();
    // Nothing that is behind it is missed.
    nak_sent_ = true;
    return {Answer::Kind::kWait, 0, expected_, msn_, {}};
}

Answer Responder::nak_rnr() {
    tally(qp_.datapath.counters.rnr_naks_sent, qp_.events.rnr_naks_sent);
    nak_sent_ = true;
    unanswered_ = false;
    return {Answer::Kind::kRnr,
            roce::rnr_syndrome(static_cast<std::uint8_t>(qp_.attributes.min_rnr_timer)),
            expected_,
            msn_,
            {}};
}

Answer Responder::ack() {
    unanswered_ = false;
    return {Answer::Kind::kAck, roce::kAckUnlimited, expected_ - 1, msn_, {}};
}

Answer Responder::acknowledge() {
    if (!unanswered_ || !qp_.responds()) return {};
    return ack();
}

bool Responder::waits_briefly() const {
    return qp_.datapath.executor.now() - wait_since_ < (wait_until_ - wait_since_) / 2;
}

base::Duration Responder::begin_wait() {
    const base::TimePoint now = qp_.datapath.executor.now();
    if (!wait_counted_) tally(qp_.datapath.counters.receive_waits, qp_.events.receive_waits);
    wait_counted_ = true;
    return std::min(std::max(kShortestDelay, (now - wait_since_) / kDelayShare), wait_until_ - now);
}

Answer Responder::end_wait() {
    if (!qp_.responds()) return {};
    wait_until_ = qp_.datapath.executor.now();
    return nak_rnr();
}

Answer Responder::report_gap(Psn dropped) {
    if (!qp_.responds()) return {};
    if (expected_ > dropped) return acknowledge();
    return nak_sent_ ? Answer{} : nak_sequence();
}

/// A receive for a message that needs one; an answer if there is none.
std::optional<Answer> Responder::provide_receive(const Segment& segment) {
    RnicCounters& counters = qp_.datapath.counters;
    const bool reliable = qp_.type == QpType::kRc;
    if (qp_.recv_cq->overrun()) {
        // The QP is about to be in ERR; what nobody will be told of is not acknowledged.
        counters.drop_state.add();
        return Answer{};
    }
    const ReceiveFormat::Take take = take_receive();
    if (take == ReceiveFormat::Take::kEmpty) {
        if (!reliable) return discard(segment);
        return no_receive();
    }
    waiting_ = false;
    if (take == ReceiveFormat::Take::kMalformed) {
        tally(counters.malformed_receives, qp_.events.malformed_receives);
        return fatal(NakCode::kRemoteOperational, MANA_HW_RNIC_VE_RX_MALFORMED_WQE, reliable);
    }
    return std::nullopt;
}

/// Lengths, ROCE 4.5.
bool Responder::fits(const Segment& segment) const {
    const std::uint64_t mtu = qp_.route.mtu;
    const std::uint64_t room = segment.packets * mtu;
    bool good = segment.length <= room;
    if (!segment.last) good = segment.length == room;
    if (segment.last && !(segment.first && segment.length == 0))
        good = good && segment.length > room - mtu;
    if (segment.kind != SegmentKind::kSend) {
        const std::uint64_t after = std::uint64_t{offset_} + segment.length;
        good = good && write_.length <= kMaxMessage &&
               (segment.last ? after == write_.length : after < write_.length);
    }
    return good;
}

/// Where the payload goes, into `spans.to`; an answer if it may not go there.
std::optional<Answer> Responder::find_memory(const Segment& segment) {
    Datapath& datapath = qp_.datapath;
    RnicCounters& counters = datapath.counters;
    const bool reliable = qp_.type == QpType::kRc;
    gdma::SpanList& to = spans.to;
    to.clear();
    if (segment.kind == SegmentKind::kSend) {
        if (offset_ > receive_.total || segment.length > receive_.total - offset_) {
            tally(counters.receive_too_long, qp_.events.receive_too_long);
            return refuse(segment, NakCode::kInvalidRequest, MANA_HW_RNIC_VE_RX_TOO_LONG);
        }
        const gdma::MrFault fault =
            gather(datapath.keys, receive_.pd, receive_.sges, offset_, segment.length,
                   gdma::kLocalWrite, to, receives->rules.check);
        if (fault != gdma::MrFault::kNone) {
            tally(counters.receive_qp_errors, qp_.events.receive_qp_errors);
            return fatal(NakCode::kRemoteOperational, scatter_error(fault), reliable);
        }
    } else {
        // The whole range before the first byte is placed; each part again, since the region may be
        // gone by then.
        gdma::MrFault fault = gdma::MrFault::kNone;
        if (segment.first && !segment.last)
            fault = datapath.keys.check(gdma::Key(write_.rkey.value()), qp_.pd->id, write_.address,
                                        write_.length, gdma::kRemoteWrite, qp_.scope());
        if (fault == gdma::MrFault::kNone)
            fault = datapath.keys.resolve(gdma::Key(write_.rkey.value()), qp_.pd->id,
                                          write_.address + offset_, segment.length,
                                          gdma::kRemoteWrite, to, qp_.scope());
        if (fault != gdma::MrFault::kNone) {
            tally(counters.remote_access, qp_.events.remote_access);
            return refuse(segment, NakCode::kRemoteAccess, taken_ ? MANA_HW_RNIC_VE_RX_RKEY : 0);
        }
    }
    return std::nullopt;
}

Answer Responder::execute(const Segment& segment) {
    Datapath& datapath = qp_.datapath;
    RnicCounters& counters = datapath.counters;
    const std::uint32_t state = qp_.state();
    if (!qp_.responds()) {
        counters.drop_state.add();
        return {};
    }
    const bool reliable = qp_.type == QpType::kRc;
    if (reliable) {
        const std::int32_t ahead = segment.psn - expected_;
        if (ahead > 0) {
            tally(counters.out_of_sequence, qp_.events.out_of_sequence);
            return nak_sent_ ? Answer{} : nak_sequence();
        }
        if (ahead < 0) return duplicate(segment);
        nak_sent_ = false;
    } else if (!follows(segment)) {
        return discard(segment);
    }
    if (!established_ && state == MANA_HW_RNIC_QP_RTR) qp_.errors->established();
    established_ = true;

    // ROCE 4.3, in its order. Only a receive that is in use is blamed.
    const std::uint16_t blamed = taken_ ? MANA_HW_RNIC_VE_RX_OPCODE : 0;
    if (segment.kind == SegmentKind::kInvalid)
        return refuse(segment, NakCode::kInvalidRequest, blamed);
    if (segment.kind == SegmentKind::kRead || segment.kind == SegmentKind::kAtomic) {
        if (message_ != SegmentKind::kInvalid || !reliable)
            return refuse(segment, NakCode::kInvalidRequest, blamed);
        return segment.kind == SegmentKind::kRead ? read(segment) : atomic(segment);
    }
    const bool send = segment.kind == SegmentKind::kSend;
    if (message_ != (segment.first ? SegmentKind::kInvalid : segment.kind))
        return fatal(NakCode::kInvalidRequest, blamed);
    if (!send && segment.first && (qp_.route.access & MANA_HW_RNIC_QP_ACCESS_REMOTE_WRITE) == 0)
        return refuse(segment, NakCode::kInvalidRequest, 0);
    const bool needs_receive = send ? segment.first : segment.last && segment.immediate;
    if (needs_receive && !taken_) {
        if (const std::optional<Answer> answer = provide_receive(segment)) return *answer;
    }
    if (segment.first) {
        offset_ = 0;
        write_ = segment.reth;
    }

    if (!fits(segment))
        return refuse(segment, NakCode::kInvalidRequest, taken_ ? MANA_HW_RNIC_VE_RX_OPCODE : 0);
    if (const std::optional<Answer> answer = find_memory(segment)) return *answer;
    copy_spans(segment.payload, spans.to, segment.length);
    offset_ += segment.length;
    tally(counters.rx_bytes, traffic.rx_bytes, segment.length);
    if (segment.invalidate && segment.last &&
        !datapath.keys.invalidate(gdma::Key(segment.value), qp_.pd->id, qp_.scope())) {
        // Class J of ROCE 4.4.
        return fatal(NakCode::kInvalidRequest, MANA_HW_RNIC_VE_RX_RKEY, false);
    }
    expected_ += segment.packets;
    message_ = segment.last ? SegmentKind::kInvalid : segment.kind;
    if (segment.last) {
        msn_ = (msn_ + 1) & Psn::kMask;
        ++messages;
        if (send)
            tally(counters.rx_sends, traffic.rx_sends);
        else
            tally(counters.rx_writes, traffic.rx_writes);
        if (send || segment.immediate) complete_receive(segment);
    }
    if (segment.ack_request && reliable) return ack();
    unanswered_ = reliable;
    return {Answer::Kind::kSilent, 0, expected_ - 1, msn_, {}};
}

Answer Responder::read(const Segment& segment) {
    RnicCounters& counters = qp_.datapath.counters;
    if ((qp_.route.access & MANA_HW_RNIC_QP_ACCESS_REMOTE_READ) == 0 ||
        qp_.attributes.max_read_in == 0 || segment.reth.length > kMaxMessage || segment.length != 0)
        return fatal(NakCode::kInvalidRequest, 0);
    const gdma::MrFault fault = qp_.datapath.keys.check(
        gdma::Key(segment.reth.rkey.value()), qp_.pd->id, segment.reth.address, segment.reth.length,
        gdma::kRemoteRead, qp_.scope());
    if (fault != gdma::MrFault::kNone) {
        tally(counters.remote_access, qp_.events.remote_access);
        return fatal(NakCode::kRemoteAccess, 0);
    }
    remember(segment, packets_of(segment.reth.length, qp_.route.mtu), 0);
    tally(counters.rx_reads, traffic.rx_reads);
    return {Answer::Kind::kRead,
            roce::kAckUnlimited,
            segment.psn,
            msn_,
            {segment.psn, segment.reth.length, segment.reth.address, segment.reth.rkey, 0}};
}

/// The request takes effect now; should its answer be lost, it can be given again.
void Responder::remember(const Segment& segment, std::uint32_t packets, std::uint64_t original) {
    if (reads_.empty()) reads_.resize(kReadEntries);
    reads_[next_read_] = {segment.kind,         original,          segment.psn,        packets,
                          segment.reth.address, segment.reth.rkey, segment.reth.length};
    next_read_ = (next_read_ + 1) % kReadEntries;
    expected_ += packets;
    msn_ = (msn_ + 1) & Psn::kMask;
    unanswered_ = false;
    ++messages;
}

Answer Responder::atomic(const Segment& segment) {
    constexpr std::uint64_t kBytes = sizeof(std::uint64_t);
    RnicCounters& counters = qp_.datapath.counters;
    if ((qp_.route.access & MANA_HW_RNIC_QP_ACCESS_REMOTE_ATOMIC) == 0 ||
        qp_.attributes.max_read_in == 0 || segment.reth.address % kBytes != 0 ||
        segment.length != 0)
        return fatal(NakCode::kInvalidRequest, 0);
    gdma::SpanList& to = spans.to;
    to.clear();
    if (qp_.datapath.keys.resolve(gdma::Key(segment.reth.rkey.value()), qp_.pd->id,
                                  segment.reth.address, kBytes, gdma::kRemoteAtomic, to,
                                  qp_.scope()) != gdma::MrFault::kNone) {
        tally(counters.remote_access, qp_.events.remote_access);
        return fatal(NakCode::kRemoteAccess, 0);
    }
    // A region may lie in memory otherwise than its addresses say.
    if (to.size() != 1 || reinterpret_cast<std::uintptr_t>(to[0].data()) % kBytes != 0)
        return fatal(NakCode::kRemoteOperational, 0);
    const std::atomic_ref<std::uint64_t> memory(*reinterpret_cast<std::uint64_t*>(to[0].data()));
    std::uint64_t original = segment.atomic.compare;
    if (segment.atomic.swap)
        (void)memory.compare_exchange_strong(original, segment.atomic.swap_add);
    else
        original = memory.fetch_add(segment.atomic.swap_add);
    remember(segment, 1, original);
    counters.rx_atomics.add();
    return {Answer::Kind::kAtomic, roce::kAckUnlimited, segment.psn, msn_, {}, original};
}

Answer Responder::duplicate(const Segment& segment) {
    RnicCounters& counters = qp_.datapath.counters;
    if (!segment.continued) {
        tally(counters.duplicates, qp_.events.duplicates);
    }
    if (segment.kind == SegmentKind::kRead) {
        const std::uint64_t mtu = qp_.route.mtu;
        for (const ReadEntry& entry : reads_) {
            if (entry.packets == 0 || entry.kind != SegmentKind::kRead) continue;
            const std::int32_t behind = segment.psn - entry.first;
            if (behind < 0 || static_cast<std::uint32_t>(behind) >= entry.packets) continue;
            const std::uint64_t skipped = static_cast<std::uint64_t>(behind) * mtu;
            if (segment.reth.rkey != entry.rkey ||
                segment.reth.address != entry.address + skipped ||
                segment.reth.length != entry.length - skipped)
                continue;
            return {Answer::Kind::kRead,
                    roce::kAckUnlimited,
                    segment.psn,
                    msn_,
                    {segment.psn, segment.reth.length, segment.reth.address, segment.reth.rkey, 0}};
        }
        return {};
    }
    if (segment.kind == SegmentKind::kAtomic) {
        for (const ReadEntry& entry : reads_)
            if (entry.packets != 0 && entry.kind == SegmentKind::kAtomic &&
                entry.first == segment.psn && entry.address == segment.reth.address &&
                entry.rkey == segment.reth.rkey)
                return {Answer::Kind::kAtomic, roce::kAckUnlimited, segment.psn, msn_, {},
                        entry.original};
        return {};
    }
    if (!segment.ack_request || segment.kind == SegmentKind::kInvalid) return {};
    // A gap that is still there after a retransmission is reported again.
    nak_sent_ = false;
    return ack();
}

bool Responder::deliver_datagram(const roce::Packet& packet, Spans payload, std::size_t length) {
    RnicCounters& counters = qp_.datapath.counters;
    const std::uint64_t needed = 40 + std::uint64_t{length};
    ++traffic.rx_packets;
    if (!qp_.responds()) {
        counters.drop_state.add();
        return false;
    }
    const QKey qkey = qp_.type == QpType::kGsi ? roce::kGsiQKey : qp_.attributes.qkey;
    if (packet.deth.qkey != qkey) {
        counters.drop_qkey.add();
        return false;
    }
    // A receive that was too small for an earlier datagram is kept for the next one.
    gdma::SpanList& to = spans.to;
    to.clear();
    gdma::MrFault fault = gdma::MrFault::kRange;
    const ReceiveFormat::Take take = taken_ ? ReceiveFormat::Take::kOk : take_receive();
    if (take == ReceiveFormat::Take::kOk && needed <= receive_.total)
        fault = gather(qp_.datapath.keys, receive_.pd, receive_.sges, 0, needed, gdma::kLocalWrite,
                       to, receives->rules.check);
    if (fault != gdma::MrFault::kNone) {
        counters.drop_no_receive.add();
        if (!receives->rules.fails_datagrams) return false;
        if (take == ReceiveFormat::Take::kMalformed)
            fatal(NakCode::kRemoteOperational, MANA_HW_RNIC_VE_RX_MALFORMED_WQE, false);
        else if (take == ReceiveFormat::Take::kOk && needed <= receive_.total)
            fatal(NakCode::kRemoteOperational, scatter_error(fault), false);
        return false;
    }
    std::array<std::byte, 40> grh{};
    roce::write_grh(packet, length, grh);
    gdma::SpanList& from = spans.from;
    from.assign(1, std::span(grh));
    from.insert(from.end(), payload.begin(), payload.end());
    copy_spans(from, to, needed);
    taken_ = false;
    ++messages;
    tally(counters.rx_bytes, traffic.rx_bytes, length);
    receives->complete_datagram(receive_, packet, static_cast<std::uint32_t>(needed));
    return true;
}

}  // namespace openmana::rnic
