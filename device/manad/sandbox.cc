// SPDX-License-Identifier: Apache-2.0
#include "manad/sandbox.h"

#include <asm/termbits.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>
#include <memory>
#include <type_traits>

#include "base/log.h"
#include "manad/account.h"

namespace openmana::manad {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(OPENMANA_COVERAGE)
constexpr bool kInstrumented = true;
#elif defined(__has_feature)
constexpr bool kInstrumented = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kInstrumented = false;
#endif

/// Whatever their arguments. Those of the data path are here: the kernel then needs no look at
/// them.
constexpr int kCalls[] = {
    // Threads and their locks; the C library's memory.
    SCMP_SYS(futex),
    SCMP_SYS(sched_yield),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(gettid),
    SCMP_SYS(getpid),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(getrandom),
    SCMP_SYS(sysinfo),
    // The handler of SIGBUS (base/bus_guard.h), and how a process ends.
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(setitimer),
    // Time, where the kernel gives it by no faster way.
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    // Event loops, interrupts, and which CPU a thread is on.
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_pwait2),
    SCMP_SYS(poll),
    SCMP_SYS(io_submit),
    SCMP_SYS(io_destroy),
    SCMP_SYS(getcpu),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(sched_getattr),
    // Clients, control connections and uplinks.
    SCMP_SYS(accept4),
    SCMP_SYS(connect),
    SCMP_SYS(getsockopt),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(recvmmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(sendmsg),
    SCMP_SYS(sendmmsg),
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(writev),
    SCMP_SYS(close),
    // Figures by HTTP.
    SCMP_SYS(epoll_wait),
    SCMP_SYS(shutdown),
    // NICs that come: their threads and sockets.
    SCMP_SYS(epoll_create1),
    SCMP_SYS(eventfd2),
    SCMP_SYS(bind),
    SCMP_SYS(listen),
    SCMP_SYS(umask),
    SCMP_SYS(fchmod),
    SCMP_SYS(fchownat),
    SCMP_SYS(geteuid),
    // Files: guest memory, captures, flow logs, /proc, the time zone.
    SCMP_SYS(openat),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(fstatfs),
    SCMP_SYS(lseek),
    SCMP_SYS(flock),
    SCMP_SYS(ftruncate),
    SCMP_SYS(unlink),
    SCMP_SYS(getdents64),
    SCMP_SYS(readlink),
};

struct CloseFilter {
    void operator()(void* filter) const { ::seccomp_release(filter); }
};
using Filter = std::unique_ptr<std::remove_pointer_t<scmp_filter_ctx>, CloseFilter>;

/// Adds rules, and remembers the first one that could not be.
class Rules {
public:
    explicit Rules(scmp_filter_ctx filter) : filter_(filter) {}
    void allow(int call, std::initializer_list<scmp_arg_cmp> arguments = {}) {
        add(SCMP_ACT_ALLOW, call, arguments);
    }
    void add(std::uint32_t action, int call, std::initializer_list<scmp_arg_cmp> arguments = {}) {
        const auto count = static_cast<unsigned>(arguments.size());
        const int status =
            ::seccomp_rule_add_array(filter_, action, call, count, arguments.begin());
        if (status_ == 0) status_ = status;
    }
    void set(scmp_filter_attr attribute, std::uint32_t value) {
        const int status = ::seccomp_attr_set(filter_, attribute, value);
        if (status_ == 0) status_ = status;
    }
    [[nodiscard]] int status() const { return status_; }

private:
    scmp_filter_ctx filter_;
    int status_ = 0;
};

scmp_arg_cmp equals(unsigned argument, std::uint64_t value) {
    return {argument, SCMP_CMP_EQ, value, 0};
}

/// The bits of `mask` are those of `value`.
scmp_arg_cmp bits(unsigned argument, std::uint64_t mask, std::uint64_t value) {
    return {argument, SCMP_CMP_MASKED_EQ, mask, value};
}

void allow_some_arguments(Rules& rules) {
    rules.allow(SCMP_SYS(mmap), {bits(2, PROT_EXEC, 0)});
    rules.allow(SCMP_SYS(mprotect), {bits(2, PROT_EXEC, 0)});
    // Threads, and no processes. The flags of clone3 lie in memory, where no filter sees them: the
    // C library goes back to clone.
    constexpr std::uint64_t kThread = CLONE_THREAD | CLONE_VM;
    constexpr std::uint64_t kElse = CLONE_VFORK | CLONE_NEWCGROUP | CLONE_NEWIPC | CLONE_NEWNET |
                                    CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUSER | CLONE_NEWUTS;
    rules.allow(SCMP_SYS(clone), {bits(0, kThread | kElse, kThread)});
    rules.add(SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3));
    rules.allow(SCMP_SYS(prctl), {equals(0, PR_SET_NAME)});
    rules.allow(SCMP_SYS(prctl), {equals(0, PR_SET_TIMERSLACK)});
    rules.allow(SCMP_SYS(sched_setattr), {equals(0, 0)});
    rules.allow(SCMP_SYS(sched_setaffinity), {equals(0, 0)});
    rules.allow(SCMP_SYS(tgkill), {equals(0, static_cast<std::uint64_t>(::getpid()))});
    rules.allow(SCMP_SYS(prlimit64), {equals(0, 0), equals(2, 0)});
    // A stream uplink goes to its other end again and again, and NICs that come have one.
    constexpr std::uint64_t kFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;
    rules.allow(SCMP_SYS(socket), {equals(0, AF_UNIX), bits(1, ~kFlags, SOCK_STREAM)});
    rules.allow(SCMP_SYS(setsockopt), {equals(1, IPPROTO_TCP)});  // by the HTTP library
    // A socket that hears too much of what the network says of its datagrams.
    rules.allow(SCMP_SYS(setsockopt), {equals(1, IPPROTO_IP), equals(2, IP_RECVERR)});
    rules.allow(SCMP_SYS(setsockopt), {equals(1, IPPROTO_IPV6), equals(2, IPV6_RECVERR)});
    for (const int command :
         {F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GET_SEALS, F_ADD_SEALS, F_DUPFD_CLOEXEC})
        rules.allow(SCMP_SYS(fcntl), {equals(1, static_cast<std::uint64_t>(command))});
    // The C library asks of stdout and stderr whether they are terminals.
    for (const unsigned long command : {static_cast<unsigned long>(TCGETS), TCGETS2})
        rules.allow(SCMP_SYS(ioctl), {equals(1, command)});
}

}  // namespace

