// SPDX-License-Identifier: Apache-2.0
// Completions, errors and limits of the stock format, with the test as the device.
#include "provider_fixture.h"

namespace openmana::test {
namespace {

using Rung = std::vector<DoorbellSink::Write>;
constexpr std::uint32_t kSreq = 0x804, kRreq = 0xc05, kRresp = 0xc04;

class StockTest : public ::testing::Test {
protected:
    explicit StockTest(enum mana_dp_format format = MANA_DP_RC)
        : sq(4112), read(4096), rq(4096), cq(sink, tables, 64, false) {
        mana_stock_attr attr{};
        attr.format = format;
        attr.queues.max_send = attr.queues.max_recv = 16;
        attr.queues.max_send_sge = attr.queues.max_recv_sge = 2;
        attr.queues.sq = sq.data();
        attr.read = read.data();
        attr.queues.rq = rq.data();
        EXPECT_EQ(mana_stock_init(&qp, &attr), 0);
        qp.sends.ring.id = kSreq;
        qp.read.id = kRreq;
        qp.receives.ring.id = qp.dp.qpn = kRresp;
        qp.dp.doorbell = sink.page();
        qp.dp.send_cq = qp.dp.recv_cq = &cq.dp;
        qp.mtu = 1024;
        EXPECT_EQ(mana_dp_table_add(tables.sq.get(), kSreq, &qp.dp), 0);
        EXPECT_EQ(mana_dp_table_add(tables.rq.get(), kRreq, &qp.dp), 0);
        EXPECT_EQ(mana_dp_table_add(tables.rq.get(), kRresp, &qp.dp), 0);
        qp.receives.allowed = qp.sends.allowed = true;
        mana_stock_start(&qp, 100);
        (void)sink.take();
    }
    ~StockTest() override { mana_stock_free(&qp); }
    int send(std::uint64_t id, std::uint32_t length, bool signaled = true,
             std::uint8_t opcode = MANA_HW_EXT_WQE_WRITE) {
        const mana_dp_sge sge{0x10000, length, 7};
        mana_dp_send wr{};
        wr.wr_id = id;
        wr.opcode = opcode;
        wr.flags = signaled ? MANA_HW_EXT_WQE_SIGNALED : 0;
        wr.sge = &sge;
        wr.sge_count = 1;
        wr.av = &av;
        return mana_stock_send(&qp, &wr);
    }
    int recv(std::uint64_t id, std::uint32_t sges = 1) {
        const mana_dp_sge list[3] = {{0x20000, 64, 7}, {0x30000, 64, 7}, {0x40000, 64, 7}};
        return mana_stock_recv(&qp, id, list, sges);
    }

    DoorbellSink sink;
    Tables tables;
    QueueMemory sq, read, rq;
    TestCq cq;
    mana_stock_qp qp{};
    mana_dp_av av{};
};

TEST_F(StockTest, ArmedCompletionFinishesSends) {
    ASSERT_EQ(send(1, 2000), 0);
    ASSERT_EQ(send(2, 2000, false), 0);
    ASSERT_EQ(send(3, 2000), 0);
    ASSERT_EQ(send(4, 2000), 0);
    EXPECT_TRUE(cq.poll().empty());
    cq.armed(kRreq, 105);
    const auto done = cq.poll();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].wr_id, 1U);
    EXPECT_EQ(done[1].wr_id, 3U);
    EXPECT_EQ(done[1].qpn, kRresp);
    EXPECT_EQ(done[1].opcode, MANA_WC_RDMA_WRITE);
    // The next signaled send is armed, once.
    EXPECT_EQ(sink.take(), (Rung{{0x408, (107ULL << 32) | 0x01000000 | kRreq}}));
    EXPECT_EQ(qp.rollback->left, 3 * 64U / 32);
}

