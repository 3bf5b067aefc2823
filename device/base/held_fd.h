// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "base/fd.h"

namespace openmana::base {

/// The number of a descriptor, in memory that outlives the process: another process that shares its
/// descriptors goes on with it. A number is written down once the descriptor is open, and taken out
/// before it is closed: so it never names what somebody else has opened since.
class HeldFd {
public:
    void hold(int number) { after_.store(number + 1, std::memory_order_release); }
    void forget() { after_.store(0, std::memory_order_release); }
    /// -1: none.
    [[nodiscard]] int number() const { return after_.load(std::memory_order_acquire) - 1; }

private:
    std::atomic<int> after_{0};  // the number and one, so that memory of zeros holds none
};

}  // namespace openmana::base
