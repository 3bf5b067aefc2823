// SPDX-License-Identifier: Apache-2.0
#include "base/event_loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>

#include <atomic>
#include <thread>

namespace openmana::base {
namespace {

using namespace std::chrono_literals;

class EventLoopTest : public ::testing::Test {
protected:
    std::unique_ptr<EventLoop> loop = EventLoop::create().value();
};

TEST_F(EventLoopTest, RunsTasksInTheOrderPosted) {
    std::vector<int> order;
    for (int i = 0; i < 3; ++i) loop->post([&order, i] { order.push_back(i); });
    loop->post([&] { loop->stop(); });
    loop->run();
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST_F(EventLoopTest, AfterItsEndNobodyElseIsOnItsThread) {
    EXPECT_TRUE(loop->on_thread()) << "before it runs";
    bool within = false;
    std::thread owner([&] {
        loop->post([&] {
            within = loop->on_thread();
            loop->stop();
        });
        loop->run();
    });
    owner.join();
    EXPECT_TRUE(within);
    EXPECT_FALSE(loop->on_thread());
}

TEST_F(EventLoopTest, TasksFromManyThreadsAllArrive) {
    std::atomic<int> left{4000};
    std::vector<std::thread> posters;
    for (int t = 0; t < 4; ++t)
        posters.emplace_back([&] {
            for (int i = 0; i < 1000; ++i)
                loop->post([&] {
                    if (--left == 0) loop->stop();
                });
        });
    loop->run();
    for (auto& poster : posters) poster.join();
    EXPECT_EQ(left.load(), 0);
}

TEST_F(EventLoopTest, TimersFireInTheOrderOfTheirDeadlines) {
    std::vector<int> order;
    Timer late(*loop, [&] {
        order.push_back(2);
        loop->stop();
    });
    Timer early(*loop, [&] { order.push_back(1); });
    late.arm(2ms);
    early.arm(1ms);
    loop->run();
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(EventLoopTest, ACancelledOrPostponedTimerDoesNotFireAtItsOldTime) {
    bool cancelled_fired = false;
    TimePoint fired{};
    Timer cancelled(*loop, [&] { cancelled_fired = true; });
    Timer postponed(*loop, [&] {
        fired = loop->now();
        loop->stop();
    });
    const TimePoint start = loop->now();
    cancelled.arm(100us);
    cancelled.cancel();
    postponed.arm(100us);
    postponed.arm(3ms);
    loop->run();
    EXPECT_FALSE(cancelled_fired);
    EXPECT_GE(fired - start, 3ms);
}

TEST_F(EventLoopTest, AHandlerMayRemoveItselfAndOthers) {
    const UniqueFd first(::eventfd(1, EFD_NONBLOCK));
    const UniqueFd second(::eventfd(1, EFD_NONBLOCK));
    int calls = 0;
    const auto handler = [&](std::uint32_t) {
        ++calls;
        loop->remove(first.get());
        loop->remove(second.get());
        loop->post([&] { loop->stop(); });
    };
    ASSERT_TRUE(loop->add(first.get(), EPOLLIN, handler));
    ASSERT_TRUE(loop->add(second.get(), EPOLLIN, handler));
    loop->run();
    EXPECT_EQ(calls, 1);
}

TEST_F(EventLoopTest, TasksWithoutEndDoNotKeepDescriptorsWaiting) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const UniqueFd read_end(pipe[0]);
    const UniqueFd write_end(pipe[1]);
    bool served = false;
    ASSERT_TRUE(loop->add(read_end.get(), EPOLLIN, [&](std::uint32_t) {
        served = true;
        loop->stop();
    }));
    std::function<void()> again = [&] {
        if (!served) loop->post(again);
    };
    loop->post(again);
    ASSERT_EQ(::write(write_end.get(), "x", 1), 1);
    loop->run();
    EXPECT_TRUE(served);
}

TEST_F(EventLoopTest, AStopBeforeRunIsKept) {
    loop->stop();
    loop->run();
}

TEST_F(EventLoopTest, AWatchOfABadDescriptorIsAnError) {
    EXPECT_FALSE(loop->add(-1, EPOLLIN, [](std::uint32_t) {}));
}

TEST(Timer, AnyTimerCanBeForgotten) {
    auto loop = EventLoop::create().value();
    std::vector<int> fired;
    std::vector<std::unique_ptr<Timer>> timers;
    for (int i = 0; i < 50; ++i) {
        timers.push_back(std::make_unique<Timer>(*loop, [&fired, i] { fired.push_back(i); }));
        timers.back()->arm_at(TimePoint(Duration((i * 37) % 50)));
    }
    for (int i = 0; i < 50; i += 2) timers[static_cast<std::size_t>(i)].reset();
    loop->post([&] { loop->post([&] { loop->stop(); }); });
    loop->run();
    ASSERT_EQ(fired.size(), 25u);
    for (std::size_t i = 1; i < fired.size(); ++i)
        EXPECT_LT((fired[i - 1] * 37) % 50, (fired[i] * 37) % 50);
}

}  // namespace
}  // namespace openmana::base
