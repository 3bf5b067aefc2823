// SPDX-License-Identifier: Apache-2.0
#include "manad/dma_ranges.h"

#include <algorithm>
#include <fstream>

#include "base/bus_guard.h"
#include "pci/endpoint.h"

namespace openmana::manad {

std::size_t dma_ranges_of_each(std::size_t nics, std::uint64_t mappings) {
    const std::uint64_t of_all = std::min<std::uint64_t>(mappings / 2, base::BusGuard::kMaxRanges);
    return std::min<std::size_t>(of_all / std::max<std::size_t>(nics, 1),
                                 pci::EndpointConfig().max_dma_ranges);
}

std::uint64_t mappings_of_a_process() {
    std::uint64_t mappings = 65530;  // the kernel's default
    std::ifstream("/proc/sys/vm/max_map_count") >> mappings;
    return mappings;
}

}  // namespace openmana::manad
