// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/fd.h"
#include "base/result.h"

namespace openmana::base {

/// Tells the owner of guest memory that some of it went away. `note` is for BusGuard's signal
/// handler, on whichever thread the access was made; the rest is for the owner's thread.
class MemoryLoss {
public:
    static Result<std::unique_ptr<MemoryLoss>> create();
    MemoryLoss(const MemoryLoss&) = delete;
    MemoryLoss& operator=(const MemoryLoss&) = delete;

    /// Nothing but an atomic and, the first time, a write to an eventfd of our own.
    void note();
    /// Readable from the first loss on until acknowledge().
    [[nodiscard]] int fd() const { return eventfd_.get(); }
    void acknowledge();
    /// Since the last take().
    [[nodiscard]] std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }
    std::uint64_t take() { return count_.exchange(0, std::memory_order_relaxed); }

private:
    explicit MemoryLoss(UniqueFd eventfd) : eventfd_(std::move(eventfd)) {}

    UniqueFd eventfd_;
    std::atomic<std::uint64_t> count_{0};
    static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
};

}  // namespace openmana::base
