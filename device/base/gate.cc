// SPDX-License-Identifier: Apache-2.0
#include "base/gate.h"

#include <sched.h>

#include "base/activity.h"

namespace openmana::base {

void Gate::enter() {
    for (;;) {
        const std::uint32_t before = state_.fetch_add(1, std::memory_order_acquire);
        if ((before & kClosed) == 0) [[likely]]
            return;
        leave();
        const Activity::Wait waiting("a gate to open");
        state_.wait(kClosed, std::memory_order_relaxed);
        // The owner may still wait for visitors that entered before: the value then is not kClosed
        // alone.
        while ((state_.load(std::memory_order_relaxed) & kClosed) != 0) ::sched_yield();
    }
}

void Gate::leave() {
    if (state_.fetch_sub(1, std::memory_order_release) == (kClosed | 1)) state_.notify_all();
}

void Gate::close() {
    if (depth_++ > 0) return;
    std::uint32_t seen = state_.fetch_or(kClosed, std::memory_order_acquire) | kClosed;
    if (seen == kClosed) [[likely]]
        return;
    const Activity::Wait waiting("the visitors of its gate to leave");
    while (seen != kClosed) {
        state_.wait(seen, std::memory_order_relaxed);
        seen = state_.load(std::memory_order_acquire);
    }
}

void Gate::open() {
    if (--depth_ > 0) return;
    state_.fetch_and(~kClosed, std::memory_order_release);
    state_.notify_all();
}

}  // namespace openmana::base
