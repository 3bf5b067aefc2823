// SPDX-License-Identifier: Apache-2.0
// Receivers that are a moment late (ROCE 4.8): messages wait for their receives, and senders that
// allow no RNR retry do not fail.
#include "rnic/receive_wait.h"

#include "ext_fixture.h"
#include "rnic/datapath.h"
#include "rnic/qp_table.h"
#include "roce/aeth.h"
#include "wire_fixture.h"

namespace openmana::test {
namespace {

using roce::Opcode;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using Words = std::vector<std::string>;

/// As rdma_cm connects a program that asks for nothing: no RNR retry, the longest RNR timer.
Connection::Options strict(std::uint8_t timeout = 18) {
    Connection::Options options;
    options.timeout = timeout;
    options.limits_a.rnr_retry = options.limits_b.rnr_retry = 0;
    options.limits_a.rnr_timer = options.limits_b.rnr_timer = 0;
    return options;
}

class ReceiveWaitCase : public WireCase {
protected:
    void start(bool local, const Connection::Options& options = strict(),
               const rnic::RnicConfig& config = {}) {
        open(options, config);
        link->network.local = local;
        Connection::fill(link->a.at(0, 1 << 20), 1);
    }
    /// B's queue pair, as the device has it.
    [[nodiscard]] rnic::Qp& device() {
        return *link->b.node->rnic.local_peer().qps.find(roce::Qpn(link->b.qp->qpn()));
    }
    [[nodiscard]] std::uint64_t kept() { return device().datapath.receive_waits.used; }
    /// Nothing is left of a wait.
    void expect_over() {
        EXPECT_EQ(kept(), 0U);
        if (!device().receive_wait) return;
        EXPECT_EQ(device().receive_wait->size(), 0U);
        EXPECT_EQ(device().receive_wait->stored(), 0U);
        EXPECT_FALSE(device().receive_wait->timer());
    }
};

class ReceiveWaitTest : public ReceiveWaitCase, public ::testing::WithParamInterface<bool> {
protected:
    void start(const Connection::Options& options = strict()) {
        ReceiveWaitCase::start(GetParam(), options);
    }
};
INSTANTIATE_TEST_SUITE_P(Paths, ReceiveWaitTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(ReceiveWaitTest, LateReceiveCostsNoRetry) {
    start();
    send(1, 5000);
    link->idle(milliseconds(200));
    EXPECT_TRUE(link->a.done.empty());
    link->b.recv(1, 0, 8192);
    ASSERT_TRUE(link->run(1, 1));
    expect_ok(1, 1);
    EXPECT_TRUE(same(0, 0, 5000));
    EXPECT_EQ(at_b().receive_waits.value(), 1U);
    EXPECT_EQ(at_b().rnr_naks_sent.value(), 0U);
    EXPECT_EQ(at_a().retransmits.value(), 0U);
    expect_over();
}

TEST_P(ReceiveWaitTest, ReceiveIsFoundSoon) {
    for (const base::Duration late :
         {base::Duration(microseconds(20)), base::Duration(microseconds(500)),
          base::Duration(milliseconds(10)), base::Duration(milliseconds(200))}) {
        SCOPED_TRACE(late.count());
        start();
        send(1, 10);
        link->idle(late);
        link->b.recv(1, 0, 64);
        const auto posted = link->world.now();
        ASSERT_TRUE(link->run(1, 1));
        expect_ok(1, 1);
        EXPECT_LE(link->world.now() - posted, late / 8 + microseconds(20));
    }
}

TEST_P(ReceiveWaitTest, ReceiveThatNeverComesFailsTheSender) {
    // Half of the timeout of the QP, but not longer than the ACK delay that drivers tell.
    for (const auto& [timeout, patience] :
         {std::pair<std::uint8_t, base::Duration>{10, base::Duration(4096ULL << 9)},
          {14, base::Duration(4096ULL << 13)},
          {18, base::Duration(4096ULL << 16)},
          {0, base::Duration(4096ULL << 16)}}) {
        SCOPED_TRACE(unsigned{timeout});
        start(strict(timeout));
        const auto began = link->world.now();
        send(1, 10, false);
        send(2, 10);
        ASSERT_TRUE(link->run(1));
        EXPECT_GE(link->world.now() - began, patience);
        EXPECT_LE(link->world.now() - began, patience + microseconds(20));
        EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_RNR_RETRY});
        EXPECT_STREQ(link->a.state(), "ERR");
        EXPECT_STREQ(link->b.state(), "RTS");
        EXPECT_EQ(at_b().rnr_naks_sent.value(), 1U);
        link->idle(std::chrono::seconds(1));
        EXPECT_EQ(at_b().rnr_naks_sent.value(), 1U);
        expect_over();
    }
}

TEST_P(ReceiveWaitTest, EachMessageWaitsOnce) {
    Connection::Options options = strict(14);
    options.limits_a.rnr_retry = 2;
    options.limits_b.rnr_timer = 14;  // 1.28 ms
    start(options);
    const auto began = link->world.now();
    send(1, 10);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_RNR_RETRY});
    EXPECT_EQ(at_b().rnr_naks_sent.value(), 3U);
    EXPECT_EQ(at_b().receive_waits.value(), 1U);
    EXPECT_LE(link->world.now() - began, base::Duration(4096ULL << 13) + milliseconds(3));
}

