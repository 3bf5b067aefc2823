// SPDX-License-Identifier: Apache-2.0
// Moderation of completion queues (GDMA 3.9, 3.10).
#include <mana/gdma.h>

#include <chrono>

#include "unit/gdma/fixture.h"

namespace openmana::gdma {
namespace {

using std::chrono::microseconds;

class ModerationTest : public DriverFixture {
protected:
    static constexpr std::uint64_t kUsecValid = 1ULL << 47;
    static constexpr std::uint64_t kCountValid = 1ULL << 63;

    void SetUp() override {
        DriverFixture::SetUp();
        eq = driver->create_eq(3, rnic, 1);
        ASSERT_TRUE(eq);
        cq = make_cq(*function.eqs().find(Eqn(eq->id)), view);
        ASSERT_NE(cq, nullptr);
        view.arm();
    }
    void set(std::uint64_t usec, std::uint64_t completions,
             std::uint64_t valid = kUsecValid | kCountValid) {
        driver->ring_moderation(rnic.page, view.id, usec << 32 | completions << 48 | valid);
    }
    void post(unsigned count = 1) {
        for (unsigned i = 0; i < count; ++i) cq->post({}, 5, false);
    }
    /// Completion events since the last call.
    std::size_t events() {
        const std::size_t count = eq->drain().size();
        eq->arm();
        return count;
    }
    /// What a driver does with an event.
    void serve() {
        (void)view.drain();
        view.arm();
    }
    std::optional<test::DriverEq> eq;
    test::DriverCq view;
    Handle<CompletionQueue> cq;
};

TEST_F(ModerationTest, TheDeviceSaysThatItCan) {
    test::Request request(MANA_HW_VERIFY_DRIVER_VERSION, 640, 72);
    request.put<std::uint64_t>(40, 1).put<std::uint64_t>(48, 1);
    EXPECT_EQ(driver->call(request).get<std::uint64_t>(40) >> 15 & 1, 1U);
}

TEST_F(ModerationTest, WithoutItEventsComeAtOnce) {
    post();
    EXPECT_EQ(events(), 1U);
}

TEST_F(ModerationTest, AnEventWaitsForItsTime) {
    set(100, 0);
    post(3);
    world.advance(microseconds(99));
    EXPECT_EQ(events(), 0U);
    world.advance(microseconds(1));
    EXPECT_EQ(events(), 1U);
    world.advance(microseconds(1000));
    EXPECT_EQ(events(), 0U) << "it is not armed any more";
}

TEST_F(ModerationTest, EnoughCompletionsEndTheWait) {
    set(1000, 4);
    post(3);
    EXPECT_EQ(events(), 0U);
    post();
    EXPECT_EQ(events(), 1U);
    serve();
    // The first wait's time ends within the second one, and ends nothing.
    world.advance(microseconds(900));
    post();
    world.advance(microseconds(500));
    EXPECT_EQ(events(), 0U);
    world.advance(microseconds(500));
    EXPECT_EQ(events(), 1U);
}

TEST_F(ModerationTest, WithoutATimeNothingWaits) {
    set(0, 200);
    post();
    EXPECT_EQ(events(), 1U);
}

TEST_F(ModerationTest, WhatCameBeforeTheArmingWaitsToo) {
    set(100, 0);
    post();
    world.advance(microseconds(100));
    EXPECT_EQ(events(), 1U);
    post();
    view.arm();
    EXPECT_EQ(events(), 0U);
    world.advance(microseconds(100));
    EXPECT_EQ(events(), 1U);
}

TEST_F(ModerationTest, WhatTheConsumerFoundByItselfIsNotWaitedFor) {
    set(100, 0);
    post();
    serve();
    world.advance(microseconds(1000));
    EXPECT_EQ(events(), 0U);
    post();
    world.advance(microseconds(100));
    EXPECT_EQ(events(), 1U);
}

TEST_F(ModerationTest, AShorterTimeCountsAtOnce) {
    set(1000, 0);
    post();
    set(10, 0);
    EXPECT_EQ(events(), 1U);
    serve();
    post();
    world.advance(microseconds(10));
    EXPECT_EQ(events(), 1U);
    serve();
    // What the first one's time ends, is nothing.
    set(1000, 0);
    world.advance(microseconds(900));
    post();
    world.advance(microseconds(999));
    EXPECT_EQ(events(), 0U);
    world.advance(microseconds(1));
    EXPECT_EQ(events(), 1U);
}

TEST_F(ModerationTest, ManyAreServedInTurns) {
    constexpr unsigned kCqs = 3 * Postponed::kServed;
    std::vector<Handle<CompletionQueue>> cqs;
    for (unsigned i = 0; i < kCqs; ++i) {
        test::DriverCq one;
        cqs.push_back(make_cq(*function.eqs().find(Eqn(eq->id)), one));
        ASSERT_NE(cqs.back(), nullptr);
        one.arm();
        driver->ring_moderation(rnic.page, one.id, 100ULL << 32 | kUsecValid);
        cqs.back()->post({}, 5, false);
    }
    EXPECT_EQ(events(), 0U);
    std::size_t seen = 0;
    for (unsigned turn = 0; turn < 6; ++turn) {
        world.advance(microseconds(50));
        seen += events();
    }
    EXPECT_EQ(seen, kCqs);
}

TEST_F(ModerationTest, AValueThatIsNotValidStays) {
    set(100, 4);
    set(7, 2, 0);
    post(3);
    EXPECT_EQ(events(), 0U);
    post();
    EXPECT_EQ(events(), 1U);
    serve();
    set(7, 2, kCountValid);
    post();
    world.advance(microseconds(50));
    EXPECT_EQ(events(), 0U);
    post();
    EXPECT_EQ(events(), 1U);
}

TEST_F(ModerationTest, AnotherValueEndsAWait) {
    set(1000, 0);
    post();
    set(0, 0);
    EXPECT_EQ(events(), 1U);
}

TEST_F(ModerationTest, OnlyOnThePageOfTheCq) {
    const auto before = function.counters().doorbell_ignored.value();
    driver->ring_moderation(eth.page, view.id, 100ULL << 32 | kUsecValid);
    driver->ring_moderation(rnic.page, 0xffff, 100ULL << 32 | kUsecValid);
    EXPECT_EQ(function.counters().doorbell_ignored.value(), before + 2);
    post();
    EXPECT_EQ(events(), 1U);
}

TEST_F(ModerationTest, ACqThatIsGoneIsNotToldOf) {
    set(100, 0);
    post();
    cq = nullptr;
    world.advance(microseconds(100));
    EXPECT_EQ(events(), 0U);
}

TEST_F(ModerationTest, AResetForgetsIt) {
    set(100, 0);
    post();
    cq = nullptr;
    function.reset();
    world.advance(microseconds(1000));
}

}  // namespace
}  // namespace openmana::gdma
