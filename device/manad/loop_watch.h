// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/counters.h"
#include "base/event_loop.h"

namespace openmana::manad {

#define OM_LOOP_COUNTERS(X)                                                              \
    X(hangs, "manad.thread.hangs", "times that the thread gave no sign of life for 5 s") \
    X(unanswered, "manad.thread.unanswered",                                             \
      "requests of the control socket that got no answer of the thread in time")

OM_COUNTERS(LoopCounters, OM_LOOP_COUNTERS);

/// Tells whether the thread of an EventLoop still goes round its loop. It hangs once it has been
/// neither asleep nor in a new turn for kHang; that is logged with what it is at, and so is its
/// return. `look` is for one thread, the watchdog; the rest may be called from any.
class LoopWatch {
public:
    static constexpr base::Duration kHang = std::chrono::seconds(5);
    static constexpr base::Duration kLookEvery = std::chrono::seconds(1);

    /// `label` names the thread in the log: "nic=a".
    LoopWatch(const base::EventLoop& loop, std::string label)
        : loop_(loop), label_(std::move(label)) {}

    /// Every kLookEvery, while the loop runs.
    void look(base::TimePoint now);
    [[nodiscard]] bool hangs() const { return hangs_.load(std::memory_order_relaxed); }
    /// Since the last look that found it alive; zero if that was the last one.
    [[nodiscard]] base::Duration silent_for(base::TimePoint now) const;
    /// What it is at: "hwc_req 0x25, waits for the visitors of its gate to leave".
    [[nodiscard]] std::string doing() const;
    [[nodiscard]] const std::string& label() const { return label_; }
    [[nodiscard]] LoopCounters& counters() { return counters_; }
    [[nodiscard]] const LoopCounters& counters() const { return counters_; }

private:
    const base::EventLoop& loop_;
    const std::string label_;
    // Of the watchdog: what the last look that found it alive saw, and when.
    std::uint64_t turn_ = 0;
    base::TimePoint alive_{};
    // For all, each on its own, so relaxed. Time of the clock, 0: the last look found it alive.
    std::atomic<base::Duration::rep> silent_since_{0};
    std::atomic<bool> hangs_{false};
    LoopCounters counters_;
};

}  // namespace openmana::manad
