// SPDX-License-Identifier: Apache-2.0
#include "eth/toeplitz.h"

#include <algorithm>
#include <bit>

#include "base/endian.h"
#include "base/result.h"

namespace openmana::eth {

Toeplitz::Toeplitz() : table_(kMaxInput) {}

void Toeplitz::set_key(std::span<const std::byte, kKeyBytes> key) {
    std::copy(key.begin(), key.end(), key_.begin());
    for (std::size_t position = 0; position < kMaxInput; ++position) {
        // Bit b of the byte (from the top) selects the 32 key bits that begin at bit 8 * position +
        // b.
        const auto high = base::load_be<std::uint32_t>(key.data() + position);
        const auto next = std::to_integer<std::uint32_t>(key[position + 4]);
        const std::uint64_t window = std::uint64_t{high} << 8 | next;
        auto& row = table_[position];
        row[0] = 0;
        for (unsigned value = 1; value < 256; ++value) {
            const unsigned lowest = value & (0U - value);
            const int shift = std::countr_zero(lowest) + 1;
            row[value] = row[value ^ lowest] ^ static_cast<std::uint32_t>(window >> shift);
        }
    }
}

std::uint32_t Toeplitz::hash(std::span<const std::byte> input) const {
    // Two IPv6 addresses and two ports, whatever the frame.
    OM_CHECK(input.size() <= kMaxInput);
    std::uint32_t result = 0;
    for (std::size_t i = 0; i < input.size(); ++i)
        result ^= table_[i][std::to_integer<std::size_t>(input[i])];
    return result;
}

}  // namespace openmana::eth
