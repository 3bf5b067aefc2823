// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "manad/network_options.h"

namespace openmana::manad {

/// What stands behind "vxlan=" of an uplink.
[[nodiscard]] Parsed<fabric::UplinkConfig> parse_vxlan_uplink(const std::string& text,
                                                              fabric::UplinkConfig config);

}  // namespace openmana::manad
