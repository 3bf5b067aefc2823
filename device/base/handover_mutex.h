// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/activity.h"

namespace openmana::base {

/// A mutex for work in steps: between two of them hand_over() lets those in who wait. Without that,
/// who gives a mutex back and takes it again is faster than whom that woke, who may so wait for all
/// of the steps.
class HandoverMutex {
public:
    void lock() {
        if (mutex_.try_lock()) [[likely]]
            return;
        waited_.fetch_add(1, std::memory_order_relaxed);
        mutex_.lock();
        served_.fetch_add(1, std::memory_order_relaxed);
        served_.notify_all();
    }
    [[nodiscard]] bool try_lock() { return mutex_.try_lock(); }
    void unlock() { mutex_.unlock(); }
    /// Of who has given it back: until as many have got it as waited for it now. Who comes later
    /// does not count, so that nobody keeps the caller out for ever.
    void hand_over() {
        const std::uint32_t until = waited_.load(std::memory_order_relaxed);
        for (;;) {
            const std::uint32_t served = served_.load(std::memory_order_relaxed);
            if (static_cast<std::int32_t>(until - served) <= 0) return;
            const Activity::Wait waiting("those before it to take a lock");
            served_.wait(served, std::memory_order_relaxed);
        }
    }
    /// Threads that wait for it. Any thread; a hint.
    [[nodiscard]] std::uint32_t waiting() const {
        return waited_.load(std::memory_order_relaxed) - served_.load(std::memory_order_relaxed);
    }

private:
    std::mutex mutex_;
    // Counts, which order nothing: that is the mutex's.
    std::atomic<std::uint32_t> waited_{0};  // times that it was found taken
    std::atomic<std::uint32_t> served_{0};  // times that one who waited has got it
};

}  // namespace openmana::base
