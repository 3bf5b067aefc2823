// SPDX-License-Identifier: Apache-2.0
// Extended QPs (docs/extensions.md): data, completions and errors; each case on the local path and
// on the wire.
#include "ext_fixture.h"

namespace openmana::test {
namespace {

class ExtRcTest : public ExtPathTest {};

INSTANTIATE_TEST_SUITE_P(Paths, ExtRcTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(ExtRcTest, WritesOfEveryLength) {
    open();
    std::size_t done = 0;
    for (const std::uint32_t length : {0U, 1U, 8U, 1023U, 1024U, 1025U, 65536U, 300000U}) {
        SCOPED_TRACE(length);
        link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 7, length, 64));
        ASSERT_TRUE(link->run(++done));
        EXPECT_EQ(link->sent.back().status, 0);
        EXPECT_EQ(link->sent.back().opcode, MANA_HW_EXT_WQE_WRITE);
        EXPECT_TRUE(link->same(7, 64, length));
    }
}

TEST_P(ExtRcTest, ReadsOfEveryLength) {
    open();
    std::size_t done = 0;
    for (const std::uint32_t length : {0U, 1U, 8U, 1025U, 65536U, 300000U}) {
        SCOPED_TRACE(length);
        link->a.post(link->wr(MANA_HW_EXT_WQE_READ, 128, length, 3));
        ASSERT_TRUE(link->run(++done));
        EXPECT_EQ(link->sent.back().status, 0);
        EXPECT_EQ(link->sent.back().length, length);
        EXPECT_TRUE(link->same(128, 3, length));
    }
}

TEST_P(ExtRcTest, SendsCarryCookieLengthImmediateAndSolicited) {
    open();
    link->b.recv(0xc0ffee, 0x80000, 8192);
    link->b.recv(0xbeef, 0x84000, 8192);
    ExtWr plain = link->wr(MANA_HW_EXT_WQE_SEND, 0, 3000);
    ExtWr immediate = link->wr(MANA_HW_EXT_WQE_SEND_IMM, 5000, 10);
    immediate.value = 0xaabbccdd;
    immediate.flags |= MANA_HW_EXT_WQE_SOLICITED;
    link->a.post(plain);
    link->a.post(immediate);
    ASSERT_TRUE(link->run(2, 2));
    const auto& first = link->received[0];
    EXPECT_EQ(first.type, MANA_HW_EXT_CQE);
    EXPECT_EQ(first.opcode, MANA_HW_EXT_WC_RECV);
    EXPECT_EQ(first.status, 0);
    EXPECT_EQ(first.flags, 0);
    EXPECT_EQ(first.length, 3000U);
    EXPECT_EQ(first.cookie, 0xc0ffeeU);
    const auto& second = link->received[1];
    EXPECT_EQ(second.flags, MANA_HW_EXT_CQE_IMMEDIATE | MANA_HW_EXT_CQE_SOLICITED);
    EXPECT_EQ(second.value, 0xaabbccddU);
    EXPECT_EQ(second.cookie, 0xbeefU);
    EXPECT_TRUE(link->same(0, 0x80000, 3000));
    EXPECT_TRUE(link->same(5000, 0x84000, 10));
    EXPECT_GE(second.timestamp, first.timestamp);
    EXPECT_NE(first.timestamp, 0U);
}

TEST_P(ExtRcTest, WriteWithImmediateTakesAReceive) {
    open();
    link->b.recv(9, 0x80000, 16);
    ExtWr write = link->wr(MANA_HW_EXT_WQE_WRITE_IMM, 0, 2000, 0x90000);
    write.value = 42;
    link->a.post(write);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->received[0].opcode, MANA_HW_EXT_WC_RECV_WRITE_IMM);
    EXPECT_EQ(link->received[0].length, 2000U);
    EXPECT_EQ(link->received[0].value, 42U);
    EXPECT_TRUE(link->same(0, 0x90000, 2000));
}

TEST_P(ExtRcTest, InlineDataNeedsNoKey) {
    open();
    ExtWr write = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 0, 0x90000);
    write.flags |= MANA_HW_EXT_WQE_INLINE;
    for (int i = 0; i < 500; ++i) write.data.push_back(static_cast<std::byte>(i * 3));
    link->a.post(write);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->sent[0].status, 0);
    EXPECT_TRUE(std::ranges::equal(link->b.at(0x90000, 500), write.data));
}

