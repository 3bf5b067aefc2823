// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace openmana::fabric {

/// How many copies a second a network makes of frames that go to several ends. For one thread at a
/// time.
class FloodLimit {
public:
    /// 0: as many as there are.
    explicit FloodLimit(std::uint64_t copies_per_second) : rate_(copies_per_second) {}
    /// All copies of a frame, or none. An eighth of a second's may come at once, or those of one
    /// frame if that is more.
    [[nodiscard]] bool take(std::size_t copies, base::TimePoint now) {
        if (rate_ == 0) return true;
        const auto cost =
            base::Duration(std::chrono::nanoseconds(std::chrono::seconds(1)) * copies / rate_);
        const base::TimePoint begin = std::max(full_at_, now);
        if (begin > now && begin - now + cost > kBurst) return false;
        full_at_ = begin + cost;
        return true;
    }

private:
    static constexpr base::Duration kBurst = std::chrono::milliseconds(125);
    const std::uint64_t rate_;
    base::TimePoint full_at_{};  // what was taken is paid for
};

}  // namespace openmana::fabric
