// SPDX-License-Identifier: Apache-2.0
#include "fabric/flow_key.h"

#include <array>

#include "base/endian.h"
#include "base/keyed_hash.h"
#include "fabric/flow_packet.h"

namespace openmana::fabric {

using namespace flow_packet;

/// Peers make addresses and ports up.
std::size_t FlowKeyHash::operator()(const FlowKey& key) const {
    const auto half = [](const roce::Gid& gid, std::size_t from) {
        return base::load_le<std::uint64_t>(gid.data() + from);
    };
    const std::array<std::uint64_t, 6> words{
        std::uint64_t{key.vlan} << 8 | static_cast<std::uint64_t>(key.kind),
        half(key.local_address, 0),
        half(key.local_address, 8),
        half(key.remote_address, 0),
        half(key.remote_address, 8),
        std::uint64_t{key.local} << 32 | key.remote};
    return base::KeyedHash::of(words);
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
    key.vlan = headers.vlan;
    key.local = sent ? source : destination;
    key.remote = sent ? destination : source;
    return key;
}

FlowKey FlowKey::numberless() const {
    FlowKey numberless = *this;
    for (std::uint32_t* const number : {&numberless.local, &numberless.remote})
        if (*number != kUnknown) *number = 0;
    return numberless;
}

bool is_notification(const FrameHeaders& headers, std::span<const std::byte> frame) {
    const std::size_t bth = headers.transport + kUdpBytes;
    return headers.roce() && headers.end >= bth + kBthBytes + kIcrcBytes &&
           roce::transport(static_cast<roce::Opcode>(byte_at(frame, bth))) == roce::Transport::kCnp;
}

}  // namespace openmana::fabric
