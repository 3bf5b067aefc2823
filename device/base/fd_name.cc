// SPDX-License-Identifier: Apache-2.0
#include "base/fd_name.h"

#include <unistd.h>

#include <array>
#include <cstdio>

namespace openmana::base {

bool fd_is(int fd, std::string_view name) {
    std::array<char, 32> path;
    std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
    std::array<char, 64> target;
    const ssize_t length = ::readlink(path.data(), target.data(), target.size());
    return length > 0 && std::string_view(target.data(), static_cast<std::size_t>(length)) == name;
}

}  // namespace openmana::base
