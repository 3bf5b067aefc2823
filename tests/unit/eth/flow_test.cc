// SPDX-License-Identifier: Apache-2.0
// Packet queues and flow rules of the extension (docs/extensions.md).
#include "eth/flow_table.h"

#include <mana/eth.h>
#include <mana/ext_eth.h>

#include "base/hold_meter.h"
#include "eth/toeplitz.h"
#include "fixture.h"
#include "support/hex.h"
#include "support/scarcity.h"

namespace openmana::eth::test {
namespace {

using openmana::test::EthRx;
using openmana::test::EthTx;
using openmana::test::Request;
using openmana::test::Response;
using openmana::test::to_hex;

constexpr base::MacAddr kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

Flow in4(unsigned protocol = 17) {
    Flow f = flow4(protocol);
    f.source_mac = kPeerMac;
    f.destination_mac = kOwnMac;
    return f;
}

Bytes with_tag(Bytes frame, unsigned tci) {
    Bytes tag;
    put16(tag, 0x8100);
    put16(tag, tci);
    frame.insert(frame.begin() + 12, tag.begin(), tag.end());
    return frame;
}

/// A rule: what to look for, and where.
struct Match {
    mana_hw_ext_flow_fields value{};
    mana_hw_ext_flow_fields mask{};
    Match& dest_mac(const base::MacAddr& mac) {
        std::memcpy(value.dest_mac, mac.data(), 6);
        std::memset(mask.dest_mac, 0xff, 6);
        return *this;
    }
    Match& dest_port(unsigned port) {
        value.dest_port[0] = static_cast<std::uint8_t>(port >> 8);
        value.dest_port[1] = static_cast<std::uint8_t>(port);
        std::memset(mask.dest_port, 0xff, 2);
        return *this;
    }
};

class EthFlows : public EthTest {
protected:
    void SetUp() override {
        EthTest::SetUp();
        eth.allow_packets(true);
    }
    EthRx packet_rx(std::uint32_t buffers = 4) {
        guest.packets = true;
        auto rx = guest.create_rx(1600);
        guest.packets = false;
        OM_CHECK(rx);
        for (std::uint32_t i = 0; i < buffers; ++i) guest.post_buffer(*rx);
        return std::move(*rx);
    }
    Response add(std::uint64_t rq, const Match& match, std::uint32_t priority = 0) {
        Request request(MANA_HW_EXT_ADD_FLOW, 168, 40, 2);
        request.put<std::uint64_t>(40, rq).put<std::uint32_t>(48, priority);
        const auto bytes = std::as_bytes(std::span(&match, 1));
        for (std::size_t i = 0; i < bytes.size(); ++i) request.put<std::byte>(56 + i, bytes[i]);
        return driver.call(request);
    }
    /// With the published key, so that the published hashes count. `entries`: 0 for the table's.
    Response create_spread(std::uint32_t fields, const std::vector<std::uint64_t>& queues,
                           std::uint32_t entries = 0) {
        const auto key = openmana::test::from_hex(
            "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa");
        Request request(MANA_HW_EXT_CREATE_SPREAD, 600, 40, 2);
        request.put<std::uint32_t>(40, fields)
            .put<std::uint32_t>(44,
                                entries != 0 ? entries : static_cast<std::uint32_t>(queues.size()))
            .put_bytes(48, key);
        for (std::size_t i = 0; i < queues.size(); ++i)
            request.put<std::uint64_t>(88 + 8 * i, queues[i]);
        return driver.call(request);
    }
    Response destroy_spread(std::uint64_t spread) {
        return driver.call(
            Request(MANA_HW_EXT_DESTROY_SPREAD, 48, 32, 2).put<std::uint64_t>(40, spread));
    }
    Response remove(std::uint64_t flow) {
        return driver.call(
            Request(MANA_HW_EXT_REMOVE_FLOW, 48, 32, 2).put<std::uint64_t>(40, flow));
    }
    /// Whether the frame comes to this queue and to no other of these.
    bool only(EthRx& queue, std::initializer_list<EthRx*> others, const Bytes& frame) {
        eth.receive(frame);
        const auto done = guest.poll(queue);
        bool ok = done && done->type == MANA_HW_ETH_CQE_RX_OK && done->frame == frame;
        for (EthRx* other : others) ok = !guest.poll(*other) && ok;
        return ok;
    }
};

TEST(FlowFields, OfUdpOverIpv4) {
    const Bytes frame = udp(in4(), pattern(10));
    const FlowFields fields = flow_fields(frame);
    EXPECT_EQ(to_hex(std::as_bytes(std::span(fields))),
              "02155d01234502155d999999"  // MACs
              "0800"                      // EtherType
              "0000"                      // VLAN
              "00110000"                  // untagged, UDP, type of service
              "03e807d0"                  // ports
              "0a000001000000000000000000000000"
              "0a000002000000000000000000000000");
}

TEST(FlowFields, OfTcpOverIpv6WithTag) {
    Flow flow = flow6(6);
    flow.destination_mac = kOwnMac;
    Bytes frame = with_tag(tcp(flow, pattern(10)), 0xa064);
    frame[18] = std::byte{0x6b};  // traffic class 0xb8
    frame[19] = std::byte{0x80};
    const FlowFields fields = flow_fields(frame);
    EXPECT_EQ(to_hex(std::as_bytes(std::span(fields))),
              "02155d01234502155d012345"
              "86dd"
              "a064"
              "0106b800"
              "03e807d0"
              "20010db8000000000000000000000001"
              "20010db8000000000000000000000002");
}

TEST(FlowFields, FragmentsAndShortHeadersHaveNoPorts) {
    Bytes frame = udp(in4(), pattern(10));
    set16(frame, 20, 0x2000);  // more fragments
    mana_hw_ext_flow_fields fields;
    FlowFields words = flow_fields(frame);
    std::memcpy(&fields, words.data(), sizeof fields);
    EXPECT_EQ(fields.protocol, 17);
    EXPECT_EQ(fields.dest_port[1], 0);
    for (std::size_t length = 0; length < frame.size(); ++length) {
        words = flow_fields(std::span(frame).first(length));
        std::memcpy(&fields, words.data(), sizeof fields);
        EXPECT_EQ(fields.dest_ip[0], length < 34 ? 0 : 10) << length;
    }
}

TEST_F(EthFlows, AreUnknownUnlessNegotiated) {
    eth.allow_packets(false);
    for (const std::uint32_t opcode : {0x2f000U, 0x2f001U, 0x2f002U, 0x2f003U, 0x2f004U, 0x2f005U})
        EXPECT_EQ(driver.call(Request(opcode, 168, 48, 2)).status, 0xffffffffU) << opcode;
    eth.allow_packets(true);
    EXPECT_EQ(driver.call(Request(0x2f005, 168, 48, 2)).status, 0xffffffffU);
    for (const std::uint32_t opcode : {0x2f000U, 0x2f001U, 0x2f002U, 0x2f003U, 0x2f004U})
        EXPECT_EQ(driver.call(Request(opcode, 40, 48, 2)).status, gdma::kHwcInvalidParameter);
}

TEST_F(EthFlows, ResetForgetsTheNegotiation) {
    EXPECT_TRUE(eth.packets_allowed());
    function.reset();
    EXPECT_FALSE(eth.packets_allowed());
}

TEST_F(EthFlows, RuleGivesItsFramesToThePacketQueueBesideTheInterface) {
    up();
    EthRx rx = packet_rx();
    ASSERT_TRUE(add(rx.object, Match().dest_port(2000)).ok());
    EXPECT_TRUE(only(rx, {&guest.rx[0]}, udp(in4(), pattern(100))));
    Flow other = in4();
    other.destination_port = 2001;
    EXPECT_TRUE(only(guest.rx[0], {&rx}, udp(other, pattern(100))));
    EXPECT_EQ(eth.counters().rx_by_rule.value(), 1U);
    EXPECT_EQ(eth.counters().rx_unicast_packets.value(), 2U);
}

TEST_F(EthFlows, RulesWorkWithTheInterfaceDown) {
    EthRx rx = packet_rx();
    ASSERT_TRUE(add(rx.object, Match().dest_mac(kOwnMac)).ok());
    EXPECT_TRUE(only(rx, {}, udp(in4(), pattern(100))));
    Flow other = in4();
    other.destination_mac = kBroadcast;
    eth.receive(udp(other, pattern(100)));
    EXPECT_FALSE(guest.poll(rx));
    EXPECT_EQ(eth.counters().rx_disabled.value(), 1U);
}

TEST_F(EthFlows, OtherMacsAreFilteredWhateverARuleSays) {
    EthRx rx = packet_rx();
    ASSERT_TRUE(add(rx.object, Match()).ok());
    ASSERT_TRUE(add(rx.object, Match().dest_mac(kPeerMac)).ok());
    Flow other = in4();
    other.destination_mac = kPeerMac;
    eth.receive(udp(other, pattern(100)));
    EXPECT_FALSE(guest.poll(rx));
    EXPECT_EQ(eth.counters().rx_filtered.value(), 1U);
}

TEST_F(EthFlows, LowestPriorityNumberThenTheOldestRuleCounts) {
    EthRx first = packet_rx(), second = packet_rx(), third = packet_rx();
    const Bytes frame = udp(in4(), pattern(100));
    const auto late = add(third.object, Match(), 7);
    const auto old = add(first.object, Match().dest_port(2000), 5);
    ASSERT_TRUE(add(second.object, Match().dest_mac(kOwnMac), 5).ok());
    ASSERT_TRUE(late.ok());
    EXPECT_TRUE(only(first, {&second, &third}, frame));
    ASSERT_TRUE(remove(old.get<std::uint64_t>(32)).ok());
    EXPECT_TRUE(only(second, {&first, &third}, frame));
    ASSERT_TRUE(add(third.object, Match(), 4).ok());
    EXPECT_TRUE(only(third, {&first, &second}, frame));
    EXPECT_EQ(remove(old.get<std::uint64_t>(32)).status, gdma::kHwcNotFound);
}

TEST_F(EthFlows, TagsStayInTheFrame) {
    up();
    EthRx rx = packet_rx();
    ASSERT_TRUE(add(rx.object, Match().dest_port(2000)).ok());
    const Bytes frame = with_tag(udp(in4(), pattern(100)), 0x2005);
    eth.receive(frame);
    const auto done = guest.poll(rx);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->frame, frame);
    EXPECT_EQ(done->flags, MANA_HW_ETH_RX_IP_GOOD | MANA_HW_ETH_RX_UDP_GOOD);
    EXPECT_EQ(done->hash, 0U);
}

TEST_F(EthFlows, EndWithTheirQueue) {
    up();
    EthRx rx = packet_rx();
    const auto flow = add(rx.object, Match());
    ASSERT_TRUE(flow.ok());
    ASSERT_TRUE(guest.destroy(MANA_HW_ETH_RQ, rx.object).ok());
    EXPECT_EQ(remove(flow.get<std::uint64_t>(32)).status, gdma::kHwcNotFound);
    eth.receive(udp(in4(), pattern(100)));
    EXPECT_TRUE(guest.poll(guest.rx[0]));
    EXPECT_FALSE(add(rx.object, Match()).ok());
}

TEST_F(EthFlows, SpreadGivesEachFrameToTheQueueOfItsHash) {
    up();
    std::vector<EthRx> queues;
    std::vector<std::uint64_t> objects;
    for (int i = 0; i < 4; ++i) {
        queues.push_back(packet_rx());
        objects.push_back(queues.back().object);
    }
    Flow flow = in4(6);
    flow.source = {66, 9, 149, 187};
    flow.destination = {161, 142, 100, 80};
    flow.source_port = 2794;
    flow.destination_port = 1766;
    const Bytes frame = tcp(flow, pattern(100));
    const struct {
        std::uint32_t fields;
        std::uint32_t hash;
    } cases[] = {{0x03, 0x323e8fc2}, {0x33, 0x51ccc178}, {0xff, 0x51ccc178}, {0xc0, 0}, {0, 0}};
    for (const auto& c : cases) {
        const auto spread = create_spread(c.fields, objects);
        ASSERT_TRUE(spread.ok());
        const auto handle = spread.get<std::uint64_t>(32);
        ASSERT_TRUE(add(handle, Match().dest_mac(kOwnMac)).ok());
        eth.receive(frame);
        for (std::size_t i = 0; i < queues.size(); ++i) {
            const auto done = guest.poll(queues[i]);
            EXPECT_EQ(done.has_value(), i == c.hash % 4) << i << " " << c.fields;
            if (done) {
                EXPECT_EQ(done->frame, frame);
            }
        }
        ASSERT_TRUE(destroy_spread(handle).ok());
        EXPECT_EQ(destroy_spread(handle).status, gdma::kHwcNotFound);
    }
    EXPECT_EQ(eth.counters().rx_by_rule.value(), 5U);
    EXPECT_TRUE(only(guest.rx[0], {&queues[0]}, frame)) << "its rules end with a spread";
}

TEST_F(EthFlows, SpreadHashesIpv6AndUdp) {
    std::vector<EthRx> queues;
    std::vector<std::uint64_t> objects;
    for (int i = 0; i < 8; ++i) {
        queues.push_back(packet_rx());
        objects.push_back(queues.back().object);
    }
    Flow flow = flow6(17);
    flow.destination_mac = kOwnMac;
    flow.source = {0x3f, 0xfe, 0x25, 1, 2, 0, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 7};
    flow.destination = {0x3f, 0xfe, 0x25, 1, 2, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1};
    flow.source_port = 2794;
    flow.destination_port = 1766;
    const auto spread = create_spread(0xff, objects);
    ASSERT_TRUE(spread.ok());
    ASSERT_TRUE(add(spread.get<std::uint64_t>(32), Match()).ok());
    eth.receive(udp(flow, pattern(10)));
    EXPECT_TRUE(guest.poll(queues[0x40207d3d % 8]));
}

TEST_F(EthFlows, SpreadDropsWhatAnEndedQueueWouldGet) {
    EthRx first = packet_rx();
    EthRx second = packet_rx();
    const auto spread = create_spread(0, {first.object, second.object});
    ASSERT_TRUE(spread.ok());
    ASSERT_TRUE(add(spread.get<std::uint64_t>(32), Match()).ok());
    const Bytes frame = udp(in4(), pattern(100));
    EXPECT_TRUE(only(first, {&second}, frame));
    ASSERT_TRUE(guest.destroy(MANA_HW_ETH_RQ, first.object).ok());
    eth.receive(frame);
    EXPECT_FALSE(guest.poll(second));
    EXPECT_EQ(eth.counters().rx_no_queue.value(), 1U);
}

TEST_F(EthFlows, SpreadRefusesWhatMakesNoSense) {
    up();
    EthRx rx = packet_rx();
    const std::uint64_t object = rx.object;
    EXPECT_EQ(create_spread(0x100, {object}).status, gdma::kHwcInvalidParameter);
    EXPECT_EQ(create_spread(0, {}).status, gdma::kHwcInvalidParameter);
    EXPECT_EQ(create_spread(0, {object, object, object}).status, gdma::kHwcInvalidParameter);
    EXPECT_EQ(create_spread(0, {object, object}, 1).status, gdma::kHwcInvalidParameter)
        << "a queue behind the table";
    EXPECT_EQ(create_spread(0, {guest.rx[0].object}).status, gdma::kHwcInvalidParameter);
    EXPECT_EQ(create_spread(0, {guest.tx[0].object}).status, gdma::kHwcNotFound);
    for (int i = 0; i < 64; ++i) ASSERT_TRUE(create_spread(0, {object}).ok());
    EXPECT_EQ(create_spread(0, {object}).status, gdma::kHwcNoResources);
}

/// Before the gate that it measures.
struct Metered {
    base::HoldMeter meter;
};
class EthFlowHolds : public Metered, public EthFlows {};

TEST_F(EthFlowHolds, ChangesOfTheSteeringAreFewStepsHoweverMuchThereIs) {
    up();
    EthRx rx = packet_rx();
    const std::vector<std::uint64_t> table(MANA_HW_EXT_SPREAD_ENTRIES, rx.object);
    meter.clear();
    std::uint64_t spread = 0;
    for (int i = 0; i < 64; ++i) spread = create_spread(0, table).get<std::uint64_t>(32);
    for (int i = 0; i < 64; ++i) ASSERT_TRUE(add(spread, Match()).ok());
    ASSERT_TRUE(destroy_spread(spread).ok());
    ASSERT_TRUE(guest.destroy(MANA_HW_ETH_RQ, rx.object).ok());
    const std::uint64_t most = meter.largest(base::HoldKind::kExclusion).work;
    EXPECT_GE(most, 63U);
    EXPECT_LE(most, 128U) << meter.report();
    meter.clear();
    function.reset();
    EXPECT_LE(meter.largest(base::HoldKind::kExclusion).work, 128U) << meter.report();
}

TEST_F(EthFlows, PacketQueueFillsChecksumsOfWhateverItSends) {
    guest.packets = true;
    auto tx = guest.create_tx();
    ASSERT_TRUE(tx);
    openmana::test::TxOptions all;
    all.ipv4 = all.ipv6 = all.ip_checksum = all.tcp_checksum = all.udp_checksum = true;
    Bytes fragment = udp(flow4(17), pattern(100));
    set16(fragment, 20, 0x2000);
    set16(fragment, 24, 0);
    set16(fragment, 24, 0xffff & ~sum16(fragment, 14, 34));
    Bytes arp(60);
    set16(arp, 12, 0x0806);
    const struct {
        Bytes good;
        std::vector<std::size_t> fields;
    } packets[] = {
        {udp(flow4(17), pattern(101)), {24, 40}},
        {tcp(flow4(), pattern(101)), {24, 50}},
        {udp(flow6(17), pattern(101)), {60}},
        {tcp(flow6(), pattern(101)), {70}},
        {with_tag(udp(flow4(17), pattern(101)), 5), {28, 44}},
        {fragment, {24}},
        {arp, {}},
    };
    for (const auto& packet : packets) {
        Bytes frame = packet.good;
        for (const std::size_t at : packet.fields) set16(frame, at, 0x5aa5);
        sink.frames.clear();
        guest.send(*tx, frame, all);
        EXPECT_EQ(guest.poll(*tx)->type, MANA_HW_ETH_CQE_TX_OK);
        ASSERT_EQ(sink.frames.size(), 1U);
        EXPECT_EQ(to_hex(sink.frames[0]), to_hex(packet.good));
    }
    // Cut short anywhere: sent, and nothing read or written beyond the frame.
    for (std::size_t length = 14; length < 60; ++length) {
        Bytes frame = tcp(flow4(), pattern(101));
        frame.resize(length);
        guest.send(*tx, frame, all);
        EXPECT_EQ(guest.poll(*tx)->type, MANA_HW_ETH_CQE_TX_OK);
    }
    all.mss = 1000;
    all.header_bytes = 54;
    guest.send(*tx, tcp(flow4(), pattern(3000)), all);
    EXPECT_EQ(guest.poll(*tx)->type, MANA_HW_ETH_CQE_TX_OOB);
}

TEST_F(EthFlows, AllChecksumsAtOnceAreRefusedOnTheInterface) {
    up();
    openmana::test::TxOptions all;
    all.ipv4 = all.ipv6 = all.ip_checksum = all.tcp_checksum = all.udp_checksum = true;
    guest.send(guest.tx[0], udp(flow4(17), pattern(100)), all);
    EXPECT_EQ(tx_type(), MANA_HW_ETH_CQE_TX_OOB);
}

TEST_F(EthFlows, RefusesWhatMakesNoSense) {
    up();
    EthRx rx = packet_rx();
    Match beyond;
    beyond.value.protocol = 6;
    EXPECT_EQ(add(rx.object, beyond).status, gdma::kHwcInvalidParameter);
    Match reserved;
    reserved.mask.reserved = 1;
    EXPECT_EQ(add(rx.object, reserved).status, gdma::kHwcInvalidParameter);
    EXPECT_EQ(add(guest.rx[0].object, Match()).status, gdma::kHwcInvalidParameter);
    EXPECT_EQ(add(guest.tx[0].object, Match()).status, gdma::kHwcNotFound);
    for (std::size_t i = 0; i < FlowTable::kMaxRules; ++i)
        ASSERT_TRUE(add(rx.object, Match()).ok());
    EXPECT_EQ(add(rx.object, Match()).status, gdma::kHwcNoResources);
}

TEST_F(EthFlows, PacketQueueSendsFromAnySourceTheInterfaceDoesNot) {
    up();
    guest.packets = true;
    auto tx = guest.create_tx();
    ASSERT_TRUE(tx);
    Flow flow = flow4(17);
    flow.source_mac = kPeerMac;
    const Bytes frame = udp(flow, pattern(100));
    guest.send(*tx, frame);
    EXPECT_EQ(guest.poll(*tx)->type, MANA_HW_ETH_CQE_TX_OK);
    ASSERT_EQ(sink.frames.size(), 1U);
    EXPECT_EQ(sink.frames[0], frame);
    EXPECT_EQ(eth.counters().tx_source.value(), 0U);
    guest.send(guest.tx[0], frame);
    EXPECT_EQ(tx_type(), MANA_HW_ETH_CQE_TX_SOURCE);
    EXPECT_EQ(sink.frames.size(), 1U);
}

TEST_F(EthFlows, OwnFramesComeBackByARuleAndNeverToTheInterface) {
    up();
    Flow flow = in4();
    flow.destination_mac = {0x01, 0x50, 0x56, 0x19, 0x20, 0xa7};
    const Bytes frame = with_tag(udp(flow, pattern(100)), 0x2005);
    EXPECT_FALSE(eth.receive_own(frame));
    EthRx rx = packet_rx(1);
    ASSERT_TRUE(add(rx.object, Match().dest_port(2000)).ok());
    EXPECT_TRUE(eth.receive_own(frame));
    const auto done = guest.poll(rx);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->frame, frame);
    EXPECT_TRUE(eth.receive_own(frame)) << "no receive is left: dropped, and nobody else's";
    flow.destination_port = 2001;
    EXPECT_FALSE(eth.receive_own(udp(flow, pattern(100))));
    EXPECT_FALSE(eth.receive_own(std::span(frame).first(13)));
    EXPECT_FALSE(guest.poll(guest.rx[0]));
    EXPECT_EQ(eth.counters().rx_own.value(), 1U);
    EXPECT_EQ(eth.counters().rx_by_rule.value(), 1U);
    EXPECT_EQ(eth.counters().rx_no_wqe.value(), 1U);
    EXPECT_EQ(eth.counters().rx_multicast_packets.value(), 1U);
}