TEST_F(StockTest, WithoutSignaledSendTheNextPsnIsArmed) {
    ASSERT_EQ(send(1, 2000), 0);
    cq.armed(kRreq, 101);
    EXPECT_EQ(cq.poll().size(), 1U);
    EXPECT_EQ(sink.take(), (Rung{{0x408, (102ULL << 32) | 0x01000000 | kRreq}}));
}

TEST_F(StockTest, PollTakesNoMoreThanAskedFor) {
    for (std::uint64_t i = 0; i < 5; ++i) ASSERT_EQ(send(i, 8), 0);
    cq.armed(kRreq, 104);
    for (std::uint64_t i = 0; i < 5; ++i) {
        const auto done = cq.poll(1);
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].wr_id, i);
    }
    EXPECT_TRUE(cq.poll().empty());
    EXPECT_EQ(sink.take().size(), 1U);
}

TEST_F(StockTest, OldArmedCompletionIsIgnored) {
    ASSERT_EQ(send(1, 8), 0);
    cq.armed(kRreq, 99);
    EXPECT_TRUE(cq.poll().empty());
    EXPECT_TRUE(sink.take().empty());
}

TEST_F(StockTest, ReceivesGoByOffset) {
    ASSERT_EQ(recv(1), 0);
    ASSERT_EQ(recv(2), 0);
    cq.received(kRresp, MANA_HW_RNIC_CQE_SEND, 10, 32);  // not the oldest
    EXPECT_TRUE(cq.poll().empty());
    cq.received(kRresp, MANA_HW_RNIC_CQE_SEND_IMM, 10, 0, 0x01020304);
    cq.received(kRresp, MANA_HW_RNIC_CQE_WRITE_IMM, 20, 32, 5);
    const auto done = cq.poll();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].wr_id, 1U);
    EXPECT_EQ(done[0].opcode, MANA_WC_RECV);
    EXPECT_EQ(done[0].flags, MANA_WC_WITH_IMM);
    EXPECT_EQ(done[0].value, 0x01020304U);
    EXPECT_EQ(done[0].length, 10U);
    EXPECT_EQ(done[1].opcode, MANA_WC_RECV_RDMA_WITH_IMM);
}

TEST_F(StockTest, FullQueuesStayAsTheyWere) {
    for (std::uint64_t i = 0; i < 16; ++i) ASSERT_EQ(send(i, 8, false), 0);
    const auto producer = qp.sends.ring.producer;
    const auto psn = qp.next_psn;
    EXPECT_EQ(send(16, 8), ENOMEM);
    EXPECT_EQ(qp.sends.ring.producer, producer);
    EXPECT_EQ(qp.next_psn, psn);
    for (std::uint64_t i = 0; i < 16; ++i) ASSERT_EQ(recv(i), 0);
    EXPECT_EQ(recv(16), ENOMEM);
    // Unsignaled sends leave room once they are done.
    cq.armed(kRreq, 107);
    EXPECT_TRUE(cq.poll().empty());
    for (std::uint64_t i = 0; i < 8; ++i) EXPECT_EQ(send(i, 8), 0);
    EXPECT_EQ(send(16, 8), ENOMEM);
}

TEST_F(StockTest, RefusesWhatDoesNotFit) {
    EXPECT_EQ(recv(1, 3), EINVAL);
    const mana_dp_sge list[3] = {{0x10000, 8, 7}, {0x10000, 8, 7}, {0x10000, 8, 7}};
    mana_dp_send wr{};
    wr.opcode = MANA_HW_EXT_WQE_SEND;
    wr.sge = list;
    wr.sge_count = 3;
    EXPECT_EQ(mana_stock_send(&qp, &wr), EINVAL);
    wr.sge_count = 1;
    wr.flags = MANA_HW_EXT_WQE_INLINE;
    EXPECT_EQ(mana_stock_send(&qp, &wr), EINVAL);
    wr.flags = 0;
    for (const std::uint8_t opcode : {MANA_HW_EXT_WQE_SEND_INV, MANA_HW_EXT_WQE_CMP_SWAP,
                                      MANA_HW_EXT_WQE_LOCAL_INV, MANA_HW_EXT_WQE_BIND_MW}) {
        wr.opcode = opcode;
        EXPECT_EQ(mana_stock_send(&qp, &wr), EOPNOTSUPP);
    }
    qp.sends.allowed = qp.receives.allowed = false;
    EXPECT_EQ(send(1, 8), EINVAL);
    EXPECT_EQ(recv(1), EINVAL);
    EXPECT_EQ(qp.sends.ring.producer, 0U);
    EXPECT_EQ(qp.receives.ring.producer, 0U);
}

