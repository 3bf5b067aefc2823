// SPDX-License-Identifier: Apache-2.0
// Counters of queue pairs (docs/extensions.md): what happens to one is counted by it as by its
// port, so that those of all its queue pairs are the port's.
#include <array>
#include <cstring>
#include <utility>

#include "ext_fixture.h"

namespace openmana::test {
namespace {

using Counters = mana_hw_rnic_vf_counters_resp;
using roce::Opcode;
using std::chrono::milliseconds;

constexpr std::size_t kFields = 34;
using Fields = std::array<std::uint64_t, kFields>;
static_assert(sizeof(Counters) == sizeof(mana_hw_rnic_resp_head) + sizeof(Fields));

Fields fields_of(const Counters& counters) {
    Fields fields{};
    std::memcpy(fields.data(),
                reinterpret_cast<const std::byte*>(&counters) + sizeof(mana_hw_rnic_resp_head),
                sizeof fields);
    return fields;
}

/// Every case opens a link with a second connection beside the one that it uses, and ends with the
/// comparison.
class QpCountersTest : public ExtPathTest {
protected:
    void open(const ExtLink::Options& options = ExtLink::Options()) {
        ExtPathTest::open(options);
        others_ = {more(link->a), more(link->b)};
        if (!options.connect) return;
        OM_CHECK(
            link->b.host->connect(others_.second, ExtLink::kPsn, peer(link->a, others_.first)));
        OM_CHECK(
            link->a.host->connect(others_.first, ExtLink::kPsn, peer(link->b, others_.second)));
        link->a.host->post(others_.first, link->wr(MANA_HW_EXT_WQE_WRITE, 0, 3000, 0x40000));
        OM_CHECK(link->run(1));
        link->sent.clear();
        link->network.sent.clear();
    }
    void TearDown() override {
        link->network.fate = nullptr;
        link->idle(std::chrono::seconds(1));
        expect_port_is_sum(link->a, others_.first);
        expect_port_is_sum(link->b, others_.second);
    }
    [[nodiscard]] static Counters of_qp(const ExtLink::Side& side) {
        const auto counters = side.host->query_counters(side.qp);
        OM_CHECK(counters.has_value());
        return *counters;
    }
    [[nodiscard]] Counters at_a() const { return of_qp(link->a); }
    [[nodiscard]] Counters at_b() const { return of_qp(link->b); }
    [[nodiscard]] static Counters of_port(const ExtLink::Side& side) {
        const Response response = side.host->call(
            MANA_HW_RNIC_QUERY_VF_COUNTERS, mana_hw_rnic_query_counters_req{}, sizeof(Counters));
        OM_CHECK(response.ok());
        Counters counters{};
        std::memcpy(&counters, response.bytes.data(), sizeof counters);
        return counters;
    }
    /// Loses the first `times` packets for which `match` holds.
    void lose(std::function<bool(const roce::Packet&)> match, int times = 1) {
        link->network.fate = [match = std::move(match), times](const roce::Packet& packet) mutable {
            Fate fate;
            if (times > 0 && match(packet)) {
                fate.lose = true;
                --times;
            }
            return fate;
        };
    }
    static std::function<bool(const roce::Packet&)> is(Opcode opcode) {
        return [opcode](const roce::Packet& packet) { return packet.opcode == opcode; };
    }
    void send(std::uint32_t length) { link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, length)); }
    void write(std::uint32_t length) { link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, length)); }
    void read(std::uint32_t length) { link->a.post(link->wr(MANA_HW_EXT_WQE_READ, 0, length)); }

    std::pair<ExtQp, ExtQp> others_;

