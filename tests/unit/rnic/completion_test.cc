// SPDX-License-Identifier: Apache-2.0
// The armed-completion protocol (RNIC 3.8) and the bytes of CQEs (RNIC 4.2).
#include "rnic_fixture.h"

namespace openmana::test {
namespace {

class ArmedTest : public ::testing::Test {
protected:
    void write(std::uint32_t packets = 1) {
        link.post(link.wr(MANA_HW_RNIC_WQE_WRITE, 0, 0, packets * 1024, 0));
    }
    void arm(std::uint32_t psn) { link.a.node->host.arm_send(*link.a.qp, psn); }
    /// PSNs of the armed completions that came.
    std::vector<std::uint32_t> psns() {
        std::vector<std::uint32_t> result;
        while (const auto cqe = link.a.send_cq.poll()) {
            EXPECT_EQ(cqe->get<std::uint32_t>(0), unsigned{MANA_HW_RNIC_CQE_ARMED});
            EXPECT_EQ(cqe->get<std::uint32_t>(4) >> 29, 0U);
            EXPECT_EQ(cqe->queue_id, link.a.qp->ids[3]);
            EXPECT_FALSE(cqe->is_sq);
            result.push_back(cqe->get<std::uint32_t>(8));
        }
        return result;
    }
    Connection link{true};
};

TEST_F(ArmedTest, FirstArmAtRtsFiresWithTheFirstCompletion) {
    EXPECT_TRUE(psns().empty());
    write(3);
    EXPECT_EQ(psns(), (std::vector<std::uint32_t>{0x102}));
}

TEST_F(ArmedTest, NothingWithoutAnArm) {
    write();
    (void)psns();
    write();
    write();
    EXPECT_TRUE(psns().empty());
}

TEST_F(ArmedTest, ArmForThePastFiresAtOnce) {
    write();
    (void)psns();
    write();
    write();
    arm(0x101);
    EXPECT_EQ(psns(), (std::vector<std::uint32_t>{0x102})) << "everything that is done";
}

TEST_F(ArmedTest, ArmAtOrBeforeTheReportedPsnIsIgnored) {
    write();
    write();
    (void)psns();
    arm(0x101);
    EXPECT_EQ(psns(), (std::vector<std::uint32_t>{0x101}));
    arm(0x101);
    arm(0x100);
    EXPECT_TRUE(psns().empty());
    arm(0x103);
    arm(0x100);  // does not replace the one before
    write();
    EXPECT_TRUE(psns().empty());
    write();
    EXPECT_EQ(psns(), (std::vector<std::uint32_t>{0x103}));
}

TEST_F(ArmedTest, AnArmReplacesTheOneBefore) {
    write();
    (void)psns();
    arm(0x101);
    arm(0x103);
    write();
    write();
    EXPECT_TRUE(psns().empty());
    write();
    EXPECT_EQ(psns(), (std::vector<std::uint32_t>{0x103}));
}

TEST_F(ArmedTest, ForeignDoorbellCodesAreIgnored) {
    write();
    (void)psns();
    write();
    auto& hwc = link.a.node->host.hwc();
    const std::uint64_t offset = hwc.doorbell_offset(link.a.node->host.device.page) + 0x408;
    hwc.write64(offset, std::uint64_t{0x101} << 32 | 2U << 24 | link.a.qp->ids[3]);
    EXPECT_TRUE(psns().empty());
}

TEST_F(ArmedTest, ReceiveCqe) {
    link.b.recv(1, 0, 64);
    link.b.recv(2, 64, 64);
    SendWr send = link.wr(MANA_HW_RNIC_WQE_SEND_IMM, 1, 0, 10);
    send.immediate = 0x11223344;
    link.post(send);
    link.post(send);
    (void)link.b.recv_cq.poll();
    const auto cqe = link.b.recv_cq.poll();
    ASSERT_TRUE(cqe);
    EXPECT_EQ(cqe->get<std::uint32_t>(0), 4U);
    EXPECT_EQ(cqe->get<std::uint32_t>(4), 10U);
    EXPECT_EQ(cqe->get<std::uint32_t>(8), 0x101U);
    EXPECT_EQ(cqe->get<std::uint32_t>(12), 0x11223344U);
    EXPECT_EQ(cqe->get<std::uint32_t>(16), 32U) << "running byte counter of the WQE";
    EXPECT_EQ(cqe->queue_id, link.b.qp->ids[4]);
    EXPECT_FALSE(cqe->is_sq);
}

/// The error scenario of RNIC 9: rules a and b of RNIC 3.9.
TEST_F(ArmedTest, ErrorCqeFollowsAnArmedOne) {
    write();
    (void)psns();
    write(2);  // 0x101, 0x102: done and not reported
    SendWr bad = link.wr(MANA_HW_RNIC_WQE_WRITE, 0, 0, 100, 0);
    bad.rkey = 0x99;
    link.post(bad);
    const auto armed = link.a.send_cq.poll();
    ASSERT_TRUE(armed);
    EXPECT_EQ(armed->get<std::uint32_t>(0), 7U);
    EXPECT_EQ(armed->get<std::uint32_t>(8), 0x102U);
    const auto error = link.a.send_cq.poll();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->get<std::uint32_t>(0), 34U | 0x162U << 8);
    EXPECT_EQ(error->get<std::uint32_t>(8) & 0xffffff, 0x102U) << "the PSN before the failing WQE";
    EXPECT_EQ(error->get<std::uint32_t>(16), 0xffffffffU);
    EXPECT_EQ(error->queue_id, link.a.qp->ids[0]);
    EXPECT_TRUE(error->is_sq);
    EXPECT_FALSE(link.a.send_cq.poll());
}

TEST_F(ArmedTest, ArmsAreServedInErr) {
    write();
    (void)psns();
    write();
    ASSERT_TRUE(link.a.node->host.to_state(*link.a.qp, MANA_HW_RNIC_QP_ERR));
    arm(0x101);
    EXPECT_EQ(psns(), (std::vector<std::uint32_t>{0x101}));
}

TEST(ErrorCqeTest, NotWithoutTheFeatureOrTheOption) {
    rnic::RnicConfig config;
    config.error_cqes_unasked = false;
    SimWorld world;
    TestNetwork network(world);
    network.local = true;
    Node node(world, network, 1, config);
    node.host.tamper = [](Request& request) {
        if (base::load_le<std::uint32_t>(request.bytes.data() + 4) == MANA_HW_RNIC_CREATE_ADAPTER)
            request.put<std::uint64_t>(48, 0);
    };
    ASSERT_TRUE(node.host.bring_up());
    auto cq = *node.host.create_cq();
    auto qp = node.host.create_rc(cq, cq);
    ASSERT_TRUE(node.host.connect(*qp, 5, {ipv4_gid(9), test_mac(9), 0x400, 7}));
    node.host.hwc().ring_sq(node.host.device.page, qp->ids[0], 0x100000);
    world.run_until_idle();
    EXPECT_FALSE(cq.poll());
    const auto events = node.host.fatal_eq.drain();
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].type, 176U);
}

}  // namespace
}  // namespace openmana::test