TEST_F(StockTest, ReadsWaitForTheScatterRing) {
    std::uint64_t posted = 0;
    std::uint32_t psn = 100;
    // 128 scatter lists fit; the send ring is emptied meanwhile.
    for (; posted < 300; ++posted, ++psn) {
        ASSERT_EQ(send(posted, 8, true, MANA_HW_EXT_WQE_READ), 0);
        cq.armed(kRreq, psn);
        const auto done = cq.poll();
        ASSERT_EQ(done.size(), 1U);
        ASSERT_EQ(done[0].wr_id, posted);
        ASSERT_EQ(done[0].opcode, MANA_WC_RDMA_READ);
    }
    EXPECT_EQ(qp.read.producer, 300 * 32U);
    EXPECT_EQ(qp.read.consumer, 300 * 32U);
}

TEST_F(StockTest, RingsWrapByteForByte) {
    std::uint32_t psn = 100;
    for (std::uint64_t i = 0; i < 200; ++i, ++psn) {
        // 64 and 96 bytes in turn, so that WQEs go over the end.
        const mana_dp_sge list[2] = {{0x1111, 8, 7}, {0x2222, 8, 9}};
        mana_dp_send wr{};
        wr.wr_id = i;
        wr.opcode = i % 2 ? MANA_HW_EXT_WQE_WRITE_IMM : MANA_HW_EXT_WQE_SEND;
        wr.flags = MANA_HW_EXT_WQE_SIGNALED;
        wr.sge = list;
        wr.sge_count = 2;
        const auto at = qp.sends.ring.producer;
        ASSERT_EQ(mana_stock_send(&qp, &wr), 0);
        const auto last = at + (i % 2 ? 64 : 48);  // of the second SGE
        ASSERT_EQ(sq.hex(last % 4096, 16), "22220000000000000900000008000000") << i;
        cq.armed(kRreq, psn);
        ASSERT_EQ(cq.poll().size(), 1U);
    }
    EXPECT_GT(qp.sends.ring.producer, 3 * 4096U);
}

TEST_F(StockTest, PsnsWrap) {
    mana_stock_reset(&qp);
    mana_stock_start(&qp, 0xfffffe);
    (void)sink.take();
    for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(send(i, 1025), 0);  // two packets each
    cq.armed(kRreq, 0xffffff);
    EXPECT_EQ(cq.poll().size(), 1U);
    EXPECT_EQ(sink.take(), (Rung{{0x408, (1ULL << 32) | 0x01000000 | kRreq}}));
    cq.armed(kRreq, 5);
    EXPECT_EQ(cq.poll().size(), 3U);
}

