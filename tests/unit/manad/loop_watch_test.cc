// SPDX-License-Identifier: Apache-2.0
#include "manad/loop_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "held_loop.h"
#include "manad/watchdog.h"

namespace openmana::manad {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A loop with its thread; the test is the watchdog, and has a time of its own.
class LoopWatchTest : public ::testing::Test {
protected:
    ~LoopWatchTest() override {
        loop->stop();
        thread.join();
    }
    /// Until the thread has done what it was given, and sleeps.
    void settle() const {
        while (!loop->pulse().idle) std::this_thread::yield();
    }
    /// The log of looks at these times.
    std::string looks(std::initializer_list<base::Duration> times) {
        testing::internal::CaptureStdout();
        for (const auto time : times) watch.look(base::TimePoint(time));
        return testing::internal::GetCapturedStdout();
    }

    std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
    LoopWatch watch{*loop, "nic=a"};
    std::thread thread{[this] { loop->run(); }};
};

TEST_F(LoopWatchTest, ALoopWithNothingToDoIsAlive) {
    settle();
    EXPECT_THAT(looks({1s, 2s, 100s}), IsEmpty());
    EXPECT_FALSE(watch.hangs());
    EXPECT_EQ(watch.silent_for(base::TimePoint(100s)), 0s);
}

TEST_F(LoopWatchTest, ALoopThatGoesRoundIsAlive) {
    HeldLoop first(*loop);
    EXPECT_THAT(looks({1s, 2s}), IsEmpty());
    first.release();
    const HeldLoop second(*loop);
    EXPECT_THAT(looks({7s, 8s}), IsEmpty());
    EXPECT_FALSE(watch.hangs());
}

TEST_F(LoopWatchTest, AThreadThatHangsIsToldOnceWithWhatItIsAt) {
    settle();
    EXPECT_THAT(looks({1s}), IsEmpty());
    const HeldLoop held(*loop);
    EXPECT_THAT(looks({2s, 3s, 6900ms}), IsEmpty());
    EXPECT_FALSE(watch.hangs());
    EXPECT_EQ(watch.silent_for(base::TimePoint(6900ms)), 4900ms);
    EXPECT_THAT(
        looks({7s, 8s}),
        HasSubstr("thread hang: nic=a seconds=5.0 doing=\"held 0x25, waits for the test\""));
    EXPECT_THAT(looks({9s}), IsEmpty());
    EXPECT_TRUE(watch.hangs());
    EXPECT_EQ(watch.silent_for(base::TimePoint(10s)), 8s);
    EXPECT_EQ(watch.counters().hangs.value(), 1U);
}

TEST_F(LoopWatchTest, ItsReturnIsTold) {
    HeldLoop held(*loop);
    looks({1s, 6s});
    ASSERT_TRUE(watch.hangs());
    held.release();
    settle();
    EXPECT_THAT(looks({9s}), HasSubstr("thread return: nic=a seconds=8.0"));
    EXPECT_FALSE(watch.hangs());
    EXPECT_EQ(watch.silent_for(base::TimePoint(9s)), 0s);
    EXPECT_EQ(watch.doing(), "sleep");
}

TEST_F(LoopWatchTest, AWatchdogLooksUntilItIsStopped) {
    const base::SystemClock clock;
    Watchdog watchdog(clock, 1ms);
    const HeldLoop held(*loop);
    const std::shared_ptr<LoopWatch> looked_at(std::shared_ptr<void>(), &watch);
    ASSERT_TRUE(watchdog.start([looked_at] { return std::vector{looked_at}; }));
    while (watch.silent_for(clock.now()) == 0s) std::this_thread::yield();
    watchdog.stop();
    EXPECT_GE(watch.silent_for(clock.now()), 1ms);
}

}  // namespace
}  // namespace openmana::manad
