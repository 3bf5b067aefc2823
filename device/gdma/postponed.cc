// SPDX-License-Identifier: Apache-2.0
#include "gdma/postponed.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/hold_meter.h"

namespace openmana::gdma {
namespace {

constexpr base::Duration kTurn = std::chrono::nanoseconds(1);

}  // namespace

void Postponed::put(std::uint64_t object, base::TimePoint until) {
    const std::lock_guard lock(mutex_);
    entries_.push({until, object});
    if (executor_.on_thread()) {
        set_timer_locked();
    } else if (entries_.top().object == object && !called_) {
        called_ = true;
        executor_.post([token = std::weak_ptr<int>(alive_), this] {
            if (token.expired()) return;
            const std::lock_guard later(mutex_);
            called_ = false;
            set_timer_locked();
        });
    }
}

void Postponed::set_timer_locked() {
    if (entries_.empty()) return;
    const base::TimePoint next = entries_.top().until;
    if (!timer_.armed() || next < timer_.deadline()) timer_.arm_at(next);
}

void Postponed::serve() {
    std::array<std::uint64_t, kServed> due{};
    std::size_t count = 0;
    {
        const std::lock_guard lock(mutex_);
        const base::TimePoint time = now();
        for (; count < due.size() && !entries_.empty() && entries_.top().until <= time; ++count) {
            due[count] = entries_.top().object;
            entries_.pop();
        }
        base::count_work(count);
        // Not in the turn that this is called in.
        if (!entries_.empty()) timer_.arm_at(std::max(entries_.top().until, now() + kTurn));
    }
    for (std::size_t i = 0; i < count; ++i) do_(due[i]);
}

void Postponed::clear() {
    const std::lock_guard lock(mutex_);
    entries_ = {};
    timer_.cancel();
}

}  // namespace openmana::gdma