// The scenario of RNIC 9: five WRITEs of two packets, number 1 unsignaled, three receives.
TEST_F(StockTest, ErrorsAsWithTheStockProvider) {
    for (std::uint64_t i = 0; i < 5; ++i) ASSERT_EQ(send(i, 2000, i != 1), 0);
    for (std::uint64_t i = 50; i < 53; ++i) ASSERT_EQ(recv(i), 0);
    cq.armed(kRreq, 103);
    cq.error(kSreq, true, MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS, 105);
    const auto sends = cq.poll();
    ASSERT_EQ(sends.size(), 4U);
    const unsigned statuses[] = {MANA_HW_WC_SUCCESS, MANA_HW_WC_REM_ACCESS_ERR,
                                 MANA_HW_WC_WR_FLUSH_ERR, MANA_HW_WC_WR_FLUSH_ERR};
    const std::uint64_t ids[] = {0, 2, 3, 4};
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(sends[i].status, statuses[i]) << i;
        EXPECT_EQ(sends[i].wr_id, ids[i]) << i;
    }
    std::uint32_t qpn = 0;
    ASSERT_TRUE(mana_dp_cq_next_error(&cq.dp, &qpn));
    EXPECT_EQ(qpn, kRresp);
    EXPECT_FALSE(mana_dp_cq_next_error(&cq.dp, &qpn));
    cq.error(kRresp, false, MANA_HW_RNIC_VE_FLUSHED, 103);
    const auto receives = cq.poll();
    ASSERT_EQ(receives.size(), 3U);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(receives[i].wr_id, 50U + static_cast<unsigned>(i));
        EXPECT_EQ(receives[i].status, MANA_HW_WC_WR_FLUSH_ERR);
        EXPECT_EQ(receives[i].vendor_error, 0x1c7U);
    }
    EXPECT_EQ(send(9, 8), EINVAL);
    EXPECT_EQ(recv(9), EINVAL);
}

// PSNs tell what is done only as long as fewer than half of them are outstanding.
TEST_F(StockTest, OutstandingPsnsStayComparable) {
    constexpr std::uint32_t kLongest = 0x80000000;  // 2^21 packets
    for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(send(i, kLongest), 0);
    const auto psn = qp.next_psn;
    EXPECT_EQ(send(3, kLongest), ENOMEM);
    EXPECT_EQ(send(3, kLongest, true, MANA_HW_EXT_WQE_READ), ENOMEM);
    EXPECT_EQ(qp.next_psn, psn);
    EXPECT_EQ(qp.sends.head, 3U);
    EXPECT_EQ(qp.read.producer, 0U);
    ASSERT_EQ(send(3, kLongest - 1024), 0);
    EXPECT_EQ(send(4, 0), ENOMEM);
    EXPECT_TRUE(cq.poll().empty());
    (void)sink.take();
    cq.armed(kRreq, 100 + 0x200000 - 1);
    const auto done = cq.poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].wr_id, 0U);
    EXPECT_EQ(sink.take(),
              (Rung{{0x408, (uint64_t{100 + 0x400000 - 1} << 32) | 0x01000000 | kRreq}}));
    EXPECT_EQ(send(4, kLongest), 0);
    // No room could ever be enough for this one.
    qp.mtu = 256;
    EXPECT_EQ(send(5, kLongest), EINVAL);
}

// The device of this project names the PSN before the failing one.
TEST_F(StockTest, ErrorPsnMayBeTheAckedOne) {
    for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(send(i, 8), 0);
    cq.armed(kRreq, 100);
    cq.error(kSreq, true, MANA_HW_RNIC_VE_RETRY, 100);
    const auto done = cq.poll();
    ASSERT_EQ(done.size(), 3U);
    EXPECT_EQ(done[0].status, MANA_HW_WC_SUCCESS);
    EXPECT_EQ(done[1].status, MANA_HW_WC_RETRY_EXC_ERR);
    EXPECT_EQ(done[2].status, MANA_HW_WC_WR_FLUSH_ERR);
}

TEST_F(StockTest, RequesterScatterErrorIsASendError) {
    ASSERT_EQ(send(1, 8, false, MANA_HW_EXT_WQE_READ), 0);
    cq.error(kRreq, false, MANA_HW_RNIC_VE_RX_SGE_KEY, 99);
    const auto done = cq.poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, MANA_HW_WC_LOC_PROT_ERR);
    EXPECT_EQ(done[0].wr_id, 1U);
}

