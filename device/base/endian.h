// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

static_assert(std::endian::native == std::endian::little,
              "hosts are little endian, like the device's ABI");

namespace openmana::base {

/// Unaligned load and store in the byte order of the device ABI (little endian).
template <typename T>
[[nodiscard]] T load_le(const void* from) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
template <typename T>
void store_le(void* to, T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memcpy(to, &value, sizeof value);
}

/// Unaligned load and store in network byte order.
template <typename T>
[[nodiscard]] T load_be(const void* from) {
    T value = load_le<T>(from);
    if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
    if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
    if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
    return value;
}
template <typename T>
void store_be(void* to, T value) {
    if constexpr (sizeof(T) == 2) value = __builtin_bswap16(value);
    if constexpr (sizeof(T) == 4) value = __builtin_bswap32(value);
    if constexpr (sizeof(T) == 8) value = __builtin_bswap64(value);
    store_le<T>(to, value);
}

}  // namespace openmana::base
