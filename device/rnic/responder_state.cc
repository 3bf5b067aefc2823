// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "rnic/datapath.h"
#include "rnic/qp.h"

// The state of the side that executes: what it expects, what it remembers, what it owes, and what
// waits for a receive.

namespace openmana::rnic {
namespace {

template <typename Archive, typename Self>
void job_fields(Archive& a, Self& job) {
    a(job.psn, job.length, job.address, job.rkey, job.done);
}

template <typename Archive, typename Self>
void answer_fields(Archive& a, Self& answer) {
    a.choice(answer.kind, Answer::Kind::kAtomic);
    a(answer.syndrome, answer.psn, answer.msn);
    job_fields(a, answer.read);
    a(answer.original);
}

template <typename Archive, typename Self>
void segment_fields(Archive& a, Self& segment) {
    a.choice(segment.kind, SegmentKind::kInvalid);
    a(segment.first, segment.last, segment.immediate, segment.invalidate, segment.ack_request,
      segment.solicited, segment.psn, segment.packets, segment.length, segment.reth.address,
      segment.reth.rkey, segment.reth.length, segment.atomic.swap, segment.atomic.swap_add,
      segment.atomic.compare, segment.value);
}

template <typename Archive, typename Self>
void read_fields(Archive& a, Self& entry) {
    a.choice(entry.kind, SegmentKind::kAtomic);
    a(entry.original, entry.first, entry.packets, entry.address, entry.rkey, entry.length);
}

}  // namespace

// ---- the responder

template <typename Archive, typename Self>
void Responder::fields(Archive& a, Self& self) {
    a(self.expected_, self.msn_, self.nak_sent_, self.established_, self.taken_, self.waiting_,
      self.unanswered_, self.failing_, self.offset_, self.write_.address, self.write_.rkey,
      self.write_.length, self.messages, self.traffic, self.wait_since_, self.wait_until_,
      self.wait_counted_);
    a.choice(self.message_, SegmentKind::kInvalid);
    a(self.receive_.name, self.receive_.named, self.receive_.pd, self.receive_.total);
}

void Responder::save(base::StateWriter& out) const {
    fields(out, *this);
    out.count(receive_.sges.size());
    for (const gdma::Sge& sge : receive_.sges) out(sge.address, sge.key, sge.length);
    out.count(reads_.size());
    out(static_cast<std::uint32_t>(next_read_));
    for (const ReadEntry& entry : reads_) read_fields(out, entry);
}

void Responder::load(base::StateReader& in) {
    fields(in, *this);
    const std::size_t sges = in.count(sizeof(std::uint64_t));
    in.require(sges <= kMostSges, "receive with too many SGEs");
    for (std::size_t i = 0; i < sges && in.ok(); ++i) {
        gdma::Sge sge;
        in(sge.address, sge.key, sge.length);
        receive_.sges.push_back(sge);
    }
    const std::size_t reads = in.count();
    next_read_ = in.get<std::uint32_t>();
    in.require((reads == 0 || reads == kReadEntries) && next_read_ < kReadEntries &&
                   msn_ <= Psn::kMask &&
                   (!taken_ || receive_.total == total_length(receive_.sges)) &&
                   (message_ != SegmentKind::kSend || taken_) && message_ != SegmentKind::kRead &&
                   message_ != SegmentKind::kAtomic,
               "responder that cannot be");
    if (in.ok()) reads_.resize(reads);
    for (ReadEntry& entry : reads_) read_fields(in, entry);
    if (!in.ok()) reset();
}

// ---- what it owes

void Responses::save(base::StateWriter& out) const {
    out.count(queue_.size());
    for (const Answer& answer : queue_) answer_fields(out, answer);
    out(ack_.has_value());
    if (ack_) answer_fields(out, *ack_);
}

void Responses::load(base::StateReader& in) {
    const std::size_t size = in.count();
    in.require(size <= 2 * kMost + 1, "more answers than are remembered");
    for (std::size_t i = 0; i < size && in.ok(); ++i) {
        Answer& answer = queue_.emplace_back();
        answer_fields(in, answer);
        in.require(answer.kind >= Answer::Kind::kAck && answer.kind != Answer::Kind::kWait &&
                       answer.msn <= Psn::kMask &&
                       answer.read.done <= packets_of(answer.read.length, qp_.route.mtu),
                   "answer that cannot be");
    }
    if (in.get<bool>()) {
        answer_fields(in, ack_.emplace());
        in.require(ack_->kind == Answer::Kind::kAck && ack_->msn <= Psn::kMask,
                   "answer that cannot be");
    }
    if (!in.ok()) clear();
}

// ---- what waits for a receive

void ReceiveWait::save(base::StateWriter& out) const {
    out.count(requests_.size());
    for (const Request& request : requests_) {
        segment_fields(out, request.segment);
        out.bytes(request.payload);
    }
    out(next_, dropped_, copied_, timer_.left());
}

void ReceiveWait::load(base::StateReader& in) {
    const std::size_t size = in.count();
    in.require(size <= kMostRequests, "too many requests that wait");
    for (std::size_t i = 0; i < size && in.ok(); ++i) {
        Segment segment;
        segment_fields(in, segment);
        const auto bytes = in.bytes();
        // How long it may be is looked at when its turn comes.
        in.require(bytes.size() == segment.length && segment.packets == 1,
                   "request that waits, and cannot be");
        if (!in.ok()) break;
        const std::span<std::byte> payload(const_cast<std::byte*>(bytes.data()), bytes.size());
        segment.payload = Spans(&payload, 1);
        in.require(push(segment), "too much that waits");
    }
    std::optional<base::TimePoint> timer;
    in(next_, dropped_, copied_, timer);
    in.require(size == 0 || timer, "requests that wait for ever");
    if (!in.ok()) {
        clear();
    } else if (timer) {
        timer_.arm_at(*timer);
    }
}

}  // namespace openmana::rnic
