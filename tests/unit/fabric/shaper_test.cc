// SPDX-License-Identifier: Apache-2.0
#include "fabric/shaper.h"

#include <deque>
#include <tuple>

#include <gtest/gtest.h>

#include "base/timer_heap.h"
#include "unit/fabric/frames.h"

namespace openmana::fabric {
namespace {

using namespace std::chrono_literals;
using ::openmana::test::SimExecutor;
using ::openmana::test::SimWorld;
using test::FrameMaker;

constexpr std::uint64_t kGigabit = 1000000000;
constexpr std::size_t kRdma = 0;
constexpr std::size_t kEthernet = 1;

class ShaperTest : public ::testing::Test {
protected:
    void start() {
        shaper = std::make_unique<Shaper>(executor, config, counters, [this](base::Frame frame) {
            const auto headers = read_headers(frame);
            sent[headers.roce() ? kRdma : kEthernet] += frame.size();
            if (headers.ip() && (frame[15] & std::byte{3}) == std::byte{3}) ++marked;
            last = std::move(frame);
        });
    }
    /// Offers both kinds of traffic, each at its rate (bit/s), in frames of about 4 KiB.
    void offer(std::uint64_t rdma, std::uint64_t ethernet, base::Duration time) {
        const base::Frame packet = FrameMaker{}.roce({}, 4096);
        const base::Frame datagram = FrameMaker{}.udp(1, 2, 4096);
        const base::TimePoint begin = world.now();
        std::uint64_t offered[2] = {0, 0};
        while (world.now() - begin < time) {
            world.advance(10us);
            const auto elapsed = static_cast<double>((world.now() - begin).count()) / 1e9;
            while (static_cast<double>(offered[kRdma]) * 8 < elapsed * static_cast<double>(rdma)) {
                shaper->push(packet);
                offered[kRdma] += packet.size();
            }
            while (static_cast<double>(offered[kEthernet]) * 8 <
                   elapsed * static_cast<double>(ethernet)) {
                shaper->push(datagram);
                offered[kEthernet] += datagram.size();
            }
        }
    }
    double rate(std::size_t traffic, base::Duration time) const {
        return static_cast<double>(sent[traffic]) * 8e9 / static_cast<double>(time.count());
    }

