// SPDX-License-Identifier: Apache-2.0
#include "base/pausable_executor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "support/sim_executor.h"

namespace openmana::base {
namespace {

using namespace std::chrono_literals;

class Counting final : public Poller {
public:
    State poll() override {
        ++polls;
        return State::kIdle;
    }
    int polls = 0;
};

class PausableExecutorTest : public ::testing::Test {
protected:
    void note(const char* what) { order += what; }

    test::SimWorld world;
    test::SimExecutor outer{world};
    std::unique_ptr<PausableExecutor> part = std::make_unique<PausableExecutor>(outer);
    std::string order;
};

TEST_F(PausableExecutorTest, TasksTimersAndPollersAreServedAsByTheOneBelow) {
    Counting poller;
    part->add_poller(poller);
    Timer late(*part, [&] { note("L"); });
    Timer early(*part, [&] { note("E"); });
    late.arm(2ms);
    early.arm(1ms);
    part->post([&] { note("a"); });
    part->post([&] {
        note("b");
        part->post([&] { note("d"); });
    });
    part->post([&] { note("c"); });
    world.run_until_idle();
    EXPECT_EQ(order, "abcd");
    world.advance(5ms);
    EXPECT_EQ(order, "abcdEL");
    EXPECT_GT(poller.polls, 0);
    part->remove_poller(poller);
}

TEST_F(PausableExecutorTest, NothingIsDoneInAPauseAndAllOfItAfterwards) {
    Counting poller;
    part->add_poller(poller);
    Timer due(*part, [&] { note("D"); });
    Timer later(*part, [&] { note("L"); });
    Timer cancelled(*part, [&] { note("X"); });
    due.arm(1ms);
    later.arm(10ms);
    cancelled.arm(2ms);
    part->post([&] { note("a"); });  // waits when the pause begins
    part->pause();
    part->post([&] { note("b"); });
    Timer set(*part, [&] { note("S"); });
    set.arm(3ms);
    outer.post([&] { note("o"); });
    world.advance(5ms);
    cancelled.cancel();
    EXPECT_EQ(order, "o");
    EXPECT_EQ(poller.polls, 0);
    part->resume();
    world.run_until_idle();
    EXPECT_EQ(order, "oabDS");
    EXPECT_GT(poller.polls, 0);
    world.advance(10ms);
    EXPECT_EQ(order, "oabDSL");
    part->remove_poller(poller);
}

TEST_F(PausableExecutorTest, AnEarlierTimerGoesBeforeTheOneThatWasNext) {
    Timer far(*part, [&] { note("f"); });
    Timer near(*part, [&] { note("n"); });
    far.arm(10ms);
    near.arm(1ms);
    world.advance(2ms);
    EXPECT_EQ(order, "n");
    near.arm(1ms);
    far.arm_at(near.deadline() - 1us);
    world.advance(2ms);
    EXPECT_EQ(order, "nfn");
}

TEST_F(PausableExecutorTest, WhatWaitsWhenItEndsIsNotDone) {
    part->post([&] { note("a"); });
    part->pause();
    part->post([&] { note("b"); });
    part.reset();
    world.run_until_idle();
    EXPECT_EQ(order, "");
}

TEST_F(PausableExecutorTest, APauseThatIsOverBeforeItWasNoticedIsNone) {
    part->post([&] { note("a"); });
    part->pause();
    part->resume();
    part->resume();
    world.run_until_idle();
    EXPECT_EQ(order, "a");
}

}  // namespace
}  // namespace openmana::base
