// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "manad/options.h"

namespace openmana::manad {

/// What options name and the system does not have, the first of it, in words for the one who typed
/// it: directories of sockets, captures and flow logs, key files and tables. Nothing is opened, so
/// rights are not looked at.
[[nodiscard]] std::optional<std::string> find_missing(const Options& options);

}  // namespace openmana::manad
