// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/endian.h"

namespace openmana::fabric::flow_packet {

/// Bytes of headers that the flow log reads behind those of FrameHeaders. The caller has seen that
/// they are there.
constexpr std::size_t kUdpBytes = 8;
constexpr std::size_t kBthBytes = 12;
constexpr std::size_t kDethBytes = 8;
constexpr std::size_t kRethBytes = 16;
constexpr std::size_t kIcrcBytes = 4;

inline std::uint8_t byte_at(std::span<const std::byte> bytes, std::size_t offset) {
    return std::to_integer<std::uint8_t>(bytes[offset]);
}
inline std::uint32_t low24(std::span<const std::byte> bytes, std::size_t offset) {
    return base::load_be<std::uint32_t>(bytes.data() + offset) & 0xffffff;
}

}  // namespace openmana::fabric::flow_packet
