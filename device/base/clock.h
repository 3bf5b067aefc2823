// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace openmana::base {

using Duration = std::chrono::nanoseconds;
/// Time since an arbitrary start; monotonic.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

/// Where a layer takes the time from. Tests give virtual time.
class Clock {
public:
    virtual ~Clock() = default;
    [[nodiscard]] virtual TimePoint now() const = 0;
};

/// The monotonic clock of the host.
class SystemClock final : public Clock {
public:
    [[nodiscard]] TimePoint now() const override {
        return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
    }
};

/// Small, fast, seedable generator (xorshift64*), for everything that must replay from a seed.
class Random {
public:
    explicit Random(std::uint64_t seed)
        : state_(seed * 2685821657736338717ULL + 1442695040888963407ULL) {
        if (state_ == 0) state_ = 1;
    }
    std::uint64_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 2685821657736338717ULL;
    }
    /// Uniform in [0, bound); bound > 0.
    std::uint64_t below(std::uint64_t bound) { return (next() >> 11) % bound; }
    /// True with the given probability in parts per million.
    bool chance_ppm(std::uint32_t ppm) { return below(1000000) < ppm; }

private:
    std::uint64_t state_;
};

}  // namespace openmana::base
