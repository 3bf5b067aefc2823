// SPDX-License-Identifier: Apache-2.0
#include "fabric/source_guard.h"

#include "base/mac_at.h"
#include "fabric/frame_headers.h"

namespace openmana::fabric {
namespace {

constexpr std::size_t kEtherType = 12;

/// False for what is surely no RoCE: most of what a guest sends, by a look at its first bytes.
bool may_be_roce(std::span<const std::byte> frame) {
    constexpr std::size_t kIpv4Protocol = 23;
    constexpr std::size_t kIpv6NextHeader = 20;
    if (frame.size() <= kIpv4Protocol) return false;
    const auto octet = [&](std::size_t at) { return std::to_integer<unsigned>(frame[at]); };
    switch (octet(kEtherType) << 8 | octet(kEtherType + 1)) {
        case 0x0800:
            return octet(kIpv4Protocol) == kProtocolUdp;
        case 0x0806:
            return false;
        case 0x86dd:
            return octet(kIpv6NextHeader) != kProtocolTcp;
        default:
            return true;
    }
}

}  // namespace

bool SourceGuard::foreign_mac(std::span<const std::byte> frame) const {
    if (own_mac_ == nullptr) return false;
    const base::MacAddr source = base::mac_at(frame, base::kSourceMac);
    if (source == *own_mac_) return false;
    const Peer* const holder = network_.peers().find(source);
    return holder != nullptr && holder != network_.peers().find(*own_mac_);
}

/// Neighbours in a network have places of their own. Who chooses addresses that share one has but
/// his own frames looked at more closely.
std::size_t SourceGuard::place_of(const roce::Gid& address) {
    return (address[13] ^ address[14] ^ address[15]) % kKept;
}

bool SourceGuard::passes(std::span<const std::byte> frame) {
    if (frame.size() < kEtherType + 2) return true;
    if (foreign_mac(frame)) return false;
    if (!may_be_roce(frame)) return true;
    const FrameHeaders headers = read_headers(frame);
    // What is behind more tags than we look through may be RoCE for who takes them all off.
    if (headers.kind == FrameHeaders::Kind::kMalformed && headers.stacked) return false;
    if (!headers.roce() && !headers.first_of_roce()) return true;
    const std::uint64_t reach = network_.reach();
    const roce::Address source(headers.source, headers.vlan);
    // Nobody is kept out by who must not use it himself.
    const Standing least = own_ != nullptr ? Standing::kDown : Standing::kGranted;
    // A tag behind another one may be a priority alone: who takes off both is in the outer VLAN.
    if (headers.stacked &&
        network_.claims().foreign(own_, {headers.source, headers.outer_vlan}, least))
        return false;
    Good& good = good_[place_of(headers.source)];
    if (reach == good.reach && source == good.address) return true;
    if (network_.claims().foreign(own_, source, least)) return false;
    good = {source, reach};
    return true;
}

}  // namespace openmana::fabric
