// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace openmana::test {

/// Bytes of a hex string; blanks are ignored.
inline std::vector<std::byte> from_hex(std::string_view text) {
    std::vector<std::byte> out;
    int high = -1;
    for (const char c : text) {
        int digit = 0;
        if (c >= '0' && c <= '9')
            digit = c - '0';
        else if (c >= 'a' && c <= 'f')
            digit = c - 'a' + 10;
        else if (c >= 'A' && c <= 'F')
            digit = c - 'A' + 10;
        else
            continue;
        if (high < 0) {
            high = digit;
        } else {
            out.push_back(static_cast<std::byte>(high << 4 | digit));
            high = -1;
        }
    }
    return out;
}

/// Lower-case hex without blanks, so that a failed comparison of frames can be read.
inline std::string to_hex(std::span<const std::byte> data) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string out;
    out.reserve(data.size() * 2);
    for (const std::byte b : data) {
        out.push_back(kDigits[std::to_integer<unsigned>(b) >> 4]);
        out.push_back(kDigits[std::to_integer<unsigned>(b) & 15]);
    }
    return out;
}

}  // namespace openmana::test
