// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/frame.h"

namespace openmana::base {

/// "02:00:00:00:00:05": six pairs of digits.
[[nodiscard]] std::optional<MacAddr> parse_mac(std::string_view text);
/// The same in lower case.
[[nodiscard]] std::string to_string(const MacAddr& mac);

}  // namespace openmana::base
