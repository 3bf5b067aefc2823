// SPDX-License-Identifier: Apache-2.0
#include "fabric/switch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <unordered_map>
#include <vector>

namespace openmana::fabric {
namespace {

using namespace std::chrono_literals;

class ManualClock final : public base::Clock {
public:
    [[nodiscard]] base::TimePoint now() const override { return time; }
    base::TimePoint time{};
};

/// Remembers the last byte of each frame.
class RecordingPort final : public Port {
public:
    void deliver(base::FrameViews frames) override {
        ++calls;
        for (const base::FrameView frame : frames)
            received.push_back(std::to_integer<int>(frame.back()));
    }
    void returned(base::FrameView frame) override {
        back.push_back(std::to_integer<int>(frame.back()));
    }
    std::vector<int> received;
    std::vector<int> back;
    int calls = 0;
};

constexpr base::MacAddr kBroadcast{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

base::MacAddr mac(std::uint8_t last) {
    return {0x02, 0, 0, 0, 0, last};
}

base::Frame frame(const base::MacAddr& to, const base::MacAddr& from, int mark) {
    base::Frame bytes(60);
    std::memcpy(bytes.data(), to.data(), 6);
    std::memcpy(bytes.data() + 6, from.data(), 6);
    bytes.back() = static_cast<std::byte>(mark);
    return bytes;
}

class SwitchTest : public ::testing::Test {
protected:
    SwitchTest() {
        const base::MacAddr first = mac(1);
        const base::MacAddr second = mac(2);
        network.attach(nic1, &first);
        network.attach(nic2, &second);
        network.attach(uplink, nullptr);
    }
    ManualClock clock;
    Switch network{clock};
    RecordingPort nic1;
    RecordingPort nic2;
    RecordingPort uplink;
};

TEST_F(SwitchTest, SendsAFrameForAFixedAddressToItsPortAlone) {
    network.forward(nic1, frame(mac(2), mac(1), 7));
    EXPECT_EQ(nic2.received, std::vector<int>{7});
    EXPECT_TRUE(uplink.received.empty());
    EXPECT_EQ(network.counters().forwarded.value(), 1u);
}

TEST_F(SwitchTest, FloodsGroupsToAllOtherPortsAndUnknownAddressesToUplinks) {
    network.forward(nic1, frame(kBroadcast, mac(1), 1));
    network.forward(nic1, frame(mac(77), mac(1), 2));
    EXPECT_EQ(nic2.received, std::vector<int>{1});
    EXPECT_EQ(uplink.received, (std::vector<int>{1, 2}));
    EXPECT_TRUE(nic1.received.empty());
}

TEST_F(SwitchTest, LearnsWhoIsBehindAnUplinkAndForgetsIt) {
    network.forward(uplink, frame(mac(1), mac(50), 1));
    network.forward(nic1, frame(mac(50), mac(1), 2));
    EXPECT_EQ(uplink.received, std::vector<int>{2});
    EXPECT_TRUE(nic2.received.empty());
    RecordingPort other;
    network.attach(other, nullptr);
    clock.time += Switch::kAge + 1s;
    network.forward(nic1, frame(mac(50), mac(1), 3));
    EXPECT_EQ(other.received, std::vector<int>{3});
    EXPECT_EQ(uplink.received, (std::vector<int>{2, 3}));
    EXPECT_TRUE(nic2.received.empty());
    network.detach(other);
}

TEST_F(SwitchTest, ANicGetsWhatIsForAnAddressThatItSentFromHoweverLongAgo) {
    network.forward(nic1, frame(kBroadcast, mac(70), 1));
    network.forward(nic2, frame(mac(70), mac(2), 2));
    EXPECT_EQ(nic1.received, std::vector<int>{2});
    EXPECT_EQ(uplink.received, std::vector<int>{1}) << "it is known where that is";
    clock.time += Switch::kAge + 1s;
    network.forward(nic2, frame(mac(70), mac(2), 3));
    EXPECT_EQ(nic1.received, (std::vector<int>{2, 3}));
    EXPECT_EQ(uplink.received, (std::vector<int>{1, 3})) << "it may have moved";
    network.forward(nic1, frame(mac(1), mac(70), 4));
    network.forward(nic1, frame(mac(2), mac(70), 5));
    EXPECT_EQ(nic1.back, std::vector<int>{4}) << "to itself";
}

TEST_F(SwitchTest, NobodyCanTakeOverAFixedAddress) {
    network.forward(uplink, frame(kBroadcast, mac(2), 1));
    network.forward(nic1, frame(mac(2), mac(1), 2));
    EXPECT_EQ(nic2.received, (std::vector<int>{1, 2}));
    EXPECT_TRUE(uplink.received.empty());
}

TEST_F(SwitchTest, ABurstGoesToEachPortTogetherAndNothingGoesPastAFlood) {
    network.forward(uplink, frame(mac(1), mac(50), 0));
    const base::Frame frames[] = {frame(mac(2), mac(1), 1),     frame(mac(50), mac(1), 2),
                                  frame(mac(2), mac(1), 3),     frame(mac(1), mac(1), 4),
                                  frame(kBroadcast, mac(1), 5), frame(mac(2), mac(1), 6),
                                  frame(mac(50), mac(1), 7),    base::Frame(13),
                                  frame(mac(2), mac(1), 8)};
    const std::vector<base::FrameView> views(std::begin(frames), std::end(frames));
    network.forward(nic1, views);
    EXPECT_EQ(nic2.received, (std::vector<int>{1, 3, 5, 6, 8}));
    EXPECT_EQ(nic2.calls, 3) << "before the broadcast, it, and after it";
    EXPECT_EQ(uplink.received, (std::vector<int>{2, 5, 7}));
    EXPECT_EQ(nic1.back, std::vector<int>{4});
    EXPECT_EQ(network.counters().forwarded.value(), 7U);
    EXPECT_EQ(network.counters().malformed.value(), 1U);
}

TEST_F(SwitchTest, ABurstIsAsLongAsItLikes) {
    const base::Frame one = frame(mac(2), mac(1), 7);
    const std::vector<base::FrameView> views(1000, one);
    network.forward(nic1, views);
    EXPECT_EQ(nic2.received.size(), 1000U);
    EXPECT_LT(nic2.calls, 20);
}

TEST_F(SwitchTest, WhatAPortKeepsOfAnAddressEndsWhenThatMoves) {
    RecordingPort other;
    network.attach(other, nullptr);
    network.forward(uplink, frame(mac(1), mac(50), 0));
    network.forward(nic1, frame(mac(50), mac(1), 1));
    network.forward(other, frame(mac(1), mac(50), 0));
    network.forward(nic1, frame(mac(50), mac(1), 2));
    network.forward(uplink, frame(mac(1), mac(50), 0));
    network.forward(nic1, frame(mac(50), mac(1), 3));
    EXPECT_EQ(uplink.received, (std::vector<int>{1, 3}));
    EXPECT_EQ(other.received, std::vector<int>{2});
    network.detach(other);
}

TEST_F(SwitchTest, AnAddressThatIsSeenAgainAndAgainNeedsNoLock) {
    const base::Frame there = frame(mac(2), mac(1), 1);
    network.forward(uplink, frame(mac(1), mac(50), 0));
    network.forward(nic1, there);
    const std::uint64_t before = base::work_done;
    for (int i = 0; i < 100; ++i) {
        network.forward(nic1, there);
        network.forward(uplink, frame(mac(1), mac(50), 0));
    }
    EXPECT_EQ(base::work_done, before) << "what is done under the lock is counted";
    // So that it is not forgotten before those that were not seen.
    clock.time += Switch::kSeenAgain + 1ns;
    network.forward(uplink, frame(mac(1), mac(50), 0));
    EXPECT_GT(base::work_done, before);
}

TEST_F(SwitchTest, AFrameForItsOwnSideIsNotSentBack) {
    network.forward(uplink, frame(kBroadcast, mac(50), 0));
    network.forward(uplink, frame(kBroadcast, mac(51), 0));
    network.forward(uplink, frame(mac(50), mac(51), 1));
    EXPECT_TRUE(uplink.received.empty());
    EXPECT_EQ(network.counters().hairpin.value(), 1u);
}

TEST_F(SwitchTest, DropsWhatIsNoFrame) {
    network.forward(nic1, base::Frame(13));
    network.forward(nic1, frame(mac(2), kBroadcast, 1));
    EXPECT_TRUE(nic2.received.empty());
    EXPECT_EQ(network.counters().malformed.value(), 2u);
}

base::MacAddr made_up(std::uint32_t number) {
    return {0x06,
            0,
            static_cast<std::uint8_t>(number >> 16),
            static_cast<std::uint8_t>(number >> 8),
            static_cast<std::uint8_t>(number),
            1};
}

TEST_F(SwitchTest, AFloodOfAddressesMakesAPortForgetItsOwnOldestAlone) {
    network.forward(uplink, frame(kBroadcast, mac(50), 0));
    network.forward(nic1, frame(kBroadcast, mac(60), 0));
    for (std::uint32_t i = 0; i < 3 * Switch::kMaxBehindNic; ++i) {
        network.forward(nic1, frame(kBroadcast, made_up(i), 0));
        if (i % 100 == 0) network.forward(nic1, frame(kBroadcast, mac(60), 0));
    }
    EXPECT_EQ(network.counters().forgotten.value(), 2 * Switch::kMaxBehindNic + 1);
    nic1.received.clear();
    nic2.received.clear();
    uplink.received.clear();
    network.forward(nic2, frame(mac(50), mac(2), 1));
    network.forward(nic2, frame(mac(60), mac(2), 2));
    network.forward(nic2, frame(made_up(3 * Switch::kMaxBehindNic - 1), mac(2), 3));
    EXPECT_EQ(uplink.received, std::vector<int>{1}) << "another port's stay";
    EXPECT_EQ(nic1.received, (std::vector<int>{2, 3})) << "what is seen often and the newest stay";
    network.forward(nic2, frame(made_up(0), mac(2), 4));
    EXPECT_EQ(uplink.received, (std::vector<int>{1, 4})) << "the oldest went";
}

TEST_F(SwitchTest, AnAddressMovesToThePortThatItWasSeenAtLast) {
    network.forward(uplink, frame(kBroadcast, mac(50), 0));
    network.forward(nic1, frame(kBroadcast, mac(50), 0));
    nic1.received.clear();
    uplink.received.clear();
    network.forward(nic2, frame(mac(50), mac(2), 1));
    EXPECT_EQ(nic1.received, std::vector<int>{1});
    EXPECT_TRUE(uplink.received.empty());
    network.detach(uplink);
    network.forward(nic2, frame(mac(50), mac(2), 2));
    EXPECT_EQ(nic1.received, (std::vector<int>{1, 2}));
}

class SwitchHolds : public ::testing::Test {
protected:
    SwitchHolds() {
        network.attach(uplink, nullptr);
        network.attach(nic, &fixed);
    }
    /// A frame from each of so many addresses, which are `step` apart.
    void flood(RecordingPort& from, std::uint64_t first, std::uint64_t step, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            base::MacAddr source{};
            for (int octet = 0; octet < 6; ++octet)
                source[static_cast<std::size_t>(octet)] =
                    static_cast<std::uint8_t>((first + i * step) >> (40 - 8 * octet));
            network.forward(from, frame(mac(1), source, 0));
        }
    }
    static constexpr std::uint64_t kFirst = 0x060000000000;
    base::HoldMeter meter;
    ManualClock clock;
    Switch network{clock};
    RecordingPort uplink;
    RecordingPort nic;
    const base::MacAddr fixed = mac(1);
};

TEST_F(SwitchHolds, AFrameIsALookHoweverManyAddressesThereAre) {
    flood(uplink, kFirst, 1, 2 * Switch::kMaxLearned);
    EXPECT_GE(meter.holds(), 2 * Switch::kMaxLearned);
    EXPECT_EQ(network.counters().forgotten.value(), Switch::kMaxLearned);
    EXPECT_EQ(meter.largest().work, 3U) << "and one learned, and one forgotten";
}

/// Who knows how many buckets there are could make all addresses share one, if it knew the rest.
TEST_F(SwitchHolds, NoAddressesThatSomebodyChoseShareABucket) {
    std::unordered_map<std::uint64_t, int> known;
    known.reserve(2 + Switch::kMaxLearned + Switch::kMaxBehindNic);
    const std::uint64_t buckets = known.bucket_count();
    flood(uplink, kFirst, buckets, Switch::kMaxLearned);
    flood(nic, kFirst + (std::uint64_t{1} << 20) * buckets, buckets, Switch::kMaxBehindNic);
    EXPECT_EQ(network.counters().learned.value(), Switch::kMaxLearned + Switch::kMaxBehindNic);
    EXPECT_LE(network.longest_bucket(), 16U);
}

TEST_F(SwitchHolds, APortThatGoesIsForgottenInSteps) {
    flood(uplink, kFirst, 1, Switch::kMaxLearned);
    flood(nic, kFirst + Switch::kMaxLearned, 1, Switch::kMaxBehindNic);
    for (RecordingPort* const port : {&nic, &uplink}) {
        meter.clear();
        network.detach(*port);
        EXPECT_EQ(meter.largest().work, 64U) << meter.report();
    }
    EXPECT_EQ(network.longest_bucket(), 0U) << "all are forgotten";
}

TEST_F(SwitchHolds, APortThatComesBackMovesNoAddresses) {
    RecordingPort other;
    const base::MacAddr second = mac(2);
    network.attach(other, &second);
    flood(uplink, kFirst, 1, Switch::kMaxLearned);
    network.detach(nic);
    network.detach(other);
    meter.clear();
    network.attach(nic, &fixed);
    network.attach(other, &second);
    EXPECT_EQ(meter.largest().work, 0U) << meter.report();
    network.detach(other);
}

TEST_F(SwitchTest, ADetachedPortGetsNothingMore) {
    network.forward(uplink, frame(kBroadcast, mac(50), 0));
    network.detach(uplink);
    RecordingPort other;
    network.attach(other, nullptr);
    network.forward(nic1, frame(mac(50), mac(1), 1));
    EXPECT_TRUE(uplink.received.empty());
    EXPECT_EQ(other.received, std::vector<int>{1}) << "its address is unknown";
    network.detach(other);
}

/// A NIC at a port of the switch.
class Claiming final : public Peer {
public:
    explicit Claiming(Port& port) : port_(port) {}
    rnic::LocalEnd rdma_for(const rnic::Ends&) override { return {}; }
    [[nodiscard]] bool may_claim(const base::MacAddr&) const override { return allowed; }
    Port& port() override { return port_; }
    bool allowed = true;

private:
    Port& port_;
};

class ClaimedMacs : public SwitchTest {
protected:
    /// Which of the ports gets a frame for the address.
    std::vector<const RecordingPort*> reached(const base::MacAddr& to) {
        RecordingPort asking;
        network.attach(asking, nullptr);
        for (RecordingPort* const port : {&nic1, &nic2, &uplink}) port->received.clear();
        network.forward(asking, frame(to, mac(90), 1));
        network.detach(asking);
        std::vector<const RecordingPort*> ports;
        for (const RecordingPort* const port : {&nic1, &nic2, &uplink})
            if (!port->received.empty()) ports.push_back(port);
        return ports;
    }
    using Ports = std::vector<const RecordingPort*>;
    Claiming first{nic1}, second{nic2};
};

TEST_F(ClaimedMacs, AreReachedBeforeTheySendAndStayWhoeverSendsFromThem) {
    ASSERT_TRUE(network.give(first, mac(71), MacRight::kClaimed));
    ASSERT_TRUE(network.give(second, mac(72), MacRight::kNamed));
    for (RecordingPort* const other : {&uplink, &nic2, &nic1}) {
        network.forward(*other, frame(kBroadcast, mac(71), 1));
        network.forward(*other, frame(kBroadcast, mac(72), 1));
        EXPECT_EQ(reached(mac(71)), Ports{&nic1});
        EXPECT_EQ(reached(mac(72)), Ports{&nic2});
    }
    network.forward(nic1, frame(mac(71), mac(1), 7));
    EXPECT_EQ(nic1.back, std::vector<int>{7}) << "to itself";
}

TEST_F(ClaimedMacs, AreKnownHoweverLongTheyAreSilentOrHowManyOthersThereAre) {
    ASSERT_TRUE(network.give(first, mac(71), MacRight::kClaimed));
    clock.time += Switch::kAge + 1s;
    EXPECT_EQ(reached(mac(71)), Ports{&nic1});
    for (std::uint32_t i = 0; i < Switch::kMaxBehindNic; ++i)
        network.forward(nic1, frame(kBroadcast, made_up(i), 0));
    EXPECT_EQ(reached(mac(71)), Ports{&nic1});
    network.forward(nic1, frame(mac(71), mac(1), 8));
    EXPECT_EQ(nic1.back, std::vector<int>{8});
    network.take_away(first, mac(71), MacRight::kClaimed);
    EXPECT_EQ(reached(mac(71)), Ports{&uplink});
}

TEST_F(ClaimedMacs, NobodyClaimsWhatWasJustSeenElsewhere) {
    network.forward(uplink, frame(kBroadcast, mac(71), 1));
    EXPECT_FALSE(network.give(first, mac(71), MacRight::kClaimed));
    EXPECT_EQ(network.peers().find(mac(71)), nullptr);
    EXPECT_EQ(reached(mac(71)), Ports{&uplink});
    EXPECT_TRUE(network.give(second, mac(71), MacRight::kNamed)) << "the operator says so";
    EXPECT_EQ(reached(mac(71)), Ports{&nic2});
    network.take_away(second, mac(71), MacRight::kNamed);
    network.forward(uplink, frame(kBroadcast, mac(71), 1));
    clock.time += Switch::kAge + 1s;
    EXPECT_TRUE(network.give(first, mac(71), MacRight::kClaimed)) << "it is gone";
    network.take_away(first, mac(71), MacRight::kClaimed);
    EXPECT_TRUE(network.give(second, mac(71), MacRight::kClaimed)) << "and given up";
    EXPECT_FALSE(network.give(first, mac(2), MacRight::kClaimed)) << "a NIC's own";
}

TEST_F(ClaimedMacs, GoBackToWhoHasThemWhenABetterRightEnds) {
    ASSERT_TRUE(network.give(first, mac(71), MacRight::kClaimed));
    ASSERT_TRUE(network.give(second, mac(71), MacRight::kNamed));
    EXPECT_EQ(reached(mac(71)), Ports{&nic2});
    EXPECT_FALSE(network.give(first, mac(71), MacRight::kNamed)) << "it waits";
    EXPECT_EQ(reached(mac(71)), Ports{&nic2});
    network.take_away(second, mac(71), MacRight::kNamed);
    EXPECT_EQ(reached(mac(71)), Ports{&nic1});
}

TEST_F(ClaimedMacs, AClaimThatWasPassedOverStaysBehindTheNewerOne) {
    Peers peers;
    ASSERT_TRUE(peers.add(mac(7), first, MacRight::kClaimed));
    EXPECT_FALSE(peers.add(mac(7), second, MacRight::kClaimed));
    first.allowed = false;
    EXPECT_EQ(peers.find(mac(7)), nullptr) << "a claim that was refused is not kept";
    EXPECT_TRUE(peers.add(mac(7), second, MacRight::kClaimed));
    first.allowed = true;
    EXPECT_EQ(peers.find(mac(7)), &second);
    peers.remove(mac(7), second, MacRight::kClaimed);
    EXPECT_EQ(peers.find(mac(7)), &first);
}

TEST_F(SwitchTest, PeersAreFoundByTheirAddressUntilTheyGo) {
    Claiming first{nic1}, second{nic2};
    network.peers().add(mac(1), first, MacRight::kOwn);
    network.peers().add(mac(2), second, MacRight::kOwn);
    EXPECT_EQ(network.peers().find(mac(1)), &first);
    EXPECT_EQ(network.peers().find(mac(2)), &second);
    EXPECT_EQ(network.peers().find(mac(3)), nullptr);
    network.peers().remove(mac(1), second, MacRight::kOwn);
    EXPECT_EQ(network.peers().find(mac(1)), &first) << "somebody else's entry";
    EXPECT_TRUE(network.peers().add(mac(7), first, MacRight::kClaimed));
    EXPECT_EQ(network.peers().find(mac(7)), &first);
    first.allowed = false;
    EXPECT_EQ(network.peers().find(mac(7)), nullptr) << "it must not have it";
    first.allowed = true;
    EXPECT_TRUE(network.peers().add(mac(7), second, MacRight::kNamed));
    EXPECT_EQ(network.peers().find(mac(7)), &second) << "whose policy names it";
    EXPECT_FALSE(network.peers().add(mac(7), first, MacRight::kNamed)) << "who came first";
    EXPECT_TRUE(network.peers().add(mac(7), second, MacRight::kClaimed)) << "it has it";
    network.peers().remove(mac(7), first, MacRight::kNamed);
    network.peers().remove(mac(7), second, MacRight::kNamed);
    EXPECT_EQ(network.peers().find(mac(7)), &first);
    network.peers().remove(mac(1), first, MacRight::kOwn);
    EXPECT_EQ(network.peers().find(mac(1)), nullptr);
}

}  // namespace
}  // namespace openmana::fabric
