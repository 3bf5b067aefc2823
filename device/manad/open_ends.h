// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "manad/options.h"

namespace openmana::manad {

/// What these options leave open to guests and to whoever is behind an uplink, a log line each
/// (docs/network.md#who-may-speak-for-whom).
[[nodiscard]] std::vector<std::string> open_ends(const Options& options);

}  // namespace openmana::manad
