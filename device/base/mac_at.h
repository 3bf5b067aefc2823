// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "base/frame.h"

namespace openmana::base {

/// Offsets of the MAC addresses of a frame.
constexpr std::size_t kDestinationMac = 0;
constexpr std::size_t kSourceMac = sizeof(MacAddr);

/// The MAC address in these bytes, which are long enough.
[[nodiscard]] inline MacAddr mac_at(std::span<const std::byte> bytes, std::size_t offset) {
    MacAddr mac;
    std::memcpy(mac.data(), bytes.data() + offset, mac.size());
    return mac;
}

}  // namespace openmana::base
