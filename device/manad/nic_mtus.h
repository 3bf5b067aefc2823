// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fabric/uplink_mtu.h"
#include "manad/options.h"

namespace openmana::manad {

/// The smallest MTU that a NIC can have.
inline constexpr std::size_t kLeastNicMtu = 1500;

/// The NICs of these options. One whose MTU was not said has at most what fits the paths of the
/// UDP, VXLAN and XDP uplinks of its network whole, but no less than kLeastNicMtu. `lines` gets one
/// for the log for each uplink that has frames of a NIC go in fragments.
[[nodiscard]] std::vector<NicOptions> with_mtus_of_paths(
    const Options& options, std::vector<std::string>& lines,
    const std::function<std::optional<fabric::UplinkMtu>(const fabric::UplinkConfig&)>& find =
        fabric::find_mtu);

}  // namespace openmana::manad
