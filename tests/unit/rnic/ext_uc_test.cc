// SPDX-License-Identifier: Apache-2.0
// Extended UC: what is lost is not asked for again, and what is refused is not answered.
#include "ext_verbs_fixture.h"

namespace openmana::test {
namespace {

class ExtUcTest : public ExtVerbsTest {};

INSTANTIATE_TEST_SUITE_P(Paths, ExtUcTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(ExtUcTest, UcDeliversWithoutAcknowledgement) {
    open(ExtLink::uc());
    link->b.recv(5, 0x80000, 8192);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 5000));
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 3000, 0x90000));
    ASSERT_TRUE(link->run(2, 1));
    link->idle();
    EXPECT_EQ(link->received[0].length, 5000U);
    EXPECT_TRUE(link->same(0, 0x80000, 5000));
    EXPECT_TRUE(link->same(0, 0x90000, 3000));
    EXPECT_EQ(link->frames(roce::Opcode::kAcknowledge), 0U);
    EXPECT_EQ(link->frames(roce::Opcode::kUcSendFirst), GetParam() ? 0U : 1U);
}

// ROCE 10: 123
TEST_P(ExtUcTest, UcLosesAMessageWithoutAReceive) {
    open(ExtLink::uc());
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 5000));
    ASSERT_TRUE(link->run(1));
    link->idle();
    link->b.recv(5, 0x80000, 8192);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 100, 4000));
    ASSERT_TRUE(link->run(2, 1));
    EXPECT_EQ(link->sent[0].status, 0);
    EXPECT_EQ(link->received[0].length, 4000U);
    EXPECT_TRUE(link->same(100, 0x80000, 4000));
    EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_RTS});
}

// ROCE 10: 123
TEST_P(ExtUcTest, UcRefusalsAreSilent) {
    open(ExtLink::uc());
    ExtWr bad = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 3000, 0x90000);
    bad.rkey ^= 1;
    link->a.post(bad);
    link->b.recv(1, 0x80000, 10);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 3000));
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 10));
    ASSERT_TRUE(link->run(3, 1));
    for (const auto& cqe : link->sent) EXPECT_EQ(cqe.status, 0);
    EXPECT_EQ(link->received[0].length, 10U) << "the receive is used for the next message";
    EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_RTS});
    EXPECT_EQ(done(link->wr(MANA_HW_EXT_WQE_READ, 0, 10)).status, 2);
}

// ROCE 10: 121
TEST_F(ExtPathTest, UcDropsAMessageWithAGap) {
    for (const roce::Opcode opcode :
         {roce::Opcode::kUcSendFirst, roce::Opcode::kUcSendMiddle, roce::Opcode::kUcSendLast}) {
        SCOPED_TRACE(int{static_cast<std::uint8_t>(opcode)});
        link = std::make_unique<ExtLink>(false, ExtLink::uc());
        int lost = 0;
        link->network.fate = [&](const roce::Packet& packet) {
            Fate fate;
            fate.lose = packet.opcode == opcode && lost++ == 0;
            return fate;
        };
        link->b.recv(1, 0x80000, 8192);
        link->b.recv(2, 0x82000, 8192);
        link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 5000));
        link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 64, 5000));
        ASSERT_TRUE(link->run(2, 1));
        link->idle();
        for (const auto& cqe : link->sent) EXPECT_EQ(cqe.status, 0);
        ASSERT_EQ(link->received.size(), 1U);
        EXPECT_EQ(link->received[0].cookie, 1U);
        EXPECT_TRUE(link->same(64, 0x80000, 5000));
    }
}

