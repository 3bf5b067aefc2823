// SPDX-License-Identifier: Apache-2.0
#include "eth/receive_parse.h"

#include <mana/eth.h>

#include <cstring>

#include "base/endian.h"
#include "eth/checksum.h"
#include "eth/ip.h"

namespace openmana::eth {
namespace {

using base::load_be;
using base::load_le;

/// Addresses and, if `with_ports`, the first four bytes of the transport header.
void collect_hash_input(ReceivedFrame& frame, std::span<const std::byte> addresses,
                        std::span<const std::byte> transport, bool with_ports) {
    std::memcpy(frame.hash_input.data(), addresses.data(), addresses.size());
    frame.hash_bytes = addresses.size();
    if (!with_ports) return;
    std::memcpy(frame.hash_input.data() + frame.hash_bytes, transport.data(), 4);
    frame.hash_bytes += 4;
}

/// Verifies the transport checksum; `transport` ends where the IP packet ends.
std::uint32_t transport_flags(std::uint8_t protocol, std::span<const std::byte> addresses,
                              std::span<const std::byte> transport) {
    InternetSum sum;
    sum.add(addresses).add_number(protocol);
    if (protocol == kProtocolTcp) {
        if (transport.size() < kTcpBytes) return 0;
        sum.add_number(static_cast<std::uint16_t>(transport.size())).add(transport);
        return sum.good() ? MANA_HW_ETH_RX_TCP_GOOD : MANA_HW_ETH_RX_TCP_BAD;
    }
    if (transport.size() < kUdpBytes) return 0;
    const auto length = load_be<std::uint16_t>(transport.data() + 4);
    // No checksum was sent: nothing was verified.
    if (length < kUdpBytes || length > transport.size() ||
        load_le<std::uint16_t>(transport.data() + 6) == 0)
        return 0;
    sum.add_number(length).add(transport.first(length));
    return sum.good() ? MANA_HW_ETH_RX_UDP_GOOD : MANA_HW_ETH_RX_UDP_BAD;
}

void parse_ipv4(ReceivedFrame& frame, std::span<const std::byte> ip) {
    if (ip.size() < kIpv4Bytes || (ip[0] & std::byte{0xf0}) != std::byte{0x40}) return;
    const std::size_t header = ipv4_header_bytes(ip.data());
    const std::size_t total = load_be<std::uint16_t>(ip.data() + 2);
    if (header < kIpv4Bytes || total < header || total > ip.size()) return;
    if (!InternetSum().add(ip.first(header)).good()) {
        frame.flags |= MANA_HW_ETH_RX_IP_BAD;
        return;
    }
    frame.flags |= MANA_HW_ETH_RX_IP_GOOD;
    const auto addresses = ip.subspan(12, 8);
    const auto transport = ip.subspan(header, total - header);
    const auto protocol = std::to_integer<std::uint8_t>(ip[9]);
    const bool fragment = (load_be<std::uint16_t>(ip.data() + 6) & 0x3fff) != 0;
    const bool tcp = protocol == kProtocolTcp && transport.size() >= kTcpBytes;
    const bool udp = protocol == kProtocolUdp && transport.size() >= kUdpBytes;
    const bool whole = !fragment && (tcp || udp);
    if (whole) frame.flags |= transport_flags(protocol, addresses, transport);
    frame.hash_type = !whole ? MANA_HW_ETH_HASH_IPV4
                      : tcp  ? MANA_HW_ETH_HASH_TCP_IPV4
                             : MANA_HW_ETH_HASH_UDP_IPV4;
    collect_hash_input(frame, addresses, transport, whole);
}

void parse_ipv6(ReceivedFrame& frame, std::span<const std::byte> ip) {
    if (ip.size() < kIpv6Bytes || (ip[0] & std::byte{0xf0}) != std::byte{0x60}) return;
    const std::size_t length = load_be<std::uint16_t>(ip.data() + 4);
    if (length > ip.size() - kIpv6Bytes) return;
    // There is no header checksum, but the driver wants the flag (GDMA 6.15).
    frame.flags |= MANA_HW_ETH_RX_IP_GOOD;
    const auto addresses = ip.subspan(8, 32);
    const auto transport = ip.subspan(kIpv6Bytes, length);
    const auto protocol = std::to_integer<std::uint8_t>(ip[6]);
    const bool tcp = protocol == kProtocolTcp && transport.size() >= kTcpBytes;
    const bool udp = protocol == kProtocolUdp && transport.size() >= kUdpBytes;
    if (tcp || udp) frame.flags |= transport_flags(protocol, addresses, transport);
    frame.hash_type = tcp   ? MANA_HW_ETH_HASH_TCP_IPV6
                      : udp ? MANA_HW_ETH_HASH_UDP_IPV6
                            : MANA_HW_ETH_HASH_IPV6;
    collect_hash_input(frame, addresses, transport, tcp || udp);
}

}  // namespace

Cast cast_of(const std::byte* destination_mac) {
    if ((destination_mac[0] & std::byte{1}) == std::byte{}) return Cast::kUnicast;
    for (int i = 0; i < 6; ++i)
        if (destination_mac[i] != std::byte{0xff}) return Cast::kMulticast;
    return Cast::kBroadcast;
}

std::optional<ReceivedFrame> parse_received(std::span<const std::byte> frame) {
    if (frame.size() < kEthernetBytes) return std::nullopt;
    ReceivedFrame out;
    out.macs = frame.first(kMacsBytes);
    out.rest = frame.subspan(kMacsBytes);
    if (load_be<std::uint16_t>(out.rest.data()) == kTypeVlan) {
        if (frame.size() < kEthernetBytes + kVlanBytes) return std::nullopt;
        out.flags |= MANA_HW_ETH_RX_VLAN_STRIPPED |
                     (load_be<std::uint16_t>(out.rest.data() + 2) & MANA_HW_ETH_RX_VLAN_ID);
        out.rest = out.rest.subspan(kVlanBytes);
    }
    const auto type = load_be<std::uint16_t>(out.rest.data());
    if (type == kTypeIpv4)
        parse_ipv4(out, out.rest.subspan(kTypeBytes));
    else if (type == kTypeIpv6)
        parse_ipv6(out, out.rest.subspan(kTypeBytes));
    return out;
}

void keep_tag(ReceivedFrame& parsed, std::span<const std::byte> frame) {
    parsed.rest = frame.subspan(kMacsBytes);
    parsed.flags &= ~(MANA_HW_ETH_RX_VLAN_STRIPPED | MANA_HW_ETH_RX_VLAN_ID);
}

}  // namespace openmana::eth