/// Drivers go through RESET, but nothing makes a guest do so: what it posts then is sent with PSNs
/// that follow on what was sent before, and from its own bytes only.
TEST_P(ExtRcTest, GoesOnAfterAnErrorWithoutReset) {
    open();
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 100));  // B has no receive
    link->idle();
    ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_ERR));
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->sent[0].status, 5);
    ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_RTS));
    ExtWr write = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 0, 0x90000);
    write.flags |= MANA_HW_EXT_WQE_INLINE;
    write.data.assign(500, std::byte{7});
    link->a.post(write);
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(link->sent[1].status, 12) << "the peer waits for the PSN that was given up";
}

TEST_P(ExtRcTest, OnlySignaledRequestsComplete) {
    open();
    ExtWr silent = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 100, 0x90000);
    silent.flags = 0;
    for (int i = 0; i < 3; ++i) link->a.post(silent);
    const std::uint32_t position = link->a.qp.sq_producer;
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 100, 0x90000));
    ASSERT_TRUE(link->run(1));
    link->idle();
    ASSERT_EQ(link->sent.size(), 1U);
    EXPECT_EQ(link->sent[0].cookie, position);
}

/// A provider learns of free slots by CQEs alone, and refuses what would be the 17th; the test sees
/// in B's memory that the device is done with those before it.
// ROCE 10: 29
TEST_P(ExtRcTest, UnsignaledWorkFreesItsSlots) {
    constexpr std::uint32_t kCount = 1000, kSlots = 16;
    ExtLink::Options options;
    options.a.sq_bytes = kSlots * MANA_HW_EXT_WQE_UNIT;  // a WRITE of one SGE takes one
    open(options);
    ExtWr wr;
    std::uint32_t last = 0;
    for (std::uint32_t i = 0; i < kCount; ++i) {
        wr = link->wr(MANA_HW_EXT_WQE_WRITE, 8 * i, 8, 0x90000 + 8 * i);
        if (i + 1 < kCount) wr.flags = 0;
        last = link->a.qp.sq_producer;
        link->a.post(wr);
        if (i % kSlots == kSlots - 1) {
            ASSERT_TRUE(link->world.run_until([&] { return link->same(0, 0x90000, 8 * (i + 1)); },
                                              std::chrono::seconds(60)))
                << i;
        }
    }
    ASSERT_TRUE(link->run(1));
    link->idle();
    ASSERT_EQ(link->sent.size(), 1U);
    EXPECT_EQ(link->sent[0].status, 0);
    EXPECT_EQ(link->sent[0].cookie, last);
    EXPECT_EQ(link->a.node->rnic.counters().timeouts.value(), 0U);
    EXPECT_TRUE(link->same(0, 0x90000, 8 * kCount));
}

TEST_P(ExtRcTest, ManyRequestsWrapTheRingsAndTheCq) {
    ExtLink::Options options;
    options.a.sq_bytes = 1024;
    options.b.rq_bytes = 512;
    options.entries = 8;
    open(options);
    std::size_t receives = 0;
    for (std::uint32_t i = 0; i < 500; ++i) {
        ExtWr request;
        if (i % 3 == 0) {
            link->b.recv(i, 0x80000 + 64 * (i % 8), 64);
            request = link->wr(MANA_HW_EXT_WQE_SEND, i, 40);
            ++receives;
        } else {
            request = link->wr(MANA_HW_EXT_WQE_WRITE, i, 100, 0x90000);
            request.sges = {link->a.sge(i, 10), link->a.sge(i + 10, 20), link->a.sge(i + 30, 30),
                            link->a.sge(i + 60, 40)};
        }
        link->a.post(request);
        ASSERT_TRUE(link->run(i + 1, receives)) << i;
        ASSERT_EQ(link->sent.back().status, 0) << i;
    }
}

