// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace openmana::test {

/// Stands where a provider has its mapped doorbell page: keeps what is rung, or hands it on. With
/// `forward`, threads may ring at the same time; then `count` is only about right.
class DoorbellSink {
public:
    using Write = std::pair<std::uint32_t, std::uint64_t>;  ///< offset in the page, value

    /// What the data path takes for its page.
    [[nodiscard]] void* page() { return this; }
    void ring(std::uint32_t offset, std::uint64_t value) {
        if (forward)
            forward(offset, value);
        else
            writes.push_back({offset, value});
        const std::atomic_ref counted(count);
        counted.store(counted.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    /// What was rung since the last call.
    [[nodiscard]] std::vector<Write> take() { return std::exchange(writes, {}); }

    std::function<void(std::uint32_t, std::uint64_t)> forward;
    std::vector<Write> writes;
    std::uint64_t count = 0;
};

}  // namespace openmana::test

/// The provider's data path is compiled for tests with this in place of the store.
extern "C" void mana_test_doorbell(void* page, std::uint32_t offset, std::uint64_t value);
