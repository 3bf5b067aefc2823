// SPDX-License-Identifier: Apache-2.0
#include "fabric/source_guard.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/hold_meter.h"
#include "support/sim_executor.h"
#include "unit/fabric/frames.h"

namespace openmana::fabric {
namespace {

using test::FrameMaker;
using test::gid;
using test::kMacA;
using test::kMacB;

struct Nic final : Claims::Claimant {
    [[nodiscard]] const std::string& claimant_name() const override { return name; }
    [[nodiscard]] Standing standing(const roce::Gid&) const override { return its; }
    void claim_changed(const roce::Address&) override {}
    std::string name = "nic";
    Standing its = Standing::kGranted;
};

/// B serves 10.0.0.2 and fd00::2; the guards are those of A's guest and of an uplink.
class SourceGuardTest : public ::testing::Test {
protected:
    SourceGuardTest() {
        for (const char* text : {"10.0.0.2", "fd00::2"})
            EXPECT_TRUE(network.claims().claim(b, gid(text)));
        network.reach_changed();
    }
    static FrameMaker from(const char* text) {
        FrameMaker maker;
        maker.source = gid(text);
        maker.destination = gid(maker.ipv4() ? "10.0.0.3" : "fd00::3");
        maker.destination_mac = {2, 0, 0, 0, 0, 0xc};
        return maker;
    }