/// A CQ's lock protects what its own QPs have of it, and no more.
TEST_F(StockTest, CqesOfQpsThatUseAnotherCqAreSkipped) {
    TestCq other(sink, tables, 64, false);
    ASSERT_EQ(send(1, 8), 0);
    ASSERT_EQ(recv(2), 0);
    other.armed(kRreq, 100);
    other.received(kRresp, MANA_HW_RNIC_CQE_SEND, 8, 0);
    other.error(kSreq, true, MANA_HW_RNIC_VE_RETRY, 99);
    EXPECT_TRUE(other.poll().empty());
    EXPECT_TRUE(cq.poll().empty());
    cq.armed(kRreq, 100);
    cq.received(kRresp, MANA_HW_RNIC_CQE_SEND, 8, 0);
    EXPECT_EQ(cq.poll().size(), 2U);
}

TEST_F(StockTest, ForgottenQpLeavesNothing) {
    ASSERT_EQ(send(1, 8), 0);
    ASSERT_EQ(recv(2), 0);
    cq.armed(kRreq, 100);
    cq.received(kRresp, MANA_HW_RNIC_CQE_SEND, 8, 0);
    cq.error(kSreq, true, MANA_HW_RNIC_VE_FLUSHED, 100);
    mana_dp_cq_forget(&cq.dp, &qp.dp);
    EXPECT_TRUE(cq.poll().empty());
    std::uint32_t qpn = 0;
    EXPECT_FALSE(mana_dp_cq_next_error(&cq.dp, &qpn));
}

TEST_F(StockTest, ResetStartsAnew) {
    for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(send(i, 8), 0);
    cq.error(kSreq, true, MANA_HW_RNIC_VE_RETRY, 99);
    EXPECT_EQ(cq.poll().size(), 3U);
    mana_dp_cq_forget(&cq.dp, &qp.dp);
    mana_stock_reset(&qp);
    mana_stock_start(&qp, 7);
    EXPECT_EQ(send(1, 8), 0);
    cq.armed(kRreq, 7);
    const auto done = cq.poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, MANA_HW_WC_SUCCESS);
    EXPECT_EQ(qp.rollback->right, 0U);
}

TEST_F(StockTest, OverrunEndsPolling) {
    for (std::uint64_t i = 0; i < 3; ++i) cq.armed(kRreq, 1);
    cq.dp.ring[3].word = 5U << MANA_HW_OWNER_SHIFT;
    EXPECT_TRUE(cq.poll().empty());
    EXPECT_EQ(cq.last, -1);
    EXPECT_TRUE(cq.poll().empty());
    EXPECT_EQ(cq.last, -1);
}

TEST_F(StockTest, CqIsRungEveryFourLaps) {
    for (std::uint32_t i = 0; i < 4 * 64; ++i) {
        EXPECT_TRUE(sink.take().empty()) << i;
        cq.armed(0xffff, i);
        (void)cq.poll();
    }
    EXPECT_EQ(sink.take(), (Rung{{0x800, (5 * 64ULL - 1) << 32 | 0x64}}));
}

TEST_F(StockTest, SolicitedArmingIsArmingForAll) {
    mana_dp_cq_arm(&cq.dp, true);
    const Rung solicited = sink.take();
    EXPECT_EQ(solicited, (Rung{{0x800, 1ULL << 63 | 64ULL << 32 | 0x64}}));
    mana_dp_cq_arm(&cq.dp, false);
    EXPECT_EQ(sink.take(), (Rung{{0x800, 1ULL << 63 | 65ULL << 32 | 0x64}}));
}

TEST_F(StockTest, InlineDataIsCopied) {
    std::array<std::uint8_t, 32 * 64> area{};
    qp.sends.inline_slots.base = area.data();
    qp.sends.inline_slots.address = 0x5000;
    qp.sends.inline_slots.stride = 64;
    qp.sends.inline_slots.lkey = 0x77;
    const char text[] = "inline data";
    const mana_dp_sge sge{reinterpret_cast<std::uint64_t>(text), sizeof(text), 0};
    mana_dp_send wr{};
    wr.opcode = MANA_HW_EXT_WQE_SEND;
    wr.flags = MANA_HW_EXT_WQE_INLINE;
    wr.sge = &sge;
    wr.sge_count = 1;
    ASSERT_EQ(mana_stock_send(&qp, &wr), 0);
    ASSERT_EQ(mana_stock_send(&qp, &wr), 0);
    EXPECT_EQ(std::memcmp(area.data() + 64, text, sizeof(text)), 0);
    EXPECT_EQ(sq.hex(64 + 32, 16), "4050000000000000770000000c000000");
}

