// SPDX-License-Identifier: Apache-2.0
// The stock format byte for byte, against what the stock provider writes (RNIC 9).
#include "provider_fixture.h"

namespace openmana::test {
namespace {

using Rung = std::vector<DoorbellSink::Write>;

constexpr mana_dp_sge kSgeA{0x7f0011223340, 3000, 0x102};
constexpr mana_dp_sge kSgeB{0x7f0055667780, 100, 0x304};
constexpr const char* kBytesA = "40332211007f000002010000b80b0000";
constexpr const char* kBytesB = "80776655007f00000403000064000000";
constexpr const char* kZero = "00000000000000000000000000000000";
constexpr const char* kDummy = "01000000000000000000000000000000";
constexpr const char* kRemote = "007000007856341201feca00";

std::string text(std::initializer_list<std::string> parts) {
    std::string out;
    for (const auto& part : parts)
        for (const char c : part)
            if (c != ' ') out.push_back(c);
    return out;
}

class GoldenTest : public ::testing::Test {
protected:
    GoldenTest() : sq(4112), read(4096), rq(4096), cq(sink, tables, 64, false) {
        mana_stock_attr attr{};
        attr.format = MANA_DP_RC;
        attr.queues.max_send = attr.queues.max_recv = 16;
        attr.queues.max_send_sge = attr.queues.max_recv_sge = 2;
        attr.queues.sq = sq.data();
        attr.read = read.data();
        attr.queues.rq = rq.data();
        EXPECT_EQ(mana_stock_init(&qp, &attr), 0);
        qp.sends.ring.id = 0x804;
        qp.read.id = 0xc05;
        qp.receives.ring.id = qp.dp.qpn = 0xc04;
        qp.dp.doorbell = sink.page();
        qp.mtu = 1024;
        qp.receives.allowed = true;
    }
    ~GoldenTest() override { mana_stock_free(&qp); }
    void start() {
        mana_stock_start(&qp, 0x123456);
        qp.sends.allowed = true;
        (void)sink.take();
    }
    /// Posts, and returns the bytes of the WQE.
    std::string send(std::uint8_t opcode, std::initializer_list<mana_dp_sge> sges,
                     std::uint8_t flags = 0) {
        const std::vector<mana_dp_sge> list(sges);
        mana_dp_send wr{};
        wr.opcode = opcode;
        wr.flags = flags;
        wr.sge = list.data();
        wr.sge_count = static_cast<std::uint32_t>(list.size());
        wr.value = 0xaabbccdd;
        wr.remote_address = 0x0000700012345678;
        wr.rkey = 0xcafe01;
        const auto before = qp.sends.ring.producer;
        EXPECT_EQ(mana_stock_send(&qp, &wr), 0);
        mana_stock_ring_send(&qp);
        return sq.hex(before, qp.sends.ring.producer - before);
    }
    std::string recv(std::initializer_list<mana_dp_sge> sges) {
        const std::vector<mana_dp_sge> list(sges);
        const auto before = qp.receives.ring.producer;
        EXPECT_EQ(mana_stock_recv(&qp, 1, list.data(), static_cast<std::uint32_t>(list.size())), 0);
        mana_stock_ring_recv(&qp, 1);
        return rq.hex(before, qp.receives.ring.producer - before);
    }
    [[nodiscard]] std::uint32_t right() const { return qp.rollback->right; }