    ::openmana::test::SimWorld world;
    Switch network{world};
    Nic a, b;
    SourceGuard guard{network, &a, &kMacA};
    SourceGuard uplink{network, nullptr, nullptr};
};

TEST_F(SourceGuardTest, RoceFromAnotherNicsAddressIsStopped) {
    for (SourceGuard* const one : {&guard, &uplink})
        for (const char* text : {"10.0.0.2", "fd00::2"}) {
            EXPECT_FALSE(one->passes(from(text).roce({}, 8))) << text;
            FrameMaker cut = from(text);
            cut.fragment = 0x2000;
            EXPECT_FALSE(one->passes(cut.udp(1, 4791))) << "the first fragment";
        }
    SourceGuard own(network, &b, &kMacA);
    EXPECT_TRUE(own.passes(from("10.0.0.2").roce({}, 8)));
}

base::Frame tagged(base::Frame frame, std::uint16_t tci, std::uint8_t type = 0x81) {
    const std::byte tag[] = {std::byte{type}, static_cast<std::byte>(type == 0x88 ? 0xa8 : 0),
                             static_cast<std::byte>(tci >> 8), static_cast<std::byte>(tci)};
    frame.insert(frame.begin() + 12, std::begin(tag), std::end(tag));
    return frame;
}

TEST_F(SourceGuardTest, AnAddressInAnotherVlanIsAnotherAddress) {
    ASSERT_TRUE(network.claims().claim(b, {gid("10.0.0.7"), 5}));
    network.reach_changed();
    const base::Frame untagged = from("10.0.0.2").roce({}, 8);
    const base::Frame in_vlan = from("10.0.0.7").roce({}, 8);
    for (SourceGuard* const one : {&guard, &uplink}) {
        EXPECT_TRUE(one->passes(tagged(untagged, 5)));
        EXPECT_FALSE(one->passes(untagged)) << "what was good there";
        EXPECT_FALSE(one->passes(tagged(untagged, 0x6000))) << "a priority alone";
        EXPECT_TRUE(one->passes(in_vlan));
        EXPECT_TRUE(one->passes(tagged(in_vlan, 6)));
        EXPECT_FALSE(one->passes(tagged(in_vlan, 0xa005)));
    }
}

TEST_F(SourceGuardTest, WhatTagsHideIsStoppedToo) {
    const base::Frame inner = tagged(from("10.0.0.2").roce({}, 8), 0);
    EXPECT_FALSE(guard.passes(tagged(inner, 9)));
    EXPECT_FALSE(guard.passes(tagged(inner, 9, 0x88)));
}

TEST_F(SourceGuardTest, APriorityBehindATagIsInItsVlan) {
    ASSERT_TRUE(network.claims().claim(b, {gid("10.0.0.7"), 5}));
    network.reach_changed();
    const base::Frame inner = tagged(from("10.0.0.7").roce({}, 8), 0x6000);
    for (SourceGuard* const one : {&guard, &uplink}) {
        EXPECT_TRUE(one->passes(tagged(inner, 6)));
        EXPECT_FALSE(one->passes(tagged(inner, 5)));
        EXPECT_FALSE(one->passes(tagged(inner, 5, 0x88)));
    }
}

TEST_F(SourceGuardTest, WhatIsBehindTooManyTagsIsStopped) {
    const base::Frame two = tagged(tagged(from("10.0.0.2").roce({}, 8), 0), 0);
    EXPECT_FALSE(guard.passes(tagged(two, 5)));
    EXPECT_FALSE(uplink.passes(tagged(two, 5, 0x88)));
}

TEST_F(SourceGuardTest, WhatIsNobodysOrNoRocePasses) {
    EXPECT_TRUE(guard.passes(from("10.0.0.9").roce({}, 8)));
    EXPECT_TRUE(guard.passes(from("10.0.0.9").roce({}, 8))) << "and again";
    EXPECT_TRUE(guard.passes(from("10.0.0.2").udp(1, 4790)));
    EXPECT_TRUE(guard.passes(from("10.0.0.2").tcp(1, 4791)));
    EXPECT_TRUE(guard.passes(from("10.0.0.2").arp()));
    EXPECT_TRUE(guard.passes(base::Frame(13)));
    EXPECT_TRUE(guard.passes(base::Frame(20)));
}

TEST_F(SourceGuardTest, AnAddressThatWasFreeIsLookedUpAgainWhenItIsClaimed) {
    const base::Frame frame = from("10.0.0.9").roce({}, 8);
    EXPECT_TRUE(guard.passes(frame));
    EXPECT_TRUE(network.claims().claim(b, gid("10.0.0.9")));
    EXPECT_FALSE(guard.passes(frame));
    network.claims().release(b, gid("10.0.0.9"));
    EXPECT_TRUE(guard.passes(frame));
}

/// Else it could cut hosts off from all its neighbours.
TEST_F(SourceGuardTest, AGuestThatMerelyTakesAnAddressKeepsNobodyOutsideFromIt) {
    const base::Frame frame = from("10.0.0.9").roce({}, 8);
    b.its = Standing::kFree;
    EXPECT_TRUE(network.claims().claim(b, gid("10.0.0.9")));
    EXPECT_TRUE(uplink.passes(frame));
    EXPECT_FALSE(guard.passes(frame)) << "another guest";
    b.its = Standing::kGranted;
    EXPECT_TRUE(network.claims().review(b, gid("10.0.0.9")));
    EXPECT_FALSE(uplink.passes(frame));
}

/// Another NIC may have the right address by then, but no other.
TEST_F(SourceGuardTest, AnAddressThatAForbiddenClaimKeptNobodyFromIsLookedUpAgain) {
    const base::Frame frame = from("10.0.0.9").roce({}, 8);
    b.its = Standing::kForbidden;
    EXPECT_TRUE(network.claims().claim(b, gid("10.0.0.9")));
    EXPECT_TRUE(guard.passes(frame));
    b.its = Standing::kGranted;
    EXPECT_TRUE(network.claims().review(b, gid("10.0.0.9")));
    EXPECT_FALSE(guard.passes(frame)) << "it serves the address as before, but by right";
}

TEST(SourceGuardCost, AddressesByTurnsAreLookedUpOnceEach) {
    base::HoldMeter meter;
    ::openmana::test::SimWorld world;
    Switch network(world);
    SourceGuard uplink(network, nullptr, nullptr);
    std::vector<base::Frame> frames;
    for (int i = 1; i <= 32; ++i) {
        FrameMaker maker;
        maker.source = gid("10.0.0." + std::to_string(i));
        frames.push_back(maker.roce({}, 8));
    }
    for (int round = 0; round < 10; ++round)
        for (const base::Frame& frame : frames) EXPECT_TRUE(uplink.passes(frame));
    EXPECT_EQ(meter.holds(), frames.size()) << meter.report();
}

TEST_F(SourceGuardTest, TheMacAddressOfAnotherNicIsStopped) {
    struct : Peer, Port {
        rnic::LocalEnd rdma_for(const rnic::Ends&) override { return {}; }
        bool may_claim(const base::MacAddr&) const override { return true; }
        Port& port() override { return *this; }
        void deliver(base::FrameViews) override {}
    } own, peer;
    network.peers().add(kMacA, own, MacRight::kOwn);
    network.peers().add(kMacB, peer, MacRight::kOwn);
    FrameMaker maker = from("10.0.0.9");
    EXPECT_TRUE(guard.passes(maker.tcp(1, 2)));
    maker.source_mac = kMacB;
    EXPECT_FALSE(guard.passes(maker.tcp(1, 2)));
    maker.source_mac = {2, 0, 0, 0, 0, 0x77};
    EXPECT_TRUE(guard.passes(maker.tcp(1, 2))) << "no NIC's: it may be a bridge's";
    for (const bool others : {false, true}) {
        Peer& holder = others ? peer : own;
        network.peers().add(maker.source_mac, holder, MacRight::kClaimed);
        EXPECT_EQ(guard.passes(maker.tcp(1, 2)), !others) << "of an interface of a guest";
        network.peers().remove(maker.source_mac, holder, MacRight::kClaimed);
    }
    network.peers().remove(kMacA, own, MacRight::kOwn);
    network.peers().remove(kMacB, peer, MacRight::kOwn);
}

}  // namespace
}  // namespace openmana::fabric
