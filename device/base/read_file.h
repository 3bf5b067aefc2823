// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace openmana::base {

/// All of a regular file, as it is at one time if nobody writes to it meanwhile. Anything else is
/// refused: a pipe could be waited for without end. So is one of more than `most` bytes. Waits for
/// the disk. The error's detail is errno, if it has a reason beyond its text.
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::size_t most);

}  // namespace openmana::base
