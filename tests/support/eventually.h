// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <thread>

namespace openmana::test {

/// Waits for what another thread or process does in its own time; false if it has not within a
/// minute.
template <typename F>
bool eventually(F&& f) {
    using Clock = std::chrono::steady_clock;
    for (const auto end = Clock::now() + std::chrono::minutes(1); Clock::now() < end;
         std::this_thread::sleep_for(std::chrono::milliseconds(1)))
        if (f()) return true;
    return false;
}

}  // namespace openmana::test
