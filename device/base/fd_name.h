// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace openmana::base {

/// Whether /proc calls the file of a descriptor so: a path, or as "anon_inode:[eventfd]". False,
/// too, if there is no such descriptor. `name`: below 64 bytes.
[[nodiscard]] bool fd_is(int fd, std::string_view name);

}  // namespace openmana::base