class StockUdTest : public StockTest {
protected:
    StockUdTest() : StockTest(MANA_DP_UD) {
        av.stock_address = 0x9000;
        av.stock_lkey = 0x55;
        qp.regions = regions.get();
        mana_dp_region_enter(regions.get(), &region, kLkey, address_of(packet.data()), 48);
    }
    static std::uint64_t address_of(const std::uint8_t* at) {
        return reinterpret_cast<std::uintptr_t>(at);
    }
    /// What the completion says of a datagram that came into these SGEs.
    int sl_of(std::span<const mana_dp_sge> list) {
        EXPECT_EQ(mana_stock_recv(&qp, 1, list.data(), static_cast<std::uint32_t>(list.size())), 0);
        mana_hw_rnic_ud_recv_cqe cqe{};
        cqe.type = MANA_HW_RNIC_CQE_UD;
        cqe.length = 48;
        cq.write(cqe, kRresp, false);
        const auto done = cq.poll();
        return done.size() == 1 ? done[0].sl : -1;
    }
    /// The same of one SGE, which begins at this byte of the packet.
    int sl_at(std::size_t offset, std::uint32_t lkey) {
        const mana_dp_sge sge{address_of(packet.data() + offset), 48, lkey};
        return sl_of({&sge, 1});
    }

    static constexpr std::uint32_t kLkey = 7;
    std::array<std::uint8_t, 96> packet{};  // the first half is registered
    std::unique_ptr<mana_dp_regions> regions = std::make_unique<mana_dp_regions>();
    mana_dp_region region{};
};

TEST_F(StockUdTest, WqeCarriesTheAddressVectorFirst) {
    const mana_dp_sge sge{0x10000, 100, 7};
    mana_dp_send wr{};
    wr.opcode = MANA_HW_EXT_WQE_SEND;
    wr.flags = MANA_HW_EXT_WQE_SIGNALED;
    wr.sge = &sge;
    wr.sge_count = 1;
    wr.av = &av;
    wr.dest_qpn = 0x010203;
    wr.qkey = 0x11111111;
    ASSERT_EQ(mana_stock_send(&qp, &wr), 0);
    EXPECT_EQ(sq.hex(0, 64),
              "00000000"
              "020e0004"
              "40640000"
              "03020100"
              "11111111"
              "000000000000000000000000"
              "00900000000000005500000030000000"
              "00000100000000000700000064000000");
}

TEST_F(StockUdTest, EachSendHasACqe) {
    ASSERT_EQ(send(1, 8, true, MANA_HW_EXT_WQE_SEND), 0);
    ASSERT_EQ(send(2, 8, false, MANA_HW_EXT_WQE_SEND), 0);
    ASSERT_EQ(send(3, 8, true, MANA_HW_EXT_WQE_SEND), 0);
    mana_hw_rnic_ud_send_cqe cqe{};
    cqe.type_vendor = MANA_HW_RNIC_CQE_UD;
    for (int i = 0; i < 3; ++i) cq.write(cqe, kSreq, true);
    const auto done = cq.poll();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].wr_id, 1U);
    EXPECT_EQ(done[1].wr_id, 3U);
}

