// SPDX-License-Identifier: Apache-2.0
#include "manad/dma_ranges.h"

#include <algorithm>
#include <fstream>

#include "base/bus_guard.h"
#include "pci/endpoint.h"

namespace openmana::manad {

namespace {

/// A guest has fewer, unless memory is plugged into it.
constexpr std::size_t kLeast = 64;

std::size_t of_all(std::uint64_t mappings) {
    return std::min<std::size_t>(mappings / 2, base::BusGuard::kMaxRanges);
}

}  // namespace

std::size_t dma_ranges_of_each(std::size_t nics, std::uint64_t mappings) {
    return std::min(of_all(mappings) / 4 * 3 / std::max<std::size_t>(nics, 1),
                    pci::EndpointConfig().max_dma_ranges);
}

/// Part of what is left, so that something is left for the next one.
std::size_t dma_ranges_of_another(std::size_t promised, std::uint64_t mappings) {
    const std::size_t all = of_all(mappings);
    const std::size_t left = all - std::min(all, promised);
    if (left < kLeast) return 0;
    return std::clamp(left / 16, kLeast, pci::EndpointConfig().max_dma_ranges);
}

std::uint64_t mappings_of_a_process() {
    std::uint64_t mappings = 65530;  // the kernel's default
    std::ifstream("/proc/sys/vm/max_map_count") >> mappings;
    return mappings;
}

}  // namespace openmana::manad
