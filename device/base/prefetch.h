// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

namespace openmana::base {

/// Hint that `[begin, end)` is used soon. Asking for all its cache lines at once costs one wait for
/// memory; using them one after the other costs one each.
inline void prefetch(const void* begin, const void* end) {
    constexpr std::size_t kLine = 64;
    for (const auto* at = static_cast<const std::byte*>(begin); at < end; at += kLine)
        __builtin_prefetch(at);
    // To GCC 12 a function that does nothing but this has no effect, and its calls can go.
    asm volatile("");
}

inline void prefetch(std::span<const std::byte> memory) {
    prefetch(memory.data(), memory.data() + memory.size());
}

}  // namespace openmana::base
