// SPDX-License-Identifier: Apache-2.0
#include "fabric/frame_headers.h"

#include <cstring>

#include "base/endian.h"
#include "roce/packet.h"

namespace openmana::fabric {
namespace {

constexpr std::size_t kMacs = 12;
constexpr std::size_t kVlanTag = 4;
constexpr std::size_t kArpBytes = 28;
constexpr std::size_t kIpv4Bytes = 20;
constexpr std::size_t kIpv6Bytes = 40;
constexpr std::size_t kTcpBytes = 20;
constexpr std::size_t kUdpBytes = 8;
constexpr int kMaxTags = 2;
constexpr int kMaxExtensionHeaders = 8;

constexpr std::uint8_t kHopByHop = 0;
constexpr std::uint8_t kRouting = 43;
constexpr std::uint8_t kFragment = 44;
constexpr std::uint8_t kDestinationOptions = 60;

std::uint8_t byte_at(std::span<const std::byte> frame, std::size_t offset) {
    return std::to_integer<std::uint8_t>(frame[offset]);
}
std::uint16_t word_at(std::span<const std::byte> frame, std::size_t offset) {
    return base::load_be<std::uint16_t>(frame.data() + offset);
}

void map_ipv4(roce::Gid& gid, const std::byte* address) {
    gid = {};
    gid[10] = gid[11] = 0xff;
    std::memcpy(gid.data() + 12, address, 4);
}

/// ARP for IPv4 over Ethernet (RFC 826).
bool read_arp(std::span<const std::byte> frame, FrameHeaders& headers) {
    const std::size_t at = headers.network;
    if (frame.size() < at + kArpBytes || word_at(frame, at) != 1 ||
        word_at(frame, at + 2) != kEtherTypeIpv4 || word_at(frame, at + 4) != 0x0604)
        return false;
    map_ipv4(headers.source, frame.data() + at + 14);
    map_ipv4(headers.destination, frame.data() + at + 24);
    return true;
}

bool read_ipv4(std::span<const std::byte> frame, FrameHeaders& headers) {
    const std::size_t at = headers.network;
    if (frame.size() < at + kIpv4Bytes || byte_at(frame, at) >> 4 != 4) return false;
    const std::size_t header = (byte_at(frame, at) & 15U) * 4;
    const std::size_t total = word_at(frame, at + 2);
    if (header < kIpv4Bytes || total < header || frame.size() - at < total) return false;
    const std::uint16_t fragment = word_at(frame, at + 6);
    headers.fragment = (fragment & 0x1fff) != 0;
    headers.first_fragment = (fragment & 0x3fff) == 0x2000;
    headers.more_fragments = (fragment & 0x2000) != 0;
    headers.fragment_offset = static_cast<std::uint16_t>((fragment & 0x1fff) * 8);
    headers.fragment_id = word_at(frame, at + 4);
    headers.protocol = byte_at(frame, at + 9);
    map_ipv4(headers.source, frame.data() + at + 12);
    map_ipv4(headers.destination, frame.data() + at + 16);
    headers.transport = headers.fragment_data = at + header;
    headers.end = at + total;
    return true;
}

bool read_ipv6(std::span<const std::byte> frame, FrameHeaders& headers) {
    const std::size_t at = headers.network;
    if (frame.size() < at + kIpv6Bytes || byte_at(frame, at) >> 4 != 6) return false;
    const std::size_t payload = word_at(frame, at + 4);
    if (frame.size() - at - kIpv6Bytes < payload) return false;
    std::memcpy(headers.source.data(), frame.data() + at + 8, 16);
    std::memcpy(headers.destination.data(), frame.data() + at + 24, 16);
    headers.end = at + kIpv6Bytes + payload;
    headers.transport = at + kIpv6Bytes;
    headers.protocol = byte_at(frame, at + 6);
    for (int i = 0; i < kMaxExtensionHeaders; ++i) {
        const std::uint8_t next = headers.protocol;
        if (next != kHopByHop && next != kRouting && next != kFragment &&
            next != kDestinationOptions)
            return true;
        const std::size_t left = headers.end - headers.transport;
        if (left < 8) return false;
        std::size_t length = 8;
        if (next == kFragment) {
            const std::uint16_t field = word_at(frame, headers.transport + 2);
            headers.fragment = (field & 0xfff8) != 0;
            headers.more_fragments = (field & 1) != 0;
            headers.first_fragment = !headers.fragment && headers.more_fragments;
            headers.fragment_offset = field & 0xfff8;
            headers.fragment_id =
                base::load_be<std::uint32_t>(frame.data() + headers.transport + 4);
            headers.fragment_data = headers.transport + length;
        } else {
            length += std::size_t{byte_at(frame, headers.transport + 1)} * 8;
        }
        if (left < length) return false;
        headers.protocol = byte_at(frame, headers.transport);
        headers.transport += length;
        if (headers.fragment) return true;
    }
    return false;
}

bool read_ports(std::span<const std::byte> frame, FrameHeaders& headers) {
    if (!headers.has_ports()) return true;
    const std::size_t left = headers.end - headers.transport;
    if (left < (headers.protocol == kProtocolTcp ? kTcpBytes : kUdpBytes)) return false;
    headers.source_port = word_at(frame, headers.transport);
    headers.destination_port = word_at(frame, headers.transport + 2);
    return true;
}

}  // namespace

bool FrameHeaders::roce() const {
    return ip() && protocol == kProtocolUdp && !fragment && !first_fragment &&
           destination_port == roce::kUdpPort;
}

bool FrameHeaders::first_of_roce() const {
    return ip() && protocol == kProtocolUdp && first_fragment && destination_port == roce::kUdpPort;
}

FrameHeaders read_headers(std::span<const std::byte> frame) {
    FrameHeaders headers;
    std::size_t at = kMacs;
    std::uint16_t type = kEtherTypeVlan;
    for (int tags = 0;; ++tags) {
        if (frame.size() < at + 2 || tags > kMaxTags) {
            headers.kind = FrameHeaders::Kind::kMalformed;
            return headers;
        }
        type = word_at(frame, at);
        if (type != kEtherTypeVlan && type != kEtherTypeServiceVlan) break;
        if (frame.size() >= at + kVlanTag) headers.vlan = roce::vlan_of(word_at(frame, at + 2));
        if (tags == 0) headers.outer_vlan = headers.vlan;
        headers.stacked = tags > 0 || type == kEtherTypeServiceVlan;
        at += kVlanTag;
    }
    headers.network = at + 2;
    bool good = true;
    if (type == kEtherTypeArp) {
        headers.kind = FrameHeaders::Kind::kArp;
        good = read_arp(frame, headers);
    } else if (type == kEtherTypeIpv4) {
        headers.kind = FrameHeaders::Kind::kIpv4;
        good = read_ipv4(frame, headers) && read_ports(frame, headers);
    } else if (type == kEtherTypeIpv6) {
        headers.kind = FrameHeaders::Kind::kIpv6;
        good = read_ipv6(frame, headers) && read_ports(frame, headers);
    }
    if (!good) headers.kind = FrameHeaders::Kind::kMalformed;
    return headers;
}

void set_ecn(std::byte* ip, bool ipv4, std::uint8_t ecn) {
    constexpr std::size_t kChecksum = 10;
    const auto before = base::load_be<std::uint16_t>(ip);
    // The first word of IPv4 ends with the TOS; that of IPv6 has four bits of flow label behind it.
    const unsigned shift = ipv4 ? 0 : 4;
    const auto after =
        static_cast<std::uint16_t>((before & ~(3U << shift)) | (unsigned{ecn} & 3U) << shift);
    base::store_be<std::uint16_t>(ip, after);
    if (!ipv4) return;
    // RFC 1624: HC' = ~(~HC + ~m + m').
    std::uint32_t sum = static_cast<std::uint16_t>(~base::load_be<std::uint16_t>(ip + kChecksum));
    sum += static_cast<std::uint16_t>(~before);
    sum += after;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    base::store_be<std::uint16_t>(ip + kChecksum, static_cast<std::uint16_t>(~sum));
}

bool mark_congestion(std::span<std::byte> frame, const FrameHeaders& headers) {
    if (headers.kind != FrameHeaders::Kind::kIpv4 && headers.kind != FrameHeaders::Kind::kIpv6)
        return false;
    constexpr std::uint8_t kCongested = 3;
    const bool ipv4 = headers.kind == FrameHeaders::Kind::kIpv4;
    std::byte* const ip = frame.data() + headers.network;
    if ((ip[1] & std::byte(ipv4 ? 0x03 : 0x30)) == std::byte{0}) return false;
    set_ecn(ip, ipv4, kCongested);
    return true;
}

}  // namespace openmana::fabric
