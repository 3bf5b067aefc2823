// SPDX-License-Identifier: Apache-2.0
#include "manad/signals.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "fabric/capture.h"
#include "fabric/flow_file.h"
#include "support/in_child.h"

namespace openmana::manad {
namespace {

constexpr rlim_t kLimit = 65536;

/// No file of this process may grow beyond kLimit.
class SmallFilesTest : public ::testing::Test {
protected:
    void SetUp() override {
        ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, nullptr, &mask_), 0);
        signals = prepare_signals();
        ASSERT_TRUE(signals.has_value());
        std::string pattern = (std::filesystem::temp_directory_path() / "small-XXXXXX").string();
        directory = ::mkdtemp(pattern.data());
        ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
        const rlimit small{kLimit, before_.rlim_max};
        ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    }
    void TearDown() override {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
        std::filesystem::remove_all(directory);
    }
    base::Result<base::UniqueFd> signals;
    std::filesystem::path directory;
    base::SystemClock clock;

private:
    rlimit before_{};
    sigset_t mask_{};
};

TEST_F(SmallFilesTest, ACaptureThatReachesTheLimitEnds) {
    const auto capture = fabric::Capture::create(directory / "a.pcap", clock, base::WallTime());
    ASSERT_TRUE(capture.has_value());
    const std::array<std::byte, 9000> frame{};
    for (int i = 0; i < 8; ++i) (*capture)->frame(frame);
    (*capture)->flush();
    EXPECT_EQ((*capture)->error(), EFBIG);
    (*capture)->frame(frame);
    EXPECT_EQ((*capture)->counters().lost.value(), 1U);
    EXPECT_LE(std::filesystem::file_size(directory / "a.pcap"), kLimit);
}

TEST_F(SmallFilesTest, AFlowLogThatReachesTheLimitEnds) {
    const auto log = fabric::FlowFile::create(directory / "flows");
    ASSERT_TRUE(log.has_value());
    const std::string line(9000, 'x');
    for (int i = 0; i < 9; ++i) (*log)->line(line);
    EXPECT_EQ((*log)->error(), EFBIG);
    EXPECT_EQ((*log)->lost(), 2U);
    EXPECT_EQ(std::filesystem::file_size(directory / "flows"), kLimit);
}

/// What a signalfd would give.
void write_signal(const base::UniqueFd& fd, int number) {
    signalfd_siginfo signal{};
    signal.ssi_signo = static_cast<std::uint32_t>(number);
    ASSERT_EQ(::write(fd.get(), &signal, sizeof signal), static_cast<ssize_t>(sizeof signal));
}

/// The ends of a pipe: the one to read from, and the other.
std::pair<base::UniqueFd, base::UniqueFd> make_pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
    return {base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
}

/// A pipe stands for the signals; what happens is written down.
class SignalThreadTest : public ::testing::Test {
protected:
    void start(base::Duration to_end) {
        auto [fd, other] = make_pipe();
        signals = std::move(other);
        auto created = SignalThread::create(
            std::move(fd), {.to_end = to_end, .last_resort = std::chrono::hours(24)},
            {.end = [this] { ended.set_value(); },
             .reload = [this] { reloads.release(); },
             .give_up = [this] { gave_up.set_value(); }});
        ASSERT_TRUE(created);
        thread = std::move(*created);
    }
    void signal(int number = SIGTERM) const { write_signal(signals, number); }
    static bool happened(std::promise<void>& what) {
        return what.get_future().wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }
    base::UniqueFd signals;
    std::counting_semaphore<> reloads{0};
    std::promise<void> ended;
    std::promise<void> gave_up;
    std::unique_ptr<SignalThread> thread;
};

TEST_F(SignalThreadTest, AProgramThatEndsInTimeIsLeftAlone) {
    start(std::chrono::hours(1));
    signal();
    ended.get_future().wait();
    thread.reset();
    EXPECT_FALSE(happened(gave_up));
}

TEST_F(SignalThreadTest, AProgramThatDoesNotEndIsGivenUp) {
    start(std::chrono::milliseconds(1));
    signal();
    gave_up.get_future().wait();
    EXPECT_TRUE(happened(ended));
}

TEST_F(SignalThreadTest, HangupsAreForAReloadEachAndEndNothing) {
    start(std::chrono::hours(1));
    for (int i = 0; i < 3; ++i) {
        signal(SIGHUP);
        reloads.acquire();
    }
    EXPECT_FALSE(happened(ended));
    signal(SIGINT);
    thread.reset();
    EXPECT_FALSE(happened(gave_up));
}

TEST_F(SignalThreadTest, WithoutASignalNothingHappens) {
    start(std::chrono::milliseconds(0));
    thread.reset();
    EXPECT_FALSE(happened(ended));
    EXPECT_FALSE(happened(gave_up));
}

/// A shell or a service manager may have started it with SIGALRM ignored and blocked.
TEST(LastResortTest, EndsAProgramThatHangsInItsEnd) {
    const int status = test::in_child([] {
        std::signal(SIGALRM, SIG_IGN);
        sigset_t alarm;
        sigemptyset(&alarm);
        sigaddset(&alarm, SIGALRM);
        ASSERT_EQ(::sigprocmask(SIG_BLOCK, &alarm, nullptr), 0);
        ASSERT_TRUE(prepare_signals());
        auto [signals, other] = make_pipe();
        write_signal(other, SIGTERM);
        // Without the signal the test is not to hang itself.
        const auto hang = [] { std::this_thread::sleep_for(std::chrono::seconds(30)); };
        const auto thread = SignalThread::create(
            std::move(signals),
            {.to_end = std::chrono::hours(1), .last_resort = std::chrono::milliseconds(1)},
            {.end = hang, .reload = [] {}, .give_up = [] {}});
        ASSERT_TRUE(thread);
        hang();
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) << status;
}

}  // namespace
}  // namespace openmana::manad