TEST_P(ExtRcTest, PostsWithoutADoorbellAreFound) {
    open();
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 8, 0));
    ASSERT_TRUE(link->run(1, 0, std::chrono::microseconds(4)));
    EXPECT_EQ(link->a.qp.doorbells, 1U);
    for (std::size_t i = 2; i < 10; ++i) {
        link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 8, 8 * i));
        ASSERT_TRUE(link->run(i, 0, std::chrono::microseconds(4)));
    }
    EXPECT_EQ(link->a.qp.doorbells, 1U);
    EXPECT_GE(link->a.node->rnic.counters().record_posts.value(), 8U);
}

TEST_P(ExtRcTest, AnIdleQueueAsksForADoorbellAgain) {
    open();
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 8, 0));
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->a.qp.memory.load(1), 0U);
    link->world.advance(std::chrono::microseconds(100));
    EXPECT_EQ(link->a.qp.memory.load(1), 1U);
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 8, 0));
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(link->a.qp.doorbells, 2U);
}

TEST_P(ExtRcTest, ReceivesNeedNoDoorbell) {
    open();
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 100));
    link->idle(std::chrono::milliseconds(5));
    EXPECT_TRUE(link->sent.empty());
    link->b.recv(1, 0x80000, 100);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->received[0].cookie, 1U);
}

TEST_P(ExtRcTest, ReceivesAskForADoorbellOnlyInError) {
    open();
    ExtLink::Side& b = link->b;
    EXPECT_EQ(b.qp.memory.load(3), 0U);
    ASSERT_TRUE(b.host->to_state(b.qp, MANA_HW_RNIC_QP_ERR));
    EXPECT_EQ(b.qp.memory.load(3), 1U);
    ASSERT_TRUE(b.host->to_state(b.qp, MANA_HW_RNIC_QP_RESET));
    EXPECT_EQ(b.qp.memory.load(3), 0U);
}

TEST_P(ExtRcTest, FenceWaitsForReads) {
    open();
    ExtWr read = link->wr(MANA_HW_EXT_WQE_READ, 0, 5000, 0);
    ExtWr write = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 5000, 0x90000);
    write.flags |= MANA_HW_EXT_WQE_FENCE;
    link->a.post(read);
    link->a.post(write);
    ASSERT_TRUE(link->run(2));
    EXPECT_TRUE(link->same(0, 0x90000, 5000)) << "the WRITE sends what the READ fetched";
}

TEST_P(ExtRcTest, FailureBlamesItsRequestAndFlushesTheRest) {
    open();
    ExtWr silent = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 10, 0);
    silent.flags = 0;
    ExtWr bad = silent;
    bad.rkey ^= 0x100;
    const std::uint32_t first = link->a.qp.sq_producer;
    link->a.host->recv(link->a.qp, 77, {});
    link->a.post(silent);
    link->a.post(bad);
    link->a.post(silent);
    link->a.post(silent);
    ASSERT_TRUE(link->run(3));
    link->idle();
    ASSERT_EQ(link->sent.size(), 3U);
    EXPECT_EQ(link->sent[0].status, 10);
    EXPECT_EQ(link->sent[0].vendor_error, unsigned{MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS});
    EXPECT_EQ(link->sent[0].cookie, first + 1);
    EXPECT_EQ(link->sent[1].status, 5);
    EXPECT_EQ(link->sent[1].cookie, first + 2);
    EXPECT_EQ(link->sent[2].status, 5);
    EXPECT_EQ(link->a.state(), unsigned{MANA_HW_RNIC_QP_ERR});
    EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_ERR});
    const auto flushed = link->a.recv_cq.drain();
    ASSERT_EQ(flushed.size(), 1U);
    EXPECT_EQ(flushed[0].status, 5);
    EXPECT_EQ(flushed[0].cookie, 77U);
    EXPECT_TRUE(link->b.had_event(link->b.qp.qpn, MANA_HW_EXT_EVENT_QP_ACCESS_ERROR));
}

TEST_P(ExtRcTest, PostsInErrorAreFlushed) {
    open();
    ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_ERR));
    EXPECT_EQ(link->a.qp.memory.load(3), 1U);
    link->a.recv(5, 0, 10);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 10));
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->sent[0].status, 5);
    const auto flushed = link->a.recv_cq.drain();
    ASSERT_EQ(flushed.size(), 1U);
    EXPECT_EQ(flushed[0].cookie, 5U);
}

