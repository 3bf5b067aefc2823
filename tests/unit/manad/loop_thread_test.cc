// SPDX-License-Identifier: Apache-2.0
#include "manad/loop_thread.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "base/activity.h"
#include "base/clock.h"
#include "held_loop.h"
#include "support/in_child.h"

namespace openmana::manad {
namespace {

using base::ErrorCode;

class LoopThreadTest : public ::testing::Test {
protected:
    void SetUp() override { restart(std::chrono::hours(1)); }
    void restart(base::Duration patience) {
        auto created = LoopThread::create("nic=a", "nic-a", patience);
        ASSERT_TRUE(created);
        thread = std::move(*created);
        ASSERT_TRUE(thread->start());
    }
    /// An answer that nobody waits for.
    template <typename T>
    base::Result<T> now(Answer<T> answer) {
        return thread->get(std::move(answer), clock.now());
    }
    /// A turn of the loop after the present one: what was posted before has run.
    void turn() {
        std::promise<void> done;
        thread->loop().post([&] { done.set_value(); });
        done.get_future().wait();
    }
    std::uint64_t unanswered() { return thread->watch().counters().unanswered.value(); }

    base::SystemClock clock;
    std::unique_ptr<LoopThread> thread;
};

TEST_F(LoopThreadTest, ACallRunsOnTheThreadAndBringsItsValue) {
    const auto id = thread->call("ask", [] { return std::this_thread::get_id(); });
    ASSERT_TRUE(id);
    EXPECT_NE(*id, std::this_thread::get_id());
    EXPECT_TRUE(thread->call("nothing", [] {}));
    EXPECT_EQ(unanswered(), 0U);
}

TEST_F(LoopThreadTest, WithoutAThreadACallRunsHere) {
    thread->stop();
    const auto id = thread->call("ask", [] { return std::this_thread::get_id(); });
    ASSERT_TRUE(id);
    EXPECT_EQ(*id, std::this_thread::get_id());
}

TEST_F(LoopThreadTest, ACallToAThreadThatHangsComesBack) {
    constexpr auto kPatience = std::chrono::milliseconds(1);
    restart(kPatience);
    const HeldLoop held(thread->loop());
    const auto start = clock.now();
    const auto answer = thread->call("ask", [] { return 1; });
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::kClosed);
    EXPECT_GE(clock.now() - start, kPatience);
    EXPECT_EQ(unanswered(), 1U);
}

TEST_F(LoopThreadTest, WorkThatNobodyWaitsForAnyMoreIsNotBegun) {
    const auto done = std::make_shared<std::atomic<bool>>(false);
    HeldLoop held(thread->loop());
    const auto answer = now(thread->ask("ask", [done] { *done = true; }));
    ASSERT_FALSE(answer);
    EXPECT_STREQ(answer.error().text, "nothing was done");
    held.release();
    turn();
    EXPECT_FALSE(*done);
}

TEST_F(LoopThreadTest, WorkThatIsBegunIsDone) {
    const auto done = std::make_shared<std::atomic<bool>>(false);
    const auto begun = std::make_shared<std::promise<void>>();
    const auto go_on = std::make_shared<std::promise<void>>();
    auto asked = thread->ask("ask", [done, begun, go_on] {
        begun->set_value();
        go_on->get_future().wait();
        *done = true;
    });
    begun->get_future().wait();
    const auto answer = now(std::move(asked));
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::kBusy);
    EXPECT_EQ(thread->watch().doing(), "ask");
    go_on->set_value();
    thread->stop();
    EXPECT_TRUE(*done);
}

TEST_F(LoopThreadTest, WhatItBeginsWithIsSeenAndDoneThoughItIsToEnd) {
    thread->stop();
    std::promise<void> begun, go_on;
    bool done = false;
    ASSERT_TRUE(thread->start([&] {
        const base::Activity::Scope doing("recovery");
        begun.set_value();
        go_on.get_future().wait();
        done = true;
    }));
    begun.get_future().wait();
    EXPECT_EQ(thread->watch().doing(), "recovery");
    thread->ask_to_stop();
    go_on.set_value();
    thread->stop();
    EXPECT_TRUE(done);
}

TEST_F(LoopThreadTest, AThreadThatGaveNoAnswerIsAskedAgainOnlyInALaterTurn) {
    const auto ran = std::make_shared<std::atomic<int>>(0);
    const auto count = [ran] { ++*ran; };
    HeldLoop held(thread->loop());
    EXPECT_FALSE(now(thread->ask("first", count)));
    auto second = thread->ask("second", count);
    held.release();
    turn();
    EXPECT_FALSE(now(std::move(second)));
    EXPECT_EQ(*ran, 0);
    EXPECT_TRUE(thread->call("third", count));
    EXPECT_EQ(*ran, 1);
}

TEST_F(LoopThreadTest, ItServesUntilItsEnd) {
    EXPECT_TRUE(thread->serves());
    HeldLoop held(thread->loop());
    thread->ask_to_stop();
    EXPECT_TRUE(thread->serves()) << "it hangs";
    held.release();
    thread->stop();
    EXPECT_FALSE(thread->serves());
}

TEST_F(LoopThreadTest, ASystemWithoutRoomForAThreadIsAnError) {
    thread->stop();  // or the child would be one of a process of many threads
    const int status = test::in_child([] {
        auto other = LoopThread::create("nic=b", "nic-b");
        ASSERT_TRUE(other);
        constexpr rlimit kNone{0, 0};
        ASSERT_EQ(::setrlimit(RLIMIT_NPROC, &kNone), 0);
        // Root may have more.
        ASSERT_TRUE(::geteuid() != 0 || ::setresuid(61000, 61000, 61000) == 0);
        const auto started = (*other)->start();
        ASSERT_FALSE(started);
        EXPECT_EQ(started.error().code, ErrorCode::kIo);
        EXPECT_EQ(started.error().detail, static_cast<std::uint64_t>(EAGAIN));
        EXPECT_FALSE((*other)->serves());
    });
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace openmana::manad
