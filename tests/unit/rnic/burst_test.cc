// SPDX-License-Identifier: Apache-2.0
// What waits for others on the wire path, so that packets go in bursts (ROCE 3.3).
#include "wire_fixture.h"

namespace openmana::test {
namespace {

using std::chrono::microseconds;
using Words = std::vector<std::string>;

class BurstTest : public WireCase {
protected:
    static constexpr base::Duration kGather = microseconds(20);
    void SetUp() override {
        rnic::RnicConfig config;
        config.gather = kGather;
        open({}, config);
    }
    /// Answers to A are lost, so that its requests stay under way.
    void mute() {
        lose([](const roce::Packet& packet) { return packet.info().response; }, 1000000);
    }
    /// What A sent since the last call.
    Words requests() {
        Words words;
        const auto all = story();
        for (; seen < all.size(); ++seen)
            if (!sent()[seen].info().response) words.push_back(all[seen]);
        return words;
    }
    void pass(base::Duration time) { link->world.advance(time); }
    std::size_t seen = 0;
};

TEST_F(BurstTest, TheFirstRequestGoesAtOnceAndThoseBehindItTogether) {
    mute();
    write(1, 8);
    pass({});
    EXPECT_EQ(requests(), Words{"WO100"});
    for (std::uint64_t i = 2; i <= 4; ++i) write(i, 8);
    pass(kGather - microseconds(1));
    EXPECT_EQ(requests(), Words{});
    pass(microseconds(1));
    EXPECT_EQ(requests(), (Words{"WO101", "WO102", "WO103"}));
}

TEST_F(BurstTest, EnoughForABurstDoesNotWait) {
    mute();
    write(1, 8);
    pass({});
    (void)requests();
    for (std::uint64_t i = 0; i < 31; ++i) write(i + 2, 8);
    pass({});
    EXPECT_EQ(requests(), Words{});
    write(40, 8);
    pass({});
    EXPECT_EQ(requests().size(), 32U);
    write(41, 40 * 1024);
    pass({});
    EXPECT_EQ(requests().size(), 40U) << "one message of many packets";
}

TEST_F(BurstTest, NobodyWaitsWhenAllIsAnswered) {
    constexpr base::Duration kRoundTrip = microseconds(3);
    write(1, 8);
    pass(kRoundTrip);
    write(2, 8);
    pass({});
    EXPECT_EQ(requests(), (Words{"WO100", "WO101"}));
    ASSERT_TRUE(link->run(2));
    expect_ok(2);
}

TEST_F(BurstTest, TheAnswerEndsTheWait) {
    lose([](const roce::Packet& packet) { return packet.info().response; });
    write(1, 8);
    pass({});
    write(2, 8);
    pass({});
    EXPECT_EQ(requests(), Words{"WO100"});
    inject(link->a, to(link->a, roce::Opcode::kAcknowledge, 0x100));
    EXPECT_EQ(requests(), Words{"WO101"});
    ASSERT_TRUE(link->run(2));
    expect_ok(2);
}

TEST_F(BurstTest, ReadsGoAtOnceWithWhatStandsBeforeThem) {
    mute();
    write(1, 8);
    pass({});
    write(2, 8);
    pass({});
    EXPECT_EQ(requests(), Words{"WO100"});
    read(3, 8);
    pass({});
    EXPECT_EQ(requests(), (Words{"WO101", "RR102"}));
}

TEST_F(BurstTest, WhatWaitsGoesWithItsQueuePair) {
    mute();
    write(1, 8);
    pass({});
    write(2, 8);
    pass({});
    (void)requests();
    ASSERT_TRUE(link->a.node->host.destroy_rc(*link->a.qp));
    pass(kGather);
    EXPECT_EQ(requests(), Words{});
}

/// A message of more packets than the window: each answer makes room for a few.
TEST_F(BurstTest, AFullWindowWaitsForRoomForABurst) {
    mute();
    constexpr std::uint32_t kWindow = 256;
    write(1, 2 * kWindow * 1024);
    pass({});
    EXPECT_EQ(requests().size(), kWindow);
    for (std::uint32_t acked = 16; acked < kWindow / 4; acked += 16) {
        inject(link->a, to(link->a, roce::Opcode::kAcknowledge, 0x100 + acked - 1));
        EXPECT_EQ(requests().size(), 0U) << acked;
    }
    inject(link->a, to(link->a, roce::Opcode::kAcknowledge, 0x100 + kWindow / 4 - 1));
    EXPECT_EQ(requests().size(), kWindow / 4);
}

TEST_F(BurstTest, AWindowThatALossHasMadeSmallIsUsedToTheFull) {
    bool lost = false;
    link->network.fate = [&](const roce::Packet& packet) {
        Fate fate;
        fate.lose = !lost && packet.psn == roce::Psn(0x110) && !packet.info().response;
        lost = lost || fate.lose;
        return fate;
    };
    write(1, 1000 * 1024);
    ASSERT_TRUE(link->run(1, 0, std::chrono::milliseconds(10))) << "no timer was needed";
    expect_ok(1);
    EXPECT_TRUE(same(0, 0, 1000 * 1024));
}

}  // namespace
}  // namespace openmana::test
