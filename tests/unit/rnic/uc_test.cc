// SPDX-License-Identifier: Apache-2.0
// UC queue pairs of the stock ABI (RNIC 2.13, 3.13).
#include "rnic_fixture.h"

namespace openmana::test {
namespace {

Connection::Options uc() {
    Connection::Options options;
    options.uc = true;
    return options;
}

/// By the local path, and by frames.
class UcTest : public ::testing::TestWithParam<bool> {
protected:
    bool same(std::uint64_t from, std::uint64_t to, std::uint64_t length) {
        return std::ranges::equal(link.a.at(from, length), link.b.at(to, length));
    }
    Connection link{GetParam(), uc(), rnic::RnicConfig()};
};

INSTANTIATE_TEST_SUITE_P(Paths, UcTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(UcTest, IdsLieInBlocksOfTheirOwn) {
    const auto& ids = link.a.qp->ids;
    EXPECT_EQ(ids[0] % 4, 0U);
    EXPECT_EQ(ids[2], ids[0] + 2);
    EXPECT_EQ(ids[4] % 4, 0U);
    RdmaHost& host = link.a.node->host;
    const auto other = host.create_uc(link.a.send_cq, link.a.recv_cq);
    ASSERT_TRUE(other);
    EXPECT_NE(other->ids[0] / 4, ids[0] / 4);
    EXPECT_NE(other->ids[4] / 4, ids[4] / 4);
    EXPECT_TRUE(host.destroy_rc(*other));
    EXPECT_FALSE(host.destroy_rc(*other));
}

TEST_P(UcTest, SendsAndWritesArriveAndCompleteOneByOne) {
    Connection::fill(link.a.at(0, 64U << 10), 1);
    link.b.recv(5, 0x80000, 8192);
    link.b.recv(6, 0x90000, 8192);
    link.post(link.wr(MANA_HW_RNIC_WQE_SEND, 1, 0, 5000));
    link.post(link.wr(MANA_HW_RNIC_WQE_WRITE, 2, 100, 3000, 0xa0000));
    SendWr immediate = link.wr(MANA_HW_RNIC_WQE_WRITE_IMM, 3, 200, 2000, 0xb0000);
    immediate.immediate = 0x1234;
    link.post(immediate);
    ASSERT_TRUE(link.run(3, 2));
    EXPECT_TRUE(same(0, 0x80000, 5000));
    EXPECT_TRUE(same(100, 0xa0000, 3000));
    EXPECT_TRUE(same(200, 0xb0000, 2000));
    for (std::uint64_t id = 1; id <= 3; ++id) {
        const Completion* const done = link.a.find(false, id);
        ASSERT_TRUE(done);
        EXPECT_EQ(done->type, unsigned{MANA_HW_RNIC_CQE_UD});
        EXPECT_EQ(done->vendor, 0U);
    }
    EXPECT_EQ(link.b.find(true, 5)->length, 5000U);
    EXPECT_EQ(link.b.find(true, 6)->type, unsigned{MANA_HW_RNIC_CQE_WRITE_IMM});
    EXPECT_EQ(link.b.find(true, 6)->immediate, 0x1234U);
    EXPECT_EQ(link.frames(roce::Opcode::kAcknowledge), 0U);
    EXPECT_EQ(link.frames(roce::Opcode::kUcSendFirst), GetParam() ? 0U : 1U);
}

TEST_P(UcTest, SendCqeHasTheBytesOfTheDocument) {
    link.post(link.wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100, 0));
    link.post(link.wr(MANA_HW_RNIC_WQE_WRITE, 2, 0, 100, 0));
    link.world.advance(std::chrono::milliseconds(1));
    for (std::uint32_t i = 0; i < 2; ++i) {
        const auto cqe = link.a.send_cq.poll();
        ASSERT_TRUE(cqe);
        EXPECT_TRUE(cqe->is_sq);
        EXPECT_EQ(cqe->queue_id, link.a.qp->ids[0]);
        EXPECT_EQ(cqe->get<std::uint32_t>(0), 1U);
        EXPECT_EQ(cqe->get<std::uint32_t>(4), i * 64);
    }
    EXPECT_FALSE(link.a.send_cq.poll());
}

TEST_P(UcTest, UnsignaledRequestsHaveNoCqe) {
    SendWr quiet = link.wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100, 0);
    quiet.signaled = false;
    link.post(quiet);
    link.post(quiet);
    link.idle();
    EXPECT_TRUE(link.a.done.empty());
    link.post(link.wr(MANA_HW_RNIC_WQE_WRITE, 2, 0, 100, 0));
    ASSERT_TRUE(link.run(3));
    EXPECT_TRUE(link.a.done.back().signaled);
}

TEST_P(UcTest, AMessageWithoutAReceiveIsLost) {
    link.post(link.wr(MANA_HW_RNIC_WQE_SEND, 1, 0, 5000));
    ASSERT_TRUE(link.run(1));
    link.idle();  // it is done when it was sent
    link.b.recv(5, 0x80000, 8192);
    link.post(link.wr(MANA_HW_RNIC_WQE_SEND, 2, 0, 4000));
    ASSERT_TRUE(link.run(2, 1));
    EXPECT_EQ(link.b.find(true, 5)->length, 4000U);
    EXPECT_STREQ(link.b.state(), "RTS");
}

TEST_P(UcTest, WhatRcAloneHasFailsBehindWhatIsDone) {
    for (const std::uint32_t opcode : {MANA_HW_RNIC_WQE_READ, MANA_HW_RNIC_WQE_SEND_INV}) {
        Connection fresh{GetParam(), uc(), rnic::RnicConfig()};
        SendWr quiet = fresh.wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 3000, 0);
        quiet.signaled = false;
        fresh.post(quiet);
        SendWr wrong = fresh.wr(opcode, 2, 0, 10);
        fresh.post(wrong);
        ASSERT_TRUE(fresh.run(2));
        EXPECT_EQ(fresh.a.done[0].id, 1U) << "the host completes it by the PSN of the error";
        EXPECT_EQ(fresh.a.done[0].vendor, 0U);
        EXPECT_EQ(fresh.a.done[1].id, 2U);
        EXPECT_EQ(fresh.a.done[1].vendor, unsigned{MANA_HW_RNIC_VE_TX_UNSUPPORTED});
        EXPECT_STREQ(fresh.a.state(), "ERR");
    }
}

