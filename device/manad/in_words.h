// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.h"

namespace openmana::manad {

/// What could not be had, and why: "/run/a.sock: cannot bind a socket: Permission denied".
[[nodiscard]] std::string in_words(const std::string& subject, const base::Error& error);

}  // namespace openmana::manad
