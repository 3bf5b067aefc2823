// SPDX-License-Identifier: Apache-2.0
#include "base/gate.h"

#include <utility>

#include "base/activity.h"

namespace openmana::base {
namespace {

/// A thread holds one visit at most.
thread_local HoldMeter::Stopwatch visit_stopwatch;

}  // namespace

void Gate::enter_slowly(std::uint32_t before) {
    if ((before & kClosed) != 0) wait_until_open();
    if ((before & kMeasured) != 0) visit_stopwatch.start();
}

bool Gate::try_enter() {
    const std::uint32_t before = state_.fetch_add(kVisitor, std::memory_order_acquire);
    if ((before & kClosed) != 0) {
        leave();
        return false;
    }
    if ((before & kMeasured) != 0) visit_stopwatch.start();
    if (away()) [[unlikely]] {
        leave();
        return false;
    }
    return true;
}

void Gate::leave_slowly(std::uint32_t before) {
    if ((before & kMeasured) != 0) visit_stopwatch.stop(HoldKind::kVisit, {"visit", 0});
    if ((before & kClosed) != 0 && (before & kVisitors) == kVisitor) state_.notify_all();
}

/// Of a visitor that found the gate closed.
void Gate::wait_until_open() {
    // In one step, so that the owner cannot miss it.
    constexpr std::uint32_t kVisitorWaits = kWaiter - kVisitor;
    std::uint32_t seen = state_.fetch_add(kVisitorWaits, std::memory_order_release) + kVisitorWaits;
    if ((seen & kClosed) != 0 && (seen & kVisitors) == 0) state_.notify_all();
    const Activity::Wait waiting("a gate to open");
    for (;;) {
        if ((seen & kClosed) != 0) {
            state_.wait(seen, std::memory_order_relaxed);
            seen = state_.load(std::memory_order_relaxed);
        } else if (state_.compare_exchange_weak(seen, seen - kVisitorWaits,
                                                std::memory_order_acquire,
                                                std::memory_order_relaxed)) {
            break;
        }
    }
    if ((seen & kWaiters) == kWaiter) state_.notify_all();
}

void Gate::close(HoldCause cause) {
    if (depth_++ > 0) return;
    cause_ = cause;
    // Those whom the last exclusion kept out go first, else one after the other might keep them out
    // for ever.
    std::uint32_t seen = state_.load(std::memory_order_relaxed);
    for (;;) {
        if ((seen & kWaiters) != 0) {
            const Activity::Wait waiting("those before it to go through its gate");
            state_.wait(seen, std::memory_order_relaxed);
            seen = state_.load(std::memory_order_relaxed);
        } else if (state_.compare_exchange_weak(seen, seen | kClosed, std::memory_order_acquire,
                                                std::memory_order_relaxed)) {
            break;
        }
    }
    seen |= kClosed;
    while ((seen & kVisitors) != 0) {
        const Activity::Wait waiting("the visitors of its gate to leave");
        state_.wait(seen, std::memory_order_relaxed);
        seen = state_.load(std::memory_order_acquire);
    }
    if ((seen & kMeasured) != 0) stopwatch_.start();
}

void Gate::open() {
    if (--depth_ > 0) return;
    stopwatch_.stop(HoldKind::kExclusion, cause_);
    state_.fetch_and(~kClosed, std::memory_order_release);
    state_.notify_all();
}

Gate::Recess::Recess(Gate& gate)
    : gate_(gate), depth_(std::exchange(gate.depth_, 0)), cause_(gate.cause_) {
    if (depth_ == 0) return;
    gate_.depth_ = 1;
    gate_.open();
}

Gate::Recess::~Recess() {
    if (depth_ == 0) return;
    gate_.close(cause_);
    gate_.depth_ = depth_;
}

}  // namespace openmana::base
