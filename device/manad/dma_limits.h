// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "pci/endpoint.h"

namespace openmana::manad {

/// What the client of each of so many NICs may map, so that the maps of all fit into the `mappings`
/// and the address space that the system gives the process. Half of these are left for memory that
/// goes away, which cuts ranges, and for the process itself; a quarter of the rest for NICs that
/// come later.
[[nodiscard]] pci::DmaLimits dma_limits_of_each(std::size_t nics, std::uint64_t mappings);
/// The same for one that comes when others have `promised`; no ranges if there is no room for it.
[[nodiscard]] pci::DmaLimits dma_limits_of_another(const pci::DmaLimits& promised,
                                                   std::uint64_t mappings);
/// What the system gives a process (vm.max_map_count).
[[nodiscard]] std::uint64_t mappings_of_a_process();

}  // namespace openmana::manad
