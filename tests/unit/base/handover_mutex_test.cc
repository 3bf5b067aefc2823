// SPDX-License-Identifier: Apache-2.0
#include "base/handover_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace openmana::base {
namespace {

TEST(HandoverMutex, WhoWaitsHasItBetweenTwoSteps) {
    HandoverMutex mutex;
    for (int round = 0; round < 100; ++round) {
        bool had_it = false;
        mutex.lock();
        std::thread other([&] {
            const std::lock_guard lock(mutex);
            had_it = true;
        });
        while (mutex.waiting() == 0) std::this_thread::yield();
        mutex.unlock();
        mutex.hand_over();
        mutex.lock();
        EXPECT_TRUE(had_it);
        mutex.unlock();
        other.join();
    }
    EXPECT_EQ(mutex.waiting(), 0U);
}

TEST(HandoverMutex, WithoutAnybodyThereIsNothingToWaitFor) {
    HandoverMutex mutex;
    { const std::lock_guard lock(mutex); }
    mutex.hand_over();
    ASSERT_TRUE(mutex.try_lock());
    std::thread([&] { EXPECT_FALSE(mutex.try_lock()); }).join();
    mutex.unlock();
}

/// However often others come, they do not keep out who works in steps.
TEST(HandoverMutex, ThoseWhoComeAgainAndAgainKeepNobodyOut) {
    HandoverMutex mutex;
    std::atomic<bool> stop{false};
    std::uint64_t count = 0;
    std::vector<std::thread> others;
    for (int i = 0; i < 3; ++i)
        others.emplace_back([&] {
            while (!stop.load()) {
                const std::lock_guard lock(mutex);
                ++count;
            }
        });
    for (int step = 0; step < 10000; ++step) {
        {
            const std::lock_guard lock(mutex);
            ++count;
        }
        mutex.hand_over();
    }
    stop = true;
    for (auto& other : others) other.join();
    EXPECT_GE(count, 10000U);
    EXPECT_EQ(mutex.waiting(), 0U);
}

}  // namespace
}  // namespace openmana::base