/// The device has no error CQE for datagrams (RNIC 7.4). What it completed before stays completed;
/// who sleeps until all is flushed gets an event, by an arming behind the newest CQE (RNIC 4.4).
TEST_F(StockUdTest, InErrEachWorkRequestIsFlushed) {
    ASSERT_EQ(send(1, 8, true, MANA_HW_EXT_WQE_SEND), 0);
    ASSERT_EQ(send(2, 8, false, MANA_HW_EXT_WQE_SEND), 0);
    ASSERT_EQ(recv(3), 0);
    mana_hw_rnic_ud_send_cqe cqe{};
    cqe.type_vendor = MANA_HW_RNIC_CQE_UD;
    cq.write(cqe, kSreq, true);
    mana_dp_cq_arm(&cq.dp, false);
    (void)sink.take();
    mana_stock_end(&qp);
    EXPECT_EQ(sink.take(), (Rung{{0x800, 1ULL << 63 | 63ULL << 32 | 0x64}}));
    mana_stock_end(&qp);  // it is moved to ERR again
    const auto done = cq.poll();
    ASSERT_EQ(done.size(), 3U);
    EXPECT_EQ(done[0].wr_id, 1U);
    EXPECT_EQ(done[0].status, MANA_HW_WC_SUCCESS);
    for (const std::uint64_t id : {2U, 3U}) {
        EXPECT_EQ(done[id - 1].wr_id, id);
        EXPECT_EQ(done[id - 1].status, MANA_HW_WC_WR_FLUSH_ERR);
        EXPECT_EQ(done[id - 1].vendor_error, 0x1c7U);
    }
    EXPECT_EQ(send(4, 8, true, MANA_HW_EXT_WQE_SEND), EINVAL);
    EXPECT_EQ(recv(5), EINVAL);
    EXPECT_TRUE(cq.poll().empty());
    // It is in ERR already.
    std::uint32_t qpn = 0;
    EXPECT_FALSE(mana_dp_cq_next_error(&cq.dp, &qpn));
}

TEST_F(StockUdTest, ALifeAfterErrIsNotFlushed) {
    ASSERT_EQ(recv(1), 0);
    mana_stock_end(&qp);
    mana_dp_cq_forget(&cq.dp, &qp.dp);
    mana_stock_reset(&qp);
    ASSERT_EQ(recv(2), 0);
    EXPECT_TRUE(cq.poll().empty());
    mana_stock_end(&qp);
    const auto done = cq.poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].wr_id, 2U);
}

/// Who resets it leaves the lists of its CQ, and rewinds its rings later. If another thread moves
/// it to ERR in between, it is in these lists for that, each time once.
TEST_F(StockUdTest, ErrWithinAResetIsKept) {
    mana_dp_cq_forget(&cq.dp, &qp.dp);
    mana_stock_end(&qp);
    mana_stock_reset(&qp);
    mana_stock_end(&qp);
    ASSERT_EQ(qp.send_side.next_ended, nullptr) << "the list begins anew at its end";
    EXPECT_TRUE(cq.poll().empty());
    mana_stock_reset(&qp);
    EXPECT_EQ(recv(1), EINVAL);
    mana_stock_end(&qp);
    EXPECT_TRUE(cq.poll().empty());
    mana_dp_cq_forget(&cq.dp, &qp.dp);
    mana_stock_reset(&qp);
    EXPECT_EQ(recv(2), 0);
}

TEST_F(StockUdTest, ReceiveNamesItsSender) {
    ASSERT_EQ(recv(1), 0);
    mana_hw_rnic_ud_recv_cqe cqe{};
    cqe.type = MANA_HW_RNIC_CQE_UD;
    cqe.length = 48;
    cqe.source_qpn = 0x123;
    cq.write(cqe, kRresp, false);
    const auto done = cq.poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].source_qpn, 0x123U);
    EXPECT_EQ(done[0].flags, MANA_WC_GRH);
    EXPECT_EQ(done[0].length, 48U);
}

// As ConnectX tells it (IBTA A17.4.5.1). The CQE has no room for it, so the GRH is looked at.
TEST_F(StockUdTest, ReceivesSayWhichIpTheyCameBy) {
    const mana_dp_sge list[] = {{address_of(packet.data()), 48, kLkey}, {0x40000, 64, kLkey}};
    // more than once around the ring
    for (int i = 0; i < 100; ++i) {
        packet[0] = 0x6f;
        ASSERT_EQ(sl_of(list), 9);
        packet[0] = 0;
        ASSERT_EQ(sl_of(list), 10);
    }
}

