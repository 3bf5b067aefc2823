// SPDX-License-Identifier: Apache-2.0
// Marks, notifications and what they do to a queue pair (ROCE 8, cases 140 to 142 of its
// catalogue).
#include "ext_fixture.h"
#include "rnic_fixture.h"

namespace openmana::test {
namespace {

using namespace std::chrono_literals;
using roce::Opcode;
using roce::Psn;

class CongestionTest : public ::testing::Test {
protected:
    void open(const rnic::RnicConfig& config = {}) {
        Connection::Options options;
        options.mtu = 4096;
        link = std::make_unique<Connection>(false, options, config);
    }
    /// A packet of the connection as B would get it, with a mark or without.
    base::Frame from_a(Opcode opcode, std::uint32_t psn, std::uint8_t ecn, std::size_t bytes = 0) {
        roce::Packet packet;
        packet.opcode = opcode;
        packet.psn = Psn(psn);
        packet.ecn = ecn;
        packet.source = link->a.node->host.gid();
        packet.destination = link->b.node->host.gid();
        packet.source_mac = link->a.node->host.mac();
        packet.destination_mac = link->b.node->host.mac();
        packet.destination_qpn = roce::Qpn(link->b.qp->qpn());
        packet.reth = {link->b.buffer.value(), roce::RKey(link->b.mr.rkey),
                       static_cast<std::uint32_t>(bytes)};
        const std::vector<std::byte> payload(bytes);
        packet.payload = payload;
        base::Frame frame;
        encode(packet, frame);
        return frame;
    }
    base::Frame cnp_to_a(std::uint32_t qpn) {
        roce::Packet packet;
        packet.opcode = Opcode::kCnp;
        packet.source = link->b.node->host.gid();
        packet.destination = link->a.node->host.gid();
        packet.source_mac = link->b.node->host.mac();
        packet.destination_mac = link->a.node->host.mac();
        packet.destination_qpn = roce::Qpn(qpn);
        base::Frame frame;
        encode(packet, frame);
        return frame;
    }
    void cnp() {
        link->a.node->rnic.receive(cnp_to_a(link->a.qp->qpn()));
        link->world.run_until_idle();
    }
    [[nodiscard]] std::uint32_t rate() const {
        return link->a.node->rnic.qp_status().at(0).rate_mbps;
    }
    const rnic::RnicCounters& at_a() { return link->a.node->rnic.counters(); }
    const rnic::RnicCounters& at_b() { return link->b.node->rnic.counters(); }
    std::unique_ptr<Connection> link;
};

TEST_F(CongestionTest, PacketsOfAConnectionAreMarkable) {
    open();
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 8192));
    link->post(link->wr(MANA_HW_RNIC_WQE_READ, 2, 0, 8192));
    ASSERT_TRUE(link->run(2));
    for (const auto& packet : link->network.sent) EXPECT_EQ(packet.ecn, roce::kEcnCapable0);
}

TEST_F(CongestionTest, OffMeansNoEctNoCnpAndNoReaction) {
    rnic::RnicConfig config;
    config.congestion.on = false;
    open(config);
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100));
    ASSERT_TRUE(link->run(1));
    for (const auto& packet : link->network.sent) EXPECT_EQ(packet.ecn, roce::kEcnNone);
    link->b.node->rnic.receive(from_a(Opcode::kWriteOnly, 0x101, roce::kEcnMarked, 8));
    cnp();
    link->idle();
    EXPECT_EQ(link->frames(Opcode::kCnp), 0U);
    EXPECT_EQ(at_b().ecn_marked.value(), 1U);
    EXPECT_EQ(at_a().cnps_ignored.value(), 1U);
    EXPECT_EQ(rate(), 0U);
}

// ROCE 10: 140
TEST_F(CongestionTest, CnpHasTheFieldsOfTheAnnex) {
    open();
    link->b.node->rnic.receive(from_a(Opcode::kWriteOnly, 0x100, roce::kEcnMarked, 8));
    link->idle();
    ASSERT_EQ(link->frames(Opcode::kCnp), 1U);
    const roce::Packet& cnp = link->network.sent[0];
    EXPECT_EQ(cnp.opcode, Opcode::kCnp) << "ahead of the acknowledgement";
    EXPECT_EQ(cnp.destination_qpn.value(), link->a.qp->qpn());
    EXPECT_EQ(cnp.destination, link->a.node->host.gid());
    EXPECT_EQ(cnp.source, link->b.node->host.gid());
    EXPECT_EQ(cnp.destination_mac, link->a.node->host.mac());
    EXPECT_EQ(cnp.psn, Psn(0));
    EXPECT_EQ(cnp.pkey, roce::kDefaultPkey);
    EXPECT_EQ(cnp.dscp, 48);
    EXPECT_EQ(cnp.ecn, roce::kEcnCapable0);
    EXPECT_TRUE(cnp.becn);
    EXPECT_FALSE(cnp.solicited || cnp.migrated || cnp.ack_request || cnp.fecn);
    EXPECT_EQ(cnp.info().extension_bytes, 16);
    EXPECT_EQ(at_b().cnps_sent.value(), 1U);
    EXPECT_EQ(at_a().cnps.value(), 1U);
}

