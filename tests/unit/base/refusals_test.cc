// SPDX-License-Identifier: Apache-2.0
// What becomes of it when the system refuses: each call fails in turn, the error says so, and
// nothing is left behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/acceptor.h"
#include "base/bus_guard.h"
#include "base/cpu_follower.h"
#include "base/event_loop.h"
#include "base/event_signal.h"
#include "base/file_mapping.h"
#include "base/lent_files.h"
#include "base/log.h"
#include "base/memory_loss.h"
#include "base/random_seed.h"
#include "base/short_slice.h"
#include "base/unix_socket.h"
#include "support/faulty_calls.h"
#include "support/temp_dir.h"

namespace openmana::base {
namespace {

using ::openmana::test::FaultyCalls;

/// The errno that an error has, or -1 if there was none.
template <typename T>
int reason(const Result<T>& result) {
    if (result) return -1;
    EXPECT_EQ(result.error().code, ErrorCode::kIo) << result.error().text;
    EXPECT_STRNE(result.error().text, "");
    return static_cast<int>(result.error().detail);
}

std::size_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

class RefusalsTest : public ::testing::Test {
protected:
    void SetUp() override {
        path = folder + "/s";
        before_ = open_descriptors();
    }
    void TearDown() override { EXPECT_EQ(open_descriptors(), before_); }
    const openmana::test::TempDir made{"refusals"};
    const std::string& folder = made.path();
    std::string path;

private:
    std::size_t before_ = 0;
};

TEST_F(RefusalsTest, ALoopNeedsEachOfItsDescriptors) {
    for (const char* call : {"epoll_create1", "eventfd", "epoll_ctl"}) {
        const FaultyCalls faults(call, ENOMEM);
        EXPECT_EQ(reason(EventLoop::create()), ENOMEM) << call;
        EXPECT_EQ(faults.failed(), 1U) << call;
    }
}

TEST_F(RefusalsTest, ALoopSaysThatItCannotWatch) {
    const auto loop = EventLoop::create().value();
    const UniqueFd fd(::eventfd(0, EFD_CLOEXEC));
    FaultyCalls faults("epoll_ctl", ENOSPC);
    EXPECT_EQ(reason(loop->add(fd.get(), 0, [](std::uint32_t) {})), ENOSPC);
    ASSERT_TRUE(loop->add(fd.get(), 0, [](std::uint32_t) {}));
    faults.fail("epoll_ctl", ENOMEM);
    EXPECT_EQ(reason(loop->modify(fd.get(), 0)), ENOMEM);
    loop->remove(fd.get());
}

TEST_F(RefusalsTest, AListenerThatCannotBeLeavesNoSocket) {
    for (const char* call : {"socket", "fchmod", "bind", "listen"}) {
        const FaultyCalls faults(call, EPERM);
        EXPECT_EQ(reason(UnixListener::create({path, {}})), EPERM) << call;
        EXPECT_FALSE(std::filesystem::exists(path)) << call;
    }
    SocketAccess access;
    access.owner = ::geteuid();
    for (const char* call : {"open", "fstat", "fchownat"}) {
        const FaultyCalls faults(call, EIO);
        EXPECT_EQ(reason(UnixListener::create({path, access})), EIO) << call;
        EXPECT_FALSE(std::filesystem::exists(path)) << call;
    }
    EXPECT_TRUE(UnixListener::create({path, access}));
}

TEST_F(RefusalsTest, ASocketThatWasLeftBehindStaysIfItCannotBeAsked) {
    {
        // A dead one: its path outlives it.
        auto listener = UnixListener::create({path, {}});
        ASSERT_TRUE(listener);
        std::filesystem::rename(path, path + "2");
    }
    std::filesystem::rename(path + "2", path);
    for (const auto& [call, error] :
         {std::pair{"socket", EMFILE}, {"connect", ENOMEM}, {"unlink", EROFS}}) {
        const FaultyCalls faults(call, error);
        EXPECT_EQ(reason(UnixListener::create({path, {}})), error) << call;
        EXPECT_TRUE(std::filesystem::exists(path)) << call;
    }
    EXPECT_TRUE(UnixListener::create({path, {}}));
}

TEST_F(RefusalsTest, AClientSaysWhyItCannotConnect) {
    const auto listener = UnixListener::create({path, {}});
    ASSERT_TRUE(listener);
    for (const char* call : {"socket", "connect"}) {
        const FaultyCalls faults(call, ENOBUFS);
        EXPECT_EQ(reason(connect_unix(path)), ENOBUFS) << call;
    }
    const auto client = connect_unix(path);
    ASSERT_TRUE(client);
    const UniqueFd other = listener->accept();
    EXPECT_EQ(peer_process(other.get()), ::getpid());
    const FaultyCalls faults("getsockopt", ENOPROTOOPT);
    EXPECT_EQ(peer_process(other.get()), std::nullopt);
}

TEST_F(RefusalsTest, AnAcceptorThatCannotWatchIsNone) {
    const auto loop = EventLoop::create().value();
    const FaultyCalls faults("epoll_ctl", ENOSPC);
    EXPECT_EQ(reason(Acceptor::create(*loop, path, "test:")), ENOSPC);
    EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(RefusalsTest, AnAcceptorOutlivesWhatPassesAndWhatDoesNot) {
    const auto loop = EventLoop::create().value();
    const auto acceptor = Acceptor::create(*loop, path, "test:").value();
    std::vector<UniqueFd> clients;
    acceptor->start([&](UniqueFd client) {
        clients.push_back(std::move(client));
        loop->stop();
    });
    const UniqueFd client = connect_unix(path).value();
    FaultyCalls faults("accept4", ECONNABORTED);
    faults.fail("accept4", EINTR);
    faults.fail("accept4", ENFILE);
    set_log_level(LogLevel::kOff);
    loop->run();
    set_log_level(LogLevel::kInfo);
    EXPECT_EQ(faults.failed(), 3U);
    EXPECT_EQ(clients.size(), 1U);
}

TEST_F(RefusalsTest, WithoutRequestsSignalsAreWrites) {
    const UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    for (const auto& [call, number] : {std::pair{"open", -1}, {"syscall", int{SYS_io_setup}}}) {
        FaultyCalls faults;
        faults.fail(call, ENOSYS, {.fd = number});
        EventSignal signal;
        EXPECT_EQ(reason(signal.ready()), ENOSYS) << call;
        faults.fail("write", EINTR, {.fd = fd.get()});
        EXPECT_TRUE(signal.raise(fd.get()));
        faults.fail("write", EAGAIN, {.fd = fd.get()});
        EXPECT_TRUE(signal.raise(fd.get())) << "a full counter has a signal";
        faults.fail("write", EBADF, {.fd = fd.get()});
        EXPECT_FALSE(signal.raise(fd.get()));
        std::uint64_t count = 0;
        EXPECT_EQ(::read(fd.get(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
        EXPECT_EQ(count, 1U);
    }
}

TEST_F(RefusalsTest, ASignalIsTriedAgainWhileOthersFillTheRing) {
    EventSignal signal;
    if (!signal.ready()) GTEST_SKIP() << signal.ready().error().text;
    const UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    {
        FaultyCalls faults("syscall", EAGAIN, {.times = 3, .fd = SYS_io_submit});
        EXPECT_TRUE(signal.raise(fd.get()));
        EXPECT_EQ(faults.failed(), 3U);
    }
    FaultyCalls faults("syscall", EAGAIN, {.times = 100, .fd = SYS_io_submit});
    EXPECT_FALSE(signal.raise(fd.get()));
    EXPECT_LT(faults.failed(), 100U) << "not for ever";
}

TEST_F(RefusalsTest, MemoryThatCannotBeExaminedOrMappedIsNotLent) {
    const UniqueFd fd(::memfd_create("guest", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(fd.get(), 4096), 0);
    const FileMapping::Part part{0, 4096, true, true};
    for (const char* call : {"fstatfs", "fstat", "mmap"}) {
        const FaultyCalls faults(call, ENOMEM);
        EXPECT_EQ(reason(FileMapping::create(fd, part, nullptr)), ENOMEM) << call;
        EXPECT_EQ(faults.failed(), 1U) << call;
    }
    EXPECT_TRUE(FileMapping::create(fd, part, nullptr));
}

TEST_F(RefusalsTest, MemoryWhoseFileCannotBeKeptIsNotLent) {
    const UniqueFd fd(::memfd_create("guest", MFD_CLOEXEC));
    LentFiles files;
    for (const unsigned after : {0U, 1U}) {
        const FaultyCalls faults("fcntl", EMFILE, {.after = after});
        EXPECT_EQ(reason(files.find(fd)), EMFILE) << after;
        EXPECT_EQ(faults.failed(), 1U) << after;
    }
    {
        const FaultyCalls faults("fstat", EIO);
        EXPECT_EQ(reason(files.find(fd)), EIO);
    }
    EXPECT_TRUE(files.find(fd));
}

TEST_F(RefusalsTest, LossesCannotBeToldWithoutADescriptor) {
    const FaultyCalls faults("eventfd", EMFILE);
    EXPECT_EQ(reason(MemoryLoss::create()), EMFILE);
}

TEST_F(RefusalsTest, TheGuardSaysThatItIsNotThere) {
    const FaultyCalls faults("sigaction", EINVAL);
    EXPECT_EQ(reason(BusGuard::install()), EINVAL);
}

TEST_F(RefusalsTest, ThereIsNoSeedButARandomOne) {
    FaultyCalls faults("getrandom", ENOSYS);
    EXPECT_EQ(reason(random_seed()), ENOSYS);
    faults.give("getrandom", 3);
    EXPECT_FALSE(random_seed()) << "a part of one is none";
    EXPECT_TRUE(random_seed());
}

TEST_F(RefusalsTest, ASchedulerThatDoesNotTellOrTakeASliceIsAnError) {
    for (const int number : {int{SYS_sched_getattr}, int{SYS_sched_setattr}}) {
        const FaultyCalls faults("syscall", EPERM, {.fd = number});
        EXPECT_EQ(reason(ask_for_slice(kShortSlice)), EPERM) << number;
    }
    const FaultyCalls faults("syscall", ENOSYS, {.fd = SYS_sched_getattr});
    EXPECT_EQ(reason(asked_slice()), ENOSYS);
}

TEST(LogLevels, HaveNames) {
    EXPECT_EQ(log_level_of("trace"), LogLevel::kTrace);
    EXPECT_EQ(log_level_of("off"), LogLevel::kOff);
    EXPECT_EQ(log_level_of("loud"), std::nullopt);
}

TEST(LogLevels, EachCanBeSet) {
    const LogLevel before = detail::log_threshold.load();
    for (const LogLevel level : {LogLevel::kTrace, LogLevel::kDebug, LogLevel::kInfo,
                                 LogLevel::kWarn, LogLevel::kError, LogLevel::kOff}) {
        set_log_level(level);
        EXPECT_EQ(detail::log_threshold.load(), level);
    }
    set_log_level(before);
}

}  // namespace
}  // namespace openmana::base
