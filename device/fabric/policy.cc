// SPDX-License-Identifier: Apache-2.0
#include "fabric/policy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/mac_at.h"
#include "roce/packet.h"

namespace openmana::fabric {
namespace {

constexpr std::uint16_t kDhcpClient = 68;
constexpr std::uint16_t kDhcpServer = 67;
constexpr std::byte kNeighborAdvertisement{136};
constexpr std::size_t kTargetOffset = 8;  // of ICMPv6 neighbour messages (RFC 4861 4.4)

/// Where the options of a message begin that may tell the sender's link-layer address; 0 for
/// others.
std::size_t neighbor_options(std::byte type) {
    switch (std::to_integer<int>(type)) {
        case 133:  // router solicitation
            return 8;
        case 134:  // router advertisement
            return 16;
        case 135:  // neighbour solicitation
        case 136:  // neighbour advertisement
            return 24;
        default:
            return 0;
    }
}

/// False if a message of IPv6 neighbour discovery (RFC 4861 4) gives an address to the network that
/// the filter's NIC may not have, or has options that cannot be read.
bool names_only_own(const Filter& filter, const FrameHeaders& headers,
                    std::span<const std::byte> frame) {
    constexpr std::size_t kOptionUnit = 8;
    constexpr std::byte kSourceAddress{1};
    constexpr std::byte kTargetAddress{2};
    if (headers.kind != FrameHeaders::Kind::kIpv6 || headers.protocol != kProtocolIcmpv6 ||
        headers.fragment || headers.end <= headers.transport)
        return true;
    const std::size_t options = neighbor_options(frame[headers.transport]);
    if (options == 0) return true;
    std::span<const std::byte> left =
        frame.subspan(headers.transport, headers.end - headers.transport);
    // Too short for its kind: nobody takes it.
    left = left.subspan(std::min(options, left.size()));
    while (!left.empty()) {
        const std::size_t bytes =
            left.size() < 2 ? 0 : std::to_integer<std::size_t>(left[1]) * kOptionUnit;
        if (bytes == 0 || bytes > left.size()) return false;
        if ((left[0] == kSourceAddress || left[0] == kTargetAddress) &&
            (bytes < 2 + sizeof(base::MacAddr) || !filter.may_have(base::mac_at(left, 2))))
            return false;
        left = left.subspan(bytes);
    }
    return true;
}

bool unspecified(const roce::Gid& gid, bool ipv4) {
    return std::all_of(gid.begin() + (ipv4 ? 12 : 0), gid.end(),
                       [](auto octet) { return octet == 0; });
}

}  // namespace

roce::Gid own_link_local(const base::MacAddr& mac) {
    return {
        0xfe,   0x80,   0,    0,    0,      0,      0,     0, static_cast<std::uint8_t>(mac[0] ^ 2),
        mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
}

bool Filter::may_have(const base::MacAddr& mac) const {
    return any_mac_ || mac == mac_ || std::ranges::find(macs_, mac) != macs_.end();
}

bool Filter::may_use(const roce::Gid& address, bool ipv4) const {
    if (std::any_of(addresses_.begin(), addresses_.end(),
                    [&](const Prefix& prefix) { return prefix.contains(address, ipv4); }))
        return true;
    if (ipv4) return false;
    return address == own_link_local(mac_) ||
           std::ranges::any_of(
               macs_, [&](const base::MacAddr& mac) { return address == own_link_local(mac); });
}

bool Filter::owns_source(const FrameHeaders& headers, std::span<const std::byte> frame) const {
    using Kind = FrameHeaders::Kind;
    switch (headers.kind) {
        case Kind::kArp:
            // A probe for an address that is free to take names no sender (RFC 5227).
            return unspecified(headers.source, true) || may_use(headers.source, true);
        case Kind::kIpv4:
            if (unspecified(headers.source, true))
                return headers.protocol == kProtocolUdp && headers.source_port == kDhcpClient &&
                       headers.destination_port == kDhcpServer;
            return may_use(headers.source, true);
        case Kind::kIpv6: {
            const bool icmp = headers.protocol == kProtocolIcmpv6 && !headers.fragment;
            const std::size_t at = headers.transport;
            if (icmp && headers.end > at && frame[at] == kNeighborAdvertisement) {
                roce::Gid target{};
                if (headers.end - at < kTargetOffset + target.size()) return false;
                std::memcpy(target.data(), frame.data() + at + kTargetOffset, target.size());
                if (!may_use(target, false)) return false;
            }
            // Without an address yet: duplicate address detection and listener reports.
            if (unspecified(headers.source, false)) return icmp;
            return may_use(headers.source, false);
        }
        default:
            return true;
    }
}

bool Filter::passes_rdma(const rnic::Ends& ends) const {
    if (check_mac_ && !may_have(ends.source_mac)) return false;
    // Rules of either family would miss the other end.
    if (roce::is_ipv4(ends.source) != roce::is_ipv4(ends.destination)) return false;
    FrameHeaders headers;
    headers.kind =
        roce::is_ipv4(ends.source) ? FrameHeaders::Kind::kIpv4 : FrameHeaders::Kind::kIpv6;
    headers.protocol = kProtocolUdp;
    headers.destination_port = roce::kUdpPort;
    headers.source = ends.source;
    headers.destination = ends.destination;
    if (!addresses_.empty() && !may_use(headers.source, headers.ipv4())) return false;
    if (acl_.empty()) return true;
    if (!acl_.decides_by_addresses() || !acl_.allows(Direction::kTransmit, headers)) return false;
    std::swap(headers.source, headers.destination);
    return acl_.allows(Direction::kReceive, headers);
}

bool Filter::passes(Direction direction, const FrameHeaders& headers,
                    std::span<const std::byte> frame) const {
    const bool check_mac = direction == Direction::kTransmit && check_mac_;
    if (check_mac) {
        constexpr std::size_t kArpSenderMac = 8;
        const bool own =
            frame.size() >= 2 * base::kSourceMac && may_have(base::mac_at(frame, base::kSourceMac));
        const bool own_arp = headers.kind != FrameHeaders::Kind::kArp ||
                             may_have(base::mac_at(frame, headers.network + kArpSenderMac));
        if (!own || !own_arp || !names_only_own(*this, headers, frame)) {
            counters_.spoofed_mac.add();
            return false;
        }
    }
    const bool check_address = direction == Direction::kTransmit && !addresses_.empty();
    // Some hosts read more than we do: MAC addresses may be in there, too.
    if (headers.kind == FrameHeaders::Kind::kMalformed &&
        (check_mac || check_address || !acl_.empty())) {
        counters_.malformed.add();
        return false;
    }
    if (check_address && !owns_source(headers, frame)) {
        counters_.spoofed_ip.add();
        return false;
    }
    if (!acl_.allows(direction, headers)) {
        counters_.denied.add();
        return false;
    }
    return true;
}

}  // namespace openmana::fabric