// Case 140: 1000 marked packets in 1 ms, one notification in 50 us at most.
// ROCE 10: 140
TEST_F(CongestionTest, OneCnpInAnInterval) {
    open();
    for (std::uint32_t i = 0; i < 1000; ++i) {
        link->b.node->rnic.receive(from_a(Opcode::kWriteOnly, 0x100 + i, roce::kEcnMarked, 8));
        link->idle(1us);
    }
    EXPECT_GE(link->frames(Opcode::kCnp), 20U);
    EXPECT_LE(link->frames(Opcode::kCnp), 21U);
    EXPECT_EQ(at_b().ecn_marked.value(), 1000U);
}

TEST_F(CongestionTest, DuplicatesAndWhatIsNakedCountToo) {
    open();
    link->b.node->rnic.receive(from_a(Opcode::kWriteOnly, 0x80, roce::kEcnMarked, 8));
    link->idle(60us);
    link->b.node->rnic.receive(from_a(Opcode::kWriteOnly, 0x120, roce::kEcnMarked, 8));
    link->idle(60us);
    EXPECT_EQ(link->frames(Opcode::kCnp), 2U);
}

TEST_F(CongestionTest, WhatIsDroppedCausesNoCnp) {
    open();
    base::Frame broken = from_a(Opcode::kWriteOnly, 0x100, roce::kEcnMarked, 8);
    broken.back() ^= std::byte{1};
    link->b.node->rnic.receive(broken);
    ASSERT_TRUE(link->b.node->host.to_state(*link->b.qp, MANA_HW_RNIC_QP_ERR));
    link->b.node->rnic.receive(from_a(Opcode::kWriteOnly, 0x100, roce::kEcnMarked, 8));
    link->idle();
    EXPECT_EQ(link->frames(Opcode::kCnp), 0U);
}

TEST_F(CongestionTest, MarkedCnpIsNotAnswered) {
    open();
    base::Frame frame = cnp_to_a(link->a.qp->qpn());
    auto packet = *roce::parse(frame);
    packet.ecn = roce::kEcnMarked;
    base::Frame marked;
    encode(packet, marked);
    link->a.node->rnic.receive(marked);
    link->idle();
    EXPECT_EQ(link->frames(Opcode::kCnp), 0U);
    EXPECT_EQ(at_a().cnps.value(), 1U);
}

TEST(CongestionOfUcTest, ANotificationReachesTheSenderAndSlowsItDown) {
    ExtLink link(false, ExtLink::uc());
    roce::Packet packet;
    packet.opcode = Opcode::kUcWriteOnly;
    packet.psn = Psn(ExtLink::kPsn);
    packet.ecn = roce::kEcnMarked;
    packet.source = link.a.node->host.gid();
    packet.destination = link.b.node->host.gid();
    packet.source_mac = link.a.node->host.mac();
    packet.destination_mac = link.b.node->host.mac();
    packet.destination_qpn = roce::Qpn(link.b.qp.qpn);
    packet.reth = {link.b.buffer.value(), roce::RKey(link.b.mr.rkey), 0};
    base::Frame frame;
    encode(packet, frame);
    link.b.node->rnic.receive(frame);
    link.idle();
    ASSERT_EQ(link.frames(Opcode::kCnp), 1U);
    EXPECT_EQ(link.network.sent[0].destination_qpn.value(), link.a.qp.qpn);
    const auto& at_a = link.a.node->rnic.counters();
    EXPECT_EQ(at_a.cnps.value(), 1U);
    EXPECT_EQ(at_a.cnps_ignored.value(), 0U);
    EXPECT_EQ(at_a.rate_cuts.value(), 1U);
}

TEST_F(CongestionTest, CnpForNobodyIsIgnored) {
    open();
    link->a.node->rnic.receive(cnp_to_a(0x7777));
    ASSERT_TRUE(link->a.node->host.to_state(*link->a.qp, MANA_HW_RNIC_QP_ERR));
    cnp();
    EXPECT_EQ(at_a().cnps.value(), 0U);
    EXPECT_EQ(at_a().cnps_ignored.value(), 2U);
    EXPECT_EQ(rate(), 0U);
}

// Case 141.
// ROCE 10: 141
TEST_F(CongestionTest, CnpTakesNoPsn) {
    open();
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100));
    cnp();
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 2, 0, 100));
    cnp();
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(at_a().retransmits.value() + at_b().out_of_sequence.value(), 0U);
}

// Case 142.
// ROCE 10: 142
TEST_F(CongestionTest, NotificationHalvesTheRateOfTheQp) {
    open();
    cnp();
    EXPECT_EQ(rate(), 50000U);
    EXPECT_EQ(at_a().rate_cuts.value(), 1U);
}

TEST_F(CongestionTest, LimitGoesAwayByItselfAndLeavesNoTimer) {
    open();
    cnp();
    link->idle(2ms);
    EXPECT_EQ(rate(), 0U);
    EXPECT_EQ(at_a().rate_recoveries.value(), 1U);
    EXPECT_GE(at_a().rate_increases.value(), 5U);
    link->idle(1s);
    EXPECT_FALSE(link->world.next_timer().has_value()) << "an idle NIC waits for nothing";
}

