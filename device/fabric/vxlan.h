// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace openmana::fabric {

/// What stands between the UDP header and an Ethernet frame in VXLAN (RFC 7348, section 5): flags,
/// 24 reserved bits, the network's number in 24 bits, 8 reserved bits.
struct Vxlan {
    static constexpr std::uint16_t kPort = 4789;
    static constexpr std::size_t kBytes = 8;
    static constexpr std::uint32_t kMaxVni = (1U << 24) - 1;
    /// What a path carries besides the frame: IP, UDP, this header.
    static constexpr std::size_t kOverIpv4 = 20 + 8 + kBytes;
    static constexpr std::size_t kOverIpv6 = 40 + 8 + kBytes;
    /// Of the inner frame, which belongs to what a path carries but not to the MTU inside.
    static constexpr std::size_t kInnerEthernet = 14;

    std::uint32_t vni = 0;
    std::span<const std::byte> frame;
};

using VxlanHeader = std::array<std::byte, Vxlan::kBytes>;

/// The header of a network; `vni` is not above kMaxVni.
[[nodiscard]] VxlanHeader encode_vxlan(std::uint32_t vni);

/// Reads the payload of a datagram. Reserved bits may be anything. The frame has both its MAC
/// addresses and a type at least. It is part of `datagram`.
[[nodiscard]] base::Result<Vxlan> decode_vxlan(std::span<const std::byte> datagram);

}  // namespace openmana::fabric
