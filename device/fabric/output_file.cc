// SPDX-License-Identifier: Apache-2.0
#include "fabric/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace openmana::fabric {

namespace {

base::Result<void> check_type(mode_t mode) {
    const auto refused = [](const char* why) {
        return base::fail(base::ErrorCode::kInvalidArgument, why);
    };
    if (S_ISREG(mode)) return {};
    if (S_ISLNK(mode)) return refused("a symbolic link is not followed");
    if (S_ISFIFO(mode) || S_ISSOCK(mode)) return refused("a pipe or socket is no file");
    return refused("this is no regular file");
}

}  // namespace

base::Result<base::UniqueFd> open_output(const std::string& path, OutputMode mode) {
    const auto failed = [](int reason) {
        return base::fail(base::ErrorCode::kIo, "cannot write the file",
                          static_cast<unsigned>(reason));
    };
    // To open a device may already have it do something. What replaces the file after this look is
    // found by the second.
    struct stat status {};
    if (::lstat(path.c_str(), &status) == 0) TRY_VOID(check_type(status.st_mode));
    // A pipe without a reader would be waited for; emptying the file waits for the lock.
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW |
                      (mode == OutputMode::kAppend ? O_APPEND : 0);
    base::UniqueFd fd(::open(path.c_str(), flags, 0600));
    if (!fd || ::fstat(fd.get(), &status) != 0) return failed(errno);
    TRY_VOID(check_type(status.st_mode));
    // File systems without locks are written to all the same.
    if (::flock(fd.get(), (mode == OutputMode::kAppend ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0 &&
        errno == EWOULDBLOCK)
        return base::fail(base::ErrorCode::kBusy, "another capture or flow log writes this file");
    if (mode == OutputMode::kReplace && ::ftruncate(fd.get(), 0) != 0) return failed(errno);
    return fd;
}

}  // namespace openmana::fabric
