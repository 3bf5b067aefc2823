// SPDX-License-Identifier: Apache-2.0
// DCQCN by the numbers of ROCE 8.3 (cases 142 and 143 of its catalogue).
#include "rnic/dcqcn.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "base/state.h"

namespace openmana::rnic {
namespace {

using namespace std::chrono_literals;

constexpr double kLine = 40e9;

class DcqcnTest : public ::testing::Test {
protected:
    DcqcnTest() {
        config.line_rate = 40'000'000'000;  // R_AI 40 Mb/s and R_HAI 400 Mb/s follow
        config.alpha_timer = 55us;
        config.rate_timer = 55us;
    }
    void start() { limit.emplace(config, now); }
    /// The rate in percent of the line after `time`.
    double after(base::Duration time) {
        now += time;
        (void)limit->recovered(now);
        return limit->rate() / kLine * 100;
    }
    void cnp() { limit->on_cnp(now); }

    DcqcnConfig config;
    base::TimePoint now{1s};
    std::optional<Dcqcn> limit;
};

// ROCE 10: 142
TEST_F(DcqcnTest, FirstNotificationHalvesTheRate) {
    start();
    cnp();
    EXPECT_DOUBLE_EQ(limit->rate(), kLine / 2);
    EXPECT_DOUBLE_EQ(limit->target(), kLine);
    EXPECT_DOUBLE_EQ(limit->alpha(), 1);
}

// ROCE 10: 143
TEST_F(DcqcnTest, FastRecoveryThenAdditiveIncrease) {
    start();
    cnp();
    EXPECT_DOUBLE_EQ(after(54us), 50);
    EXPECT_DOUBLE_EQ(after(1us), 75);
    EXPECT_DOUBLE_EQ(after(55us), 87.5);
    EXPECT_DOUBLE_EQ(after(55us), 93.75);
    EXPECT_DOUBLE_EQ(after(55us), 96.875);
    EXPECT_FALSE(limit->recovered(now));
    EXPECT_EQ(limit->take_increases(), 4U);
    // The fifth is additive, but the target is the line already.
    EXPECT_DOUBLE_EQ(after(55us), 98.4375);
    EXPECT_DOUBLE_EQ(limit->target(), kLine);
    now += 4 * 55us;
    EXPECT_TRUE(limit->recovered(now)) << "within R_AI of the line";
}

TEST_F(DcqcnTest, SecondCutRemembersTheRateBeforeIt) {
    start();
    cnp();
    now += 50us;
    cnp();  // no timer has fired: alpha is still 1
    EXPECT_DOUBLE_EQ(limit->rate(), kLine / 4);
    EXPECT_DOUBLE_EQ(limit->target(), kLine / 2);
    EXPECT_DOUBLE_EQ(after(55us), 37.5);
}

TEST_F(DcqcnTest, AlphaDecaysWithoutNotifications) {
    start();
    cnp();
    EXPECT_DOUBLE_EQ(after(55us), 75);
    EXPECT_DOUBLE_EQ(limit->alpha(), 255.0 / 256);
    now += 55us;
    cnp();  // two periods of silence by now
    const double alpha = 255.0 / 256 * 255 / 256;
    EXPECT_DOUBLE_EQ(limit->rate(), kLine * 0.875 * (1 - alpha / 2));
    EXPECT_DOUBLE_EQ(limit->alpha(), 255.0 / 256 * alpha + 1.0 / 256);
}

TEST_F(DcqcnTest, AdditiveIncreaseRaisesTheTarget) {
    start();
    cnp();
    now += 1us;
    cnp();  // target 50 %, rate 25 %
    now += 5 * 55us;
    (void)limit->recovered(now);
    // Four steps of recovery: 25 -> 48.4375; the fifth adds 0.1 % to the target.
    EXPECT_NEAR(limit->target() / kLine * 100, 50.1, 1e-9);
    EXPECT_NEAR(limit->rate() / kLine * 100, (48.4375 + 50.1) / 2, 1e-9);
}

TEST_F(DcqcnTest, BytesRaiseTheRateToo) {
    config.byte_counter = 1000;
    config.rate_timer = 1h;
    start();
    cnp();
    limit->charge(999, now);
    EXPECT_DOUBLE_EQ(limit->rate(), kLine / 2);
    limit->charge(1, now);
    EXPECT_DOUBLE_EQ(limit->rate(), kLine * 0.75);
    limit->charge(3000, now);
    EXPECT_DOUBLE_EQ(limit->rate(), kLine * 0.96875);
}

TEST_F(DcqcnTest, BothCountersBeyondTheThresholdMeanHyperIncrease) {
    config.byte_counter = 1000;
    start();
    cnp();
    now += 1us;
    cnp();
    now += 1us;
    cnp();                     // target 25 %, rate 12.5 %
    limit->charge(6000, now);  // B = 6: the fifth and the sixth step add 0.1 % each
    EXPECT_NEAR(limit->target() / kLine * 100, 25.2, 1e-9);
    now += 5 * 55us;
    (void)limit->recovered(now);  // T = 5: five additive steps, for B is beyond F and T is not
    EXPECT_NEAR(limit->target() / kLine * 100, 25.7, 1e-9);
    now += 55us;
    (void)limit->recovered(now);  // T = 6: (6 - 5) * R_HAI = 1 %
    EXPECT_NEAR(limit->target() / kLine * 100, 26.7, 1e-9);
    limit->charge(1000, now);  // B = 7, T = 6: again one
    EXPECT_NEAR(limit->target() / kLine * 100, 27.7, 1e-9);
}

TEST_F(DcqcnTest, NotificationStartsTheStagesAnew) {
    config.byte_counter = 1000;
    start();
    cnp();
    limit->charge(900, now);
    now += 50us;
    cnp();
    limit->charge(900, now);
    EXPECT_DOUBLE_EQ(after(54us), 25) << "neither counter nor timer went on from before";
}

TEST_F(DcqcnTest, NeverBelowTheMinimum) {
    start();
    for (int i = 0; i < 100; ++i) cnp();
    EXPECT_DOUBLE_EQ(limit->rate(), 10e6);
}

TEST_F(DcqcnTest, LongSilenceCostsLittleAndEndsAtTheLine) {
    start();
    for (int i = 0; i < 100; ++i) cnp();
    now += 24h;
    EXPECT_TRUE(limit->recovered(now));
    EXPECT_LT(limit->take_increases(), 3000U);
}

TEST_F(DcqcnTest, PacesByTheRate) {
    config.rate_timer = 1h;
    start();
    cnp();  // 20 Gb/s: 5000 bytes take 2 us
    EXPECT_TRUE(limit->open(now));
    limit->charge(5000, now);
    EXPECT_FALSE(limit->open(now));
    const auto wait = limit->open_at() - now;
    EXPECT_NEAR(static_cast<double>(wait.count()), 2000, 2);
    EXPECT_FALSE(limit->open(now + 1999ns));
    EXPECT_TRUE(limit->open(now + 2001ns));
}

TEST_F(DcqcnTest, RestGivesLittleCredit) {
    config.rate_timer = 1h;
    start();
    cnp();
    now += 10s;
    int packets = 0;
    for (; limit->open(now); ++packets) limit->charge(5000, now);
    EXPECT_NEAR(packets, 26, 1) << "50 us of 20 Gb/s, and one";
}

TEST_F(DcqcnTest, LongRunMovesWhatTheRateAllows) {
    config.rate_timer = 1h;
    config.byte_counter = 1ULL << 40;
    start();
    cnp();
    std::uint64_t bytes = 0;
    const base::TimePoint end = now + 100ms;
    while (now < end) {
        while (limit->open(now)) {
            limit->charge(4174, now);
            bytes += 4174;
        }
        now = limit->open_at();
    }
    EXPECT_NEAR(static_cast<double>(bytes) * 8 / 0.1 / 20e9, 1, 0.01);
}

/// In a state that nobody has written, alpha is an hour late, and the rate has an hour to wait.
TEST_F(DcqcnTest, WhatWasReadCatchesUpWithWhatItsTimersCouldHaveMissed) {
    base::StateWriter out(now);
    out(kLine / 2, kLine, 1.0, std::uint32_t{0}, std::uint32_t{0}, std::uint64_t{0}, now - 1h,
        now + 1h, 0.0, now + 1h);
    const std::vector<std::byte> state = std::move(out).finish();
    start();
    auto in = base::StateReader::open(state, now);
    ASSERT_TRUE(in);
    (*in)(*limit);
    ASSERT_TRUE(in->ok());
    limit->resume(now);
    EXPECT_TRUE(limit->open(now)) << "nothing is owed of times to come";
    EXPECT_DOUBLE_EQ(limit->alpha(), 255.0 / 256) << "it was due once";
    EXPECT_DOUBLE_EQ(after(55us), 75);
}

}  // namespace
}  // namespace openmana::rnic
