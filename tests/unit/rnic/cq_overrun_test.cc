// SPDX-License-Identifier: Apache-2.0
// More completions than a CQ holds (RNIC 4.3, case 102 of ROCE 10.5). The device has no consumer
// index to go by: the consumer finds the overrun by the owner bits, and goes on without what was
// overwritten. Nothing but this CQ suffers.
#include "rnic_fixture.h"

namespace openmana::test {
namespace {

constexpr std::uint32_t kEntries = 4;

class CqOverrunTest : public ::testing::TestWithParam<bool> {
protected:
    CqOverrunTest() {
        // A second pair, whose CQ on B holds four entries.
        Node& a = *link.a.node;
        Node& b = *link.b.node;
        small = *b.host.create_cq(kEntries * 64);
        from = a.host.create_rc(link.a.send_cq, link.a.recv_cq);
        to = b.host.create_rc(link.b.send_cq, small);
        EXPECT_TRUE(b.host.connect(*to, 0x700, {a.host.gid(), a.host.mac(), from->qpn(), 0x500}));
        EXPECT_TRUE(a.host.connect(*from, 0x500, {b.host.gid(), b.host.mac(), to->qpn(), 0x700}));
        link.world.run_until_idle();
    }
    /// `count` SENDs of eight bytes through the small CQ.
    void overrun(std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i) {
            const gdma::Sge sge = link.b.sge(i * 8, 8);
            ASSERT_TRUE(link.b.node->host.post_recv(*to, i, std::span(&sge, 1)));
            SendWr wr;
            wr.opcode = MANA_HW_RNIC_WQE_SEND;
            wr.sges = {link.a.sge(0, 8)};
            ASSERT_TRUE(link.a.node->host.post_send(*from, wr));
        }
        link.idle();
    }
    [[nodiscard]] std::uint64_t overruns() const {
        return link.b.node->function.counters().cq_overruns.value();
    }

    Connection link{GetParam()};
    DriverCq small;
    std::unique_ptr<HostQp> from, to;
};
INSTANTIATE_TEST_SUITE_P(Paths, CqOverrunTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(CqOverrunTest, ExactlyFullIsNoOverrun) {
    overrun(kEntries);
    small.arm();
    EXPECT_EQ(overruns(), 0U);
    for (std::uint32_t i = 0; i < kEntries; ++i) EXPECT_TRUE(small.poll());
    EXPECT_FALSE(small.poll());
    EXPECT_FALSE(small.ring.overflowed());
}

// ROCE 10: 102
TEST_P(CqOverrunTest, OwnerBitsTellTheConsumer) {
    overrun(kEntries + 1);
    EXPECT_FALSE(small.poll());
    EXPECT_TRUE(small.ring.overflowed()) << "a pass ahead of what the consumer waits for";
}

TEST_P(CqOverrunTest, ArmingTellsTheDevice) {
    overrun(kEntries + 1);
    EXPECT_EQ(overruns(), 0U) << "the consumer may have read without a doorbell";
    small.arm();
    EXPECT_EQ(overruns(), 1U);
}

// ROCE 10: 102
TEST_P(CqOverrunTest, OthersAreFine) {
    overrun(3 * kEntries);
    small.arm();
    link.b.recv(77, 0, 64);
    link.post(link.wr(MANA_HW_RNIC_WQE_SEND, 1, 0, 64));
    ASSERT_TRUE(link.run(1, 1));
    EXPECT_EQ(link.b.find(true, 77)->vendor, 0U);
    for (const auto& status : link.b.node->rnic.qp_status()) EXPECT_STREQ(status.state, "RTS");
}

}  // namespace
}  // namespace openmana::test
