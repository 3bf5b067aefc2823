// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.h"

namespace openmana::base {

/// An error in words for a person, with the system's own where it refused: "cannot bind a socket:
/// Permission denied".
[[nodiscard]] std::string to_string(const Error& error);

}  // namespace openmana::base