/// What a message took from a shared queue is not kept for the next one of the same queue pair.
// ROCE 10: 121
TEST_F(ExtPathTest, UcEndsAReceiveOfASharedQueue) {
    for (const roce::Opcode opcode :
         {roce::Opcode::kUcSendFirst, roce::Opcode::kUcSendMiddle, roce::Opcode::kUcSendLast}) {
        SCOPED_TRACE(int{static_cast<std::uint8_t>(opcode)});
        ExtLink::Options options = ExtLink::uc();
        options.srq = true;
        link = std::make_unique<ExtLink>(false, options);
        int lost = 0;
        link->network.fate = [&](const roce::Packet& packet) {
            Fate fate;
            fate.lose = packet.opcode == opcode && lost++ == 0;
            return fate;
        };
        for (std::uint32_t i = 1; i <= 3; ++i) link->b.recv(i, 0x80000 + 0x2000 * i, 8192);
        const bool taken = opcode != roce::Opcode::kUcSendFirst;
        link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 5000));
        link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 64, 5000));
        ASSERT_TRUE(link->run(2, taken ? 2 : 1));
        link->idle();
        ASSERT_EQ(link->received.size(), taken ? 2U : 1U);
        if (taken) {
            EXPECT_EQ(link->received[0].cookie, 1U);
            EXPECT_EQ(link->received[0].status, 16) << "aborted";
        }
        EXPECT_EQ(link->received.back().status, 0);
        EXPECT_EQ(link->received.back().cookie, taken ? 2U : 1U);
        EXPECT_TRUE(link->same(64, taken ? 0x84000 : 0x82000, 5000));
        EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_RTS});
    }
}

/// Too long for it, and a WRITE with immediate and a bad key.
TEST_F(ExtPathTest, UcRefusalEndsAReceiveOfASharedQueue) {
    ExtLink::Options options = ExtLink::uc();
    options.srq = true;
    link = std::make_unique<ExtLink>(false, options);
    for (std::uint32_t i = 1; i <= 3; ++i) link->b.recv(i, 0x80000, 100);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 200));
    ExtWr write = link->wr(MANA_HW_EXT_WQE_WRITE_IMM, 0, 10, 0x90000);
    write.rkey ^= 1;
    link->a.post(write);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 100));
    ASSERT_TRUE(link->run(3, 3));
    for (const auto& cqe : link->sent) EXPECT_EQ(cqe.status, 0);
    EXPECT_EQ(link->received[0].status, 16);
    EXPECT_EQ(link->received[1].status, 16);
    EXPECT_EQ(link->received[2].status, 0);
    EXPECT_EQ(link->received[2].cookie, 3U);
}

// ROCE 10: 122
TEST_F(ExtPathTest, UcGoesOnBehindALostMessageOfOnePacket) {
    link = std::make_unique<ExtLink>(false, ExtLink::uc());
    int sends = 0;
    link->network.fate = [&](const roce::Packet& packet) {
        Fate fate;
        fate.lose = packet.opcode == roce::Opcode::kUcSendOnly && ++sends == 2;
        return fate;
    };
    for (std::uint32_t i = 0; i < 3; ++i) link->b.recv(i, 0x80000 + 0x1000 * i, 4096);
    for (std::uint32_t i = 0; i < 3; ++i)
        link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 64 * i, 100 + i));
    ASSERT_TRUE(link->run(3, 2));
    link->idle();
    ASSERT_EQ(link->received.size(), 2U);
    EXPECT_EQ(link->received[1].cookie, 1U);
    EXPECT_EQ(link->received[1].length, 102U) << "the third, whose PSN jumps";
    EXPECT_TRUE(link->same(128, 0x81000, 102));
    EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_RTS});
}

TEST_P(ExtUcTest, LocalErrorStopsTheSendQueueOfUc) {
    open(ExtLink::uc());
    link->a.recv(1, 0x80000, 4096);
    link->b.recv(2, 0x80000, 4096);
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 3000, 0x90000));
    ExtWr bad = link->wr(MANA_HW_EXT_WQE_SEND, 0, 3000);
    bad.sges[0].key = gdma::Key(3);
    link->a.post(bad);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 10));
    ASSERT_TRUE(link->run(3));
    EXPECT_EQ(link->sent[0].status, 0);
    EXPECT_EQ(link->sent[1].status, 4);
    EXPECT_EQ(link->sent[2].status, 5);
    EXPECT_EQ(link->a.state(), unsigned{MANA_HW_RNIC_QP_SQE});
    ExtWr back;
    back.sges = {link->b.sge(0, 2000)};
    link->b.post(back);
    link->idle();
    EXPECT_EQ(link->a.recv_cq.drain().size(), 1U) << "it still receives";
    ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_RTS));
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 64, 3000));
    ASSERT_TRUE(link->run(4, 1));
    EXPECT_EQ(link->sent[3].status, 0);
    EXPECT_TRUE(link->same(64, 0x80000, 3000));
    ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_ERR));
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 10));
    ASSERT_TRUE(link->run(5));
    EXPECT_EQ(link->sent[4].status, 5);
}

}  // namespace
}  // namespace openmana::test
