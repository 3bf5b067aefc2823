// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace openmana::roce {

/// A GID in network order: an IPv6 address, or an IPv4 address as ::ffff:a.b.c.d.
using Gid = std::array<std::uint8_t, 16>;

[[nodiscard]] constexpr bool is_ipv4(const Gid& gid) {
    for (int i = 0; i < 10; ++i)
        if (gid[static_cast<std::size_t>(i)] != 0) return false;
    return gid[10] == 0xff && gid[11] == 0xff;
}

/// A group of receivers: an IPv6 multicast address, or an IPv4 one in the mapped form (ROCE 5.5).
[[nodiscard]] constexpr bool is_multicast(const Gid& gid) {
    return is_ipv4(gid) ? (gid[12] & 0xf0) == 0xe0 : gid[0] == 0xff;
}

}  // namespace openmana::roce