TEST_P(UcTest, ToErrorFlushesBothQueues) {
    link.a.recv(5, 0x80000, 8192);
    ASSERT_TRUE(link.a.node->host.to_state(*link.a.qp, MANA_HW_RNIC_QP_ERR));
    link.post(link.wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100, 0));
    link.idle(std::chrono::milliseconds(200));
    EXPECT_EQ(link.a.error(true), unsigned{MANA_HW_RNIC_VE_FLUSHED});
    EXPECT_EQ(link.a.error(false), unsigned{MANA_HW_RNIC_VE_FLUSHED});
}

class UcCommandTest : public ::testing::Test {
protected:
    /// The status of CREATE_UC_QP with another value in one field; nothing may stay behind.
    std::uint32_t status(std::size_t at, std::uint64_t value) {
        Node& node = *link.a.node;
        node.host.tamper = [&](Request& request) { request.put<std::uint64_t>(at, value); };
        const auto before = node.function.object_counts();
        EXPECT_FALSE(node.host.create_uc(link.a.send_cq, link.a.recv_cq));
        node.host.tamper = nullptr;
        EXPECT_EQ(node.function.object_counts(), before);
        return node.host.hwc().last_failure;
    }
    Connection link{true, uc(), rnic::RnicConfig()};
};

TEST_F(UcCommandTest, WrongObjectsAreRefused) {
    EXPECT_EQ(status(48, 0x999), gdma::kHwcNotFound) << "PD";
    EXPECT_EQ(status(56, UINT64_MAX), gdma::kHwcNotFound) << "send CQ";
    EXPECT_EQ(status(64, 0), gdma::kHwcNotFound) << "receive CQ";
    EXPECT_EQ(status(72, 0), gdma::kHwcNotFound) << "SQ region";
    EXPECT_EQ(status(88, 0x999), gdma::kHwcNotFound) << "region of the third queue";
    EXPECT_EQ(status(104, 0xffff), gdma::kHwcInvalidParameter) << "doorbell page";
    EXPECT_EQ(status(40, 7), gdma::kHwcNotFound) << "adapter";
}

TEST_F(UcCommandTest, ItIsDestroyedByTheCommandOfRc) {
    RdmaHost& host = link.a.node->host;
    Request request(MANA_HW_RNIC_DESTROY_UD_QP, 56, 32, 3);
    request.put<std::uint64_t>(40, host.adapter).put<std::uint64_t>(48, link.a.qp->handle);
    EXPECT_EQ(host.call(request.fit()).status, gdma::kHwcNotFound);
    EXPECT_TRUE(host.destroy_rc(*link.a.qp));
}

/// The driver of 7.3 leaves out the two low bits of queue ids (RNIC 3.2).
TEST_F(UcCommandTest, DatagramQueuesHaveBlocksOfTheirOwn) {
    RdmaHost& host = link.a.node->host;
    const auto one = host.create_ud(link.a.send_cq, link.a.recv_cq, 0x11);
    const auto two = host.create_ud(link.a.send_cq, link.a.recv_cq, 0x11);
    const auto gsi = host.create_ud(link.a.send_cq, link.a.recv_cq, 0x11, true);
    ASSERT_TRUE(one && two && gsi);
    EXPECT_NE(one->ids[0] / 4, two->ids[0] / 4);
    EXPECT_NE(one->ids[0] / 4, gsi->ids[0] / 4);
    EXPECT_NE(one->ids[4] / 4, two->ids[4] / 4);
}

}  // namespace
}  // namespace openmana::test
