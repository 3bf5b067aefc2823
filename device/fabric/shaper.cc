// SPDX-License-Identifier: Apache-2.0
#include "fabric/shaper.h"

#include <algorithm>

namespace openmana::fabric {
namespace {

/// For what cannot tell its sender to wait: as long as bursts of a few connections.
constexpr std::uint64_t kMinEthernetQueue = 512U << 10;
constexpr std::uint64_t kMinRdmaQueue = 4U << 20;
constexpr std::uint64_t kMaxQueue = 64U << 20;
constexpr std::uint64_t kQueueMilliseconds = 20;
constexpr std::uint64_t kMarkMicroseconds = 100;
constexpr std::uint64_t kLeastMarkBytes = 32U << 10;
constexpr std::uint32_t kMarkPpm = 200000;

std::uint64_t default_queue(std::uint64_t rate, bool rdma) {
    if (rate == 0) return kMaxQueue;
    return std::clamp(rate / 8000 * kQueueMilliseconds, rdma ? kMinRdmaQueue : kMinEthernetQueue,
                      kMaxQueue);
}

std::uint64_t lower_rate(std::uint64_t a, std::uint64_t b) {
    if (a == 0 || b == 0) return a + b;
    return std::min(a, b);
}

}  // namespace

void Shaper::Meter::charge(std::size_t bytes, base::TimePoint arrival, base::TimePoint now) {
    if (rate_ == 0) return;
    constexpr std::uint64_t kBitNanoseconds = 8ULL * 1000000000;
    const std::uint64_t amount = bytes * kBitNanoseconds + remainder_;
    remainder_ = amount % rate_;
    open_at_ = std::max({open_at_, arrival - kBurst, now - kCatchUp}) +
               base::Duration(static_cast<base::Duration::rep>(amount / rate_));
}

Shaper::Shaper(base::Executor& executor, const ShaperConfig& config, ShaperCounters& counters,
               std::function<void(base::Frame)> next, Dropped dropped)
    : executor_(executor),
      counters_(counters),
      next_(std::move(next)),
      dropped_(std::move(dropped)),
      total_(config.limit),
      random_(config.seed),
      timer_(executor, [this] { serve(); }) {
    for (std::size_t i = 0; i < kTrafficClasses; ++i) {
        const auto& wanted = config.classes[i];
        Class& entry = classes_[i];
        entry.limit = Meter(wanted.limit);
        entry.guarantee = Meter(wanted.guarantee);
        const std::uint64_t rate = lower_rate(config.limit, wanted.limit);
        const bool rdma = i == static_cast<std::size_t>(TrafficClass::kRdma);
        entry.max_queued = config.queue_bytes != 0 ? config.queue_bytes : default_queue(rate, rdma);
        set_marking(entry, config, rdma, rate);
    }
}

void Shaper::set_marking(Class& entry, const ShaperConfig& config, bool rdma, std::uint64_t rate) {
    if (config.ecn_bytes != 0) {
        entry.mark_min = config.ecn_bytes;
        entry.mark_max = std::max(config.ecn_max_bytes, config.ecn_bytes);
        entry.mark_ppm = config.ecn_ppm;
    } else if (rdma && rate != 0) {
        const std::uint64_t bytes = rate / 8 * kMarkMicroseconds / 1000000;
        entry.mark_min = std::min(std::max(bytes, kLeastMarkBytes), entry.max_queued / 8);
        entry.mark_max = 4 * entry.mark_min;
        entry.mark_ppm = kMarkPpm;
    } else {
        entry.mark_min = entry.mark_max = entry.max_queued / 8;
    }
}

/// `fill` with the frame at hand.
bool Shaper::should_mark(const Class& entry, std::uint64_t fill) {
    if (fill <= entry.mark_min) return false;
    if (fill > entry.mark_max) return true;
    return random_.chance_ppm(static_cast<std::uint32_t>(entry.mark_ppm * (fill - entry.mark_min) /
                                                         (entry.mark_max - entry.mark_min)));
}

void Shaper::push(base::Frame frame) {
    const FrameHeaders headers = read_headers(frame);
    Class& entry = classes_[static_cast<std::size_t>(headers.roce() ? TrafficClass::kRdma
                                                                    : TrafficClass::kEthernet)];
    if (frame.size() > entry.max_queued - std::min(entry.queued, entry.max_queued)) {
        counters_.dropped.add();
        if (dropped_) dropped_(headers, frame);
        return;
    }
    if (should_mark(entry, entry.queued + frame.size()) && mark_congestion(frame, headers))
        counters_.marked.add();
    // A class that comes back from rest gets no credit for the time in which it wanted nothing.
    if (entry.frames.empty()) {
        const Class& other = classes_[&entry == classes_.data() ? 1 : 0];
        if (!other.frames.empty()) entry.borrowed = std::max(entry.borrowed, other.borrowed);
    }
    entry.queued += frame.size();
    entry.frames.push_back({std::move(frame), executor_.now()});
    serve();
    if (!entry.frames.empty()) counters_.delayed.add();
}

Shaper::Class* Shaper::choose(base::TimePoint now) {
    Class* best = nullptr;
    bool best_guaranteed = false;
    for (Class& entry : classes_) {
        if (entry.frames.empty() || !entry.limit.open(now)) continue;
        const bool guaranteed = entry.guarantee.limited() && entry.guarantee.open(now);
        if (!guaranteed && !total_.open(now)) continue;
        const bool better = best == nullptr || (guaranteed && !best_guaranteed) ||
                            (guaranteed == best_guaranteed && entry.borrowed < best->borrowed);
        if (!better) continue;
        best = &entry;
        best_guaranteed = guaranteed;
    }
    return best;
}

std::optional<base::TimePoint> Shaper::next_turn() const {
    std::optional<base::TimePoint> first;
    for (const Class& entry : classes_) {
        if (entry.frames.empty()) continue;
        base::TimePoint turn = total_.limited() ? total_.open_at() : base::TimePoint{};
        if (entry.guarantee.limited()) turn = std::min(turn, entry.guarantee.open_at());
        if (entry.limit.limited()) turn = std::max(turn, entry.limit.open_at());
        if (!first || turn < *first) first = turn;
    }
    return first;
}

void Shaper::serve() {
    // What is handed on may come back here with an answer; the outer call goes on with the queue.
    if (serving_) return;
    serving_ = true;
    for (;;) {
        const base::TimePoint now = executor_.now();
        Class* const entry = choose(now);
        if (entry == nullptr) break;
        auto [frame, arrival] = std::move(entry->frames.front());
        entry->frames.pop_front();
        entry->queued -= frame.size();
        const bool guaranteed = entry->guarantee.limited() && entry->guarantee.open(now);
        if (guaranteed)
            entry->guarantee.charge(frame.size(), arrival, now);
        else
            entry->borrowed += frame.size();
        entry->limit.charge(frame.size(), arrival, now);
        total_.charge(frame.size(), arrival, now);
        next_(std::move(frame));
    }
    serving_ = false;
    if (const auto turn = next_turn())
        timer_.arm_at(*turn);
    else
        timer_.cancel();
}

void Shaper::flush() {
    timer_.cancel();
    for (Class& entry : classes_) {
        while (!entry.frames.empty()) {
            base::Frame frame = std::move(entry.frames.front().frame);
            entry.frames.pop_front();
            entry.queued -= frame.size();
            next_(std::move(frame));
        }
    }
}

}  // namespace openmana::fabric