    DoorbellSink sink;
    Tables tables;
    QueueMemory sq, read, rq;
    TestCq cq;
    mana_stock_qp qp{};
};

TEST_F(GoldenTest, RingSizes) {
    EXPECT_EQ(mana_stock_sq_bytes(MANA_DP_RC, 16, 2), 4096U);
    EXPECT_EQ(mana_stock_rq_bytes(16, 2), 4096U);
    EXPECT_EQ(sq.hex(4096, 16), "524c424b100000000000000000000000");
}

TEST_F(GoldenTest, ArmingOfCq) {
    mana_dp_cq_arm(&cq.dp, false);
    mana_dp_cq_arm(&cq.dp, false);
    mana_dp_cq_arm(&cq.dp, false);
    EXPECT_EQ(sink.take(), (Rung{{0x800, 0x8000004000000064},
                                 {0x800, 0x8000004100000064},
                                 {0x800, 0x8000004200000064}}));
}

TEST_F(GoldenTest, ReadyToSend) {
    mana_stock_start(&qp, 0x123456);
    EXPECT_EQ(sink.take(), (Rung{{0x408, 0x0012345601000c05}}));
}

TEST_F(GoldenTest, Receives) {
    EXPECT_EQ(recv({kSgeA}), text({"00000000 01020000 00000000 00000000", kBytesA}));
    EXPECT_EQ(sink.take(), (Rung{{0x400, 0x0000002001000c04}}));
    EXPECT_EQ(recv({}), text({"00000000 01020000 00000000 00000000", kDummy}));
    EXPECT_EQ(sink.take(), (Rung{{0x400, 0x0000004001000c04}}));
    EXPECT_EQ(recv({kSgeA, kSgeB}),
              text({"00000000 02020000 00000000 00000000", kBytesA, kBytesB, kZero}));
    EXPECT_EQ(sink.take(), (Rung{{0x400, 0x0000008001000c04}}));
}

TEST_F(GoldenTest, Sends) {
    start();
    EXPECT_EQ(send(MANA_HW_EXT_WQE_WRITE, {kSgeA}, MANA_HW_EXT_WQE_SIGNALED),
              text({"01000000 02060004 45563412 01000000", kRemote, "b80b0000", kBytesA, kZero}));
    EXPECT_EQ(sink.take(), (Rung{{0x000, 0x0000004000000804}}));
    EXPECT_EQ(right(), 0U);
    EXPECT_EQ(qp.next_psn, 0x123459U);

    EXPECT_EQ(send(MANA_HW_EXT_WQE_WRITE, {kSgeA, kSgeB}),
              text({"00000000 02060004 05593412 02000000", kRemote, "1c0c0000", kBytesA, kBytesB}));
    EXPECT_EQ(right(), 2U);
    EXPECT_EQ(qp.next_psn, 0x12345dU);

    EXPECT_EQ(send(MANA_HW_EXT_WQE_SEND, {kSgeA},
                   MANA_HW_EXT_WQE_SIGNALED | MANA_HW_EXT_WQE_FENCE | MANA_HW_EXT_WQE_SOLICITED),
              text({"01000000 02060044 e25d3412 03000000", kZero, kBytesA, kZero}));
    EXPECT_EQ(right(), 4U);
    EXPECT_EQ(qp.next_psn, 0x123460U);

    EXPECT_EQ(send(MANA_HW_EXT_WQE_SEND_IMM, {}, MANA_HW_EXT_WQE_SIGNALED),
              text({"01000000 02060044 43603412 04000000", "ddccbbaa 00000000 00000000 00000000",
                    kDummy, kZero}));
    EXPECT_EQ(right(), 6U);
    EXPECT_EQ(qp.next_psn, 0x123461U);

    EXPECT_EQ(send(MANA_HW_EXT_WQE_WRITE_IMM, {kSgeA}, MANA_HW_EXT_WQE_SIGNALED),
              text({"00000000 01070044 46613412 05000000", kRemote, "b80b0000",
                    "ddccbbaa 00000000 00000000 00000000", kBytesA}));
    EXPECT_EQ(right(), 8U);
    EXPECT_EQ(qp.next_psn, 0x123464U);
    (void)sink.take();

    EXPECT_EQ(send(MANA_HW_EXT_WQE_READ, {kSgeA}, MANA_HW_EXT_WQE_SIGNALED),
              text({"01000000 02060004 47643412 06000000", kRemote, "b80b0000", kDummy, kZero}));
    EXPECT_EQ(read.hex(0, 32), text({"00000000 01020040 64341200 00000000", kBytesA}));
    EXPECT_EQ(sink.take(), (Rung{{0x400, 0x0000002001000c05}, {0x000, 0x0000018000000804}}));
    EXPECT_EQ(right(), 10U);
    EXPECT_EQ(qp.next_psn, 0x123467U);
}

}  // namespace
}  // namespace openmana::test