// An lkey of another process that shares the PD, or of memory at other addresses, names none here.
TEST_F(StockUdTest, OnlyMemoryThatIsRegisteredAtItsAddressIsLookedAt) {
    EXPECT_EQ(sl_at(47, kLkey), 10);
    EXPECT_EQ(sl_at(48, kLkey), 0) << "behind its end";
    EXPECT_EQ(sl_at(0, kLkey + 1), 0) << "another's lkey";
    mana_dp_region_enter(regions.get(), &region, kLkey + 1, address_of(packet.data() + 1), 95);
    EXPECT_EQ(sl_at(0, kLkey + 1), 0) << "before its start";
    EXPECT_EQ(sl_at(95, kLkey + 1), 10);
    EXPECT_EQ(sl_at(1, kLkey), 0) << "by its old lkey";
    mana_dp_region_leave(&region);
    EXPECT_EQ(sl_at(1, kLkey + 1), 0) << "deregistered";
    mana_dp_region_leave(&region);  // it is in none
    qp.regions = nullptr;
    EXPECT_EQ(sl_at(0, kLkey), 0) << "nothing is known of memory";
}

// The device may give an lkey anew before who deregistered takes the old region out.
TEST_F(StockUdTest, RegionsOfOneLkeyStandBesideEachOther) {
    mana_dp_region next{};
    mana_dp_region_enter(regions.get(), &next, kLkey, address_of(packet.data() + 48), 48);
    EXPECT_EQ(sl_at(0, kLkey), 10);
    EXPECT_EQ(sl_at(48, kLkey), 10);
    mana_dp_region_leave(&region);
    EXPECT_EQ(sl_at(0, kLkey), 0);
    EXPECT_EQ(sl_at(48, kLkey), 10);
    // More lkeys than the table has chains.
    std::vector<mana_dp_region> others(2 * MANA_DP_REGION_CHAINS);
    for (std::uint32_t i = 0; i < others.size(); ++i)
        mana_dp_region_enter(regions.get(), &others[i], 0x100 * (i + 1), address_of(&packet[0]), 1);
    EXPECT_EQ(sl_at(0, 0x100 * MANA_DP_REGION_CHAINS), 10);
    EXPECT_EQ(sl_at(48, kLkey), 10);
    for (mana_dp_region& other : others) mana_dp_region_leave(&other);
    EXPECT_EQ(sl_at(0, 0x100 * MANA_DP_REGION_CHAINS), 0);
    EXPECT_EQ(sl_at(48, kLkey), 10);
}

// Nothing of a receive without memory may be looked at.
TEST_F(StockUdTest, ReceiveWithoutMemoryDoesNotSay) {
    const mana_dp_sge list[] = {{address_of(packet.data()), 0, kLkey}};
    for (std::uint32_t sges : {0U, 1U}) {
        ASSERT_EQ(mana_stock_recv(&qp, 1, list, sges), 0);
        mana_hw_rnic_ud_recv_cqe cqe{};
        cqe.type = MANA_HW_RNIC_CQE_UD;
        cq.write(cqe, kRresp, false);
        const auto done = cq.poll();
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].sl, 0);
    }
}

TEST_F(StockUdTest, OnlySendsOfOnePacket) {
    EXPECT_EQ(send(1, 8, true, MANA_HW_EXT_WQE_WRITE), EOPNOTSUPP);
    EXPECT_EQ(send(1, 1025, true, MANA_HW_EXT_WQE_SEND), EINVAL);
    av.stock_address = 0;
    EXPECT_EQ(send(1, 8, true, MANA_HW_EXT_WQE_SEND), EINVAL);
}

}  // namespace
}  // namespace openmana::test
