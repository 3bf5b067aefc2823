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

TEST_F(PolicyTest, MacAddressesThatAreNamedPass) {
    config.check_mac = true;
    config.macs = {test::kMacB};
    config.addresses = {*Prefix::parse("10.0.0.1")};
    FrameMaker named;
    named.source_mac = test::kMacB;
    EXPECT_TRUE(passes(named.udp(1, 2)));
    EXPECT_TRUE(passes(named.arp()));
    base::Frame arp = named.arp();
    arp[22 + 5] = std::byte{0x77};
    EXPECT_FALSE(passes(arp));
    base::Frame message(24);
    message[0] = std::byte{135};
    test::append(message, {1, 1});
    for (const auto octet : test::kMacB) message.push_back(std::byte{octet});
    named.source = own_link_local(test::kMacB);
    named.destination = gid("fd00::2");
    EXPECT_TRUE(passes(named.ip(58, message))) << "its link-local address is its own";
    const Filter filter(kMacA, config, counters);
    EXPECT_TRUE(filter.may_have(kMacA));
    EXPECT_TRUE(filter.may_have(test::kMacB));
    EXPECT_FALSE(filter.may_have({2, 0, 0, 0, 0, 0x77}));
    rnic::Ends ends{gid("10.0.0.1"), gid("10.0.0.2"), test::kMacB, kMacA};
    EXPECT_TRUE(filter.passes_rdma(ends));
    ends.source_mac[5] = 0x77;
    EXPECT_FALSE(filter.passes_rdma(ends));
}

TEST_F(PolicyTest, TheGuestHasItsOwnMacAddressAndWhatThePolicySays) {
    const auto may_have = [&](const base::MacAddr& mac) {
        return Filter(kMacA, config, counters).may_have(mac);
    };
    config.addresses = {*Prefix::parse("10.0.0.1")};
    EXPECT_TRUE(may_have(kMacA));
    EXPECT_FALSE(may_have(test::kMacB));
    FrameMaker other;
    other.source_mac = test::kMacB;
    EXPECT_TRUE(passes(other.udp(1, 2))) << "of a packet queue: without mac-check nobody looks";
    config.macs = {test::kMacB};
    EXPECT_TRUE(may_have(test::kMacB));
    EXPECT_FALSE(may_have({2, 0, 0, 0, 0, 0x77}));
    config.any_mac = true;
    EXPECT_TRUE(may_have({2, 0, 0, 0, 0, 0x77}));
    EXPECT_TRUE(config.filters());
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

/// What names MAC addresses, and is not read for them, names any.
TEST_F(PolicyTest, HeadersThatCannotBeReadForMacAddressesAreStopped) {
    config.check_mac = true;
    base::Frame arp = FrameMaker{}.arp();
    EXPECT_TRUE(passes(arp));
    arp[15] = std::byte{6};  // the hardware of IEEE 802, which Linux takes for Ethernet's
    EXPECT_FALSE(passes(arp));
    FrameMaker maker;
    maker.source = gid("fe80::1");
    maker.destination = gid("ff02::1");
    base::Frame advertisement(9 * 8 + 24);
    for (std::size_t i = 0; i < 9; ++i)  // destination options, one behind the other
        advertisement[i * 8] = std::byte(i < 8 ? 60 : 58);
    advertisement[9 * 8] = std::byte{136};
    EXPECT_FALSE(passes(maker.ip(60, advertisement)));
    EXPECT_EQ(counters.malformed.value(), 2U);
    EXPECT_TRUE(passes(arp, Direction::kReceive)) << "nobody is asked who he is";
}

TEST_F(PolicyTest, ADeniedFrameIsCounted) {
    config.acl = *Acl::parse("deny rx tcp to any port 22");
    EXPECT_FALSE(passes(FrameMaker{}.tcp(1, 22), Direction::kReceive));
    EXPECT_TRUE(passes(FrameMaker{}.tcp(1, 22), Direction::kTransmit));
    EXPECT_EQ(counters.denied.value(), 1u);
}

/// What is said of a connection is what each of its packets would find.
TEST_F(PolicyTest, WhatHoldsForTheEndsHoldsForEachPacket) {
    const char* const kRules[] = {
        "",
        "deny rdma to 10.0.0.2",
        "deny tx rdma from fd00::1",
        "deny rx udp from 10.0.0.2",
        "deny rx any",
        "deny tcp; allow ip from 10.0.0.1; deny tx any",
        "allow udp to any port 4791; deny any",
        "deny udp to any port 1-4000",
        "deny arp; deny icmp",
        "deny tcp from any port 4791",
    };
    const char* const kPairs[][2] = {{"10.0.0.1", "10.0.0.2"}, {"10.0.0.9", "10.0.0.2"},
                                     {"fd00::1", "fd00::2"},   {"fe80::ff:fe00:a", "fd00::2"},
                                     {"fe80::1", "fd00::2"},   {"10.0.0.1", "fd00::2"},
                                     {"fd00::1", "10.0.0.2"}};
    unsigned passed = 0;
    unsigned stopped = 0;
    for (const char* const rules : kRules)
        for (const bool addresses : {false, true})
            for (const bool check_mac : {false, true})
                for (const auto& pair : kPairs)
                    for (const base::MacAddr& mac : {kMacA, test::kMacB}) {
                        config.acl = *Acl::parse(rules);
                        config.check_mac = check_mac;
                        config.addresses.clear();
                        if (addresses)
                            config.addresses = {*Prefix::parse("10.0.0.0/29"),
                                                *Prefix::parse("fd00::1")};
                        FrameMaker maker;
                        maker.source = gid(pair[0]);
                        maker.destination = gid(pair[1]);
                        maker.source_mac = mac;
                        maker.destination_mac = {2, 0, 0, 0, 0, 0xc};
                        // Of two families there are no packets.
                        const bool all =
                            roce::is_ipv4(maker.source) == roce::is_ipv4(maker.destination) &&
                            passes(maker.roce({}, 8)) &&
                            passes(maker.reversed().roce({}, 8), Direction::kReceive);
                        const rnic::Ends ends{maker.source, maker.destination, maker.source_mac,
                                              maker.destination_mac};
                        EXPECT_EQ(Filter(kMacA, config, counters).passes_rdma(ends), all)
                            << rules << " " << pair[0] << " " << addresses << check_mac;
                        ++(all ? passed : stopped);
                    }
    EXPECT_GT(passed, 50U);
    EXPECT_GT(stopped, 50U);
}

TEST_F(PolicyTest, ARuleAboutSourcePortsIsForEachPacket) {
    const rnic::Ends ends{gid("10.0.0.1"), gid("10.0.0.2"), kMacA, test::kMacB};
    const auto passes_rdma = [&](const char* rules) {
        config.acl = *Acl::parse(rules);
        return Filter(kMacA, config, counters).passes_rdma(ends);
    };
    EXPECT_FALSE(passes_rdma("deny rdma from any port 50000"));
    EXPECT_FALSE(passes_rdma("deny udp from 10.0.0.7 port 50000"));
    EXPECT_TRUE(passes_rdma("deny tcp from any port 50000"));
    EXPECT_EQ(counters.denied.value(), 0U) << "a question is no packet";
}

}  // namespace
}  // namespace openmana::fabric
