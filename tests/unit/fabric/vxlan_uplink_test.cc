// SPDX-License-Identifier: Apache-2.0
#include "fabric/vxlan_uplink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "fabric/inner_packet.h"
#include "fabric/uplink_mtu.h"
#include "fabric/vxlan.h"
#include "support/eventually.h"
#include "support/temp_dir.h"
#include "unit/fabric/frames.h"
#include "unit/fabric/queue_threads.h"
#include "unit/fabric/vxlan_fixture.h"

namespace openmana::fabric::vxlan_test {
namespace {

using test::FrameMaker;
using test::numbered;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(VxlanUplinkTest, CarriesFramesBothWays) {
    Host near(*this, "127.0.0.1", test::kMacA);
    Host far(*this, "127.0.0.2", test::kMacB);
    near.join({far.own});
    far.join({near.own});
    near.network.forward(near.port, numbered(1));
    near.network.forward(near.port, numbered(2, 9018));
    serve_until([&] { return far.port.frames.size() == 2; });
    EXPECT_EQ(far.port.frames[0], numbered(1));
    EXPECT_EQ(far.port.frames[1], numbered(2, 9018));
    far.network.forward(far.port, FrameMaker{}.reversed().udp(1, 2));
    serve_until([&] { return !near.port.frames.empty(); });
    EXPECT_EQ(counter(*near.uplinks[0], "fabric.uplink.tx_frames"), 2u);
    EXPECT_EQ(counter(*near.uplinks[0], "fabric.uplink.tx_bytes"), 60u + 9018u);
    EXPECT_EQ(counter(*near.uplinks[0], "fabric.uplink.rx_frames"), 1u);
    EXPECT_EQ(counter(*near.uplinks[0], "fabric.fdb.learned"), 1u);
}

TEST_F(VxlanUplinkTest, CarriesFramesOverIpv6) {
    Host near(*this, "::1", test::kMacA);
    Host far(*this, "::1", test::kMacB);
    near.join({far.own});
    far.join({near.own});
    near.network.forward(near.port, numbered(1));
    serve_until([&] { return !far.port.frames.empty(); });
    far.network.forward(far.port, FrameMaker{}.reversed().udp(1, 2));
    serve_until([&] { return !near.port.frames.empty(); });
}

TEST_F(VxlanUplinkTest, DatagramsAreThoseOfTheRfc) {
    Host near(*this, "127.0.0.1", test::kMacA);
    PlainHost peer("127.0.0.2");
    near.join({peer.end()});
    FrameMaker maker;
    maker.ecn = 0xb9;
    const base::Frame frame = maker.udp(1, 2);
    near.network.forward(near.port, frame);
    std::vector<Datagram> got;
    serve_until([&] { return !(got = peer.receive_all()).empty(); });
    ASSERT_EQ(got.size(), 1u);
    base::Frame expected;
    test::append(expected, {8, 0, 0, 0, 0, 0, kVni, 0});
    expected.insert(expected.end(), frame.begin(), frame.end());
    EXPECT_EQ(got[0].bytes, expected);
    EXPECT_EQ(got[0].tos, 0xb9);
    EXPECT_GE(got[0].source_port, 49152);
}

TEST_F(VxlanUplinkTest, DscpCanBeFixed) {
    Host near(*this, "127.0.0.1", test::kMacA);
    PlainHost peer("127.0.0.2");
    near.join({peer.end()}, Learn::kPeers, kVni, "", 8);
    FrameMaker maker;
    maker.ecn = 0xb9;
    near.network.forward(near.port, maker.udp(1, 2));
    near.network.forward(near.port, maker.arp());
    std::vector<Datagram> got;
    serve_until([&] {
        for (Datagram& datagram : peer.receive_all()) got.push_back(std::move(datagram));
        return got.size() == 2;
    });
    // Which of the two comes first is not said: they are of two flows.
    EXPECT_EQ(std::set<int>({got[0].tos, got[1].tos}), std::set<int>({8 << 2 | 1, 8 << 2}));
}

TEST_F(VxlanUplinkTest, AFlowKeepsItsPortAndOrderAndOthersHaveOthers) {
    Host near(*this, "127.0.0.1", test::kMacA);
    PlainHost peer("127.0.0.2");
    near.join({peer.end()});
    std::vector<base::Frame> frames;
    for (std::uint32_t i = 0; i < 200; ++i) {
        frames.push_back(FrameMaker{}.udp(1000 + i % 20, 4791, 60));
        base::store_le(frames.back().data() + 42, i);
    }
    const std::vector<base::FrameView> views(frames.begin(), frames.end());
    near.network.forward(near.port, views);
    std::map<std::uint32_t, std::vector<std::uint32_t>> flows;
    std::map<std::uint32_t, std::set<std::uint16_t>> ports;
    std::set<std::uint16_t> all_ports;
    std::size_t count = 0;
    serve_until([&] {
        for (const Datagram& datagram : peer.receive_all()) {
            const std::uint32_t number = number_of(std::span(datagram.bytes).subspan(8));
            flows[number % 20].push_back(number);
            ports[number % 20].insert(datagram.source_port);
            all_ports.insert(datagram.source_port);
            ++count;
        }
        return count == 200;
    });
    for (const auto& [flow, numbers] : flows) {
        EXPECT_TRUE(std::ranges::is_sorted(numbers)) << flow;
        EXPECT_EQ(ports[flow].size(), 1u);
    }
    EXPECT_GT(all_ports.size(), 4u);
    EXPECT_LE(all_ports.size(), VxlanEndpoint::kSenders);
}

TEST_F(VxlanUplinkTest, WhatNobodyKnowsGoesToAllEndsAndWhatIsLearnedToOne) {
    Host near(*this, "127.0.0.1", test::kMacA);
    PlainHost one("127.0.0.2");
    PlainHost other("127.0.0.3");
    VxlanUplink& uplink = near.join({one.end(), other.end()});
    near.network.forward(near.port, numbered(1));
    std::size_t at_one = 0;
    std::size_t at_other = 0;
    const auto count = [&] {
        at_one += one.receive_all().size();
        at_other += other.receive_all().size();
    };
    serve_until([&] {
        count();
        return at_one == 1 && at_other == 1;
    });
    EXPECT_EQ(counter(uplink, "fabric.vxlan.flooded"), 1u);
    other.send(near.own, FrameMaker{}.reversed().udp(1, 2));
    serve_until([&] { return near.port.frames.size() == 1; });
    for (std::uint32_t i = 0; i < 5; ++i) near.network.forward(near.port, numbered(i));
    serve_until([&] {
        count();
        return at_other == 6;
    });
    serve_a_while();
    count();
    EXPECT_EQ(at_one, 1u);
    EXPECT_EQ(at_other, 6u);
}

TEST_F(VxlanUplinkTest, WithoutAnEndFramesAreCounted) {
    Host near(*this, "127.0.0.1", test::kMacA);
    VxlanUplink& uplink = near.join({});
    near.network.forward(near.port, numbered(1));
    EXPECT_EQ(counter(uplink, "fabric.vxlan.no_end"), 1u);
}

/// Each frame makes as many datagrams as there are ends: a guest has no such lever.
TEST_F(VxlanUplinkTest, CopiesForSeveralEndsAreLimited) {
    Host near(*this, "127.0.0.1", test::kMacA);
    PlainHost one("127.0.0.2");
    PlainHost other("127.0.0.3");
    VxlanUplink& uplink = near.join({one.end(), other.end()}, Learn::kPeers, kVni, "", -1, 80);
    for (std::uint32_t i = 0; i < 100; ++i) near.network.forward(near.port, numbered(i));
    const std::uint64_t flooded = counter(uplink, "fabric.vxlan.flooded");
    EXPECT_GE(flooded, 5u);
    EXPECT_LT(flooded, 100u);
    EXPECT_EQ(counter(uplink, "fabric.vxlan.flood_limited"), 100u - flooded);
    EXPECT_EQ(one.receive_all().size(), flooded);
    EXPECT_EQ(other.receive_all().size(), flooded);
    // What goes to one end is no copy.
    other.send(near.own, FrameMaker{}.reversed().udp(1, 2));
    serve_until([&] { return near.port.frames.size() == 1; });
    for (std::uint32_t i = 0; i < 100; ++i) near.network.forward(near.port, numbered(i));
    EXPECT_EQ(other.receive_all().size(), 100u);
}

/// More copies than are sent at once, and a list that is longer than that.
TEST_F(VxlanUplinkTest, ALongFloodListIsServedWhole) {
    Host near(*this, "127.0.0.1", test::kMacA);
    std::vector<std::unique_ptr<PlainHost>> hosts;
    std::vector<TunnelEnd> ends;
    for (int i = 0; i < 150; ++i) {
        hosts.push_back(std::make_unique<PlainHost>("127.0.1." + std::to_string(i + 1)));
        ends.push_back(hosts.back()->end());
    }
    near.join(ends);
    const base::Frame frames[] = {numbered(1), numbered(2), numbered(3)};
    const std::vector<base::FrameView> views(std::begin(frames), std::end(frames));
    near.network.forward(near.port, views);
    for (const auto& host : hosts) {
        std::vector<std::uint32_t> numbers;
        for (const Datagram& datagram : host->receive_all())
            numbers.push_back(number_of(std::span(datagram.bytes).subspan(8)));
        ASSERT_THAT(numbers, ElementsAre(1U, 2U, 3U));
    }
}

/// Seventeen hosts that know each other: what each says to all comes to every other once and goes
/// no further; then frames go to the one host alone.
TEST_F(VxlanUplinkTest, SixteenPeersHearAllOnceAndWhatIsForThemAlone) {
    constexpr std::size_t kHosts = 17;
    const auto mac_of = [](std::size_t host) {
        return base::MacAddr{2, 0, 0, 0, 1, static_cast<std::uint8_t>(host)};
    };
    std::vector<std::unique_ptr<Host>> hosts;
    for (std::size_t i = 0; i < kHosts; ++i)
        hosts.push_back(
            std::make_unique<Host>(*this, "127.0.2." + std::to_string(i + 1), mac_of(i)));
    for (const auto& host : hosts) {
        std::vector<TunnelEnd> others;
        for (const auto& other : hosts)
            if (other != host) others.push_back(other->own);
        host->join(others);
    }
    const auto send = [&](std::size_t from, const base::MacAddr& to, std::uint32_t number) {
        FrameMaker maker;
        maker.source_mac = mac_of(from);
        maker.destination_mac = to;
        base::Frame frame = maker.udp(1, 2);
        base::store_le(frame.data() + 42, number);
        hosts[from]->network.forward(hosts[from]->port, frame);
    };
    const auto came = [&] {
        std::size_t frames = 0;
        for (const auto& host : hosts) frames += host->port.frames.size();
        return frames;
    };
    for (std::uint32_t i = 0; i < kHosts; ++i) send(i, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, i);
    serve_until([&] { return came() >= kHosts * (kHosts - 1); });
    serve_a_while();
    for (std::uint32_t i = 0; i < kHosts; ++i) {
        std::vector<std::uint32_t> expected;
        for (std::uint32_t other = 0; other < kHosts; ++other)
            if (other != i) expected.push_back(other);
        EXPECT_THAT(hosts[i]->port.numbers(), ::testing::UnorderedElementsAreArray(expected));
        EXPECT_EQ(counter(*hosts[i]->uplinks[0], "fabric.fdb.learned"), kHosts - 1);
        EXPECT_EQ(counter(*hosts[i]->uplinks[0], "fabric.uplink.tx_frames"), kHosts - 1);
        hosts[i]->port.frames.clear();
    }
    for (std::uint32_t i = 0; i < kHosts; ++i)
        for (std::uint32_t to = 0; to < kHosts; ++to)
            if (to != i) send(i, mac_of(to), i << 8 | to);
    serve_until([&] { return came() >= kHosts * (kHosts - 1); });
    serve_a_while();
    for (std::uint32_t i = 0; i < kHosts; ++i) {
        EXPECT_EQ(hosts[i]->port.frames.size(), kHosts - 1);
        for (const std::uint32_t number : hosts[i]->port.numbers()) EXPECT_EQ(number & 255, i);
        EXPECT_EQ(counter(*hosts[i]->uplinks[0], "fabric.vxlan.flooded"), 1u);
        EXPECT_EQ(counter(*hosts[i]->uplinks[0], "fabric.uplink.tx_frames"), 2 * (kHosts - 1));
    }
}

/// The host gives each flow, by its source port, to one of the sockets.
TEST_F(VxlanUplinkTest, SeveralThreadsBringWhatComesInTheOrderOfEachFlow) {
    const TunnelEnd own{*parse_ip("127.0.0.1"), free_port("127.0.0.1"), kVni};
    test::QueueLoops loops;
    Switch network(clock);
    test::SharedPort port;
    network.attach(port, &test::kMacB);
    auto endpoint = VxlanEndpoint::create(loops.all(), socket_address_of(own), 0, kKey);
    ASSERT_TRUE(endpoint) << endpoint.error().text;
    EXPECT_EQ((*endpoint)->queues(), test::kQueues);
    UplinkConfig config;
    config.kind = UplinkConfig::Kind::kVxlan;
    config.name = "vxlan";
    config.local = (*endpoint)->local();
    config.vxlan.vni = kVni;
    config.vxlan.learn = Learn::kAll;
    auto uplink = VxlanUplink::create(*loops.all()[0], network, config, **endpoint, *loop);
    ASSERT_TRUE(uplink) << uplink.error().text;
    std::vector<std::unique_ptr<PlainHost>> flows;
    for (std::uint32_t i = 0; i < test::kFlows; ++i)
        flows.push_back(std::make_unique<PlainHost>("127.0.0.2"));
    loops.start();
    constexpr std::uint32_t kFrames = 50 * test::kFlows;
    for (std::uint32_t i = 0; i < kFrames; ++i) {
        flows[i % test::kFlows]->send(own, numbered(i));
        if (i % 100 == 99) {
            ASSERT_TRUE(::openmana::test::eventually([&] { return port.seen().size() == i + 1; }));
        }
    }
    loops.stop();
    test::expect_flows_in_order(port.seen());
    EXPECT_GT(port.threads(), 1U) << "of 32 flows all went to one of four sockets";
    EXPECT_EQ(counter(**uplink, "fabric.uplink.rx_frames"), kFrames);
    EXPECT_EQ(counter(**uplink, "fabric.fdb.learned"), 1U);
    uplink->reset();
    network.detach(port);
}

TEST_F(VxlanUplinkTest, NothingThatCameByATunnelLeavesByOne) {
    Host near(*this, "127.0.0.1", test::kMacA);
    PlainHost one("127.0.0.2");
    PlainHost other("127.0.0.3");
    PlainHost elsewhere("127.0.0.4");
    near.join({one.end(), other.end()});
    near.join({elsewhere.end()}, Learn::kPeers, 6);
    FrameMaker maker = FrameMaker{}.reversed();
    maker.destination_mac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    one.send(near.own, maker.udp(1, 2));
    serve_until([&] { return near.port.frames.size() == 1; });
    // One station behind the other network, and a frame for it.
    FrameMaker station;
    station.source_mac = {2, 0, 0, 0, 0, 0x77};
    station.destination_mac = test::kMacA;
    elsewhere.send(near.own, station.udp(1, 2), 0, 6);
    serve_until([&] { return near.port.frames.size() == 2; });
    maker.destination_mac = station.source_mac;
    one.send(near.own, maker.udp(1, 2));
    serve_until([&] { return near.network.counters().split_horizon.value() == 1; });
    serve_a_while();
    EXPECT_THAT(one.receive_all(), IsEmpty());
    EXPECT_THAT(other.receive_all(), IsEmpty());
    EXPECT_THAT(elsewhere.receive_all(), IsEmpty());
}

TEST_F(VxlanUplinkTest, NetworksOfOneAddressAreApart) {
    Host near(*this, "127.0.0.1", test::kMacA);
    Host far(*this, "127.0.0.2", test::kMacB);
    Switch other_network{clock};
    KeepingPort other_port;
    other_network.attach(other_port, &test::kMacB);
    near.join({far.own});
    far.join({near.own});
    {
        UplinkConfig config;
        config.name = "six";
        config.local = far.endpoint->local();
        config.vxlan.vni = 6;
        config.vxlan.remotes = {near.own};
        auto six = VxlanUplink::create(*loop, other_network, config, *far.endpoint, *loop);
        ASSERT_TRUE(six);
        near.network.forward(near.port, numbered(1));
        serve_until([&] { return far.port.frames.size() == 1; });
        EXPECT_THAT(other_port.frames, IsEmpty());
        PlainHost stranger("127.0.0.1");
        stranger.send(far.own, numbered(2), 0, 6);
        serve_until([&] { return other_port.frames.size() == 1; });
        stranger.send(far.own, numbered(3), 0, 7);
        serve_until([&] { return counter(**six, "fabric.vxlan.unknown_network") == 1; });
        EXPECT_EQ(far.port.frames.size(), 1u);
        const auto again = VxlanUplink::create(*loop, other_network, config, *far.endpoint, *loop);
        ASSERT_FALSE(again);
        EXPECT_STREQ(again.error().text, "another uplink has the address and the VNI");
        // The one that is there has its frames as before.
        stranger.send(far.own, numbered(4), 0, 6);
        serve_until([&] { return other_port.frames.size() == 2; });
    }
    PlainHost stranger("127.0.0.1");
    stranger.send(far.own, numbered(5), 0, 6);
    serve_until([&] { return counter(*far.uplinks[0], "fabric.vxlan.unknown_network") == 2; });
}

TEST_F(VxlanUplinkTest, StrangersAreHeardOnlyWhereTheyMay) {
    Host near(*this, "127.0.0.1", test::kMacA);
    PlainHost peer("127.0.0.2");
    PlainHost stranger("127.0.0.9");
    VxlanUplink& five = near.join({peer.end()});
    VxlanUplink& six = near.join({peer.end()}, Learn::kAll, 6);
    stranger.send(near.own, FrameMaker{}.reversed().udp(1, 2));
    serve_until([&] { return counter(five, "fabric.vxlan.unknown_sender") == 1; });
    EXPECT_THAT(near.port.frames, IsEmpty());
    stranger.send(near.own, FrameMaker{}.reversed().udp(1, 2), 0, 6);
    serve_until([&] { return near.port.frames.size() == 1; });
    // Answers go to the port that this end has itself, as Linux does it.
    const auto rows = six.fdb().rows();
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[1].end, (TunnelEnd{stranger.end().address, near.own.port, 6}));
}

/// Linux takes datagrams from there, over IPv6.
TEST_F(VxlanUplinkTest, TheUnspecifiedAddressIsAStranger) {
    Host near(*this, "127.0.0.1", test::kMacA);
    VxlanUplink& uplink = near.join({{*parse_ip("127.0.0.2"), 4789, kVni}});
    base::Frame frame = FrameMaker{}.reversed().udp(1, 2);
    const Tunnelled packet{frame, roce::Gid{}, 0};
    uplink.take(0, {&packet, 1});
    EXPECT_TRUE(near.port.frames.empty());
    EXPECT_EQ(counter(uplink, "fabric.vxlan.unknown_sender"), 1u);
    EXPECT_EQ(counter(uplink, "fabric.fdb.learned"), 0u);
}

TEST_F(VxlanUplinkTest, WhatSaysThatItIsFromANicHereIsStopped) {
    Host near(*this, "127.0.0.1", test::kMacA);
    PlainHost peer("127.0.0.2");
    VxlanUplink& uplink = near.join({peer.end()});
    struct : Peer {
        rnic::LocalEnd rdma_for(const rnic::Ends&) override { return {}; }
        [[nodiscard]] bool may_claim(const base::MacAddr&) const override { return true; }
        Port& port() override { return *its; }
        Port* its = nullptr;
    } nic;
    nic.its = &near.port;
    ASSERT_TRUE(near.network.give(nic, test::kMacA, MacRight::kOwn));
    FrameMaker maker;
    maker.destination_mac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    peer.send(near.own, maker.udp(1, 2));
    serve_until([&] { return counter(uplink, "fabric.vxlan.own_source") == 1; });
    EXPECT_THAT(near.port.frames, IsEmpty());
    EXPECT_EQ(counter(uplink, "fabric.fdb.learned"), 0u);
    near.network.take_away(nic, test::kMacA, MacRight::kOwn);
}

TEST_F(VxlanUplinkTest, AMarkOutsideArrivesInside) {
    Host near(*this, "127.0.0.1", test::kMacA);
    PlainHost peer("127.0.0.2");
    VxlanUplink& uplink = near.join({peer.end()});
    const auto frame = [](int ecn) {
        FrameMaker maker = FrameMaker{}.reversed();
        maker.ecn = ecn;
        return maker.udp(1, 2);
    };
    peer.send(near.own, frame(2), 3);
    peer.send(near.own, frame(1), 3);
    peer.send(near.own, frame(0), 3);
    peer.send(near.own, frame(0), 1);
    peer.send(near.own, frame(2), 2);
    serve_until([&] { return near.port.frames.size() == 4; });
    std::vector<int> fields;
    for (const base::Frame& got : near.port.frames) fields.push_back(InnerPacket::of(got).tos);
    EXPECT_THAT(fields, ElementsAre(3, 3, 0, 2));
    EXPECT_EQ(counter(uplink, "fabric.vxlan.ecn_marked"), 2u);
    EXPECT_EQ(counter(uplink, "fabric.vxlan.ecn_dropped"), 1u);
    EXPECT_EQ(counter(uplink, "fabric.vxlan.ecn_suspicious"), 1u);
}

TEST_F(VxlanUplinkTest, NonsenseIsCounted) {
    Host near(*this, "127.0.0.1", test::kMacA);
    PlainHost peer("127.0.0.2");
    VxlanUplink& uplink = near.join({peer.end()});
    peer.send_bytes(near.own, std::vector<std::byte>(4));
    peer.send_bytes(near.own, std::vector<std::byte>(100));
    FrameMaker group = FrameMaker{}.reversed();
    group.source_mac[0] = 3;
    peer.send(near.own, group.udp(1, 2));
    group.source_mac = {};
    peer.send(near.own, group.udp(1, 2));
    serve_until([&] { return counter(uplink, "fabric.vxlan.malformed") == 4; });
    EXPECT_EQ(counter(uplink, "fabric.uplink.rx_frames"), 0u);
}

TEST_F(VxlanUplinkTest, AnEndThatIsNotThereCostsTheOthersNothing) {
    Host near(*this, "127.0.0.1", test::kMacA);
    PlainHost peer("127.0.0.2");
    const TunnelEnd nobody{*parse_ip("127.0.0.3"), free_port("127.0.0.3"), kVni};
    VxlanUplink& uplink = near.join({nobody, peer.end()});
    for (std::uint32_t i = 0; i < 100; ++i) near.network.forward(near.port, numbered(i));
    std::vector<std::uint32_t> numbers;
    serve_until([&] {
        for (const Datagram& datagram : peer.receive_all())
            numbers.push_back(number_of(std::span(datagram.bytes).subspan(8)));
        return numbers.size() == 100;
    });
    serve_until([&] { return counter(uplink, "fabric.vxlan.unreachable") > 0; });
    EXPECT_EQ(counter(uplink, "fabric.uplink.tx_dropped"), 0u);
    EXPECT_EQ(counter(uplink, "fabric.uplink.tx_frames"), 200u);
    EXPECT_TRUE(uplink.connected());
}

TEST_F(VxlanUplinkTest, WhatIsTooLargeIsCounted) {
    Host near(*this, "127.0.0.1", test::kMacA);
    PlainHost peer("127.0.0.2");
    VxlanUplink& uplink = near.join({peer.end()});
    near.network.forward(near.port, numbered(1, 65507));
    EXPECT_EQ(counter(uplink, "fabric.vxlan.too_large"), 1u);
    EXPECT_EQ(counter(uplink, "fabric.uplink.tx_dropped"), 0u);
}

TEST_F(VxlanUplinkTest, TheNarrowestWayLimitsTheMtuInside) {
    UplinkConfig config;
    config.kind = UplinkConfig::Kind::kVxlan;
    config.local = socket_address_of({*parse_ip("127.0.0.1"), 4789, 0});
    EXPECT_FALSE(find_mtu(config)) << "nobody is named";
    config.vxlan.remotes = {{*parse_ip("127.0.0.2"), 4789, kVni},
                            {*parse_ip("127.0.0.3"), 4789, kVni}};
    const auto mtu = find_mtu(config);
    ASSERT_TRUE(mtu);
    EXPECT_EQ(mtu->inside + 20 + 8 + 8 + 18, mtu->path);
}

TEST_F(VxlanUplinkTest, AnotherProgramFeedsTheTable) {
    const openmana::test::TempDir folder("vxlan");
    const std::string path = folder.path() + "/fdb";
    Host near(*this, "127.0.0.1", test::kMacA);
    PlainHost one("127.0.0.2");
    PlainHost other("127.0.0.3");
    VxlanUplink& uplink = near.join({}, Learn::kNothing, kVni, path);
    EXPECT_EQ(counter(uplink, "fabric.fdb.read_errors"), 1u) << "no file yet";
    const auto line = [](const PlainHost& host, const char* mac) {
        return std::string(mac) + " dev vx0 dst " + ip_text(host.end().address) + " port " +
               std::to_string(host.end().port) + " self permanent\n";
    };
    const auto reads = [&](std::uint64_t good, std::uint64_t bad) {
        serve_until([&] {
            return counter(uplink, "fabric.fdb.reads") == good &&
                   counter(uplink, "fabric.fdb.read_errors") == bad;
        });
    };
    std::ofstream(path) << line(one, "00:00:00:00:00:00");
    reads(1, 1);
    near.network.forward(near.port, numbered(1));
    EXPECT_EQ(one.receive_all().size(), 1u);
    // By another file in its place.
    std::ofstream(path + ".new") << line(one, "00:00:00:00:00:00")
                                 << line(other, "02:00:00:00:00:0b");
    std::filesystem::rename(path + ".new", path);
    reads(2, 1);
    near.network.forward(near.port, numbered(2));
    EXPECT_EQ(one.receive_all().size(), 0u);
    EXPECT_EQ(other.receive_all().size(), 1u);
    // One that is broken changes nothing, nor does its end.
    std::ofstream(path) << line(one, "02:00:00:00:00:0b") << "add nonsense\n";
    reads(2, 2);
    std::filesystem::remove(path);
    reads(2, 3);
    near.network.forward(near.port, numbered(3));
    EXPECT_EQ(other.receive_all().size(), 1u);
    std::ofstream(path) << line(one, "02:00:00:00:00:0b");
    reads(3, 3);
    near.network.forward(near.port, numbered(4));
    EXPECT_EQ(one.receive_all().size(), 1u);
    std::filesystem::remove_all(folder.path());
    reads(3, 5);
}

/// A table says who gets whose frames: only who may say so is believed, and only a whole one.
TEST_F(VxlanUplinkTest, ATableOfAnybodyOrHalfWrittenIsNotTaken) {
    const openmana::test::TempDir folder("vxlan");
    const std::string path = folder.path() + "/fdb";
    Host near(*this, "127.0.0.1", test::kMacA);
    VxlanUplink& uplink = near.join({}, Learn::kNothing, kVni, path);
    std::uint64_t wrong = 1;  // no file yet
    const auto is_refused = [&] {
        ++wrong;
        serve_until([&] { return counter(uplink, "fabric.fdb.read_errors") == wrong; });
        EXPECT_EQ(counter(uplink, "fabric.fdb.reads"), 0u);
    };
    const std::string line = "00:00:00:00:00:00 dst 127.0.0.2\n";
    const auto put = [&](const std::function<void()>& change) {
        std::ofstream(path + ".new") << line;
        change();
        std::filesystem::rename(path + ".new", path);
    };
    using std::filesystem::perms;
    put([&] { std::filesystem::permissions(path + ".new", perms(0664)); });
    is_refused();
    put([&] { std::filesystem::permissions(path + ".new", perms(0602)); });
    is_refused();
    std::ofstream(folder.path() + "/elsewhere") << line;
    std::filesystem::remove(path + ".new");
    std::filesystem::create_symlink(folder.path() + "/elsewhere", path + ".new");
    std::filesystem::rename(path + ".new", path);
    is_refused();
    if (::geteuid() == 0) {
        put([&] { EXPECT_EQ(::chown((path + ".new").c_str(), 4711, 0), 0); });
        is_refused();
    }
    put([&] { std::ofstream(path + ".new") << line << "00:00:00:00:00:00 dst 127.0.0"; });
    is_refused();
    put([] {});
    serve_until([&] { return counter(uplink, "fabric.fdb.reads") == 1; });
    // Somebody closes it, and another is at it when it is looked at.
    std::ofstream(path) << line << "02:00:00:00:00:01 dst 127.0.0.3\n";
    std::ofstream late(path);
    late << line << std::flush;
    serve_a_while();
    EXPECT_EQ(counter(uplink, "fabric.fdb.reads"), 1u);
    late << "02:00:00:00:00:02 dst 127.0.0.3\n" << std::flush;
    late.close();
    serve_until([&] { return counter(uplink, "fabric.fdb.reads") == 2; });
    EXPECT_EQ(uplink.fdb().rows().size(), 2u);
    EXPECT_EQ(counter(uplink, "fabric.fdb.read_errors"), wrong);
}

TEST_F(VxlanUplinkTest, ATableIsReadByAnotherThreadThanFrames) {
    const openmana::test::TempDir folder("vxlan");
    const std::string path = folder.path() + "/fdb";
    Host near(*this, "127.0.0.1", test::kMacA);
    const auto files = std::move(*base::EventLoop::create());
    UplinkConfig config;
    config.local = near.endpoint->local();
    config.vxlan.vni = kVni;
    config.vxlan.fdb = path;
    const auto uplink = VxlanUplink::create(*loop, near.network, config, *near.endpoint, *files);
    ASSERT_TRUE(uplink);
    std::ofstream(path) << "00:00:00:00:00:00 dst 127.0.0.2\n";
    serve_a_while();
    EXPECT_EQ(counter(**uplink, "fabric.fdb.reads"), 0u);
    while (counter(**uplink, "fabric.fdb.reads") == 0) {
        files->post([&] { files->stop(); });
        files->run();
    }
}

TEST_F(VxlanUplinkTest, SaysWhatItCannotHave) {
    Host near(*this, "127.0.0.1", test::kMacA);
    const auto taken = VxlanEndpoint::create(*loop, near.endpoint->local(), 0, kKey);
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().detail, static_cast<unsigned>(EADDRINUSE));
    const auto nowhere =
        VxlanEndpoint::create(*loop, *SocketAddress::parse("192.0.2.1:4789"), 0, kKey);
    ASSERT_FALSE(nowhere);
    EXPECT_EQ(nowhere.error().detail, static_cast<unsigned>(EADDRNOTAVAIL));
    UplinkConfig config;
    config.local = near.endpoint->local();
    config.vxlan.fdb = "/nowhere/fdb";
    const auto unseen = VxlanUplink::create(*loop, near.network, config, *near.endpoint, *loop);
    ASSERT_FALSE(unseen);
    EXPECT_STREQ(unseen.error().text, "cannot watch the directory of the file");
    EXPECT_EQ(unseen.error().detail, static_cast<unsigned>(ENOENT));
    near.network.forward(near.port, numbered(1));
}

}  // namespace
}  // namespace openmana::fabric::vxlan_test
