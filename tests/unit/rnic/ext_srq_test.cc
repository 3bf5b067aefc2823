// SPDX-License-Identifier: Apache-2.0
// Shared receive queues: who takes of them, their limit, what comes back to them.
#include "ext_verbs_fixture.h"

namespace openmana::test {
namespace {

class ExtSrqTest : public ExtVerbsTest {};

INSTANTIATE_TEST_SUITE_P(Paths, ExtSrqTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

// ROCE 10: 119
TEST_P(ExtSrqTest, SrqServesAndTellsOfItsLimit) {
    ExtLink::Options options;
    options.srq = true;
    open(options);
    for (std::uint32_t i = 0; i < 4; ++i) link->b.recv(100 + i, 0x80000 + 0x1000 * i, 4096);
    ASSERT_TRUE(link->b.host->modify_srq(*link->b.srq, 3));
    auto state = link->b.host->query_srq(*link->b.srq);
    EXPECT_EQ(state->limit, 3U);
    EXPECT_EQ(state->posted, 4U);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 2000));
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->received[0].cookie, 100U);
    EXPECT_TRUE(link->same(0, 0x80000, 2000));
    EXPECT_FALSE(link->b.had_event(link->b.srq->id, MANA_HW_EXT_EVENT_SRQ_LIMIT));
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 10));
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 10));
    ASSERT_TRUE(link->run(3, 3));
    EXPECT_TRUE(link->b.had_event(link->b.srq->id, MANA_HW_EXT_EVENT_SRQ_LIMIT));
    state = link->b.host->query_srq(*link->b.srq);
    EXPECT_EQ(state->limit, 0U);
    EXPECT_EQ(state->posted, 1U);
    link->b.seen.clear();
    link->b.recv(104, 0x84000, 4096);
    ASSERT_TRUE(link->b.host->modify_srq(*link->b.srq, 2));
    EXPECT_FALSE(link->b.had_event(link->b.srq->id, MANA_HW_EXT_EVENT_SRQ_LIMIT));
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 10));
    ASSERT_TRUE(link->run(4, 4));
    EXPECT_TRUE(link->b.had_event(link->b.srq->id, MANA_HW_EXT_EVENT_SRQ_LIMIT)) << "armed again";
}

// ROCE 10: 118
TEST_P(ExtSrqTest, QpInErrorLeavesTheSrqAlone) {
    ExtLink::Options options;
    options.srq = true;
    open(options);
    link->b.recv(1, 0x80000, 4096);
    ASSERT_TRUE(link->b.host->to_state(link->b.qp, MANA_HW_RNIC_QP_ERR));
    EXPECT_TRUE(link->b.had_event(link->b.qp.qpn, MANA_HW_EXT_EVENT_LAST_WQE_REACHED));
    EXPECT_TRUE(link->b.recv_cq.drain().empty());
    EXPECT_EQ(link->b.host->query_srq(*link->b.srq)->posted, 1U);
    EXPECT_FALSE(link->b.host->destroy_srq(*link->b.srq));
    ASSERT_TRUE(link->b.host->destroy_qp(link->b.qp));
    EXPECT_TRUE(link->b.host->destroy_srq(*link->b.srq));
}

// ROCE 10: 118
TEST_F(ExtPathTest, QpInErrorGivesUpWhatItTookFromTheSrq) {
    ExtLink::Options options;
    options.srq = true;
    link = std::make_unique<ExtLink>(false, options);
    ExtLink::Side& b = link->b;
    ExtQpOptions wish;
    wish.srq = &*b.srq;
    auto from = *link->a.host->create_qp(link->a.send_cq, link->a.recv_cq);
    auto to = *b.host->create_qp(b.send_cq, b.recv_cq, wish);
    const auto peer = [](const ExtLink::Side& side, const ExtQp& qp) {
        return Peer{side.node->host.gid(), side.node->host.mac(), qp.qpn, ExtLink::kPsn};
    };
    ASSERT_TRUE(b.host->connect(to, ExtLink::kPsn, peer(link->a, from)));
    ASSERT_TRUE(link->a.host->connect(from, ExtLink::kPsn, peer(b, to)));
    link->network.fate = [](const roce::Packet& packet) {
        Fate fate;
        fate.lose = packet.opcode == roce::Opcode::kSendLast;
        return fate;
    };
    for (std::uint32_t i = 0; i < 3; ++i) b.recv(50 + i, 0x80000 + 0x1000 * i, 4096);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 3000));  // half of it arrives
    link->idle();
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(b.host->to_state(b.qp, MANA_HW_RNIC_QP_ERR));
    link->idle();
    ASSERT_EQ(link->received.size(), 1U);
    EXPECT_EQ(link->received[0].cookie, 50U);
    EXPECT_EQ(link->received[0].status, 5);
    EXPECT_TRUE(b.had_event(b.qp.qpn, MANA_HW_EXT_EVENT_LAST_WQE_REACHED)) << "once";
    for (int i = 0; i < 2; ++i) link->a.host->post(from, link->wr(MANA_HW_EXT_WQE_SEND, 64, 100));
    ASSERT_TRUE(link->run(2, 3));
    EXPECT_EQ(link->received[2].cookie, 52U) << "the other queue pair has the rest";
    EXPECT_TRUE(link->same(64, 0x82000, 100));
}

TEST_F(ExtPathTest, SrqReceiveOfHalfAMessageComesBack) {
    ExtLink::Options options;
    options.srq = true;
    link = std::make_unique<ExtLink>(false, options);
    link->network.fate = [](const roce::Packet& packet) {
        Fate fate;
        fate.lose = packet.opcode == roce::Opcode::kSendLast;
        return fate;
    };
    link->b.recv(43, 0x80000, 4096);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 3000));
    link->idle();
    ASSERT_TRUE(link->b.host->destroy_qp(link->b.qp));
    link->idle();
    ASSERT_EQ(link->received.size(), 1U);
    EXPECT_EQ(link->received[0].cookie, 43U);
    EXPECT_EQ(link->received[0].status, 5);
}

TEST_P(ExtSrqTest, ImpossibleSrqProducerIsAnSrqError) {
    ExtLink::Options options;
    options.srq = true;
    options.path.rnr_retries = 1;
    open(options);
    link->b.srq->memory.store(0, 1000000);
    EXPECT_EQ(done(link->wr(MANA_HW_EXT_WQE_SEND, 0, 10)).status, 13);
    EXPECT_TRUE(link->b.had_event(link->b.srq->id, MANA_HW_EXT_EVENT_SRQ_ERROR));
}

}  // namespace
}  // namespace openmana::test