bool can_be_sandboxed() {
    return !kInstrumented;
}

base::Result<void> enter_sandbox(Seccomp action) {
    if (action == Seccomp::kOff || kInstrumented) {
        OM_INFO("sandbox off: reason=\"{}\"",
                action == Seccomp::kOff ? "--seccomp off" : "an instrumented build");
        return {};
    }
    const std::uint32_t otherwise = action == Seccomp::kLog ? SCMP_ACT_LOG : SCMP_ACT_KILL_PROCESS;
    const Filter filter(::seccomp_init(otherwise));
    if (!filter) return base::fail(base::ErrorCode::kIo, "no filter of system calls");
    Rules rules(filter.get());
    rules.set(SCMP_FLTATR_ACT_BADARCH, otherwise);
    rules.set(SCMP_FLTATR_CTL_NNP, 0);  // set already
    rules.set(SCMP_FLTATR_CTL_TSYNC, 1);
    rules.set(SCMP_FLTATR_CTL_OPTIMIZE, 2);
    rules.set(SCMP_FLTATR_API_SYSRAWRC, 1);
    for (const int call : kCalls) rules.allow(call);
    allow_some_arguments(rules);
    int status = rules.status();
    if (status == 0) status = ::seccomp_load(filter.get());
    if (status != 0)
        return base::fail(base::ErrorCode::kIo, "cannot filter system calls",
                          static_cast<unsigned>(-status));
    know_no_more_accounts();
    OM_INFO("sandbox: action={}", action == Seccomp::kLog ? "log" : "kill");
    return {};
}

}  // namespace openmana::manad
