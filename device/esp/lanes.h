// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

#include "esp/gcm.h"

namespace openmana::esp {

/// The key of an SA for several threads: each has a cipher of its own, as long as there are no more
/// of them than lanes.
template <std::size_t kLanes>
class Lanes {
public:
    /// A thread's hold of a cipher; the others of the SA have other ones meanwhile.
    class Hold {
    public:
        Hold() = default;
        [[nodiscard]] Gcm& gcm() const { return *gcm_; }
        [[nodiscard]] explicit operator bool() const { return gcm_ != nullptr; }

    private:
        friend class Lanes;
        Hold(std::unique_lock<std::mutex> lock, Gcm& gcm) : lock_(std::move(lock)), gcm_(&gcm) {}
        std::unique_lock<std::mutex> lock_;
        Gcm* gcm_ = nullptr;
    };

    /// Nothing if OpenSSL has no memory for another cipher.
    [[nodiscard]] Hold take(const SaKey& key, Gcm::Use use) {
        static std::atomic<std::size_t> threads{0};
        thread_local const std::size_t own = threads.fetch_add(1, std::memory_order_relaxed);
        std::unique_lock<std::mutex> lock;
        std::size_t lane = own % kLanes;
        for (std::size_t i = 0; i < kLanes && !lock; ++i) {
            lane = (own + i) % kLanes;
            lock = std::unique_lock(lanes_[lane].mutex, std::try_to_lock);
        }
        if (!lock) {
            lane = own % kLanes;
            lock = std::unique_lock(lanes_[lane].mutex);
        }
        Gcm& gcm = lanes_[lane].gcm;
        if (!gcm.has_key() && !gcm.set_key(key, use)) return {};
        return {std::move(lock), gcm};
    }

private:
    struct Lane {
        std::mutex mutex;  // protects gcm, for a batch
        Gcm gcm;
    };
    std::array<Lane, kLanes> lanes_;
};

}  // namespace openmana::esp