TEST_P(ReceiveWaitTest, EveryMessageMayWait) {
    start();
    for (std::uint64_t i = 0; i < 5; ++i) send(i, 3000, i == 4);
    for (std::uint64_t i = 0; i < 5; ++i) {
        link->idle(milliseconds(150));
        EXPECT_EQ(link->b.done.size(), i);
        link->b.recv(i, 0, 4096);
        ASSERT_TRUE(link->run(i + 1, i + 1));
    }
    expect_ok(5, 5);
    EXPECT_EQ(at_b().receive_waits.value(), 5U);
    EXPECT_EQ(at_a().retransmits.value(), 0U);
    expect_over();
}

TEST_P(ReceiveWaitTest, WriteWithImmediateWaitsWithItsLastPacket) {
    start();
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE_IMM, 1, 0, 5000, 1 << 19));
    link->idle(milliseconds(20));
    EXPECT_EQ(same(0, 1 << 19, 4096), !GetParam()) << "of packets, what needs no receive is there";
    link->b.recv(1, 0, 0);
    ASSERT_TRUE(link->run(1, 1));
    expect_ok(1, 1);
    EXPECT_TRUE(same(0, 1 << 19, 5000));
}

TEST_P(ReceiveWaitTest, OthersKeepTheirOrder) {
    start();
    send(1, 2000, false);
    write(2, 2000, 1 << 19, false);
    read(3, 3000, false);
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE_IMM, 4, 0, 1000, 1 << 18));
    link->idle(milliseconds(20));
    EXPECT_TRUE(link->a.done.empty());
    link->b.recv(1, 0, 2000);
    ASSERT_TRUE(link->run(3, 1));
    link->idle(milliseconds(20));
    ASSERT_EQ(link->a.done.size(), 3U);
    link->b.recv(2, 0, 0);
    ASSERT_TRUE(link->run(4, 2));
    expect_ok(4, 2);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(link->a.done[i].id, i + 1);
    EXPECT_TRUE(same(0, 0, 2000));
    EXPECT_TRUE(same(1 << 19, 1 << 19, 2000));
    EXPECT_TRUE(same(1 << 20, 1 << 20, 3000));
    EXPECT_EQ(at_a().retransmits.value(), 0U);
}

/// fio: 16 messages of 64 KiB under way, receives of as many, posted again when the program has
/// seen what came.
TEST_P(ReceiveWaitTest, ReceiverThatIsAlwaysLate) {
    Connection::Options options = strict();
    options.ring = 65536;
    start(options);
    constexpr std::uint64_t kMessages = 80, kDepth = 16;
    std::uint64_t posted = 0, receives = 0;
    while (link->b.done.size() < kMessages) {
        while (posted < kMessages && posted - link->a.done.size() < kDepth) send(posted++, 65536);
        ASSERT_TRUE(link->run(0, receives));
        link->idle(milliseconds(10));
        while (receives < kMessages && receives - link->b.done.size() < kDepth)
            link->b.recv(receives++, 1 << 20, 65536);
    }
    ASSERT_TRUE(link->run(kMessages, kMessages));
    expect_ok(kMessages, kMessages);
    EXPECT_EQ(at_b().rnr_naks_sent.value(), 0U);
    EXPECT_EQ(at_a().retransmits.value(), 0U);
    EXPECT_EQ(at_a().timeouts.value(), 0U);
    expect_over();
}

