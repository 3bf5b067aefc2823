// SPDX-License-Identifier: Apache-2.0
// What the commands of the extension do while a visitor of the NIC may wait is a bounded number of
// entries, windows and queue pairs, however many there are.
#include <mana/gdma.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/hold_meter.h"
#include "ext_verbs_fixture.h"
#include "rnic/adapter.h"

namespace openmana::test {
namespace {

class ExtHoldsTest : public ExtVerbsTest {
protected:
    base::HoldMeter meter;  // before the gates
};

INSTANTIATE_TEST_SUITE_P(Paths, ExtHoldsTest, ::testing::Values(true),
                         [](const auto&) { return "Local"; });

TEST_P(ExtHoldsTest, AResizeMovesCqesInSteps) {
    ExtLink::Options options;
    options.entries = 2048;
    open(options);
    constexpr std::uint32_t kWaiting = 1500;
    for (std::uint32_t i = 0; i < kWaiting; ++i) {
        link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 8));
        link->world.run_until_idle();
    }
    meter.clear();
    ASSERT_TRUE(link->a.host->resize_cq(link->a.send_cq, 4096));
    EXPECT_LE(meter.largest().work, gdma::CompletionQueue::kMoveStep) << meter.report();
    EXPECT_GE(meter.largest().work, 1U);
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 8));
    link->world.run_until_idle();
    const auto all = link->a.send_cq.drain();
    ASSERT_EQ(all.size(), kWaiting + 1);
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].cookie, i);
}

TEST_P(ExtHoldsTest, AQueuePairGoesWithManyWindows) {
    open();
    std::vector<DriverMr> windows;
    for (std::uint32_t i = 0; i < 300; ++i) {
        windows.push_back(*link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE2));
        ASSERT_EQ(done(bind(windows[i], windows[i].rkey, 0, 64, gdma::kRemoteWrite)).status, 0);
    }
    EXPECT_EQ(write_by_b(windows[0].rkey, link->a.buffer.value()), 0);
    meter.clear();
    ASSERT_TRUE(link->a.host->destroy_qp(link->a.qp));
    EXPECT_LE(meter.largest().work, 1U) << meter.report();
    EXPECT_TRUE(link->a.node->host.hwc().destroy_mr(link->a.mr)) << "no window shows it any more";
}

TEST_P(ExtHoldsTest, AResetWithManyQueuePairsClosesTheGateForNoneOfThem) {
    open();
    for (int i = 0; i < 50; ++i)
        ASSERT_TRUE(link->a.host->create_qp(link->a.send_cq, link->a.recv_cq));
    meter.clear();
    link->a.node->function.reset();
    EXPECT_LE(meter.largest().work, 8U) << meter.report();
    EXPECT_EQ(link->a.node->rnic.qp_status().size(), 0U);
}

/// The gate is open while queue pairs are freed, so there may be as many as an inbox holds.
TEST_P(ExtHoldsTest, FramesThatComeDuringAResetAreForgottenWithTheGateOpen) {
    open();
    const base::Frame frame(60);
    link->a.node->on_connection_ended = [&] {
        for (int i = 0; i < 1000; ++i) link->a.node->rnic.receive(frame);
    };
    meter.clear();
    link->a.node->function.reset();
    EXPECT_LE(meter.largest().work, 8U) << meter.report();
    const std::uint64_t seen = link->a.node->rnic.counters().rx_frames.value();
    link->world.run_until_idle();
    EXPECT_EQ(link->a.node->rnic.counters().rx_frames.value(), seen);
}

TEST_P(ExtHoldsTest, AVisitIsAFewRequestsAndBytes) {
    ExtLink::Options options;
    options.entries = 1024;
    options.a.sq_bytes = 65536;
    open(options);
    const auto post_at_once = [&](std::uint32_t count, std::uint32_t length) {
        ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_SQD));
        for (std::uint32_t i = 0; i < count; ++i)
            link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, length));
        meter.clear();
        const std::size_t before = link->sent.size();
        ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_RTS));
        EXPECT_TRUE(link->run(before + count));
    };
    post_at_once(300, 8);
    EXPECT_EQ(meter.largest(base::HoldKind::kVisit).work, 64U) << meter.report();
    // 256 KiB, and as much again of the last request, in pages of 4 KiB.
    post_at_once(10, 200000);
    EXPECT_LE(meter.largest(base::HoldKind::kVisit).work, 130U) << meter.report();
    post_at_once(2, 1000000);
    EXPECT_LE(meter.largest(base::HoldKind::kVisit).work, 130U) << meter.report();
}

