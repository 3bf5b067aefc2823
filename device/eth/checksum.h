// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace openmana::eth {

/// A ones' complement sum (RFC 1071) of 16-bit words in memory order, not yet folded. Only the last
/// piece may be odd.
class InternetSum {
public:
    InternetSum& add(std::span<const std::byte> data);
    /// A number, as if its two network-order bytes were added.
    InternetSum& add_number(std::uint16_t value) {
        sum_ += __builtin_bswap16(value);
        return *this;
    }
    /// The folded sum in memory order: store and load it with store_le, load_le.
    [[nodiscard]] std::uint16_t folded() const {
        std::uint64_t sum = (sum_ & 0xffffffff) + (sum_ >> 32);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        return static_cast<std::uint16_t>((sum & 0xffff) + (sum >> 16));
    }
    /// What a checksum field gets, in memory order.
    [[nodiscard]] std::uint16_t checksum() const { return static_cast<std::uint16_t>(~folded()); }
    /// True if data with its checksum was summed and is right.
    [[nodiscard]] bool good() const { return folded() == 0xffff; }

private:
    std::uint64_t sum_ = 0;  // of 32-bit words: no overflow below 16 GiB
};

}  // namespace openmana::eth
