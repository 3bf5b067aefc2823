// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "base/held_fd.h"
#include "base/twofold.h"

namespace openmana::pci {

/// What an endpoint's client has lent, and the registers that it and its guest have set, in memory
/// that may outlive the process. Written by the NIC's thread; another process that has the
/// descriptors goes on with it after any instruction of this one.
struct EndpointLedger {
    static constexpr std::size_t kMaxRanges = 8192;
    static constexpr std::size_t kMaxVectors = 128;

    /// A range of guest memory. What it is is written before `used`.
    struct Range {
        std::atomic<std::uint32_t> used{0};
        std::uint32_t readable = 0;
        std::uint32_t writable = 0;
        base::HeldFd file;  ///< none: a hole. Ranges of one file have the same
        std::uint64_t address = 0;
        std::uint64_t length = 0;
        std::uint64_t offset = 0;
    };
    /// A state as Endpoint::save writes it: one that does not fit is not kept.
    struct Registers {
        static constexpr std::size_t kMost = 4096;
        std::uint32_t length = 0;
        std::array<std::byte, kMost> bytes{};
    };

    std::array<base::HeldFd, kMaxVectors> vectors{};
    base::Twofold<Registers> registers;
    std::atomic<std::uint32_t> ranges_end{0};                            ///< so many were ever used
    alignas(Range) std::byte ranges_memory[kMaxRanges * sizeof(Range)];  // of those

    /// A range that is not used; null if there is none.
    [[nodiscard]] Range* free_range() {
        const std::uint32_t end = ranges_end.load(std::memory_order_relaxed);
        for (std::uint32_t i = 0; i < end; ++i)
            if (range(i).used.load(std::memory_order_relaxed) == 0) return &range(i);
        if (end == kMaxRanges) return nullptr;
        Range* const fresh = new (ranges_memory + end * sizeof(Range)) Range;
        ranges_end.store(end + 1, std::memory_order_release);
        return fresh;
    }
    template <typename F>
    void each_range(F&& f) {
        const std::uint32_t end = ranges_end.load(std::memory_order_acquire);
        for (std::uint32_t i = 0; i < end; ++i)
            if (range(i).used.load(std::memory_order_acquire) != 0) f(range(i));
    }
    /// The client has gone, with all that it lent.
    void forget_client() {
        each_range([](Range& range) { range.used.store(0, std::memory_order_release); });
        for (base::HeldFd& vector : vectors) vector.forget();
    }
    /// Of a process that has ended: the descriptors that are named here.
    [[nodiscard]] std::vector<int> descriptors() {
        std::vector<int> all;
        each_range([&](Range& range) {
            if (range.file.number() >= 0) all.push_back(range.file.number());
        });
        for (const base::HeldFd& vector : vectors)
            if (vector.number() >= 0) all.push_back(vector.number());
        return all;
    }

private:
    [[nodiscard]] Range& range(std::uint32_t i) {
        return *std::launder(reinterpret_cast<Range*>(ranges_memory + i * sizeof(Range)));
    }
};

}  // namespace openmana::pci
