// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/endian.h"
#include "base/strong.h"

namespace openmana::esp {

// A packet of ESP (RFC 4303) with AES-256-GCM (RFC 4106), in network order:
//
//     SPI (4) | sequence number (4) | IV (8) | { payload | padding | its length (1) | next header
//     (1) } encrypted | ICV (16)
//
// SPI and sequence number are authenticated too. docs/network.md has the whole format.

/// Names an SA: the second since 1970 from which its sender used it. 0 to 255 are no SAs.
using Spi = base::Strong<struct SpiTag, std::uint32_t>;
inline constexpr std::uint32_t kFirstSpi = 256;

/// What the payload is: numbers of IP protocols.
enum class NextHeader : std::uint8_t {
    kUdp = 17,        ///< a UDP datagram with its header
    kNone = 59,       ///< nothing: the packet is for its ESP header's sake (RFC 4303 2.6)
    kEthernet = 143,  ///< an Ethernet frame from its destination address on (RFC 8986)
};

inline constexpr std::size_t kSpiAt = 0;
inline constexpr std::size_t kSequenceAt = 4;
inline constexpr std::size_t kIvAt = 8;
inline constexpr std::size_t kIvBytes = 8;
inline constexpr std::size_t kAuthenticatedHeader = 8;
inline constexpr std::size_t kHeaderBytes = 16;
inline constexpr std::size_t kTrailerBytes = 2;  ///< behind the padding
inline constexpr std::size_t kIcvBytes = 16;
inline constexpr std::size_t kAlignment = 4;
/// More does not fit into a UDP datagram.
inline constexpr std::size_t kMaxPacket = 65507;

[[nodiscard]] constexpr std::size_t padding_of(std::size_t payload) {
    return (kAlignment - (payload + kTrailerBytes) % kAlignment) % kAlignment;
}
/// Bytes of the packet that such a payload makes.
[[nodiscard]] constexpr std::size_t sealed_size(std::size_t payload) {
    return kHeaderBytes + payload + padding_of(payload) + kTrailerBytes + kIcvBytes;
}
inline constexpr std::size_t kSmallestPacket = sealed_size(0);
/// The largest payload whose packet has no more bytes than these; 0 if there is none.
[[nodiscard]] constexpr std::size_t largest_payload(std::size_t packet) {
    if (packet < kSmallestPacket) return 0;
    return (packet - kHeaderBytes - kIcvBytes) / kAlignment * kAlignment - kTrailerBytes;
}

[[nodiscard]] inline Spi spi_of(const std::byte* packet) {
    return Spi(base::load_be<std::uint32_t>(packet + kSpiAt));
}
[[nodiscard]] inline std::uint32_t sequence_of(const std::byte* packet) {
    return base::load_be<std::uint32_t>(packet + kSequenceAt);
}

}  // namespace openmana::esp