TEST_P(ExtRcTest, ReceiveTooShortFailsBothSides) {
    open();
    link->b.recv(1, 0x80000, 99);
    link->b.recv(2, 0x80000, 99);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 100));
    ASSERT_TRUE(link->run(1, 2));
    EXPECT_EQ(link->sent[0].status, 9);
    EXPECT_EQ(link->received[0].status, 1);
    EXPECT_EQ(link->received[0].cookie, 1U);
    EXPECT_EQ(link->received[1].status, 5);
}

TEST_P(ExtRcTest, ReceiveWithABadKeyIsAProtectionError) {
    open();
    gdma::Sge sge = link->b.sge(0, 100);
    sge.key = gdma::Key(sge.key.value() ^ 1);
    link->b.host->recv(link->b.qp, 4, std::span(&sge, 1));
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 100));
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->sent[0].status, 11);
    EXPECT_EQ(link->received[0].status, 4);
    EXPECT_EQ(link->received[0].vendor_error, unsigned{MANA_HW_RNIC_VE_RX_SGE_KEY});
}

// perftest rounds the receives of an SRQ up to the MTU, beyond the end of its memory.
TEST_P(ExtRcTest, ReceiveBeyondItsRegionServesWhatFits) {
    open();
    link->b.recv(1, ExtLink::kMr - 1500, 4096);
    link->b.recv(2, ExtLink::kMr - 1500, 4096);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 1500));
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->received[0].status, 0);
    EXPECT_TRUE(link->same(0, ExtLink::kMr - 1500, 1500));
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 1501));
    ASSERT_TRUE(link->run(2, 2));
    EXPECT_EQ(link->sent[1].status, 11);
    EXPECT_EQ(link->received[1].status, 4);
}

TEST_P(ExtRcTest, ReceiveWithTooManySgesIsAnOperationError) {
    open();
    link->b.recv(4, 0, 100);
    *reinterpret_cast<std::uint32_t*>(link->b.qp.memory.ring.at(link->b.qp.sq_bytes)) = 4;
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 100));
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->sent[0].status, 11);
    EXPECT_EQ(link->received[0].status, 2);
    EXPECT_EQ(link->received[0].cookie, 4U);
}

TEST_P(ExtRcTest, LocalErrorsNameTheirCause) {
    struct Case {
        const char* name;
        std::function<void(ExtLink&, ExtWr&)> spoil;
        std::uint8_t status;
        std::uint32_t vendor;
    };
    const Case cases[] = {
        {"key", [](ExtLink&, ExtWr& wr) { wr.sges[0].key = gdma::Key(1); }, 4,
         MANA_HW_RNIC_VE_TX_DATA_KEY},
        {"range",
         [](ExtLink& l, ExtWr& wr) { wr.sges[0].address = l.a.buffer.value() + ExtLink::kMr; }, 4,
         MANA_HW_RNIC_VE_TX_DATA_RANGE},
        {"opcode", [](ExtLink&, ExtWr& wr) { wr.opcode = 77; }, 2, MANA_HW_RNIC_VE_TX_UNSUPPORTED},
        {"register unprivileged",
         [](ExtLink&, ExtWr& wr) {
             wr.opcode = MANA_HW_EXT_WQE_FAST_REGISTER;
             wr.reg.emplace();
         },
         2, MANA_HW_RNIC_VE_TX_UNSUPPORTED},
        {"long",
         [](ExtLink&, ExtWr& wr) {
             wr.sges.assign(2, {0, gdma::Key(1), 0x80000000});
         },
         1, MANA_HW_RNIC_VE_TX_LENGTH},
        {"sges", [](ExtLink& l, ExtWr& wr) { wr.sges.assign(33, l.a.sge(0, 1)); }, 2,
         MANA_HW_RNIC_VE_TX_WQE_SIZE},
        {"inline read",
         [](ExtLink&, ExtWr& wr) {
             wr.opcode = MANA_HW_EXT_WQE_READ;
             wr.flags |= MANA_HW_EXT_WQE_INLINE;
         },
         2, MANA_HW_RNIC_VE_TX_WQE_FIELD},
    };
    for (const Case& test : cases) {
        SCOPED_TRACE(test.name);
        open();
        ExtWr request = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 16, 0);
        test.spoil(*link, request);
        request.flags &= static_cast<std::uint8_t>(~MANA_HW_EXT_WQE_SIGNALED);
        link->a.post(request);
        ASSERT_TRUE(link->run(1));
        EXPECT_EQ(link->sent[0].status, test.status);
        EXPECT_EQ(link->sent[0].vendor_error, test.vendor);
        EXPECT_EQ(link->a.state(), unsigned{MANA_HW_RNIC_QP_ERR});
        EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_RTS});
    }
}