TEST_P(ReceiveWaitTest, EndOfTheReceiverEndsTheWait) {
    for (const std::uint32_t state : {MANA_HW_RNIC_QP_ERR, MANA_HW_RNIC_QP_RESET}) {
        Connection::Options options = strict(10);
        options.retries = 1;
        start(options);
        send(1, 3000);
        link->idle(milliseconds(1));
        EXPECT_EQ(kept() > 0, !GetParam());
        ASSERT_TRUE(link->b.node->host.to_state(*link->b.qp, state));
        expect_over();
        EXPECT_EQ(at_b().drop_waiting.value(), GetParam() ? 0U : 3U);
        ASSERT_TRUE(link->run(1));
        EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_RETRY});
        EXPECT_EQ(at_b().rnr_naks_sent.value(), 0U);
    }
}

class ReceiveWaitWireTest : public ReceiveWaitCase {};

TEST_F(ReceiveWaitWireTest, WhatWaitsIsNotSentAgain) {
    start(false);
    send(1, 2048, false);
    send(2, 10);
    link->idle(milliseconds(50));
    EXPECT_EQ(story(), (Words{"SF100", "SL101", "SO102"})) << "and there is no answer";
    link->b.recv(1, 0, 4096);
    link->b.recv(2, 0, 4096);
    ASSERT_TRUE(link->run(2, 2));
    EXPECT_EQ(story(), (Words{"SF100", "SL101", "SO102", "A102"}));
    EXPECT_EQ(at_b().waiting_packets.value(), 3U);
}

/// Whose timer is shorter than ours loses one retry, and is told what it waits for.
TEST_F(ReceiveWaitWireTest, PeerThatAsksAgainIsAnswered) {
    Connection::Options options;
    options.limits_b.rnr_timer = 14;  // 1.28 ms
    start(false, options);
    send(1, 10);
    link->idle(milliseconds(1));
    EXPECT_EQ(story(), (Words{"SO100"}));
    link->idle(milliseconds(18));  // of 33.5
    inject(link->b, to(link->b, Opcode::kSendOnly, 0x100), 10);
    link->idle(microseconds(10));
    EXPECT_EQ(story(), (Words{"SO100", "RNR100"}));
    expect_over();
    link->idle(milliseconds(2));
    EXPECT_EQ(story(), (Words{"SO100", "RNR100", "SO100", "RNR100"})) << "it has waited";
    link->b.recv(1, 0, 64);
    ASSERT_TRUE(link->run(1, 1));
    expect_ok(1, 1);
}

/// But once the network may have made a copy.
TEST_F(ReceiveWaitWireTest, CopyThatComesEarlyIsIgnored) {
    start(false);
    send(1, 10);
    link->idle(milliseconds(1));
    inject(link->b, to(link->b, Opcode::kSendOnly, 0x100), 10);
    link->idle(milliseconds(50));
    EXPECT_EQ(story(), (Words{"SO100"}));
    EXPECT_EQ(at_b().duplicates.value(), 1U);
    link->b.recv(1, 0, 64);
    ASSERT_TRUE(link->run(1, 1));
    expect_ok(1, 1);
    EXPECT_EQ(at_b().rnr_naks_sent.value(), 0U);
}

TEST_F(ReceiveWaitWireTest, SecondCopyIsAnswered) {
    start(false);
    send(1, 10);
    for (int i = 0; i < 2; ++i) {
        link->idle(milliseconds(1));
        EXPECT_EQ(at_b().rnr_naks_sent.value(), 0U);
        inject(link->b, to(link->b, Opcode::kSendOnly, 0x100), 10);
    }
    EXPECT_EQ(at_b().rnr_naks_sent.value(), 1U);
    expect_over();
}

/// A peer that asks for no ACK before its last message is told of those before it.
TEST_F(ReceiveWaitWireTest, WhatIsDoneIsAcknowledged) {
    start(false);
    const auto silent = [&](std::uint32_t psn) {
        roce::Packet packet = to(link->b, Opcode::kSendOnly, psn);
        packet.ack_request = false;
        inject(link->b, packet, 10);
    };
    link->b.recv(0, 0, 64);
    silent(0x100);
    EXPECT_EQ(story(), Words{}) << "nobody asked, and nothing waits";
    for (std::uint32_t psn = 0x101; psn < 0x104; ++psn) silent(psn);
    EXPECT_EQ(story(), (Words{"A100"}));
    link->idle(milliseconds(50));
    EXPECT_EQ(story(), (Words{"A100"})) << "not again";
    for (std::uint64_t i = 1; i < 4; ++i) {
        link->b.recv(i, 0, 64);
        link->idle(milliseconds(50));
    }
    EXPECT_EQ(story(), (Words{"A100", "A101", "A102", "A103"}));
    expect_over();
}

