// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace openmana::base {

/// How many values there were of each size, as somebody saw it.
struct HistogramReading {
    std::vector<std::uint64_t> upper;  ///< of each bucket but the last, which has no end
    std::vector<std::uint64_t> counts;
    std::uint64_t sum = 0;  ///< of all values; may be a moment newer than the counts

    [[nodiscard]] std::uint64_t count() const {
        std::uint64_t all = 0;
        for (const std::uint64_t one : counts) all += one;
        return all;
    }
};

/// Counts values by size: up to kFirst, then up to 2^kShift times as much in each bucket as in the
/// one before, and in the last one whatever is beyond. One thread adds, by plain loads and stores;
/// any thread reads. The order is relaxed and has no partner: each bucket is a count by itself.
template <std::uint64_t kFirst, unsigned kShift, std::size_t kBuckets>
class Histogram {
public:
    void add(std::uint64_t value) {
        raise(counts_[bucket_of(value)], 1);
        raise(sum_, value);
    }
    [[nodiscard]] HistogramReading read() const {
        HistogramReading reading;
        for (std::size_t i = 0; i + 1 < kBuckets; ++i)
            reading.upper.push_back(kFirst << (kShift * i));
        for (const auto& count : counts_)
            reading.counts.push_back(count.load(std::memory_order_relaxed));
        reading.sum = sum_.load(std::memory_order_relaxed);
        return reading;
    }
    [[nodiscard]] static constexpr std::size_t bucket_of(std::uint64_t value) {
        const std::uint64_t firsts = value == 0 ? 0 : (value - 1) / kFirst;
        return std::min((static_cast<std::size_t>(std::bit_width(firsts)) + kShift - 1) / kShift,
                        kBuckets - 1);
    }

private:
    static void raise(std::atomic<std::uint64_t>& count, std::uint64_t n) {
        count.store(count.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }

    std::array<std::atomic<std::uint64_t>, kBuckets> counts_{};
    std::atomic<std::uint64_t> sum_{0};
};

}  // namespace openmana::base
