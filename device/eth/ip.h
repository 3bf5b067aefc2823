// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace openmana::eth {

// Sizes and numbers of the protocols that the offloads look into.
constexpr std::size_t kMacsBytes = 12;
constexpr std::size_t kTypeBytes = 2;
constexpr std::size_t kEthernetBytes = kMacsBytes + kTypeBytes;
constexpr std::size_t kVlanBytes = 4;
constexpr std::size_t kIpv4Bytes = 20;  ///< without options
constexpr std::size_t kIpv6Bytes = 40;
constexpr std::size_t kTcpBytes = 20;  ///< without options
constexpr std::size_t kUdpBytes = 8;
constexpr std::uint16_t kTypeIpv4 = 0x0800;
constexpr std::uint16_t kTypeIpv6 = 0x86dd;
constexpr std::uint16_t kTypeVlan = 0x8100;
constexpr std::uint8_t kProtocolTcp = 6;
constexpr std::uint8_t kProtocolUdp = 17;

/// By its IHL field; may be less than kIpv4Bytes if the header is wrong.
[[nodiscard]] inline std::size_t ipv4_header_bytes(const std::byte* ip) {
    return std::to_integer<std::size_t>(ip[0] & std::byte{0x0f}) * 4;
}

}  // namespace openmana::eth
