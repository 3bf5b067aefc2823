// SPDX-License-Identifier: Apache-2.0
#include "fabric/faults.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "unit/fabric/frames.h"

namespace openmana::fabric {
namespace {

using namespace std::chrono_literals;
using ::openmana::test::SimExecutor;
using ::openmana::test::SimWorld;
using test::number_of;
using test::numbered;

class FaultsTest : public ::testing::Test {
protected:
    struct Arrival {
        std::uint32_t number;
        base::TimePoint time;
        base::Frame frame;
    };
    void start() {
        injector =
            std::make_unique<FaultInjector>(executor, config, counters, [this](base::Frame frame) {
                const std::uint32_t number = number_of(frame);
                arrivals.push_back({number, world.now(), std::move(frame)});
            });
    }
    void push(std::uint32_t count, base::Duration gap = 1us) {
        for (std::uint32_t i = 0; i < count; ++i) {
            injector->push(numbered(i));
            world.advance(gap);
        }
        world.advance(1s);
    }
    std::vector<std::uint32_t> numbers() const {
        std::vector<std::uint32_t> result;
        for (const Arrival& arrival : arrivals) result.push_back(arrival.number);
        return result;
    }
    std::vector<std::uint32_t> run() {
        arrivals.clear();
        start();
        push(2000);
        return numbers();
    }

    SimWorld world;
    SimExecutor executor{world};
    FaultConfig config;
    FaultCounters counters;
    std::unique_ptr<FaultInjector> injector;
    std::vector<Arrival> arrivals;
};

TEST_F(FaultsTest, WithoutFaultsEverythingPassesAtOnce) {
    start();
    push(100);
    ASSERT_EQ(arrivals.size(), 100u);
    EXPECT_TRUE(std::is_sorted(arrivals.begin(), arrivals.end(),
                               [](const auto& a, const auto& b) { return a.number < b.number; }));
}

TEST_F(FaultsTest, LosesAsManyAsAskedFor) {
    config.loss_ppm = 10000;
    start();
    push(50000, 0ns);
    EXPECT_NEAR(static_cast<double>(counters.lost.value()), 500, 80);
    EXPECT_EQ(arrivals.size() + counters.lost.value(), 50000u);
}

TEST_F(FaultsTest, TheSameSeedDoesTheSameAgain) {
    config = {20000, 30000, 40000, 50000, 10us, 5us, 7};
    const auto first = run();
    const auto bytes = arrivals;
    EXPECT_EQ(run(), first);
    for (std::size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bytes[i].frame, arrivals[i].frame);
    config.seed = 8;
    EXPECT_NE(run(), first);
}

TEST_F(FaultsTest, OneFaultDoesNotMoveTheOthers) {
    config.loss_ppm = 20000;
    const auto alone = run();
    config.corrupt_ppm = 500000;
    config.jitter = 3us;
    auto with_others = run();
    // A corrupted number cannot be compared; the count of survivors can.
    EXPECT_EQ(with_others.size(), alone.size());
}

TEST_F(FaultsTest, ADuplicateFollowsItsOriginal) {
    config.duplicate_ppm = 1000000;
    start();
    push(5);
    EXPECT_EQ(numbers(), (std::vector<std::uint32_t>{0, 0, 1, 1, 2, 2, 3, 3, 4, 4}));
}

TEST_F(FaultsTest, ReorderingLetsUpToFourPass) {
    config.reorder_ppm = 100000;
    start();
    push(2000);
    auto order = numbers();
    ASSERT_EQ(order.size(), 2000u);
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    for (std::uint32_t place = 0; place < order.size(); ++place)
        EXPECT_LE(std::abs(static_cast<int>(order[place]) - static_cast<int>(place)), 16);
    std::sort(order.begin(), order.end());
    for (std::uint32_t i = 0; i < 2000; ++i) ASSERT_EQ(order[i], i);
}

TEST_F(FaultsTest, AHeldBackFrameDoesNotWaitForEver) {
    config.reorder_ppm = 1000000;
    start();
    const auto begin = world.now();
    injector->push(numbered(5));
    EXPECT_TRUE(arrivals.empty());
    world.advance(10ms);
    ASSERT_EQ(arrivals.size(), 1u);
    EXPECT_EQ(arrivals[0].time - begin, FaultInjector::kMaxHold);
}

TEST_F(FaultsTest, CorruptionChangesOneBitBehindTheEthernetHeader) {
    config.corrupt_ppm = 1000000;
    start();
    for (int i = 0; i < 200; ++i) {
        const base::Frame before = numbered(7);
        injector->push(before);
        const base::Frame& after = arrivals.back().frame;
        ASSERT_EQ(before.size(), after.size());
        int changed = 0;
        for (std::size_t at = 0; at < before.size(); ++at) {
            const auto bits = std::popcount(std::to_integer<unsigned>(before[at] ^ after[at]));
            changed += bits;
            if (at < 14) {
                EXPECT_EQ(bits, 0);
            }
        }
        EXPECT_EQ(changed, 1);
    }
}

TEST_F(FaultsTest, ADuplicateOfACorruptedFrameIsWhole) {
    config.corrupt_ppm = config.duplicate_ppm = 1000000;
    start();
    injector->push(numbered(7));
    ASSERT_EQ(arrivals.size(), 2u);
    EXPECT_EQ(arrivals[1].frame, numbered(7));
}

TEST_F(FaultsTest, DelayAndJitterKeepTheOrder) {
    config.delay = 100us;
    config.jitter = 50us;
    start();
    std::vector<base::TimePoint> sent;
    for (std::uint32_t i = 0; i < 500; ++i) {
        sent.push_back(world.now());
        injector->push(numbered(i));
        world.advance(1us);
    }
    world.advance(1s);
    ASSERT_EQ(arrivals.size(), 500u);
    for (std::uint32_t i = 0; i < 500; ++i) {
        ASSERT_EQ(arrivals[i].number, i);
        EXPECT_GE(arrivals[i].time - sent[i], 100us);
        EXPECT_LE(arrivals[i].time - sent[i], 150us);
    }
}

TEST_F(FaultsTest, WhatIsDelayedIsBounded) {
    config.delay = 10s;
    start();
    const base::Frame big(1 << 20);
    for (int i = 0; i < 70; ++i) injector->push(big);
    EXPECT_EQ(counters.overflows.value(), 6u);
}

TEST_F(FaultsTest, FlushHandsOnWhatWaits) {
    config.delay = 1s;
    start();
    for (std::uint32_t i = 0; i < 3; ++i) injector->push(numbered(i));
    injector->flush();
    EXPECT_EQ(numbers(), (std::vector<std::uint32_t>{0, 1, 2}));
    world.advance(10s);
    EXPECT_EQ(arrivals.size(), 3u);
}

TEST_F(FaultsTest, AnotherProcessGoesOnInTheSameSequence) {
    config.loss_ppm = 300'000;
    config.duplicate_ppm = 100'000;
    config.seed = 7;
    const auto expected = run();
    arrivals.clear();
    start();
    for (std::uint32_t i = 0; i < 2000; ++i) {
        if (i == 777) {
            base::StateWriter out(world.now());
            out(*injector);
            const auto bytes = std::move(out).finish();
            start();
            auto in = base::StateReader::open(bytes, world.now());
            ASSERT_TRUE(in.has_value());
            (*in)(*injector);
        }
        injector->push(numbered(i));
        world.advance(1us);
    }
    world.advance(1s);
    EXPECT_EQ(numbers(), expected);
}

}  // namespace
}  // namespace openmana::fabric
