// SPDX-License-Identifier: Apache-2.0
#include "fabric/policy.h"

#include <gtest/gtest.h>

#include "unit/fabric/frames.h"

namespace openmana::fabric {
namespace {

using test::FrameMaker;
using test::gid;
using test::kMacA;

class PolicyTest : public ::testing::Test {
protected:
    bool passes(const base::Frame& frame, Direction direction = Direction::kTransmit) {
        return Filter(kMacA, config, counters).passes(direction, read_headers(frame), frame);
    }
    PolicyConfig config;
    PolicyCounters counters;
};

TEST_F(PolicyTest, TheDefaultAllowsEverything) {
    EXPECT_TRUE(passes(FrameMaker{}.udp(1, 2)));
    EXPECT_TRUE(passes(base::Frame(14)));
    EXPECT_FALSE(config.filters());
    EXPECT_FALSE(config.shapes());
}

TEST_F(PolicyTest, AForeignMacIsStoppedOnTheWayOutOnly) {
    config.check_mac = true;
    FrameMaker foreign;
    foreign.source_mac = test::kMacB;
    EXPECT_TRUE(passes(FrameMaker{}.udp(1, 2)));
    EXPECT_FALSE(passes(foreign.udp(1, 2)));
    EXPECT_TRUE(passes(foreign.udp(1, 2), Direction::kReceive));
    EXPECT_EQ(counters.spoofed_mac.value(), 1u);
}

TEST_F(PolicyTest, AForeignMacInsideArpIsStopped) {
    config.check_mac = true;
    base::Frame arp = FrameMaker{}.arp();
    EXPECT_TRUE(passes(arp));
    arp[22 + 5] = std::byte{0x77};
    EXPECT_FALSE(passes(arp));
}

/// An ICMPv6 message of neighbour discovery whose options start at `header`.
base::Frame neighbor_message(int type, std::size_t header) {
    base::Frame message(header);
    message[0] = static_cast<std::byte>(type);
    return message;
}
void append_address_option(base::Frame& message, int option, const base::MacAddr& mac) {
    test::append(message, {option, 1});
    for (const auto octet : mac) message.push_back(std::byte{octet});
}

TEST_F(PolicyTest, AForeignMacInsideNeighborDiscoveryIsStopped) {
    config.check_mac = true;
    FrameMaker maker;
    maker.source = gid("fd00::1");
    maker.destination = gid("fd00::2");
    constexpr struct {
        int type;
        std::size_t header;
        int option;
    } kMessages[] = {{133, 8, 1}, {134, 16, 1}, {135, 24, 1}, {136, 24, 2}};
    for (const auto& one : kMessages) {
        const base::Frame bare = neighbor_message(one.type, one.header);
        EXPECT_TRUE(passes(maker.ip(58, bare))) << one.type;
        base::Frame own = bare;
        append_address_option(own, one.option, kMacA);
        EXPECT_TRUE(passes(maker.ip(58, own))) << one.type;
        base::Frame foreign = bare;
        test::append(foreign, {14, 1, 0, 0, 0, 0, 0, 0});  // another option in front: a nonce
        append_address_option(foreign, one.option, test::kMacB);
        EXPECT_FALSE(passes(maker.ip(58, foreign))) << one.type;
        EXPECT_TRUE(passes(maker.ip(58, foreign), Direction::kReceive)) << one.type;
        base::Frame endless = bare;
        test::append(endless, {14, 0, 0, 0, 0, 0, 0, 0});
        append_address_option(endless, one.option, test::kMacB);
        EXPECT_FALSE(passes(maker.ip(58, endless))) << one.type;
        base::Frame cut = own;
        cut.pop_back();
        EXPECT_FALSE(passes(maker.ip(58, cut))) << one.type;
    }
    // Not of neighbour discovery: whatever it holds.
    base::Frame echo = neighbor_message(128, 24);
    append_address_option(echo, 2, test::kMacB);
    EXPECT_TRUE(passes(maker.ip(58, echo)));
}

TEST_F(PolicyTest, AForeignIpIsStoppedInIpAndArp) {
    config.addresses = {*Prefix::parse("10.0.0.1"), *Prefix::parse("fd00::/64")};
    FrameMaker maker;
    EXPECT_TRUE(passes(maker.udp(1, 2)));
    EXPECT_TRUE(passes(maker.arp()));
    EXPECT_TRUE(passes(maker.roce({}, 8)));
    maker.source = gid("10.0.0.9");
    EXPECT_FALSE(passes(maker.udp(1, 2)));
    EXPECT_FALSE(passes(maker.arp()));
    EXPECT_FALSE(passes(maker.roce({}, 8)));
    EXPECT_TRUE(passes(maker.udp(1, 2), Direction::kReceive));
    maker.source = gid("fd00::5");
    maker.destination = gid("fd01::5");
    EXPECT_TRUE(passes(maker.udp(1, 2)));
    maker.source = gid("fd01::5");
    EXPECT_FALSE(passes(maker.udp(1, 2)));
    EXPECT_EQ(counters.spoofed_ip.value(), 4u);
}

TEST_F(PolicyTest, WhatAGuestNeedsToGetAnAddressPasses) {
    config.addresses = {*Prefix::parse("10.0.0.1")};
    FrameMaker maker;
    maker.source = gid("0.0.0.0");
    EXPECT_TRUE(passes(maker.udp(68, 67)));
    EXPECT_FALSE(passes(maker.udp(68, 53)));
    EXPECT_TRUE(passes(maker.arp()));
    maker.source = gid("fe80::ff:fe00:a");  // EUI-64 of 02:00:00:00:00:0a
    maker.destination = gid("ff02::1");
    EXPECT_TRUE(passes(maker.udp(546, 547)));
    maker.source = gid("fe80::1");
    EXPECT_FALSE(passes(maker.udp(546, 547)));
    maker.source = gid("::");
    EXPECT_TRUE(passes(maker.ip(58, base::Frame(24))));
    EXPECT_FALSE(passes(maker.udp(1, 2)));
}

TEST_F(PolicyTest, ANeighborAdvertisementForAForeignAddressIsStopped) {
    config.addresses = {*Prefix::parse("fd00::1")};
    FrameMaker maker;
    maker.source = gid("fd00::1");
    maker.destination = gid("fd00::2");
    base::Frame message(8);
    message[0] = std::byte{136};
    base::Frame own = message;
    test::append_gid(own, gid("fd00::1"), 0);
    base::Frame foreign = message;
    test::append_gid(foreign, gid("fd00::3"), 0);
    EXPECT_TRUE(passes(maker.ip(58, own)));
    EXPECT_FALSE(passes(maker.ip(58, foreign)));
    EXPECT_FALSE(passes(maker.ip(58, message)));
}

TEST_F(PolicyTest, HeadersThatNoRuleCanReadDoNotPassRules) {
    base::Frame frame = FrameMaker{}.udp(1, 2);
    frame.resize(30);
    EXPECT_TRUE(passes(frame));
    config.acl = *Acl::parse("deny tcp");
    EXPECT_FALSE(passes(frame));
    EXPECT_EQ(counters.malformed.value(), 1u);
}

TEST_F(PolicyTest, ADeniedFrameIsCounted) {
    config.acl = *Acl::parse("deny rx tcp to any port 22");
    EXPECT_FALSE(passes(FrameMaker{}.tcp(1, 22), Direction::kReceive));
    EXPECT_TRUE(passes(FrameMaker{}.tcp(1, 22), Direction::kTransmit));
    EXPECT_EQ(counters.denied.value(), 1u);
}

}  // namespace
}  // namespace openmana::fabric
