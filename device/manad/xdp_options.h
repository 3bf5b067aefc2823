// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "manad/network_options.h"

namespace openmana::manad {

/// What stands behind "xdp=" of an uplink: "INTERFACE[,queues=N][,mode=...]".
[[nodiscard]] Parsed<fabric::UplinkConfig> parse_xdp_uplink(const std::string& text,
                                                            fabric::UplinkConfig config);

}  // namespace openmana::manad
