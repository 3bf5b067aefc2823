// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/frame.h"

namespace openmana::eth {

enum class Cast : std::uint8_t { kUnicast, kMulticast, kBroadcast };
[[nodiscard]] Cast cast_of(const std::byte* destination_mac);

/// What the receive path knows of a frame (GDMA 6.15). The frame given to the guest is `macs` then
/// `rest`: a VLAN tag lies between and is left out.
struct ReceivedFrame {
    std::span<const std::byte> macs;
    std::span<const std::byte> rest;  ///< from the EtherType on
    std::uint32_t flags = 0;          ///< word 1 of the CQE, without the hash type
    std::uint32_t hash_type = 0;      ///< hash-type bit, 0: nothing to hash
    std::uint32_t hash = 0;           ///< filled by the steering
    std::array<std::byte, 36> hash_input{};
    std::size_t hash_bytes = 0;

    [[nodiscard]] std::size_t size() const { return macs.size() + rest.size(); }
};

/// Strips the tag, verifies checksums and collects what RSS hashes. Empty if the frame is shorter
/// than its Ethernet header.
[[nodiscard]] std::optional<ReceivedFrame> parse_received(std::span<const std::byte> frame);
/// Puts a tag that was stripped back: `frame` is what was parsed.
void keep_tag(ReceivedFrame& parsed, std::span<const std::byte> frame);

}  // namespace openmana::eth