TEST_F(ReceiveWaitWireTest, DuplicateOfWhatIsDoneIsAnswered) {
    start(false);
    link->b.recv(1, 0, 64);
    send(1, 10, false);
    send(2, 10);
    ASSERT_TRUE(link->run(1, 1));
    inject(link->b, to(link->b, Opcode::kSendOnly, 0x100), 10);
    EXPECT_EQ(at_b().duplicates.value(), 1U);
    EXPECT_EQ(naks(0x1f), 2U);
    link->b.recv(2, 0, 64);
    ASSERT_TRUE(link->run(2, 2));
    expect_ok(2, 2);
}

TEST_F(ReceiveWaitWireTest, LossBehindItIsToldWhenItEnds) {
    start(false);
    lose(request(0x103));
    for (std::uint64_t i = 1; i < 4; ++i) send(i, 2048, i == 3);
    link->idle(milliseconds(50));
    EXPECT_EQ(naks(0x60), 0U);
    for (std::uint64_t i = 1; i < 4; ++i) link->b.recv(i, 0, 4096);
    ASSERT_TRUE(link->run(3, 3));
    expect_ok(3, 3);
    EXPECT_EQ(naks(0x60), 1U);
    EXPECT_EQ(at_a().retransmits.value(), 1U);
    EXPECT_EQ(at_a().timeouts.value(), 0U);
    EXPECT_TRUE(same(0, 0, 2048));
    expect_over();
}

/// What was lost has come again before the wait ended.
TEST_F(ReceiveWaitWireTest, LossThatIsMadeGoodIsNotTold) {
    start(false);
    link->network.fate = [](const roce::Packet& p) {
        Fate fate;
        fate.lose = !p.info().response;
        return fate;
    };
    for (std::uint64_t i = 1; i < 4; ++i) send(i, 10, i == 3);
    link->idle(milliseconds(1));
    for (const std::uint32_t psn : {0x100, 0x102, 0x101, 0x102})
        inject(link->b, to(link->b, Opcode::kSendOnly, psn), 10);
    EXPECT_EQ(at_b().out_of_sequence.value(), 1U);
    for (std::uint64_t i = 1; i < 4; ++i) link->b.recv(i, 0, 64);
    ASSERT_TRUE(link->run(3, 3));
    expect_ok(3, 3);
    EXPECT_EQ(naks(0x60), 0U);
    EXPECT_EQ(at_a().timeouts.value(), 0U);
    expect_over();
}

/// Thousands of messages, of which always some wait.
TEST_F(ReceiveWaitWireTest, WaitThatNeverEndsKeepsNoMore) {
    Connection::Options options = strict();
    options.ring = 65536;
    start(false, options);
    constexpr std::uint64_t kMessages = 4000, kAhead = 16, kBytes = 1000;
    std::uint64_t posted = 0, receives = 0, most = 0, stored = 0;
    while (posted < kAhead) send(posted++, kBytes);
    link->idle(milliseconds(1));
    while (receives < kMessages - kAhead) {
        ASSERT_GT(device().receive_wait->size(), 0U);
        link->b.recv(receives++, 1 << 20, kBytes);
        send(posted++, kBytes);
        ASSERT_TRUE(link->run(0, receives));
        link->idle(microseconds(20));
        const rnic::ReceiveWait& wait = *device().receive_wait;
        most = std::max<std::uint64_t>(most, wait.size());
        stored = std::max(stored, wait.stored());
        ASSERT_EQ(wait.stored(), wait.bytes());
        ASSERT_EQ(kept(), wait.bytes());
    }
    EXPECT_LE(most, kAhead + 1);
    EXPECT_LE(stored, (kAhead + 1) * (kBytes + 512));
    while (receives < posted) link->b.recv(receives++, 1 << 20, kBytes);
    ASSERT_TRUE(link->run(posted, posted));
    EXPECT_EQ(at_b().waiting_packets.value(), posted);
    EXPECT_EQ(at_b().drop_waiting.value(), 0U);
    EXPECT_EQ(at_b().rnr_naks_sent.value(), 0U);
    expect_over();
}

