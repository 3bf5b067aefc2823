// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.h"

namespace openmana::base {

/// Turns the time of a Clock into calendar time, for what people read later: captures and flow
/// logs. The two are compared once, so that times of one run never go back; a host clock that is
/// set meanwhile is not followed.
class WallTime {
public:
    /// Clock time as it is.
    WallTime() = default;
    /// `offset` is calendar time (since 1970, UTC) less clock time.
    explicit WallTime(Duration offset) : offset_(offset) {}
    /// As the host has it now.
    [[nodiscard]] static WallTime of_host(const Clock& clock) {
        const auto calendar = std::chrono::system_clock::now().time_since_epoch();
        return WallTime(std::chrono::duration_cast<Duration>(calendar) -
                        clock.now().time_since_epoch());
    }
    /// Since 1970, UTC.
    [[nodiscard]] Duration at(TimePoint time) const { return time.time_since_epoch() + offset_; }

    /// When the clock said, or will say, that.
    [[nodiscard]] TimePoint clock_at(Duration since_1970) const {
        return TimePoint(since_1970 - offset_);
    }

private:
    Duration offset_{};
};

}  // namespace openmana::base
