// SPDX-License-Identifier: Apache-2.0
#include "manad/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/guest_memory.h"
#include "base/state.h"
#include "support/in_child.h"

namespace openmana::manad {
namespace {

using test::in_child;

/// What a process does that is in the sandbox.
class SandboxTest : public testing::Test {
protected:
    void SetUp() override {
        if (!can_be_sandboxed()) GTEST_SKIP() << "an instrumented build, which needs more calls";
    }
    static int inside(const std::function<void()>& work, Seccomp action = Seccomp::kKill) {
        return in_child([&] {
            ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            const auto entered = enter_sandbox(action);
            ASSERT_TRUE(entered) << entered.error().text << " " << entered.error().detail;
            work();
        });
    }
    static bool killed(const std::function<void()>& work) {
        const int status = inside(work);
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
    }
};

TEST_F(SandboxTest, ThreadsMemoryAndFilesAreThere) {
    const int status = inside([] {
        std::string text;
        std::thread([&] { text = std::string(1U << 20, 'x'); }).join();
        EXPECT_EQ(text.size(), 1U << 20);
        const base::UniqueFd fd(::open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
        EXPECT_TRUE(fd);
        EXPECT_TRUE(base::UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)));
        void* const page =
            ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(page, MAP_FAILED);
    });
    EXPECT_EQ(status, 0);
}

TEST_F(SandboxTest, GuestMemoryIsTakenAndKept) {
    const base::UniqueFd file(::memfd_create("guest", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(file.get(), 8192), 0);
    const int status = inside([&] {
        base::GuestMemory memory;
        for (const std::uint64_t at : {0, 4096})
            EXPECT_TRUE(memory.map_fd(base::GuestAddr(at), 4096, file, at, true, true));
        base::StateWriter state({});
        memory.save(state);
        EXPECT_EQ(state.descriptors().size(), 1U);
        const auto gone = memory.unmap_all();
    });
    EXPECT_EQ(status, 0);
}

TEST_F(SandboxTest, NoProgramIsStarted) {
    // Of no file: a program that starts would be ended by its own first calls.
    EXPECT_TRUE(killed([] { ::execl("/absent", "absent", nullptr); }));
    EXPECT_TRUE(killed([] { (void)::fork(); }));
    EXPECT_TRUE(killed([] { (void)::vfork(); }));
    // What fork() does, with the number that the C library tries first.
    EXPECT_TRUE(killed([] { ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr); }));
    EXPECT_TRUE(killed([] { ::unshare(CLONE_NEWUSER); }));
}

TEST_F(SandboxTest, NoCodeIsMade) {
    EXPECT_TRUE(killed(
        [] { ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }));
    static char page[8192];
    char* const aligned = page + (4096 - reinterpret_cast<std::uintptr_t>(page) % 4096);
    EXPECT_TRUE(killed([&] { ::mprotect(aligned, 4096, PROT_READ | PROT_WRITE | PROT_EXEC); }));
}

TEST_F(SandboxTest, NoOtherSocketsAreOpened) {
    for (const auto& [family, type] :
         {std::pair{AF_PACKET, SOCK_RAW}, std::pair{AF_INET, SOCK_STREAM},
          std::pair{AF_INET6, SOCK_DGRAM}, std::pair{AF_NETLINK, SOCK_RAW},
          std::pair{AF_UNIX, SOCK_DGRAM}})
        EXPECT_TRUE(killed([family = family, type = type] { ::socket(family, type, 0); }))
            << family << " " << type;
    const int on = 1;
    EXPECT_TRUE(killed([&] { ::setsockopt(0, SOL_SOCKET, SO_SNDBUFFORCE, &on, sizeof on); }));
}

TEST_F(SandboxTest, NoOtherProcessIsTouched) {
    EXPECT_TRUE(killed([] { ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr); }));
    EXPECT_TRUE(killed([] { ::kill(::getppid(), 0); }));
    EXPECT_TRUE(killed([] { ::syscall(SYS_tgkill, ::getppid(), ::getppid(), 0); }));
    EXPECT_TRUE(killed([] { ::syscall(SYS_process_vm_readv, 1, nullptr, 0, nullptr, 0, 0); }));
    EXPECT_TRUE(killed([] {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        ::sched_setaffinity(1, sizeof cpus, &cpus);
    }));
}

TEST_F(SandboxTest, RightsAndFilesStayAsTheyAre) {
    EXPECT_TRUE(killed([] { (void)::setuid(0); }));
    EXPECT_TRUE(killed([] { (void)::chmod("/none", 0777); }));
    EXPECT_TRUE(killed([] { (void)::chown("/none", 0, 0); }));
    EXPECT_TRUE(killed([] { (void)::symlink("/none", "/none"); }));
    EXPECT_TRUE(killed([] { (void)::rename("/none", "/none"); }));
    EXPECT_TRUE(killed([] { ::syscall(SYS_mount, nullptr, nullptr, nullptr, 0, nullptr); }));
    EXPECT_TRUE(killed([] { ::syscall(SYS_bpf, 0, nullptr, 0); }));
}

TEST_F(SandboxTest, AnAbortIsStillAnAbort) {
    const int status = inside([] { std::abort(); });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << status;
}

TEST_F(SandboxTest, ThreadsThatAreThereAreInItToo) {
    // Other signals are those of a test that has failed in there.
    const int status = in_child([] {
        std::atomic<bool> go{false};
        std::thread other([&] {
            while (!go) std::this_thread::yield();
            ::socket(AF_INET, SOCK_STREAM, 0);
        });
        ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        ASSERT_TRUE(enter_sandbox(Seccomp::kKill));
        go = true;
        other.join();
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << status;
}

TEST_F(SandboxTest, LogsOrLooksAwayIfToldTo) {
    for (const Seccomp action : {Seccomp::kLog, Seccomp::kOff})
        EXPECT_EQ(inside([] { ::kill(::getppid(), 0); }, action), 0);
}

TEST(SandboxInInstrumentedBuildsTest, IsOffByItself) {
    if (can_be_sandboxed()) GTEST_SKIP() << "no instrumented build";
    EXPECT_EQ(in_child([] {
                  EXPECT_TRUE(enter_sandbox(Seccomp::kKill));
                  ::kill(::getppid(), 0);
              }),
              0);
}

}  // namespace
}  // namespace openmana::manad
