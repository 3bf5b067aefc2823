// SPDX-License-Identifier: Apache-2.0
#include "rnic/inbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "support/sim_executor.h"

namespace openmana::test {
namespace {

class InboxTest : public ::testing::Test {
protected:
    void receive(std::size_t frames) {
        const base::Frame frame(60);
        const base::FrameView view = frame;
        for (std::size_t i = 0; i < frames; ++i) inbox.receive(base::FrameViews(&view, 1));
    }
    SimWorld world;
    SimExecutor executor{world};
    base::Counter overflow;
    std::vector<std::size_t> turns;  ///< frames of each
    std::size_t most = SIZE_MAX;     ///< that one handles
    rnic::Inbox inbox{executor, overflow, [this](std::span<const base::Frame> frames) {
                          turns.push_back(std::min(frames.size(), most));
                          return turns.back();
                      }};
};

TEST_F(InboxTest, AFloodKeepsTheThreadForOneChunkATurn) {
    receive(1000);
    std::size_t all = 0;
    while (executor.run_once()) {
        ASSERT_EQ(turns.size(), 1U) << "others have their turn in between";
        EXPECT_LE(turns[0], base::FrameQueue::kChunkFrames);
        all += turns[0];
        turns.clear();
    }
    EXPECT_EQ(all, 1000U);
}

TEST_F(InboxTest, WhatATurnLeavesComesInTheNextOneAndIsSaved) {
    most = 10;
    receive(25);
    ASSERT_TRUE(executor.run_once());
    EXPECT_EQ(turns, std::vector<std::size_t>{10});
    std::size_t waiting = 0;
    inbox.for_each([&](const base::Frame&) { ++waiting; });
    EXPECT_EQ(waiting, 15U);
    world.run_until_idle();
    EXPECT_EQ(turns, (std::vector<std::size_t>{10, 10, 5}));
}

TEST_F(InboxTest, WhatIsForgottenIsNotHandled) {
    receive(1000);
    inbox.clear();
    receive(3);
    world.run_until_idle();
    EXPECT_EQ(turns, std::vector<std::size_t>{3});
    EXPECT_EQ(overflow.value(), 0U);
}

TEST_F(InboxTest, MoreThanItHoldsIsDroppedAndCounted) {
    receive(200000);
    EXPECT_GT(overflow.value(), 0U);
    const std::uint64_t dropped = overflow.value();
    world.run_until_idle();
    std::size_t all = 0;
    for (const std::size_t frames : turns) all += frames;
    EXPECT_EQ(all + dropped, 200000U);
}

}  // namespace
}  // namespace openmana::test
