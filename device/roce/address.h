// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
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

/// A VLAN (IEEE 802.1Q), by its id. 0: none, which is what a tag with priority alone says, too.
using Vlan = std::uint16_t;
constexpr Vlan kNoVlan = 0;
constexpr Vlan kVlanMask = 0xfff;
/// Not to be used (802.1Q 9.6).
constexpr Vlan kReservedVlan = 0xfff;

/// Of a tag: it may be dropped before others (DEI). 0 in what we send.
constexpr std::uint16_t kDropEligible = 1U << 12;

/// VLAN and priority are a tag's other parts.
[[nodiscard]] constexpr Vlan vlan_of(std::uint16_t tci) {
    return tci & kVlanMask;
}
[[nodiscard]] constexpr std::uint16_t make_tci(Vlan vlan, std::uint8_t priority) {
    return static_cast<std::uint16_t>((priority & 7U) << 13 | (vlan & kVlanMask));
}

/// Who is meant by a GID depends on the VLAN: the same one in another VLAN is somebody else.
struct Address {
    // Most are in no VLAN.
    constexpr Address(const Gid& the_gid, Vlan the_vlan = kNoVlan) : gid(the_gid), vlan(the_vlan) {}
    constexpr Address() = default;
    Gid gid{};
    Vlan vlan = kNoVlan;
    friend bool operator==(const Address&, const Address&) = default;
    friend auto operator<=>(const Address&, const Address&) = default;
};

}  // namespace openmana::roce