TEST_F(EthFlows, PacketQueueSendsBesideTheInterfaceAndNeedsItsOwnPdAndPage) {
    up();
    guest.packets = true;
    auto tx = guest.create_tx();
    ASSERT_TRUE(tx);
    const Bytes frame = udp(flow4(17), pattern(100));
    guest.send(*tx, frame);
    const auto done = guest.poll(*tx);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->type, MANA_HW_ETH_CQE_TX_OK);
    ASSERT_EQ(sink.frames.size(), 1U);
    EXPECT_EQ(sink.frames[0], frame);
    guest.send(guest.tx[0], frame);
    EXPECT_EQ(tx_type(), MANA_HW_ETH_CQE_TX_OK);
    const auto device = guest.device;
    guest.device.pd = 9999;
    EXPECT_FALSE(guest.create_tx());
    guest.device = device;
    guest.device.page = 1000000;
    EXPECT_FALSE(guest.create_tx());
}

TEST_F(EthFlows, SpreadsArePaidForAndRefusedWithoutMemory) {
    const EthRx rx = packet_rx();
    std::uint64_t handle = 0;
    openmana::test::expect_refusals_leave_nothing(function, driver, [&] {
        const auto spread = create_spread(0xff, {rx.object});
        handle = spread.get<std::uint64_t>(32);
        return spread.ok();
    });
    const std::uint64_t used = function.account().used();
    ASSERT_TRUE(destroy_spread(handle).ok());
    EXPECT_LE(function.account().used(), used - Toeplitz::kTableBytes);
}

}  // namespace
}  // namespace openmana::eth::test
