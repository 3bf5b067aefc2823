// SPDX-License-Identifier: Apache-2.0
#include "fabric/flow_key.h"

#include "base/endian.h"
#include "fabric/flow_packet.h"

namespace openmana::fabric {

using namespace flow_packet;

std::size_t FlowKeyHash::operator()(const FlowKey& key) const {
    std::uint64_t hash = static_cast<std::uint64_t>(key.kind) + 1;
    const auto mix = [&](std::uint64_t value) {
        hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
        hash ^= hash >> 29;
    };
    for (const roce::Gid* gid : {&key.local_address, &key.remote_address}) {
        mix(base::load_le<std::uint64_t>(gid->data()));
        mix(base::load_le<std::uint64_t>(gid->data() + 8));
    }
    mix(std::uint64_t{key.local} << 32 | key.remote);
    return hash;
}

std::optional<FlowKey> FlowKey::of(Direction direction, const FrameHeaders& headers,
                                   std::span<const std::byte> frame) {
    if (!headers.has_ports()) return std::nullopt;
    FlowKey key;
    std::uint32_t source = headers.source_port;
    std::uint32_t destination = headers.destination_port;
    key.kind = headers.protocol == kProtocolTcp ? FlowKind::kTcp : FlowKind::kUdp;
    const std::size_t bth = headers.transport + kUdpBytes;
    if (headers.roce() && headers.end >= bth + kBthBytes + kIcrcBytes) {
        const auto opcode = static_cast<roce::Opcode>(byte_at(frame, bth));
        switch (roce::transport(opcode)) {
            case roce::Transport::kRc:
            case roce::Transport::kCnp:
                key.kind = FlowKind::kRc;
                break;
            case roce::Transport::kUc:
                key.kind = FlowKind::kUc;
                break;
            case roce::Transport::kUd:
                key.kind = FlowKind::kUd;
                break;
            default:
                return std::nullopt;
        }
        destination = low24(frame, bth + 4);
        source = kUnknown;
        if (key.kind == FlowKind::kUd && headers.end >= bth + kBthBytes + kDethBytes + kIcrcBytes)
            source = low24(frame, bth + kBthBytes + 4);
    }
    const bool sent = direction == Direction::kTransmit;
    key.local_address = sent ? headers.source : headers.destination;
    key.remote_address = sent ? headers.destination : headers.source;
    key.local = sent ? source : destination;
    key.remote = sent ? destination : source;
    return key;
}

FlowKey FlowKey::addresses() const {
    FlowKey addresses = *this;
    addresses.local = addresses.remote = kUnknown;
    return addresses;
}

bool is_notification(const FrameHeaders& headers, std::span<const std::byte> frame) {
    const std::size_t bth = headers.transport + kUdpBytes;
    return headers.roce() && headers.end >= bth + kBthBytes + kIcrcBytes &&
           roce::transport(static_cast<roce::Opcode>(byte_at(frame, bth))) == roce::Transport::kCnp;
}

}  // namespace openmana::fabric
