// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace openmana::base {

/// Says when it is time for a line about what may happen often: at most once in so long. Any
/// thread.
class OncePer {
public:
    explicit constexpr OncePer(Duration rest) : rest_(rest) {}
    [[nodiscard]] bool due(TimePoint now) {
        Duration::rep next = next_.load(std::memory_order_relaxed);
        const Duration::rep at = now.time_since_epoch().count();
        // Of several threads one has it; it tells of itself alone, so relaxed.
        return at >= next &&
               next_.compare_exchange_strong(next, at + rest_.count(), std::memory_order_relaxed);
    }

private:
    const Duration rest_;
    std::atomic<Duration::rep> next_{INT64_MIN};
};

}  // namespace openmana::base
