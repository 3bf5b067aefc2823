// SPDX-License-Identifier: Apache-2.0
// How long the executor is busy with queue pairs before it looks after everything else.
#include "base/hold_meter.h"
#include "rnic/task_work.h"
#include "rnic_fixture.h"

namespace openmana::test {
namespace {

TEST(SchedulerTest, ATaskServesQueuePairsForAMillisecondAndLeavesTheOthers) {
    constexpr std::uint32_t kPairs = 12;
    constexpr std::uint32_t kWrites = 4;
    constexpr std::uint64_t kTurn = 400;  // more than the work of 1 MiB, the most of one turn
    Connection link(true);
    RdmaHost& a = link.a.node->host;
    RdmaHost& b = link.b.node->host;
    std::vector<std::unique_ptr<HostQp>> from, to;
    std::vector<HostQp*> senders;
    for (std::uint32_t i = 0; i < kPairs; ++i) {
        from.push_back(a.create_rc(link.a.send_cq, link.a.recv_cq));
        to.push_back(b.create_rc(link.b.send_cq, link.b.recv_cq));
        ASSERT_TRUE(b.connect(*to[i], 0x700, {a.gid(), a.mac(), from[i]->qpn(), 0x500}));
        ASSERT_TRUE(a.connect(*from[i], 0x500, {b.gid(), b.mac(), to[i]->qpn(), 0x700}));
        senders.push_back(from[i].get());
    }
    link.world.run_until_idle();
    // Each has a turn with its doorbell, and waits for the next one.
    for (HostQp* const qp : senders)
        for (std::uint32_t n = 1; n <= kWrites; ++n)
            ASSERT_TRUE(
                a.post_send(*qp, link.wr(MANA_HW_RNIC_WQE_WRITE, n, 0, 1 << 20), n == kWrites));
    std::uint64_t most = 0;
    for (bool worked = true; worked;) {
        const std::uint64_t before = base::work_done;
        worked = link.a.node->executor.run_once();
        most = std::max(most, base::work_done - before);
    }
    EXPECT_GE(most, rnic::TaskWork::kMost);
    EXPECT_LE(most, rnic::TaskWork::kMost + kTurn);
    std::vector<Completion> done;
    EXPECT_TRUE(link.world.run_until(
        [&] {
            a.poll(link.a.send_cq, senders, done);
            return done.size() == kPairs * kWrites;
        },
        std::chrono::seconds(60)))
        << "each had its turns";
}

}  // namespace
}  // namespace openmana::test
