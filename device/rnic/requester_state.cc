// SPDX-License-Identifier: Apache-2.0
#include <mana/ext.h>
#include <mana/rnic.h>

#include <algorithm>
#include <bit>

#include "rnic/datapath.h"
#include "rnic/qp.h"

// The state of a requester: what it has taken from its queue and not finished, where it stands in
// that, and what it waits for.

namespace openmana::rnic {
namespace {

/// Most PSNs of one message, and bytes of it.
constexpr std::uint32_t kMostPackets = 1U << 23;
constexpr std::uint32_t kMostBytes = 1U << 31;

template <typename Archive, typename Self>
void fields(Archive& a, Self& wqe) {
    a.choice(wqe.kind, SegmentKind::kInvalid);
    a(wqe.fence, wqe.solicited, wqe.immediate, wqe.invalidate, wqe.error_on_rreq, wqe.error,
      wqe.mtu, wqe.first, wqe.packets, wqe.length, wqe.rkey, wqe.value, wqe.address, wqe.done,
      wqe.ssn, wqe.signaled, wqe.position, wqe.opcode, wqe.local, wqe.atomic.swap,
      wqe.atomic.swap_add, wqe.atomic.compare, wqe.is_inline);
    if (wqe.local) a(wqe.segment);
}

void save(base::StateWriter& out, const SendWqe& wqe) {
    fields(out, wqe);
    out.count(wqe.sges.size());
    for (const gdma::Sge& sge : wqe.sges) out(sge.address, sge.key, sge.length);
    out.bytes(wqe.inline_data);
}

/// What fetch() could have made: else the rest of the requester would look where nothing is.
bool sensible(const SendWqe& wqe) {
    if (wqe.local)
        return wqe.packets == 0 && wqe.kind == SegmentKind::kInvalid &&
               (wqe.opcode == MANA_HW_EXT_WQE_LOCAL_INV || wqe.opcode == MANA_HW_EXT_WQE_BIND_MW ||
                wqe.opcode == MANA_HW_EXT_WQE_FAST_REGISTER);
    if (wqe.packets == 0 || wqe.packets > kMostPackets) return false;
    if (wqe.error != 0) return wqe.done == 0 || wqe.is_read();
    const bool mtu = wqe.mtu >= 256 && wqe.mtu <= 4096 && std::has_single_bit(wqe.mtu);
    if (!mtu || wqe.kind == SegmentKind::kInvalid || wqe.length > kMostBytes) return false;
    const std::uint64_t described = wqe.is_inline ? wqe.inline_data.size() : total_length(wqe.sges);
    if (described != wqe.length) return false;
    if (wqe.is_atomic())
        return wqe.packets == 1 && wqe.length == sizeof(std::uint64_t) && wqe.done == 0;
    return wqe.packets == packets_of(wqe.length, wqe.mtu) &&
           (wqe.is_read() ? wqe.done < wqe.packets : wqe.done == 0);
}

void load(base::StateReader& in, SendWqe& wqe) {
    fields(in, wqe);
    const std::size_t sges = in.count(sizeof(std::uint64_t));
    in.require(sges <= kMostSges, "too many SGEs");
    for (std::size_t i = 0; i < sges && in.ok(); ++i) {
        gdma::Sge sge;
        in(sge.address, sge.key, sge.length);
        wqe.sges.push_back(sge);
    }
    const auto data = in.bytes();
    in.require(data.size() <= kMostInline, "too much inline data");
    if (!in.ok()) return;
    wqe.inline_data.assign(data.begin(), data.end());
    in.require(sensible(wqe), "request that cannot be");
}

}  // namespace

template <typename Archive, typename Self>
void Requester::fields(Archive& a, Self& self) {
    a(self.una_, self.send_psn_, self.next_psn_, self.fetch_psn_, self.current_,
      self.since_ack_request_, self.last_burst_, self.window_, self.part_, self.retry_left_,
      self.timeouts_in_row_, self.rnr_left_, self.resent_, self.credits_, self.asking_,
      self.no_credits_, self.stalled_, self.failure_, self.failure_on_rreq_, self.messages,
      self.traffic, self.rnr_retries, self.reads_out_, self.read_psns_);
}

void Requester::save(base::StateWriter& out) const {
    out.count(queue_.size());
    for (std::uint32_t i = 0; i < queue_.size(); ++i) rnic::save(out, queue_.at(i));
    fields(out, *this);
    out(ack_timer_.left(), rnr_timer_.left());
}

void Requester::load(base::StateReader& in) {
    const std::size_t size = in.count();
    in.require(size <= kMaxQueued, "too many requests");
    if (in.ok())
        in.require(queue_.reserve(static_cast<std::uint32_t>(size)), "no memory for requests");
    for (std::size_t i = 0; i < size && in.ok(); ++i) rnic::load(in, *queue_.push());
    fields(in, *this);
    std::optional<base::TimePoint> ack;
    std::optional<base::TimePoint> rnr;
    in(ack, rnr);
    in.require(retry_left_ <= 7 && rnr_left_ <= 7 && window_ <= datapath_.config.window_packets &&
                   part_ >= 1 && part_ <= datapath_.config.window_packets,
               "requester that cannot be");
    if (in.ok()) in.require(stands(), "requester that stands nowhere");
    if (!in.ok()) {
        queue_.clear();
        current_ = 0;
        skip_to_next();
        return;
    }
    queue_.settle();
    if (ack) ack_timer_.arm_at(*ack);
    if (rnr) rnr_timer_.arm_at(*rnr);
}

/// Whether the positions are those of the requests in the queue, which follow on each other.
bool Requester::stands() const {
    Psn end = una_;
    bool first = true;
    UnderWay most;
    if (current_ > queue_.size()) return false;
    for (std::uint32_t i = 0; i < queue_.size(); ++i) {
        const SendWqe& wqe = queue_.at(i);
        if (i == current_ && !stands_in(wqe, end)) return false;
        if (wqe.local) continue;
        if (first) {
            const std::int32_t into = una_ - wqe.first;
            if (into < 0 || static_cast<std::uint32_t>(into) >= wqe.packets) return false;
            if (wqe.fetches() && static_cast<std::uint32_t>(into) != wqe.done) return false;
            first = false;
        } else if (wqe.first != end || wqe.done != 0) {
            return false;
        }
        end = wqe.last() + 1;
        if (i <= current_) count_under_way(wqe, most);
    }
    if (current_ == queue_.size() && send_psn_ != end) return false;
    // What went by the local path is not among them.
    if (reads_out_ > most.reads || read_psns_ > most.psns) return false;
    return fetch_psn_ == end && send_psn_ >= una_ && next_psn_ >= send_psn_ && next_psn_ <= end;
}

/// Whether the next packet is one of this request, or the first behind `end` if it has none.
bool Requester::stands_in(const SendWqe& wqe, Psn end) const {
    if (wqe.local) return send_psn_ == end;
    const std::int32_t into = send_psn_ - wqe.first;
    // Who has failed, or waits for its timer as if a packet was lost, goes on from elsewhere.
    const std::uint32_t most = failure_ != 0 || stalled_ ? wqe.packets : wqe.packets - 1;
    return into >= 0 && static_cast<std::uint32_t>(into) <= most;
}

/// The parts of a READ that were asked for and not answered, or an atomic.
void Requester::count_under_way(const SendWqe& wqe, UnderWay& most) const {
    if (!wqe.fetches()) return;
    const auto sent = static_cast<std::uint32_t>(std::max(0, send_psn_ - wqe.first));
    if (wqe.is_atomic()) {
        most.reads += sent != 0 ? 1 : 0;
        return;
    }
    const std::uint32_t end = std::min(sent, wqe.packets);
    if (end <= wqe.done) return;
    // Not one by one: a state may name as many as there are PSNs, for each request.
    const std::uint32_t reads = parts(end) - wqe.done / part_;
    most.reads += reads;
    most.psns += part_end(wqe, end - 1) - wqe.done - reads;
}

}  // namespace openmana::rnic
