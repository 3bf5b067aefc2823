// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <chrono>
#include <string>

#include "base/fd.h"

namespace openmana::test {

/// UBSan opens a pipe to see whether the memory of an object that it meets for the first time can
/// be read, and reports the object if it gets none.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kCanBeWithoutFds = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kCanBeWithoutFds = false;
#else
inline constexpr bool kCanBeWithoutFds = true;
#endif
#else
inline constexpr bool kCanBeWithoutFds = true;
#endif

/// While it lives the process gets no descriptor beyond those that it has.
class NoMoreFds {
public:
    NoMoreFds() {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const base::UniqueFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        rlimit now = before_;
        now.rlim_cur = static_cast<rlim_t>(next.get());
        ::setrlimit(RLIMIT_NOFILE, &now);
    }
    ~NoMoreFds() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    NoMoreFds(const NoMoreFds&) = delete;
    NoMoreFds& operator=(const NoMoreFds&) = delete;

private:
    rlimit before_{};
};

/// Connects a Unix socket that is there already.
inline bool connect_to(const base::UniqueFd& socket, const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
           0;
}

/// What all threads of the process have used so far.
inline std::chrono::nanoseconds cpu_time() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace openmana::test
