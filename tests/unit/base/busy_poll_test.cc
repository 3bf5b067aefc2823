// SPDX-License-Identifier: Apache-2.0
#include "base/busy_poll.h"

#include <gtest/gtest.h>

namespace openmana::base {
namespace {

using namespace std::chrono_literals;

/// Work comes `gap` after the work before. Returns true if it was looked for until then.
bool wait_for_work(BusyPoll& poll, Duration gap) {
    for (Duration idle = 0us; idle < gap; idle += 1us)
        if (!poll.again(idle)) return false;
    poll.found();
    return true;
}

TEST(BusyPollTest, AStreamIsLookedForAllTheTime) {
    BusyPoll poll(5us);
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(wait_for_work(poll, 3us));
}

TEST(BusyPollTest, TheWindowEnds) {
    BusyPoll poll(5us);
    EXPECT_TRUE(poll.again(5us));
    EXPECT_FALSE(poll.again(6us));
}

/// Of a thousand messages of a ping-pong, some twenty are looked for in vain.
TEST(BusyPollTest, APingPongIsSleptFor) {
    BusyPoll poll(5us);
    int looked = 0;
    for (int i = 0; i < 1000; ++i) {
        if (poll.again(0us)) {
            ++looked;
            EXPECT_FALSE(wait_for_work(poll, 12us));
        }
    }
    EXPECT_GE(looked, 10);
    EXPECT_LE(looked, 25);
}

TEST(BusyPollTest, AStreamAfterAPingPongIsLookedForSoon) {
    BusyPoll poll(5us);
    for (int i = 0; i < 1000; ++i) wait_for_work(poll, 12us);
    int slept = 0;
    while (!wait_for_work(poll, 3us)) ++slept;
    EXPECT_LE(slept, 63);
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(wait_for_work(poll, 3us));
}

TEST(BusyPollTest, PausesOfAStreamDoNotEndTheLooking) {
    BusyPoll poll(5us);
    for (int i = 0; i < 100; ++i) {
        EXPECT_TRUE(wait_for_work(poll, 3us));
        EXPECT_FALSE(wait_for_work(poll, 12us));
    }
}

}  // namespace
}  // namespace openmana::base
