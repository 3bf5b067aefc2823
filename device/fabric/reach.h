// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace openmana::fabric {

/// Counts what may change who reaches whom, and who may speak for whom: links, stages, addresses,
/// NICs. Whoever looks at the count, then at any of these, knows that all is as it was as long as
/// the count is. Any thread; each turn of each requester looks, so nothing else lies beside it.
class alignas(64) Reach {
public:
    [[nodiscard]] std::uint64_t count() const { return count_.load(std::memory_order_acquire); }
    /// After such a change.
    void changed() { count_.fetch_add(1, std::memory_order_release); }

private:
    std::atomic<std::uint64_t> count_{1};  // pairs with itself: release after a change
};
static_assert(sizeof(Reach) == 64);

}  // namespace openmana::fabric
