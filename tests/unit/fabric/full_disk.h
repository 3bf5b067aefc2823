// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "base/fd.h"

namespace openmana::fabric::test {

/// Whoever has this file open finds its disk full from now on. False if nobody has.
inline bool fill_disk_of(const std::string& path) {
    const base::UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    bool found = false;
    for (int fd = 3; full && fd < 1024; ++fd) {
        std::error_code error;
        if (std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), error) == path)
            found |= ::dup2(full.get(), fd) == fd;
    }
    return found;
}

}  // namespace openmana::fabric::test
