// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace openmana::fabric {

/// What a pcap file (draft-ietf-opsawg-pcap) begins with: in little-endian order, of Ethernet
/// frames, with times in nanoseconds.
[[nodiscard]] std::vector<std::byte> pcap_header(std::uint32_t snap_length);

/// What stands in such a file before the bytes of a frame.
struct PcapPacket {
    /// `kept` of the `length` bytes of a frame are written.
    PcapPacket(std::uint64_t nanoseconds, std::uint32_t kept, std::uint32_t length);
    static constexpr std::size_t kHead = 16;
    std::array<std::byte, kHead> head{};
};

}  // namespace openmana::fabric
