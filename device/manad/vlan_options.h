// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "fabric/vlan_edge.h"
#include "manad/network_options.h"

namespace openmana::manad {

/// The keys `vlan`, `trunk` and `native` of `--nic`, as far as they are there.
[[nodiscard]] Parsed<fabric::VlanConfig> parse_vlans(const Keys& keys);
/// "all", "access 10", "trunk 10+20-29", "trunk 10+20-29 native 5".
[[nodiscard]] std::string vlan_text(const fabric::VlanConfig& config);

}  // namespace openmana::manad
