// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace openmana::fabric {

/// The last two bits of an IPv4 TOS or an IPv6 traffic class (RFC 3168).
enum class Ecn : std::uint8_t { kNotEct = 0, kEct1 = 1, kEct0 = 2, kCe = 3 };

[[nodiscard]] constexpr Ecn ecn_of(std::uint8_t tos) {
    return static_cast<Ecn>(tos & 3);
}

/// What a tunnel has to know of a frame that it carries: where its IP header is, behind up to two
/// VLAN tags, and what that says of precedence and congestion. Only that much was checked; the rest
/// is the business of who gets the frame.
struct InnerPacket {
    enum class Kind : std::uint8_t { kOther, kIpv4, kIpv6 };
    Kind kind = Kind::kOther;
    std::uint8_t tos = 0;     ///< DSCP and ECN; 0 of what is not IP
    std::uint16_t type = 0;   ///< of Ethernet, behind the tags
    std::size_t network = 0;  ///< of IP: the offset of a whole header without options

    [[nodiscard]] static InnerPacket of(std::span<const std::byte> frame);
};

/// What goes with a frame into the outer header: its ECN in any case (RFC 6040 4.1, normal mode),
/// and `dscp` in the place of its own if it is not negative.
[[nodiscard]] std::uint8_t outer_tos(const InnerPacket& inner, int dscp);

/// What came of the two ECN fields at the end of a tunnel.
enum class EcnResult : std::uint8_t {
    kKept,        ///< the frame stays as it is
    kMarked,      ///< the frame now says that there was congestion
    kChanged,     ///< ECT(0) became ECT(1)
    kSuspicious,  ///< kept, though the outer field should never have been so (RFC 6040 4.2)
    kDropped,     ///< congestion that a sender without ECN would not be told: it has to see a loss
};

/// RFC 6040, section 4.2: the inner field becomes what it says for an outer TOS. An IPv4 header's
/// checksum goes with it. Not for kDropped; what is not IP is kept.
EcnResult leave_tunnel(std::span<std::byte> frame, const InnerPacket& inner,
                       std::uint8_t outer_tos);

/// The same number for all packets of a flow, fragments included; others for most others. With a
/// key, so that nobody can make flows that share one.
[[nodiscard]] std::uint64_t flow_hash(std::span<const std::byte> frame, const InnerPacket& inner,
                                      const std::array<std::uint64_t, 2>& key);

}  // namespace openmana::fabric
