// SPDX-License-Identifier: Apache-2.0
#include "manad/dma_limits.h"

#include <algorithm>
#include <fstream>

#include "base/bus_guard.h"

namespace openmana::manad {

namespace {

/// A guest has fewer, unless memory is plugged into it.
constexpr pci::DmaLimits kLeast{.ranges = 64, .bytes = 1ULL << 36};

pci::DmaLimits of_all(std::uint64_t mappings) {
    return {.ranges = std::min<std::size_t>(mappings / 2, base::BusGuard::kMaxRanges),
            .bytes = 1ULL << 46};
}

}  // namespace

pci::DmaLimits dma_limits_of_each(std::size_t nics, std::uint64_t mappings) {
    const pci::DmaLimits all = of_all(mappings);
    const pci::DmaLimits most;
    const std::size_t sharers = std::max<std::size_t>(nics, 1);
    return {.ranges = std::min(all.ranges / 4 * 3 / sharers, most.ranges),
            .bytes = std::min(all.bytes / 4 * 3 / sharers, most.bytes)};
}

/// Part of what is left, so that something is left for the next one.
pci::DmaLimits dma_limits_of_another(const pci::DmaLimits& promised, std::uint64_t mappings) {
    const pci::DmaLimits all = of_all(mappings);
    const pci::DmaLimits most;
    const pci::DmaLimits left{.ranges = all.ranges - std::min(all.ranges, promised.ranges),
                              .bytes = all.bytes - std::min(all.bytes, promised.bytes)};
    if (left.ranges < kLeast.ranges || left.bytes < kLeast.bytes) return {.ranges = 0, .bytes = 0};
    return {.ranges = std::clamp(left.ranges / 16, kLeast.ranges, most.ranges),
            .bytes = std::clamp(left.bytes / 16, kLeast.bytes, most.bytes)};
}

std::uint64_t mappings_of_a_process() {
    std::uint64_t mappings = 65530;  // the kernel's default
    std::ifstream("/proc/sys/vm/max_map_count") >> mappings;
    return mappings;
}

}  // namespace openmana::manad
