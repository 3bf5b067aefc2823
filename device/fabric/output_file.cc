// SPDX-License-Identifier: Apache-2.0
#include "fabric/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace openmana::fabric {

base::Result<base::UniqueFd> open_output(const std::string& path, OutputMode mode,
                                         unsigned permissions) {
    const auto failed = [](int reason) {
        return base::fail(base::ErrorCode::kIo, "cannot write the file",
                          static_cast<unsigned>(reason));
    };
    // A pipe without a reader would be waited for; emptying the file waits for the lock.
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK |
                      (mode == OutputMode::kAppend ? O_APPEND : 0);
    base::UniqueFd fd(::open(path.c_str(), flags, permissions));
    struct stat status {};
    if (!fd && errno != ENXIO) return failed(errno);
    if (!fd || ::fstat(fd.get(), &status) != 0 || S_ISFIFO(status.st_mode))
        return base::fail(base::ErrorCode::kInvalidArgument, "a pipe or socket is no file");
    if (!S_ISREG(status.st_mode)) return fd;
    // File systems without locks are written to all the same.
    if (::flock(fd.get(), (mode == OutputMode::kAppend ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0 &&
        errno == EWOULDBLOCK)
        return base::fail(base::ErrorCode::kBusy, "another capture or flow log writes this file");
    if (mode == OutputMode::kReplace && ::ftruncate(fd.get(), 0) != 0) return failed(errno);
    return fd;
}

}  // namespace openmana::fabric