TEST_F(ReceiveWaitWireTest, TooMuchIsLost) {
    rnic::RnicConfig config;
    config.window_packets = 2048;
    Connection::Options options = strict();
    options.ring = 65536;
    start(false, options, config);
    for (std::uint64_t i = 0; i < 16; ++i) send(i, 65536, i == 15);
    link->idle(milliseconds(5));
    EXPECT_EQ(device().receive_wait->size(), 512U);
    EXPECT_LE(kept(), 1280U << 10);
    EXPECT_GT(at_b().out_of_sequence.value(), 0U);
    for (std::uint64_t i = 0; i < 16; ++i) link->b.recv(i, 1 << 20, 65536);
    ASSERT_TRUE(link->run(16, 16));
    expect_ok(16, 16);
    EXPECT_EQ(at_b().rnr_naks_sent.value(), 0U);
    EXPECT_EQ(at_a().timeouts.value(), 0U);
    EXPECT_GE(naks(0x60), 1U);
    expect_over();
}

TEST_F(ReceiveWaitWireTest, NicKeepsNoMoreThanItsShare) {
    Connection::Options options;
    options.limits_b.rnr_timer = 14;
    start(false, options);
    std::uint64_t& used = device().datapath.receive_waits.used;
    used = rnic::ReceiveWaitBudget::kMost - 100;
    send(1, 10);
    link->idle(microseconds(100));
    EXPECT_EQ(naks(roce::rnr_syndrome(14)), 1U);
    EXPECT_EQ(at_b().receive_waits.value(), 0U);
    EXPECT_EQ(used, rnic::ReceiveWaitBudget::kMost - 100);
    used = 0;
    link->b.recv(1, 0, 64);
    ASSERT_TRUE(link->run(1, 1));
    expect_ok(1, 1);
}

/// The peer may come by the other path while its packets wait here.
TEST_F(ReceiveWaitWireTest, PathChangesMeanwhile) {
    start(false, strict(14));
    send(1, 10);
    link->idle(milliseconds(1));
    link->network.local = true;
    link->idle(milliseconds(20));
    link->b.recv(1, 0, 64);
    ASSERT_TRUE(link->run(1, 1));
    link->idle(milliseconds(100));
    expect_ok(1, 1);
    expect_over();
}

TEST_F(ReceiveWaitWireTest, AnswersSayNothingOfCredits) {
    start(false);
    link->b.recv(1, 0, 64);
    send(1, 10);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(naks(roce::kAckUnlimited), 1U);
}

class ReceiveWaitExtTest : public ::testing::TestWithParam<std::pair<bool, bool>> {};
INSTANTIATE_TEST_SUITE_P(Paths, ReceiveWaitExtTest,
                         ::testing::Values(std::pair(true, false), std::pair(false, false),
                                           std::pair(true, true), std::pair(false, true)),
                         [](const auto& info) {
                             return std::string(info.param.first ? "Local" : "Wire") +
                                    (info.param.second ? "Srq" : "");
                         });

TEST_P(ReceiveWaitExtTest, LateReceiveCostsNoRetry) {
    ExtLink::Options options;
    options.srq = GetParam().second;
    options.path.rnr_retries = 0;
    options.path.timeout = 18;
    ExtLink link(GetParam().first, options);
    for (int i = 0; i < 3; ++i) link.a.post(link.wr(MANA_HW_EXT_WQE_SEND, 0, 3000));
    link.idle(milliseconds(100));
    EXPECT_TRUE(link.sent.empty());
    for (std::uint32_t i = 0; i < 3; ++i) link.b.recv(i, 0x80000, 4096);
    ASSERT_TRUE(link.run(3, 3));
    for (const auto& cqe : link.sent) EXPECT_EQ(cqe.status, 0);
    for (const auto& cqe : link.received) EXPECT_EQ(cqe.status, 0);
    EXPECT_EQ(link.b.node->rnic.counters().rnr_naks_sent.value(), 0U);
}

TEST_P(ReceiveWaitExtTest, QueuePairThatGoesLeavesNothing) {
    ExtLink::Options options;
    options.srq = GetParam().second;
    options.path.rnr_retries = 0;
    options.path.retries = 1;
    options.path.timeout = 10;
    ExtLink link(GetParam().first, options);
    link.a.post(link.wr(MANA_HW_EXT_WQE_SEND, 0, 3000));
    link.idle(milliseconds(1));
    rnic::Datapath& datapath =
        link.b.node->rnic.local_peer().qps.find(roce::Qpn(link.b.qp.qpn))->datapath;
    EXPECT_EQ(datapath.receive_waits.used > 0, !GetParam().first);
    ASSERT_TRUE(link.b.host->destroy_qp(link.b.qp));
    EXPECT_EQ(datapath.receive_waits.used, 0U);
    ASSERT_TRUE(link.run(1));
    EXPECT_EQ(link.sent[0].status, 12);
}

}  // namespace
}  // namespace openmana::test
