// SPDX-License-Identifier: Apache-2.0
#include "support/faulty_calls.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>

#include "base/result.h"

namespace openmana::test {
namespace {

/// Also in tests/CMakeLists.txt, for the linker.
constexpr std::array<std::string_view, 32> kCalls{
    "accept4",  "bind",    "connect", "epoll_create1", "epoll_ctl", "eventfd",    "fchmod",
    "fchownat", "fcntl",   "fstat",   "fstatfs",       "ftruncate", "getrandom",  "getsockopt",
    "ioctl",    "listen",  "mmap",    "open",          "openat",    "read",       "recv",
    "recvmmsg", "recvmsg", "send",    "sendmmsg",      "sendmsg",   "setsockopt", "sigaction",
    "socket",   "syscall", "unlink",  "write"};

/// Calls come from threads that were there before the test, too; only the owner's thread looks
/// further than at the pointer.
std::atomic<FaultyCalls*> current{nullptr};

bool has_mode(int flags) {
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

}  // namespace

FaultyCalls::FaultyCalls() {
    FaultyCalls* none = nullptr;
    OM_CHECK(current.compare_exchange_strong(none, this));
}

FaultyCalls::FaultyCalls(std::string_view call, int error, When when) : FaultyCalls() {
    fail(call, error, when);
}

FaultyCalls::~FaultyCalls() {
    current.store(nullptr);
}

void FaultyCalls::add(std::string_view call, long result, int error, const When& when) {
    OM_CHECK(std::ranges::find(kCalls, call) != kCalls.end());
    rules_.push_back({std::string(call), result, error, when});
}

void FaultyCalls::fail(std::string_view call, int error, When when) {
    add(call, -1, error, when);
}

void FaultyCalls::give(std::string_view call, long result, When when) {
    add(call, result, 0, when);
}

std::optional<long> FaultyCalls::next(std::string_view call, int fd) {
    for (Rule& rule : rules_) {
        if (rule.call != call || rule.when.times == 0 || (rule.when.fd != -1 && rule.when.fd != fd))
            continue;
        if (rule.when.after != 0) {
            --rule.when.after;
            return std::nullopt;
        }
        --rule.when.times;
        ++failed_;
        if (rule.error != 0) errno = rule.error;
        return rule.result;
    }
    return std::nullopt;
}

std::optional<long> FaultyCalls::decide(std::string_view call, int fd) {
    FaultyCalls* const faults = current.load(std::memory_order_acquire);
    if (faults == nullptr || faults->thread_ != std::this_thread::get_id()) return std::nullopt;
    return faults->next(call, fd);
}

}  // namespace openmana::test

// With `--wrap=read` the linker makes __wrap_read of a call to read, and read of __real_read.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

#define WRAP(type, name, fd, parameters, arguments)                              \
    type __real_##name parameters;                                               \
    type __wrap_##name parameters;                                               \
    type __wrap_##name parameters {                                              \
        if (const auto instead = openmana::test::FaultyCalls::decide(#name, fd)) \
            return (type)*instead;                                               \
        return __real_##name arguments;                                          \
    }

WRAP(int, accept4, fd, (int fd, sockaddr* address, socklen_t* length, int flags),
     (fd, address, length, flags))
WRAP(int, bind, fd, (int fd, const sockaddr* address, socklen_t length), (fd, address, length))
WRAP(int, connect, fd, (int fd, const sockaddr* address, socklen_t length), (fd, address, length))
WRAP(int, epoll_create1, -1, (int flags), (flags))
WRAP(int, epoll_ctl, epoll, (int epoll, int operation, int fd, epoll_event* event),
     (epoll, operation, fd, event))
WRAP(int, eventfd, -1, (unsigned value, int flags), (value, flags))
WRAP(int, fchmod, fd, (int fd, mode_t mode), (fd, mode))
WRAP(int, fchownat, fd, (int fd, const char* path, uid_t owner, gid_t group, int flags),
     (fd, path, owner, group, flags))
WRAP(int, fstat, fd, (int fd, struct stat* status), (fd, status))
WRAP(int, fstatfs, fd, (int fd, struct statfs* status), (fd, status))
WRAP(int, ftruncate, fd, (int fd, off_t size), (fd, size))
WRAP(ssize_t, getrandom, -1, (void* buffer, size_t size, unsigned flags), (buffer, size, flags))
WRAP(int, getsockopt, fd, (int fd, int level, int name, void* value, socklen_t* length),
     (fd, level, name, value, length))
WRAP(int, listen, fd, (int fd, int queue), (fd, queue))
WRAP(void*, mmap, fd, (void* address, size_t size, int rights, int flags, int fd, off_t offset),
     (address, size, rights, flags, fd, offset))
WRAP(ssize_t, read, fd, (int fd, void* buffer, size_t size), (fd, buffer, size))
WRAP(ssize_t, recv, fd, (int fd, void* buffer, size_t size, int flags), (fd, buffer, size, flags))
WRAP(ssize_t, recvmsg, fd, (int fd, msghdr* message, int flags), (fd, message, flags))
WRAP(int, recvmmsg, fd, (int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout),
     (fd, messages, count, flags, timeout))
WRAP(ssize_t, send, fd, (int fd, const void* buffer, size_t size, int flags),
     (fd, buffer, size, flags))
WRAP(ssize_t, sendmsg, fd, (int fd, const msghdr* message, int flags), (fd, message, flags))
WRAP(int, sendmmsg, fd, (int fd, mmsghdr* messages, unsigned count, int flags),
     (fd, messages, count, flags))
WRAP(int, setsockopt, fd, (int fd, int level, int name, const void* value, socklen_t length),
     (fd, level, name, value, length))
WRAP(int, sigaction, -1, (int number, const struct sigaction* action, struct sigaction* before),
     (number, action, before))
WRAP(int, socket, -1, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(int, unlink, -1, (const char* path), (path))
WRAP(ssize_t, write, fd, (int fd, const void* buffer, size_t size), (fd, buffer, size))

// Those with arguments that may be there: each call has at most so many, and a register that is
// not set is not read.
int __real_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...) {
    if (const auto instead = openmana::test::FaultyCalls::decide("open", -1))
        return static_cast<int>(*instead);
    va_list list;
    va_start(list, flags);
    const mode_t mode = openmana::test::has_mode(flags) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return __real_open(path, flags, mode);
}

int __real_openat(int folder, const char* path, int flags, ...);
int __wrap_openat(int folder, const char* path, int flags, ...);
int __wrap_openat(int folder, const char* path, int flags, ...) {
    if (const auto instead = openmana::test::FaultyCalls::decide("openat", folder))
        return static_cast<int>(*instead);
    va_list list;
    va_start(list, flags);
    const mode_t mode = openmana::test::has_mode(flags) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return __real_openat(folder, path, flags, mode);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...) {
    if (const auto instead = openmana::test::FaultyCalls::decide("fcntl", fd))
        return static_cast<int>(*instead);
    va_list list;
    va_start(list, command);
    void* const argument = va_arg(list, void*);
    va_end(list);
    return __real_fcntl(fd, command, argument);
}

int __real_ioctl(int fd, unsigned long command, ...);
int __wrap_ioctl(int fd, unsigned long command, ...);
int __wrap_ioctl(int fd, unsigned long command, ...) {
    if (const auto instead = openmana::test::FaultyCalls::decide("ioctl", fd))
        return static_cast<int>(*instead);
    va_list list;
    va_start(list, command);
    void* const argument = va_arg(list, void*);
    va_end(list);
    return __real_ioctl(fd, command, argument);
}

/// `fd` of a rule is the number of the call.
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
    if (const auto instead =
            openmana::test::FaultyCalls::decide("syscall", static_cast<int>(number)))
        return *instead;
    std::array<long, 5> arguments{};  // as many as come in registers
    va_list list;
    va_start(list, number);
    for (long& argument : arguments) argument = va_arg(list, long);
    va_end(list);
    return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
                          arguments[4]);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
