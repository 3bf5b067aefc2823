// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace openmana::roce {

/// The invariant CRC of a RoCEv2 packet (ROCE 1.9, IBTA A17 CA17-22): Ethernet's CRC-32 over a
/// dummy LRH, the IP, UDP and base transport headers with their mutable fields replaced by ones,
/// and everything behind them.
///
/// `ip_header` is the whole IPv4 (20 bytes) or IPv6 (40 bytes) header; `rest` runs from the UDP
/// header to the last pad byte and holds at least UDP header and BTH. On the wire the result is
/// stored least significant byte first.
[[nodiscard]] std::uint32_t icrc(std::span<const std::byte> ip_header,
                                 std::span<const std::byte> rest);

}  // namespace openmana::roce
