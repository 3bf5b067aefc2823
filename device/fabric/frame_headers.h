// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/frame.h"
#include "roce/address.h"

namespace openmana::fabric {

/// Towards the network or towards the guest, as the guest sees it.
enum class Direction : std::uint8_t { kTransmit, kReceive };
constexpr std::size_t kDirections = 2;
[[nodiscard]] constexpr std::size_t index(Direction direction) {
    return static_cast<std::size_t>(direction);
}

constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
constexpr std::uint16_t kEtherTypeArp = 0x0806;
constexpr std::uint16_t kEtherTypeVlan = 0x8100;
constexpr std::uint16_t kEtherTypeServiceVlan = 0x88a8;
constexpr std::uint16_t kEtherTypeIpv6 = 0x86dd;

constexpr std::uint8_t kProtocolIcmp = 1;
constexpr std::uint8_t kProtocolTcp = 6;
constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::uint8_t kProtocolIcmpv6 = 58;

/// What the stages of a port need to know of a frame, behind up to two VLAN tags. Every offset was
/// checked against the frame, so that what it names may be read.
struct FrameHeaders {
    enum class Kind : std::uint8_t {
        kOther,  ///< neither ARP nor IP
        kArp,    ///< Ethernet and IPv4, complete
        kIpv4,
        kIpv6,
        kMalformed,  ///< says it is one of those but is not, or hides behind too many headers
    };
    Kind kind = Kind::kOther;
    /// More tags than the one of 802.1Q that a VLAN interface takes off.
    bool stacked = false;
    /// Of the innermost tag: what is left of several when a switch on the way takes some off.
    roce::Vlan vlan = roce::kNoVlan;
    roce::Vlan outer_vlan = roce::kNoVlan;  ///< of the outermost; the same if it is the only one
    bool fragment = false;  ///< IP: not the first one, so without a transport header
    bool first_fragment = false;
    bool more_fragments = false;
    std::uint32_t fragment_id = 0;      ///< of a fragment: what it has in common with the others
    std::uint16_t fragment_offset = 0;  ///< of a fragment: where in the packet its data belong
    std::size_t fragment_data = 0;      ///< of a fragment: offset of its data in the frame
    std::uint8_t protocol = 0;          ///< IP: the last one of the chain of headers
    std::size_t network = 0;            ///< offset of the ARP or IP header
    std::size_t transport = 0;          ///< IP: offset of what follows the IP headers
    std::size_t end = 0;                ///< IP: end of the packet; the rest is padding
    roce::Gid source{};                 ///< IP; of ARP: the sender, as an IPv4-mapped address
    roce::Gid destination{};            ///< IP; of ARP: the target
    std::uint16_t source_port = 0;      ///< TCP and UDP, not in later fragments
    std::uint16_t destination_port = 0;

    [[nodiscard]] bool ip() const { return kind == Kind::kIpv4 || kind == Kind::kIpv6; }
    [[nodiscard]] bool ipv4() const { return kind == Kind::kIpv4 || kind == Kind::kArp; }
    [[nodiscard]] bool has_ports() const {
        return ip() && !fragment && (protocol == kProtocolTcp || protocol == kProtocolUdp);
    }
    /// RoCEv2: UDP to its port in an IP packet that is whole (no fragment, and not cut). Behind
    /// tags, IPv4 options and IPv6 extension headers too, so that nothing gets around a rule; a
    /// NIC that takes none of these drops such packets (ROCE 1.3, 1.4).
    [[nodiscard]] bool roce() const;
    /// The first fragment of such a packet.
    [[nodiscard]] bool first_of_roce() const;
};

[[nodiscard]] FrameHeaders read_headers(std::span<const std::byte> frame);

/// Writes the ECN field (RFC 3168) of an IPv4 header, with its checksum, or of an IPv6 header.
void set_ecn(std::byte* ip, bool ipv4, std::uint8_t ecn);
/// Sets "congestion experienced" (RFC 3168) if the packet's sender can handle it; true if the frame
/// has the mark afterwards. A packet without ECT never gets one. The ICRC of RoCE does not cover
/// the field.
bool mark_congestion(std::span<std::byte> frame, const FrameHeaders& headers);

}  // namespace openmana::fabric