TEST_P(ExtHoldsTest, ASourceIsRevokedFromManyPdsWithTheGateOpen) {
    open();
    for (int i = 0; i < 300; ++i) ASSERT_TRUE(link->a.node->host.hwc().create_pd());
    meter.clear();
    ASSERT_TRUE(link->a.host->revoke_source(3));
    EXPECT_LE(meter.largest().work, 1U) << meter.report();
}

TEST_P(ExtHoldsTest, AStateIsSetForOneQueuePairAtOnce) {
    open();
    meter.clear();
    for (const std::uint32_t state :
         {MANA_HW_RNIC_QP_SQD, MANA_HW_RNIC_QP_RTS, MANA_HW_RNIC_QP_ERR, MANA_HW_RNIC_QP_RESET})
        ASSERT_TRUE(link->a.host->to_state(link->a.qp, state));
    EXPECT_EQ(meter.largest(base::HoldKind::kExclusion).work, 1U) << meter.report();
}

/// Each of them flushes as much as its queues hold.
TEST_P(ExtHoldsTest, TheQueuePairsOfAFullCqFailInATaskEach) {
    ExtLink::Options options;
    options.entries = 4;
    open(options);
    for (int i = 0; i < 4; ++i) (void)another();
    for (int i = 0; i < 5; ++i) link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 8));
    const auto failed = [&] {
        return std::ranges::count_if(link->a.node->rnic.qp_status(), [](const rnic::QpStatus& qp) {
            return std::string_view(qp.state) == "ERR";
        });
    };
    std::ptrdiff_t before = failed();
    std::ptrdiff_t in_one_task = 0;
    while (link->a.node->executor.run_once()) {
        in_one_task = std::max(in_one_task, failed() - before);
        before = failed();
    }
    EXPECT_EQ(before, 5);
    EXPECT_EQ(in_one_task, 1);
    EXPECT_TRUE(link->a.had_event(link->a.send_cq.id, MANA_HW_EXT_EVENT_CQ_ERROR));
}

/// Not just that each step is short: who waits has the mutex between two of them.
TEST_P(ExtHoldsTest, WhoWaitsForAFlushWaitsForAStepOrTwo) {
    constexpr std::uint64_t kReceives = 4096;
    ExtLink::Options options;
    options.entries = kReceives;
    options.a.rq_bytes = kReceives * 64;
    open(options);
    rnic::Qp& qp = *link->a.node->rnic.adapter().qps.find(roce::Qpn(link->a.qp.qpn));
    const auto flushed = [&] { return qp.recv_cq->posted() % kReceives; };
    int counted = 0;
    int soon = 0;
    for (int round = 0; round < 200 && counted < 12; ++round) {
        if (round > 0) {
            ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_RESET));
            ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_INIT));
            link->a.qp.rq_producer = 0;
            link->a.qp.memory.store(offsetof(mana_hw_ext_qp_record, rq_producer) / 4, 0);
        }
        for (std::uint32_t i = 0; i < kReceives; ++i) link->a.recv(i, 0, 64);
        std::uint64_t before = 0;
        std::uint64_t after = 0;
        std::atomic<bool> over{false};
        std::thread visitor([&] {
            while ((before = flushed()) == 0 && !over) std::this_thread::yield();
            const std::lock_guard lock(qp.responder.mutex);
            after = flushed();
        });
        ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_ERR));
        over = true;
        visitor.join();
        ASSERT_EQ(link->a.recv_cq.drain().size(), kReceives);
        // Of those visits that came in the middle, so that there was more to wait for.
        if (before == 0 || before > kReceives / 2) continue;
        ++counted;
        if (after != 0 && after - before <= 256) ++soon;
    }
    EXPECT_GE(soon, counted * 3 / 4) << "of " << counted;
}

TEST_P(ExtHoldsTest, AFlushOfManyReceivesGivesTheMutexAwayInBetween) {
    ExtLink::Options options;
    options.entries = 1024;
    options.a.rq_bytes = 65536;
    open(options);
    constexpr std::uint32_t kReceives = 1000;
    for (std::uint32_t i = 0; i < kReceives; ++i) link->a.recv(i, 0, 64);
    meter.clear();
    ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_ERR));
    EXPECT_LE(meter.largest().work, 64U) << meter.report();
    EXPECT_EQ(link->a.recv_cq.drain().size(), kReceives);
}

}  // namespace
}  // namespace openmana::test
