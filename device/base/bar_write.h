// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace openmana::base {

/// A write to BAR0, at an offset that was checked: from the client to whoever is behind the BAR.
struct BarWrite {
    std::uint64_t offset = 0;
    std::span<const std::byte> data;
};

}  // namespace openmana::base
