// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>

namespace openmana::base {

/// A value in memory that outlives the process: wherever that ends, the value is the old one or the
/// new one. One thread writes; who reads does so when the writer has ended, or is the writer.
template <typename T>
class Twofold {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    [[nodiscard]] const T& get() const { return copies_[current_.load(std::memory_order_acquire)]; }
    void set(const T& value) {
        const std::uint32_t next = 1 - current_.load(std::memory_order_relaxed);
        copies_[next] = value;
        current_.store(next, std::memory_order_release);
    }

private:
    std::atomic<std::uint32_t> current_{0};
    std::array<T, 2> copies_{};
};

}  // namespace openmana::base
