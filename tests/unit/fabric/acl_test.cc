// SPDX-License-Identifier: Apache-2.0
#include "fabric/acl.h"

#include <gtest/gtest.h>

#include "unit/fabric/frames.h"

namespace openmana::fabric {
namespace {

using test::FrameMaker;
using test::gid;

bool allows(const char* rules, const base::Frame& frame,
            Direction direction = Direction::kTransmit) {
    const auto acl = Acl::parse(rules);
    EXPECT_TRUE(acl.has_value()) << (acl ? "" : acl.error().text) << ": " << rules;
    return acl && acl->allows(direction, read_headers(frame));
}

TEST(Acl, TheFirstRuleThatMatchesDecides) {
    const char* const rules = "allow tcp to 10.0.0.2 port 22; deny tcp; allow any; deny any";
    EXPECT_TRUE(allows(rules, FrameMaker{}.tcp(1000, 22)));
    EXPECT_FALSE(allows(rules, FrameMaker{}.tcp(1000, 23)));
    EXPECT_TRUE(allows(rules, FrameMaker{}.udp(1000, 23)));
}

TEST(Acl, WithoutAMatchAFramePasses) {
    EXPECT_TRUE(allows("", FrameMaker{}.tcp(1, 2)));
    EXPECT_TRUE(allows("deny udp", FrameMaker{}.tcp(1, 2)));
}

TEST(Acl, StopsWhatItNamesAndNothingElse) {
    const char* const rules = "deny rdma to 10.0.0.0/30";
    EXPECT_FALSE(allows(rules, FrameMaker{}.roce({}, 10)));
    EXPECT_TRUE(allows(rules, FrameMaker{}.udp(1, 53)));
    FrameMaker maker;
    maker.destination = gid("10.0.0.4");
    EXPECT_TRUE(allows(rules, maker.roce({}, 10)));
    maker.source = gid("fd00::1");
    maker.destination = gid("fd00::2");
    EXPECT_TRUE(allows(rules, maker.roce({}, 10)));
    EXPECT_FALSE(allows("deny rdma to fd00::/64", maker.roce({}, 10)));
}

TEST(Acl, KnowsDirections) {
    const auto frame = FrameMaker{}.tcp(1, 2);
    EXPECT_FALSE(allows("deny tx tcp", frame, Direction::kTransmit));
    EXPECT_TRUE(allows("deny tx tcp", frame, Direction::kReceive));
    EXPECT_TRUE(allows("deny rx tcp", frame, Direction::kTransmit));
    EXPECT_FALSE(allows("deny rx tcp", frame, Direction::kReceive));
    EXPECT_FALSE(allows("deny both tcp", frame, Direction::kReceive));
}

TEST(Acl, KnowsPortRangesAtBothEnds) {
    const auto frame = FrameMaker{}.udp(5000, 53);
    EXPECT_FALSE(allows("deny udp from any port 5000-5001", frame));
    EXPECT_TRUE(allows("deny udp from any port 5001-5002", frame));
    EXPECT_FALSE(allows("deny udp from 10.0.0.1 port 5000 to 10.0.0.2 port 53", frame));
    EXPECT_TRUE(allows("deny udp from 10.0.0.1 port 5000 to 10.0.0.2 port 54", frame));
}

TEST(Acl, KnowsArpIcmpAndProtocolNumbers) {
    EXPECT_FALSE(allows("deny arp", FrameMaker{}.arp()));
    EXPECT_TRUE(allows("deny ip", FrameMaker{}.arp()));
    EXPECT_FALSE(allows("deny any", FrameMaker{}.arp()));
    EXPECT_FALSE(allows("deny arp to 10.0.0.2", FrameMaker{}.arp()));
    EXPECT_TRUE(allows("deny arp to 10.0.0.3", FrameMaker{}.arp()));
    EXPECT_TRUE(allows("deny any to 10.0.0.2", FrameMaker{}.arp())) << "an address means IP";
    EXPECT_FALSE(allows("deny icmp", FrameMaker{}.ip(1, base::Frame(8))));
    EXPECT_TRUE(allows("deny icmp", FrameMaker{}.ip(58, base::Frame(8))));
    EXPECT_FALSE(allows("deny 47", FrameMaker{}.ip(47, base::Frame(8))));
}

TEST(Acl, IPv6SourceThatLooksLikeIPv4IsNotIPv4) {
    // ::ffff:10.0.0.1 on an IPv6 packet.
    base::Frame frame = FrameMaker{}.ethernet(0x86dd);
    test::append(frame, {0x60, 0, 0, 0, 0, 0, 59, 64});
    test::append_gid(frame, gid("10.0.0.1"), 0);
    test::append_gid(frame, gid("10.0.0.2"), 0);
    EXPECT_TRUE(allows("deny ip from 10.0.0.1", frame));
    EXPECT_FALSE(allows("deny ip from ::ffff:10.0.0.1", frame));
}

TEST(Acl, LaterFragmentsDoNotPassBehindARuleThatDeniesPorts) {
    FrameMaker maker;
    maker.fragment = 0x0010;
    EXPECT_FALSE(allows("deny udp to any port 53", maker.udp(1, 2)));
    EXPECT_FALSE(allows("allow udp to any port 53; deny any", maker.udp(1, 2)));
    EXPECT_TRUE(allows("deny tcp to any port 53", maker.udp(1, 2)));
}

TEST(Acl, ADeniedRdmaPacketDoesNotPassInFragments) {
    // Where a host puts fragments together (Soft-RoCE), the packet would be whole again.
    FrameMaker maker;
    maker.fragment = 0x2000;  // the first of several
    EXPECT_FALSE(allows("deny rdma", maker.udp(1, roce::kUdpPort)));
    EXPECT_FALSE(allows("deny rdma to 10.0.0.2 port 4791", maker.udp(1, roce::kUdpPort)));
    EXPECT_TRUE(allows("deny rdma to 10.0.0.3", maker.udp(1, roce::kUdpPort)));
    EXPECT_TRUE(allows("deny rdma", maker.udp(roce::kUdpPort, 53)));
    EXPECT_FALSE(allows("allow rdma; deny any", maker.udp(1, roce::kUdpPort)));
    maker.fragment = 0x0010;  // of no use without the first one
    EXPECT_TRUE(allows("deny rdma", maker.udp(1, roce::kUdpPort)));
}

TEST(Acl, RefusesWhatIsNoRule) {
    for (const char* text :
         {"permit any", "deny foo", "deny tcp to", "deny tcp to 10.0.0.300",
          "deny tcp to 10.0.0.0/33", "deny tcp to any port", "deny tcp to any port 70000",
          "deny tcp to any port 9-8", "deny icmp to any port 1", "deny any extra", "deny 256",
          "deny tcp to any from any"})
        EXPECT_FALSE(Acl::parse(text).has_value()) << text;
}

TEST(Prefix, ComparesTheBitsItNames) {
    const auto prefix = Prefix::parse("192.168.16.0/20");
    ASSERT_TRUE(prefix.has_value());
    EXPECT_TRUE(prefix->contains(gid("192.168.31.255"), true));
    EXPECT_FALSE(prefix->contains(gid("192.168.32.0"), true));
    EXPECT_TRUE(Prefix::parse("0.0.0.0/0")->contains(gid("8.8.8.8"), true));
    EXPECT_FALSE(Prefix::parse("::/0")->contains(gid("8.8.8.8"), true));
}

}  // namespace
}  // namespace openmana::fabric