TEST_P(ExtRcTest, NoAnswerExceedsTheRetries) {
    open();
    ASSERT_TRUE(link->b.host->destroy_qp(link->b.qp));
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 16, 0));
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->sent[0].status, 12);
}

TEST_P(ExtRcTest, NoReceiveExceedsTheRnrRetries) {
    ExtLink::Options options;
    options.path.rnr_retries = 2;
    open(options);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 16));
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->sent[0].status, 13);
}

TEST_P(ExtRcTest, QueueWithoutReceivesIsAllowed) {
    ExtLink::Options options;
    options.a.rq_bytes = 0;
    open(options);
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 16, 0));
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->sent[0].status, 0);
    ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_ERR));
}

// ROCE 10: 115
TEST_P(ExtRcTest, DrainedQueueTellsAndGoesOn) {
    open();
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 16));  // no receive yet
    link->idle(std::chrono::milliseconds(1));
    ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_SQD));
    EXPECT_FALSE(link->a.had_event(link->a.qp.qpn, MANA_HW_EXT_EVENT_SQ_DRAINED));
    EXPECT_EQ(link->a.host->query_qp(link->a.qp)->sq_draining, 1U);
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 16, 0x90000));
    link->b.recv(1, 0x80000, 16);
    ASSERT_TRUE(link->run(1, 1));
    link->idle(std::chrono::milliseconds(10));
    EXPECT_EQ(link->sent.size(), 1U) << "what was not begun waits";
    EXPECT_TRUE(link->a.had_event(link->a.qp.qpn, MANA_HW_EXT_EVENT_SQ_DRAINED));
    EXPECT_EQ(link->a.host->query_qp(link->a.qp)->sq_draining, 0U);
    ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_RTS));
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(link->sent[1].status, 0);
}

// ROCE 10: 113
TEST_P(ExtRcTest, FirstPacketInRtrIsAnEvent) {
    open();
    ASSERT_TRUE(link->b.host->to_state(link->b.qp, MANA_HW_RNIC_QP_RTR));
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 16, 0));
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 16, 0));
    ASSERT_TRUE(link->run(2));
    EXPECT_TRUE(link->b.had_event(link->b.qp.qpn, MANA_HW_EXT_EVENT_COMMUNICATION_ESTABLISHED));
}

TEST_P(ExtRcTest, NothingIsAcknowledgedAfterALostCompletion) {
    constexpr std::uint32_t kEntries = 4;
    ExtLink::Options options;
    options.entries = kEntries;
    options.path.retries = 1;
    open(options);
    for (std::uint32_t i = 0; i < 3 * kEntries; ++i) {
        link->b.recv(i, 64 * i, 64);
        ExtWr wr = link->wr(MANA_HW_EXT_WQE_SEND, 0, 8);
        wr.flags = 0;
        link->a.post(wr);
    }
    ASSERT_TRUE(link->world.run_until(
        [&] { return !(link->sent = link->a.send_cq.drain()).empty(); }, std::chrono::seconds(60)));
    EXPECT_EQ(link->sent[0].status, 12) << "the peer is silent";
    EXPECT_EQ(link->b.recv_cq.drain().size(), kEntries);
    EXPECT_EQ(link->b.host->query_counters(link->b.qp)->rx_sends, kEntries + 1)
        << "what filled the CQ, and the one whose completion was lost";
    EXPECT_TRUE(link->b.had_event(link->b.recv_cq.id, MANA_HW_EXT_EVENT_CQ_ERROR));
}

