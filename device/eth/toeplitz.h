// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace openmana::eth {

/// The Toeplitz hash of receive-side scaling, with a table per input byte so that a packet costs
/// one look-up a byte.
class Toeplitz {
public:
    static constexpr std::size_t kKeyBytes = 40;
    static constexpr std::size_t kMaxInput = 36;  ///< IPv6 addresses and ports
    static constexpr std::size_t kTableBytes = kMaxInput * 256 * sizeof(std::uint32_t);

    Toeplitz();
    void set_key(std::span<const std::byte, kKeyBytes> key);
    [[nodiscard]] const std::array<std::byte, kKeyBytes>& key() const { return key_; }
    /// At most kMaxInput bytes, in network order.
    [[nodiscard]] std::uint32_t hash(std::span<const std::byte> input) const;

private:
    std::array<std::byte, kKeyBytes> key_{};
    std::vector<std::array<std::uint32_t, 256>> table_;
};

}  // namespace openmana::eth