private:
    static ExtQp more(const ExtLink::Side& side) {
        const auto qp = side.host->create_qp(side.send_cq, side.recv_cq);
        OM_CHECK(qp.has_value());
        return *qp;
    }
    static Peer peer(const ExtLink::Side& side, const ExtQp& qp) {
        return {side.node->host.gid(), side.node->host.mac(), qp.qpn, ExtLink::kPsn};
    }
    void expect_port_is_sum(const ExtLink::Side& side, const ExtQp& other) const {
        const auto beside = side.host->query_counters(other);
        ASSERT_TRUE(beside.has_value());
        Counters port = of_port(side);
        port.current_rate = 0;  // no count
        const Fields expected = fields_of(port);
        const Fields one = fields_of(of_qp(side));
        const Fields two = fields_of(*beside);
        for (std::size_t i = 0; i < kFields; ++i)
            EXPECT_EQ(one[i] + two[i], expected[i]) << "field " << i;
    }
};

class QpCountersPathTest : public QpCountersTest {};

INSTANTIATE_TEST_SUITE_P(Paths, QpCountersPathTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });
/// What packets alone can do.
class QpCountersWireTest : public QpCountersTest {};

INSTANTIATE_TEST_SUITE_P(Paths, QpCountersWireTest, ::testing::Values(false),
                         [](const auto&) { return "Wire"; });

// ---- what goes well

TEST_P(QpCountersPathTest, MessagesAndBytesByKind) {
    open();
    link->b.recv(1, 0x80000, 4096);
    link->b.recv(2, 0x80000, 4096);
    send(100);
    send(200);
    write(400);
    read(800);
    ASSERT_TRUE(link->run(4, 2));
    EXPECT_EQ(at_b().rx_sends, 2U);
    EXPECT_EQ(at_b().rx_writes, 1U);
    EXPECT_EQ(at_b().rx_reads, 1U);
    EXPECT_EQ(at_b().rx_bytes, 700U);
    EXPECT_EQ(at_b().tx_bytes, 800U);
    EXPECT_EQ(at_a().tx_bytes, 700U);
    EXPECT_EQ(at_a().rx_bytes, 800U);
    EXPECT_EQ(at_a().rx_sends + at_a().rx_writes + at_a().rx_reads, 0U);
}

TEST_P(QpCountersPathTest, PacketsOfRequests) {
    open();
    write(5 * 1024);
    ExtWr add = link->wr(MANA_HW_EXT_WQE_FETCH_ADD, 0x1000, 8, 0x2000);
    add.swap_add = 1;
    link->a.post(add);
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(at_a().tx_packets, 6U);
    EXPECT_GE(at_b().rx_packets, 6U);
}

TEST_P(QpCountersWireTest, PacketsOfAnswers) {
    open();
    read(3 * 1024);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(at_a().tx_packets, 1U);
    EXPECT_EQ(at_b().rx_packets, 1U);
    EXPECT_EQ(at_b().tx_packets, 3U);
    EXPECT_EQ(at_a().rx_packets, 3U);
    EXPECT_EQ(at_a().rx_bytes, 3U * 1024);
}

TEST_P(QpCountersPathTest, Datagrams) {
    ExtLink::Options options;
    options.a.type = options.b.type = MANA_HW_EXT_QP_UD;
    options.connect = false;
    open(options);
    ASSERT_TRUE(link->a.host->start_datagrams(link->a.qp, 0x1234));
    ASSERT_TRUE(link->b.host->start_datagrams(link->b.qp, 0x1234));
    link->b.recv(1, 0x80000, 4096);
    ExtWr wr;
    wr.sges = {link->a.sge(0, 500)};
    wr.ud.emplace();
    std::ranges::copy(link->a.node->host.gid(), wr.ud->source_gid);
    std::ranges::copy(link->b.node->host.gid(), wr.ud->dest_gid);
    std::ranges::copy(link->b.node->host.mac(), wr.ud->dest_mac);
    wr.ud->udp_source_port = 0xc111;
    wr.ud->dest_qpn = link->b.qp.qpn;
    wr.ud->qkey = 0x1234;
    link->a.post(wr);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(at_a().tx_packets, 1U);
    EXPECT_EQ(at_a().tx_bytes, 500U);
    EXPECT_EQ(at_b().rx_packets, 1U);
    EXPECT_EQ(at_b().rx_bytes, 500U);
}

