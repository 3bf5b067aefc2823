// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "base/clock.h"

namespace openmana::base {

/// The calendar time of the host, which somebody may set, for what two hosts agree on by their
/// clocks. For durations there is Clock, for times that people read WallTime.
class Calendar {
public:
    virtual ~Calendar() = default;
    /// Since 1970, UTC.
    [[nodiscard]] virtual Duration now() const = 0;
};

class SystemCalendar final : public Calendar {
public:
    [[nodiscard]] Duration now() const override {
        return std::chrono::duration_cast<Duration>(
            std::chrono::system_clock::now().time_since_epoch());
    }
};

}  // namespace openmana::base