    SimWorld world;
    SimExecutor executor{world};
    ShaperConfig config;
    ShaperCounters counters;
    std::unique_ptr<Shaper> shaper;
    std::uint64_t sent[2] = {0, 0};
    int marked = 0;
    base::Frame last;
};

// ROCE 10: 145
TEST_F(ShaperTest, HoldsALimitWithinFivePercent) {
    for (const std::uint64_t limit : {10 * kGigabit / 1000, kGigabit / 3, 7 * kGigabit}) {
        config.limit = limit;
        config.queue_bytes = 256 << 10;
        sent[kRdma] = 0;
        start();
        offer(2 * limit, 0, 500ms);
        EXPECT_NEAR(rate(kRdma, 500ms) / static_cast<double>(limit), 1.0, 0.05) << limit;
        EXPECT_GT(counters.dropped.value(), 0u);
    }
}

/// An executor whose host lets it run when it likes.
class LateExecutor final : public base::Executor, private base::Clock {
public:
    [[nodiscard]] const base::Clock& clock() const override { return *this; }
    void post(std::function<void()> task) override { task(); }
    [[nodiscard]] bool on_thread() const override { return true; }
    void wake_after(base::Duration time) {
        now_ += time;
        timers_.fire(now_);
    }

protected:
    void timer_queue(base::Timer& timer) override { timers_.queue(timer); }
    void timer_forget(base::Timer& timer) override { timers_.forget(timer); }

private:
    [[nodiscard]] base::TimePoint now() const override { return now_; }
    base::TimePoint now_{1s};
    base::TimerHeap timers_;
};

TEST(ShaperOnALateHost, WhatWaitedCatchesUp) {
    LateExecutor host;
    ShaperConfig config;
    config.limit = kGigabit / 10;
    ShaperCounters counters;
    std::uint64_t sent = 0;
    Shaper shaper(host, config, counters, [&](const base::Frame& frame) { sent += frame.size(); });
    const base::Frame packet = FrameMaker{}.roce({}, 1024);
    for (std::size_t bytes = 0; bytes < 3U << 20; bytes += packet.size()) shaper.push(packet);
    for (int i = 0; i < 20; ++i) host.wake_after(10ms);
    EXPECT_NEAR(static_cast<double>(sent) * 8 / 0.2 / 0.1e9, 1.0, 0.02);
    host.wake_after(10s);
    const std::uint64_t before = sent;
    for (std::size_t bytes = 0; bytes < 3U << 20; bytes += packet.size()) shaper.push(packet);
    EXPECT_LT(static_cast<double>(sent - before) * 8, 0.1e9 * 0.003) << "a rest saves little";
}

TEST(ShaperOnALateHost, ALongDelayIsNotCaughtUpWith) {
    LateExecutor host;
    ShaperConfig config;
    config.limit = kGigabit / 10;
    ShaperCounters counters;
    std::uint64_t sent = 0;
    Shaper shaper(host, config, counters, [&](const base::Frame& frame) { sent += frame.size(); });
    const base::Frame packet = FrameMaker{}.roce({}, 1024);
    for (std::size_t bytes = 0; bytes < 3U << 20; bytes += packet.size()) shaper.push(packet);
    sent = 0;
    host.wake_after(200ms);
    EXPECT_NEAR(static_cast<double>(sent) * 8 / 0.1e9, 0.050, 0.002);
}

TEST_F(ShaperTest, DoesNotTouchWhatIsBelowTheLimit) {
    config.limit = kGigabit;
    start();
    offer(kGigabit * 8 / 10, 0, 100ms);
    EXPECT_NEAR(rate(kRdma, 100ms) / 0.8e9, 1.0, 0.01);
    EXPECT_EQ(counters.dropped.value(), 0u);
}

TEST_F(ShaperTest, LimitsEachClassByItself) {
    config.classes[kRdma].limit = kGigabit / 10;
    config.queue_bytes = 1 << 20;
    start();
    offer(kGigabit, kGigabit, 200ms);
    EXPECT_NEAR(rate(kRdma, 200ms) / 0.1e9, 1.0, 0.05);
    EXPECT_NEAR(rate(kEthernet, 200ms) / 1e9, 1.0, 0.01);
}

TEST_F(ShaperTest, SharesTheTotalEquallyWithoutGuarantees) {
    config.limit = kGigabit;
    config.queue_bytes = 1 << 20;
    start();
    offer(kGigabit, 2 * kGigabit, 200ms);
    EXPECT_NEAR(rate(kRdma, 200ms) / 0.5e9, 1.0, 0.05);
    EXPECT_NEAR(rate(kEthernet, 200ms) / 0.5e9, 1.0, 0.05);
}

TEST_F(ShaperTest, GivesEachClassItsGuaranteeAndSharesTheRest) {
    config.limit = kGigabit;
    config.classes[kRdma].guarantee = kGigabit * 6 / 10;
    config.classes[kEthernet].guarantee = kGigabit * 2 / 10;
    config.queue_bytes = 1 << 20;
    start();
    offer(2 * kGigabit, 2 * kGigabit, 300ms);
    EXPECT_NEAR(rate(kRdma, 300ms) / 0.7e9, 1.0, 0.05);
    EXPECT_NEAR(rate(kEthernet, 300ms) / 0.3e9, 1.0, 0.05);
    EXPECT_NEAR((rate(kRdma, 300ms) + rate(kEthernet, 300ms)) / 1e9, 1.0, 0.05);
}

TEST_F(ShaperTest, WhatOneDoesNotUseTheOtherGets) {
    config.limit = kGigabit;
    config.classes[kRdma].guarantee = kGigabit * 9 / 10;
    config.queue_bytes = 1 << 20;
    start();
    offer(kGigabit / 10, 2 * kGigabit, 200ms);
    EXPECT_NEAR(rate(kRdma, 200ms) / 0.1e9, 1.0, 0.05);
    EXPECT_NEAR(rate(kEthernet, 200ms) / 0.9e9, 1.0, 0.05);
}

/// A sender that has `window` frames under way, beside RDMA that always waits, on a host that runs
/// the shaper every `lateness`: what it gets in bit/s.
double windowed(std::size_t window, base::Duration round_trip, base::Duration lateness,
                std::uint64_t total) {
    LateExecutor host;
    ShaperConfig config;
    config.limit = total;
    config.classes[kRdma].guarantee = total * 7 / 10;
    config.classes[kEthernet].guarantee = total * 2 / 10;
    ShaperCounters counters;
    std::uint64_t bytes = 0;
    std::deque<base::TimePoint> acks;
    Shaper shaper(host, config, counters, [&](const base::Frame& frame) {
        if (read_headers(frame).roce()) return;
        bytes += frame.size();
        acks.push_back(host.clock().now() + round_trip);
    });
    const base::Frame packet = FrameMaker{}.roce({}, 1024);
    const base::Frame segment = FrameMaker{}.udp(1, 2, 1472);
    const auto fill = [&] {
        while (shaper.room(TrafficClass::kRdma) > packet.size()) shaper.push(packet);
    };
    fill();
    for (std::size_t i = 0; i < window; ++i) shaper.push(segment);
    constexpr base::Duration kTime = 10s;
    const base::TimePoint end = host.clock().now() + kTime;
    while (host.clock().now() < end) {
        host.wake_after(lateness);
        fill();
        for (; !acks.empty() && acks.front() <= host.clock().now(); acks.pop_front())
            shaper.push(segment);
    }
    return static_cast<double>(bytes) * 8e9 / static_cast<double>(kTime.count());
}

TEST(ShaperOnALateHost, AWindowThatFillsTheGuaranteeGetsIt) {
    constexpr std::uint64_t kTotal = kGigabit / 10;
    // 20 Mb/s are 1.65 frames in a millisecond.
    for (const auto& [window, round_trip, lateness] :
         {std::tuple(std::size_t{8}, base::Duration(1ms), base::Duration(10us)),
          std::tuple(std::size_t{8}, base::Duration(1ms), base::Duration(1ms)),
          std::tuple(std::size_t{40}, base::Duration(5ms), base::Duration(10ms)),
          std::tuple(std::size_t{80}, base::Duration(20ms), base::Duration(10ms)),
          std::tuple(std::size_t{160}, base::Duration(40ms), base::Duration(20ms))}) {
        const double rate = windowed(window, round_trip, lateness, kTotal);
        EXPECT_GT(rate, 0.95 * 20e6) << window << " frames, " << round_trip.count() << " ns, "
                                     << lateness.count() << " ns late";
        EXPECT_LT(rate, 26e6);
    }
}

TEST_F(ShaperTest, WhatFillsAQueueWaitsForSomeHundredMillisecondsAtMost) {
    // More, and TCP takes the wait for a loss when it changes.
    config.limit = kGigabit / 10;
    config.classes[kRdma].guarantee = kGigabit * 7 / 100;
    config.classes[kEthernet].guarantee = kGigabit * 2 / 100;
    start();
    const base::Frame packet = FrameMaker{}.roce({}, 1024);
    while (shaper->room(TrafficClass::kRdma) > packet.size()) shaper->push(packet);
    const base::Frame segment = FrameMaker{}.udp(1, 2, 1472);
    std::uint64_t pushed = 0;
    for (; counters.dropped.value() == 0; pushed += segment.size()) shaper->push(segment);
    const base::TimePoint begin = world.now();
    EXPECT_GT(pushed, 256U << 10) << "but bursts of several connections pass";
    EXPECT_TRUE(world.run_until([&] { return sent[kEthernet] + segment.size() >= pushed; }, 300ms));
    EXPECT_GT(world.now() - begin, base::Duration(50ms));
}

// ROCE 10: 139
TEST_F(ShaperTest, MarksAboveTheThresholdWhoCanHandleIt) {
    config.limit = kGigabit / 1000;
    config.ecn_bytes = 10000;
    start();
    FrameMaker maker;
    maker.ecn = 2;
    const base::Frame packet = maker.roce({}, 1024);
    for (int i = 0; i < 20; ++i) shaper->push(packet);
    world.advance(10s);
    EXPECT_EQ(counters.marked.value(), static_cast<std::uint64_t>(marked));
    EXPECT_GE(marked, 8);
    EXPECT_LE(marked, 12);
    marked = 0;
    maker.ecn = 0;
    for (int i = 0; i < 20; ++i) shaper->push(maker.roce({}, 1024));
    world.advance(10s);
    EXPECT_EQ(marked, 0);
}

// Case 139 of ROCE 10.7.
// ROCE 10: 139
TEST_F(ShaperTest, MarksByChanceBetweenTheThresholds) {
    FrameMaker maker;
    maker.ecn = 2;
    const base::Frame packet = maker.roce({}, 1024);
    const auto share = [&](std::size_t frames) {
        // Filled once with what is never marked, then held at one frame more for each sample.
        marked = 0;
        for (int sample = 0; sample < 10000; ++sample) {
            config.seed = static_cast<std::uint64_t>(sample) + 1;
            start();
            shaper->push(FrameMaker{}.roce({}, 1024));  // goes out at once
            for (std::size_t i = 1; i < frames; ++i) shaper->push(FrameMaker{}.roce({}, 1024));
            shaper->push(packet);
            shaper->flush();
        }
        return marked;
    };
    config.limit = 8000;
    config.queue_bytes = 1 << 20;
    config.ecn_bytes = 10 * packet.size();
    config.ecn_max_bytes = 30 * packet.size();
    config.ecn_ppm = 200000;
    EXPECT_EQ(share(10), 0);
    EXPECT_NEAR(share(20), 1000, 3 * 30);  // half-way: 10 %, with a deviation of sqrt(10000 * .09)
    EXPECT_NEAR(share(30), 2000, 3 * 40);
    EXPECT_EQ(share(31), 10000);
}

TEST_F(ShaperTest, RdmaIsMarkedEarlierThanTheQueueIsLong) {
    config.limit = 10 * kGigabit;
    start();
    FrameMaker maker;
    maker.ecn = 2;
    const base::Frame packet = maker.roce({}, 4096);
    // 2 ms of the rate pass at once; what follows waits.
    while (shaper->queued_bytes() < (100 << 10)) shaper->push(packet);
    EXPECT_EQ(counters.marked.value(), 0u);
    while (shaper->queued_bytes() < (600 << 10)) shaper->push(packet);
    const std::uint64_t before = counters.marked.value();
    EXPECT_GT(before, 0u);
    for (int i = 0; i < 10; ++i) shaper->push(packet);
    EXPECT_EQ(counters.marked.value(), before + 10) << "above 400 us all are";
}

TEST_F(ShaperTest, QueueIsBoundedAndDropsAreCounted) {
    config.limit = 8000;
    config.queue_bytes = 10000;
    start();
    for (int i = 0; i < 100; ++i) shaper->push(FrameMaker{}.udp(1, 2, 958));  // 1000 bytes each
    EXPECT_EQ(shaper->queued_bytes(), 10000u);
    EXPECT_EQ(counters.dropped.value() + counters.delayed.value() + 1, 100u);
}

TEST_F(ShaperTest, KeepsTheOrderOfAClass) {
    config.limit = kGigabit / 100;
    std::vector<std::uint32_t> order;
    Shaper ordered(executor, config, counters,
                   [&](base::Frame frame) { order.push_back(test::number_of(frame)); });
    for (std::uint32_t i = 0; i < 100; ++i) ordered.push(test::numbered(i, 200));
    world.advance(1s);
    ASSERT_EQ(order.size(), 100u);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(ShaperTest, FlushLosesNothing) {
    config.limit = 8000;
    start();
    for (int i = 0; i < 10; ++i) shaper->push(FrameMaker{}.udp(1, 2, 958));
    shaper->flush();
    EXPECT_EQ(sent[kEthernet], 10000u);
    EXPECT_EQ(shaper->queued_bytes(), 0u);
}

}  // namespace
}  // namespace openmana::fabric