TEST_F(CongestionTest, SlowQpIsPacedAndLosesNothing) {
    rnic::RnicConfig config;
    config.congestion.dcqcn.line_rate = 1'000'000'000;
    config.congestion.dcqcn.rate_timer = 1h;  // stays at half the line
    open(config);
    Connection::fill(link->a.at(0, 1 << 20), 1);
    cnp();
    const base::TimePoint begin = link->world.now();
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 1 << 20));
    ASSERT_TRUE(link->run(1));
    const double seconds = static_cast<double>((link->world.now() - begin).count()) / 1e9;
    const double bytes = (1 << 20) + 256 * (20 + 8 + 12 + 4);
    EXPECT_NEAR(bytes * 8 / seconds / 0.5e9, 1, 0.05);
    EXPECT_TRUE(std::ranges::equal(link->a.at(0, 1 << 20), link->b.at(0, 1 << 20)));
    EXPECT_EQ(at_a().retransmits.value(), 0U);
}

TEST_F(CongestionTest, ReadResponsesArePacedByTheirSender) {
    rnic::RnicConfig config;
    config.congestion.dcqcn.line_rate = 1'000'000'000;
    config.congestion.dcqcn.rate_timer = 1h;
    open(config);
    Connection::fill(link->a.at(0, 1 << 20), 1);
    cnp();
    const base::TimePoint begin = link->world.now();
    // B reads from A.
    SendWr wr;
    wr.opcode = MANA_HW_RNIC_WQE_READ;
    wr.sges = {link->b.sge(0, 1 << 20)};
    wr.remote_address = link->a.buffer.value();
    wr.rkey = link->a.mr.rkey;
    ASSERT_TRUE(link->b.node->host.post_send(*link->b.qp, wr));
    ASSERT_TRUE(link->run(0, 1));
    const double seconds = static_cast<double>((link->world.now() - begin).count()) / 1e9;
    EXPECT_NEAR((1 << 20) * 8 / seconds / 0.5e9, 1, 0.06);
    EXPECT_TRUE(std::ranges::equal(link->a.at(0, 1 << 20), link->b.at(0, 1 << 20)));
}

TEST_F(CongestionTest, ResetForgetsTheLimit) {
    open();
    cnp();
    ASSERT_NE(rate(), 0U);
    ASSERT_TRUE(link->a.node->host.reset(*link->a.qp));
    EXPECT_EQ(rate(), 0U);
}

TEST_F(CongestionTest, CountersOfTheCommandsAreFilled) {
    open();
    link->b.node->rnic.receive(from_a(Opcode::kWriteOnly, 0x100, roce::kEcnMarked, 8));
    link->idle(100us);
    const auto query = [&](Node& node, std::uint32_t code, std::uint32_t size) {
        Request request(code, 48, size, 3, code == MANA_HW_RNIC_QUERY_VF_COUNTERS ? 2 : 1);
        request.put<std::uint64_t>(40, node.host.adapter);
        return node.host.call(request.fit());
    };
    const auto vf = [](int index) { return 32U + 8U * static_cast<unsigned>(index); };
    const Response sender = query(*link->a.node, MANA_HW_RNIC_QUERY_VF_COUNTERS, 304);
    EXPECT_EQ(sender.get<std::uint64_t>(vf(21)), 1U) << "received CNPs";
    EXPECT_EQ(sender.get<std::uint64_t>(vf(22)), 1U) << "QPs congested";
    EXPECT_EQ(sender.get<std::uint64_t>(vf(25)), 50000U) << "current rate, Mbit/s";
    link->idle(5ms);
    const Response later = query(*link->a.node, MANA_HW_RNIC_QUERY_VF_COUNTERS, 304);
    EXPECT_GE(later.get<std::uint64_t>(vf(23)), 5U) << "rate increases";
    EXPECT_EQ(later.get<std::uint64_t>(vf(24)), 1U) << "QPs recovered";
    EXPECT_EQ(later.get<std::uint64_t>(vf(25)), 100000U);
    const Response receiver = query(*link->b.node, MANA_HW_RNIC_QUERY_DEVICE_COUNTERS, 64);
    EXPECT_EQ(receiver.get<std::uint32_t>(32), 1U) << "sent CNPs";
    EXPECT_EQ(receiver.get<std::uint32_t>(36), 1U) << "received ECNs";
    const Response device = query(*link->a.node, MANA_HW_RNIC_QUERY_DEVICE_COUNTERS, 64);
    EXPECT_EQ(device.get<std::uint32_t>(44), 1U) << "received CNPs";
    EXPECT_EQ(device.get<std::uint32_t>(48), 1U) << "congested";
    EXPECT_EQ(device.get<std::uint32_t>(52), 1U) << "recovered";
    EXPECT_GE(device.get<std::uint32_t>(56), 5U) << "increases";
}

}  // namespace
}  // namespace openmana::test
