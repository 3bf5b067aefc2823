// SPDX-License-Identifier: Apache-2.0
#include "eth/checksum.h"

#include "base/endian.h"

namespace openmana::eth {

InternetSum& InternetSum::add(std::span<const std::byte> data) {
    const std::byte* at = data.data();
    std::size_t left = data.size();
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    for (; left >= 16; left -= 16, at += 16) {
        a += base::load_le<std::uint32_t>(at);
        b += base::load_le<std::uint32_t>(at + 4);
        a += base::load_le<std::uint32_t>(at + 8);
        b += base::load_le<std::uint32_t>(at + 12);
    }
    for (; left >= 2; left -= 2, at += 2) a += base::load_le<std::uint16_t>(at);
    if (left != 0) a += std::to_integer<std::uint8_t>(*at);
    sum_ += a + b;
    return *this;
}

}  // namespace openmana::eth
