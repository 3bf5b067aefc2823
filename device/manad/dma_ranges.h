// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace openmana::manad {

/// DMA ranges that the client of each of so many NICs may map, so that those of all fit into the
/// mappings that the system gives the process. Half of these are left for memory that goes away,
/// which cuts ranges, and for the process itself; a quarter of the rest for NICs that come later.
[[nodiscard]] std::size_t dma_ranges_of_each(std::size_t nics, std::uint64_t mappings);
/// The same for one that comes when others have `promised`; none if there is no room for it.
[[nodiscard]] std::size_t dma_ranges_of_another(std::size_t promised, std::uint64_t mappings);
/// What the system gives a process (vm.max_map_count).
[[nodiscard]] std::uint64_t mappings_of_a_process();

}  // namespace openmana::manad