TEST_P(QpCountersPathTest, AQueuePairDoesNotCountForAnother) {
    open();
    const Fields before = fields_of(*link->a.host->query_counters(others_.first));
    write(1000);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(fields_of(*link->a.host->query_counters(others_.first)), before);
    EXPECT_EQ(at_a().tx_bytes, 1000U);
}

TEST_P(QpCountersPathTest, CountsGoOnThroughAReset) {
    open();
    write(1000);
    ASSERT_TRUE(link->run(1));
    ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_RESET));
    EXPECT_EQ(at_a().tx_bytes, 1000U);
}

TEST_P(QpCountersPathTest, WhatOnlyThePortHasIsZero) {
    open();
    write(1000);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(at_a().current_rate, 0U);
    EXPECT_EQ(at_a().nak_invalid_read, 0U);
    EXPECT_EQ(at_a().general_hardware_errors, 0U);
    EXPECT_NE(of_port(link->a).current_rate, 0U);
}

// ---- receivers that are not ready

TEST_P(QpCountersPathTest, ReceiverNotReady) {
    open();
    send(16);
    link->idle(milliseconds(100));  // longer than it is waited for
    link->b.recv(1, 0x80000, 64);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_GE(at_a().requester_rnr_naks, 1U);
    EXPECT_EQ(at_b().responder_rnr_naks, at_a().requester_rnr_naks);
    EXPECT_EQ(at_a().responder_rnr_naks + at_b().requester_rnr_naks, 0U);
    EXPECT_EQ(at_a().fatal_errors, 0U);
}

TEST_P(QpCountersPathTest, ReceiverNeverReady) {
    ExtLink::Options options;
    options.path.rnr_retries = 2;
    open(options);
    send(16);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(at_a().requester_rnr_naks, 3U);
    EXPECT_EQ(at_a().requester_rnr_retries_exceeded, 1U);
    EXPECT_EQ(at_a().fatal_errors, 1U);
    EXPECT_EQ(at_b().responder_rnr_naks, 3U);
    EXPECT_EQ(at_b().fatal_errors, 0U);
}

// ---- packets that are lost, late, or there twice

TEST_P(QpCountersWireTest, LostRequest) {
    open();
    lose(is(Opcode::kWriteMiddle));
    write(4 * 1024);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(at_b().responder_out_of_sequence, 2U);
    EXPECT_EQ(at_a().requester_oos_naks, 1U);
    EXPECT_EQ(at_a().requester_timeouts, 0U);
}

TEST_P(QpCountersWireTest, LostAcknowledgement) {
    open();
    lose(is(Opcode::kAcknowledge));
    write(16);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(at_a().requester_timeouts, 1U);
    EXPECT_EQ(at_b().responder_duplicates, 1U);
    EXPECT_EQ(at_b().duplicate_rx_requests, 1U);
    EXPECT_EQ(at_b().rx_writes, 1U);
    EXPECT_EQ(at_a().tx_packets, 2U);
}

TEST_P(QpCountersWireTest, LostReadResponse) {
    open();
    lose(is(Opcode::kReadResponseMiddle));
    read(4 * 1024);
    ASSERT_TRUE(link->run(1));
    EXPECT_GE(at_a().read_response_psn_mismatches, 1U);
    EXPECT_EQ(at_a().requester_implicit_naks, at_a().read_response_psn_mismatches);
    EXPECT_EQ(at_b().responder_duplicates, 1U);
    EXPECT_EQ(at_b().rx_reads, 1U);
}

TEST_P(QpCountersPathTest, PeerThatIsGone) {
    ExtLink::Options options;
    options.path.retries = 2;
    open(options);
    ASSERT_TRUE(link->b.host->to_state(link->b.qp, MANA_HW_RNIC_QP_RESET));
    write(16);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(at_a().requester_timeouts, 3U);
    EXPECT_EQ(at_a().requester_retries_exceeded, 1U);
    EXPECT_EQ(at_a().fatal_errors, 1U);
}

