// SPDX-License-Identifier: Apache-2.0
#include "manad/errand.h"

namespace openmana::manad {

bool Errand::begin() {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kTakenBack) return false;
    state_ = State::kBegun;
    return true;
}

void Errand::end() {
    {
        const std::lock_guard lock(mutex_);
        state_ = State::kDone;
    }
    changed_.notify_all();
}

base::Result<void> Errand::wait_until(base::TimePoint deadline) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_until(lock, deadline, [this] { return state_ == State::kDone; })) return {};
    if (state_ == State::kBegun) return under_way();
    state_ = State::kTakenBack;
    return not_done();
}

}  // namespace openmana::manad
