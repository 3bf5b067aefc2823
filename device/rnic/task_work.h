// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/hold_meter.h"

namespace openmana::rnic {

/// The work of one task of the executor, from its beginning on: who serves many in one asks between
/// two of them, and leaves the rest to another task, so that the doorbells, commands and timers of
/// the NIC wait for about a millisecond. On the executor's thread.
class TaskWork {
public:
    /// In units of count_work().
    static constexpr std::uint64_t kMost = 1024;

    [[nodiscard]] bool done() const { return base::work_done - begin_ >= kMost; }

private:
    const std::uint64_t begin_ = base::work_done;
};

}  // namespace openmana::rnic