// ---- errors

TEST_P(QpCountersPathTest, RemoteAccess) {
    open();
    ExtWr request = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 16);
    request.rkey ^= 1;
    link->a.post(request);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(at_a().nak_access_error, 1U);
    EXPECT_EQ(at_a().fatal_errors, 1U);
    EXPECT_EQ(at_b().responder_remote_access_errors, 1U);
    EXPECT_EQ(at_b().fatal_errors, 1U);
}

TEST_P(QpCountersPathTest, RemoteAccessOfAReadAndAnAtomic) {
    for (const std::uint8_t opcode : {MANA_HW_EXT_WQE_READ, MANA_HW_EXT_WQE_FETCH_ADD}) {
        open();
        ExtWr request = link->wr(opcode, 0, 8);
        request.rkey ^= 1;
        link->a.post(request);
        ASSERT_TRUE(link->run(1));
        EXPECT_EQ(at_a().nak_access_error, 1U);
        EXPECT_EQ(at_b().responder_remote_access_errors, 1U);
        EXPECT_EQ(at_b().rx_reads, 0U);
    }
}

TEST_P(QpCountersPathTest, MessageTooLong) {
    open();
    link->b.recv(1, 0x80000, 99);
    send(100);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(at_a().nak_invalid_request, 1U);
    EXPECT_EQ(at_b().responder_local_length_errors, 1U);
}

TEST_P(QpCountersPathTest, ReceiveWithABadKey) {
    open();
    gdma::Sge sge = link->b.sge(0, 100);
    sge.key = gdma::Key(sge.key.value() ^ 1);
    link->b.host->recv(link->b.qp, 4, std::span(&sge, 1));
    send(100);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(at_a().nak_operation_error, 1U);
    EXPECT_EQ(at_b().responder_local_qp_errors, 1U);
}

TEST_P(QpCountersPathTest, ReceiveThatMakesNoSense) {
    open();
    link->b.recv(4, 0, 100);
    *reinterpret_cast<std::uint32_t*>(link->b.qp.memory.ring.at(link->b.qp.sq_bytes)) = 4;
    send(100);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(at_a().nak_operation_error, 1U);
    EXPECT_EQ(at_b().responder_malformed_wqes, 1U);
    EXPECT_EQ(at_b().responder_local_qp_errors, 0U);
}

TEST_P(QpCountersPathTest, SendWithABadKey) {
    open();
    ExtWr request = link->wr(MANA_HW_EXT_WQE_SEND, 0, 16);
    request.sges[0].key = gdma::Key(1);
    link->a.post(request);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(at_a().requester_local_protection_errors, 1U);
    EXPECT_EQ(at_a().fatal_errors, 1U);
    EXPECT_EQ(fields_of(at_b()), Fields{}) << "nothing left";
}

// ---- congestion

TEST_P(QpCountersWireTest, Congestion) {
    open();
    link->network.edit = [](roce::Packet& packet) {
        if (packet.opcode == Opcode::kWriteOnly) packet.ecn = roce::kEcnMarked;
    };
    write(16);
    ASSERT_TRUE(link->run(1));
    link->network.edit = nullptr;
    EXPECT_EQ(link->frames(Opcode::kCnp), 1U);
    EXPECT_EQ(at_a().received_cnps, 1U);
    EXPECT_EQ(at_a().congested_qps, 1U);
    link->idle(milliseconds(5));
    EXPECT_GE(at_a().rate_increases, 5U);
    EXPECT_EQ(at_a().recovered_qps, 1U);
    // The CNP and the acknowledgement.
    EXPECT_EQ(at_b().tx_packets, 2U);
    EXPECT_EQ(at_a().rx_packets, 2U);
    EXPECT_EQ(at_b().received_cnps + at_b().congested_qps, 0U);
}

}  // namespace
}  // namespace openmana::test
