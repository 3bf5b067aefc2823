// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace openmana::fabric {

/// What a pcapng file (draft-ietf-opsawg-pcapng) begins with: a section in little-endian order, and
/// an Ethernet interface for each name, in their order, with times in nanoseconds.
[[nodiscard]] std::vector<std::byte> pcapng_header(std::span<const std::string> interfaces,
                                                   std::uint32_t snap_length);

/// One more interface, anywhere in such a file.
[[nodiscard]] std::vector<std::byte> pcapng_interface(const std::string& name,
                                                      std::uint32_t snap_length);

/// What stands in such a file before and behind the bytes of a frame (4.3, Enhanced Packet Block).
struct PcapngPacket {
    /// `kept` of the `length` bytes of a frame are written.
    PcapngPacket(std::uint32_t interface, std::uint64_t nanoseconds, std::uint32_t kept,
                 std::uint32_t length);
    static constexpr std::size_t kHead = 28;
    static constexpr std::size_t kMaxTail = 3 + 4;
    [[nodiscard]] std::span<const std::byte> behind() const { return {tail.data(), tail_size}; }

    std::array<std::byte, kHead> head{};
    std::array<std::byte, kMaxTail> tail{};  ///< zeros up to a multiple of four, and the length
    std::size_t tail_size = 0;
};

}  // namespace openmana::fabric
