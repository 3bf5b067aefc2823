// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "base/result.h"

namespace openmana::base {

/// What a NIC's thread asks for: longer than it works on a message, much shorter than the slice of
/// anything that computes.
inline constexpr std::chrono::microseconds kShortSlice{100};

/// Asks the scheduler for turns of `slice` for the calling thread.
///
/// Linux (6.12 and later) lets a thread that wants a short turn go before one that wants a long
/// one, without a larger share of the CPU for it: whoever answers a message of microseconds then
/// need not wait until the turn of a guest that computes ends. Earlier kernels take no notice. The
/// thread's nice value and policy stay; a policy other than SCHED_OTHER has no slice and is left
/// alone. Needs no privilege.
Result<void> ask_for_slice(std::chrono::nanoseconds slice);

/// The slice that the calling thread has asked for, or the system's where it tells that; 0 where it
/// tells nothing.
Result<std::chrono::nanoseconds> asked_slice();

}  // namespace openmana::base
