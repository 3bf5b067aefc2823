// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace openmana::test {

/// A structure of an ABI as it lies in memory.
template <typename T>
std::vector<std::uint8_t> bytes_of(const T& value) {
    std::vector<std::uint8_t> out(sizeof value);
    std::memcpy(out.data(), &value, sizeof value);
    return out;
}

}  // namespace openmana::test