TEST_P(ExtRcTest, ImpossibleProducerFailsThatQpAlone) {
    open();
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 16, 0));
    ASSERT_TRUE(link->run(1));
    link->a.qp.memory.store(0, link->a.qp.sq_producer + link->a.qp.sq_bytes / 64 + 1);
    link->a.host->ring_send(link->a.qp);
    link->idle();
    EXPECT_EQ(link->a.state(), unsigned{MANA_HW_RNIC_QP_ERR});
    EXPECT_TRUE(link->a.had_event(link->a.qp.qpn, MANA_HW_EXT_EVENT_QP_FATAL));
    EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_RTS});
    EXPECT_EQ(link->sent.size(), 1U);
}

TEST_P(ExtRcTest, ImpossibleReceiveProducerFailsTheQp) {
    open();
    link->b.qp.memory.store(2, 10000);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 16));
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->sent[0].status, 11);
    EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_ERR});
    EXPECT_TRUE(link->b.had_event(link->b.qp.qpn, MANA_HW_EXT_EVENT_QP_FATAL));
}

TEST_P(ExtRcTest, WqeOfAnImpossibleSizeFailsTheQp) {
    for (const std::uint16_t size : {0, 65, 200}) {
        SCOPED_TRACE(size);
        open();
        auto bytes = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 16, 0).wqe();
        std::memcpy(bytes.data() + 2, &size, 2);
        link->a.host->post_raw(link->a.qp, bytes);
        ASSERT_TRUE(link->run(1));
        EXPECT_EQ(link->sent[0].status, 2);
        EXPECT_EQ(link->sent[0].vendor_error, unsigned{MANA_HW_RNIC_VE_TX_WQE_SIZE});
    }
}

TEST_P(ExtRcTest, ResetForgetsEverything) {
    open();
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 16));
    link->idle();
    for (ExtLink::Side* side : {&link->a, &link->b}) {
        ASSERT_TRUE(side->host->to_state(side->qp, MANA_HW_RNIC_QP_RESET));
        side->qp.sq_producer = side->qp.rq_producer = 0;
        side->qp.memory.store(0, 0);
        side->qp.memory.store(2, 0);
        EXPECT_EQ(side->qp.memory.load(1), 1U);
        EXPECT_EQ(side->qp.memory.load(3), 0U);
    }
    link->connect({});
    EXPECT_TRUE(link->sent.empty());
    link->b.recv(3, 0x80000, 16);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 16));
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->received[0].cookie, 3U);
    EXPECT_EQ(link->sent[0].cookie, 0U);
}

TEST_P(ExtRcTest, StockAndExtendedQpsTalk) {
    ExtLink::Options options;
    options.connect = false;
    open(options);
    auto& host = link->b.node->host;
    auto cq = *host.create_cq(16384);
    auto qp = host.create_rc(cq, cq);
    ASSERT_TRUE(qp);
    ASSERT_TRUE(
        link->a.host->connect(link->a.qp, 0x100, {host.gid(), host.mac(), qp->qpn(), 0x900}));
    ASSERT_TRUE(host.connect(*qp, 0x900, ExtLink::peer(link->a)));
    link->a.recv(8, 0x80000, 4096);
    const gdma::Sge target = link->b.sge(0x80000, 4096);
    ASSERT_TRUE(host.post_recv(*qp, 5, std::span(&target, 1)));
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 3000));
    SendWr send;
    send.opcode = MANA_HW_RNIC_WQE_SEND;
    send.sges = {link->b.sge(100, 2000)};
    ASSERT_TRUE(host.post_send(*qp, send));
    ASSERT_TRUE(link->run(1));
    std::vector<Completion> done;
    HostQp* const qps[] = {qp.get()};
    EXPECT_TRUE(link->world.run_until(
        [&] {
            host.poll(cq, qps, done);
            return done.size() == 2;
        },
        std::chrono::seconds(1)));
    EXPECT_TRUE(link->same(0, 0x80000, 3000));
    const auto received = link->a.recv_cq.drain();
    ASSERT_EQ(received.size(), 1U);
    EXPECT_EQ(received[0].length, 2000U);
    EXPECT_TRUE(link->same(0x80000, 100, 2000));
}

}  // namespace
}  // namespace openmana::test
