// SPDX-License-Identifier: Apache-2.0
#include "fabric/inner_packet.h"

#include "base/endian.h"
#include "base/keyed_hash.h"
#include "fabric/frame_headers.h"

namespace openmana::fabric {
namespace {

constexpr std::size_t kTypeOffset = 12;
constexpr std::size_t kVlanTag = 4;
constexpr int kMaxTags = 2;
constexpr std::size_t kIpv4Bytes = 20;
constexpr std::size_t kIpv6Bytes = 40;
constexpr std::size_t kPortBytes = 4;

std::uint8_t byte_at(std::span<const std::byte> frame, std::size_t offset) {
    return std::to_integer<std::uint8_t>(frame[offset]);
}

/// Ports of TCP or UDP at this offset; 0 if the frame has none there.
std::uint64_t ports_at(std::span<const std::byte> frame, std::uint8_t protocol, std::size_t at) {
    if (protocol != kProtocolTcp && protocol != kProtocolUdp) return 0;
    if (frame.size() < kPortBytes || frame.size() - kPortBytes < at) return 0;
    return base::load_be<std::uint32_t>(frame.data() + at);
}

}  // namespace

InnerPacket InnerPacket::of(std::span<const std::byte> frame) {
    InnerPacket inner;
    std::size_t at = kTypeOffset;
    for (int tags = 0; tags <= kMaxTags; ++tags, at += kVlanTag) {
        if (frame.size() < at + 2) return inner;
        inner.type = base::load_be<std::uint16_t>(frame.data() + at);
        if (inner.type != kEtherTypeVlan && inner.type != kEtherTypeServiceVlan) break;
    }
    inner.network = at + 2;
    const std::size_t left = frame.size() < inner.network ? 0 : frame.size() - inner.network;
    if (inner.type == kEtherTypeIpv4 && left >= kIpv4Bytes &&
        byte_at(frame, inner.network) >> 4 == 4) {
        inner.kind = Kind::kIpv4;
        inner.tos = byte_at(frame, inner.network + 1);
    } else if (inner.type == kEtherTypeIpv6 && left >= kIpv6Bytes &&
               byte_at(frame, inner.network) >> 4 == 6) {
        inner.kind = Kind::kIpv6;
        inner.tos = static_cast<std::uint8_t>(
            base::load_be<std::uint16_t>(frame.data() + inner.network) >> 4);
    }
    return inner;
}

std::uint8_t outer_tos(const InnerPacket& inner, int dscp) {
    if (dscp < 0) return inner.tos;
    return static_cast<std::uint8_t>((inner.tos & 3U) | static_cast<unsigned>(dscp) << 2);
}

EcnResult leave_tunnel(std::span<std::byte> frame, const InnerPacket& inner,
                       std::uint8_t outer_tos) {
    if (inner.kind == InnerPacket::Kind::kOther) return EcnResult::kKept;
    const Ecn outer = ecn_of(outer_tos);
    const Ecn own = ecn_of(inner.tos);
    // The rows of the table, and in them what differs from "kept".
    switch (own) {
        case Ecn::kNotEct:
            if (outer == Ecn::kCe) return EcnResult::kDropped;
            return outer == Ecn::kNotEct ? EcnResult::kKept : EcnResult::kSuspicious;
        case Ecn::kEct0:
            if (outer != Ecn::kEct1 && outer != Ecn::kCe) return EcnResult::kKept;
            break;
        case Ecn::kEct1:
            if (outer == Ecn::kEct0) return EcnResult::kSuspicious;
            if (outer != Ecn::kCe) return EcnResult::kKept;
            break;
        case Ecn::kCe:
            return outer == Ecn::kEct1 ? EcnResult::kSuspicious : EcnResult::kKept;
    }
    set_ecn(frame.data() + inner.network, inner.kind == InnerPacket::Kind::kIpv4,
            static_cast<std::uint8_t>(outer));
    return outer == Ecn::kCe ? EcnResult::kMarked : EcnResult::kChanged;
}

std::uint64_t flow_hash(std::span<const std::byte> frame, const InnerPacket& inner,
                        const std::array<std::uint64_t, 2>& key) {
    const std::byte* const ip = frame.data() + inner.network;
    const auto hash = [&key](std::span<const std::uint64_t> words) {
        return base::KeyedHash::hash(words, key);
    };
    if (inner.kind == InnerPacket::Kind::kIpv4) {
        const std::uint8_t protocol = byte_at(frame, inner.network + 9);
        // Only the first of some fragments has ports: none of them counts by its ports.
        const bool whole = (base::load_be<std::uint16_t>(ip + 6) & 0x3fff) == 0;
        const std::size_t header = (byte_at(frame, inner.network) & 15U) * std::size_t{4};
        const std::uint64_t words[] = {
            base::load_le<std::uint64_t>(ip + 12),
            std::uint64_t{protocol} << 32 |
                (whole ? ports_at(frame, protocol, inner.network + header) : 0)};
        return hash(words);
    }
    if (inner.kind == InnerPacket::Kind::kIpv6) {
        const std::uint8_t next = byte_at(frame, inner.network + 6);
        std::uint64_t flow = ports_at(frame, next, inner.network + kIpv6Bytes);
        // Behind other headers the label tells flows apart (RFC 6438).
        if (flow == 0) flow = base::load_be<std::uint32_t>(ip) & 0xfffff;
        const std::uint64_t words[] = {
            base::load_le<std::uint64_t>(ip + 8), base::load_le<std::uint64_t>(ip + 16),
            base::load_le<std::uint64_t>(ip + 24), base::load_le<std::uint64_t>(ip + 32),
            std::uint64_t{next} << 32 | flow};
        return hash(words);
    }
    if (frame.size() < kTypeOffset) return hash({});
    const std::uint64_t words[] = {
        base::load_le<std::uint64_t>(frame.data()),
        std::uint64_t{base::load_le<std::uint32_t>(frame.data() + 8)} << 16 | inner.type};
    return hash(words);
}

}  // namespace openmana::fabric
