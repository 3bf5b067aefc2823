// SPDX-License-Identifier: Apache-2.0
// The send queues of a vPort whose process has ended: their driver gets all that it has handed over
// back, before and after another process goes on, so that it does not wait for it.
#include <gtest/gtest.h>

#include <mana/eth.h>

#include <cstring>
#include <memory>
#include <optional>

#include "fixture.h"
#include "gdma/function_ledger.h"
#include "support/current_function.h"

namespace openmana::eth::test {
namespace {

using openmana::test::EthTx;
using openmana::test::TxDone;

class StaleSendQueuesTest : public testing::Test {
protected:
    /// A process.
    struct Life {
        Life(StaleSendQueuesTest& test, gdma::FunctionLedger& ledger_in)
            : ledger(ledger_in),
              function(test.executor, test.memory, test.irq, {}),
              eth(function, EthernetConfig{.mac = kOwnMac}, sink) {
            function.use_ledger(ledger);
        }
        gdma::FunctionLedger& ledger;
        gdma::Function function;
        Sink sink;
        EthernetDevice eth;
    };

    StaleSendQueuesTest() {
        begin(*ledgers.emplace_back(std::make_unique<gdma::FunctionLedger>()));
        driver.emplace(serving, ram, irq);
        guest.emplace(*driver);
    }
    void SetUp() override {
        ASSERT_TRUE(driver->bring_up());
        ASSERT_TRUE(guest->probe());
        ASSERT_TRUE(guest->up(2));
    }
    void begin(gdma::FunctionLedger& ledger) {
        life = std::make_unique<Life>(*this, ledger);
        serving.function = &life->function;
    }
    /// The process ends as it is, and another one goes on.
    void crash() {
        gdma::FunctionLedger& left =
            *ledgers.emplace_back(std::make_unique<gdma::FunctionLedger>());
        std::memcpy(static_cast<void*>(&left), &life->ledger, sizeof left);
        life.reset();  // with what it was going to do
        begin(left);
        serving.function->recover();
        serving.function->request_reset();
        world.advance({});
    }
    static Bytes packet() { return tcp(flow4(), pattern(60)); }
    void send(std::size_t queue = 0) { guest->send(guest->tx[queue], packet()); }
    /// As NAPI: what is there, and armed again.
    int completions(std::size_t queue = 0) {
        int count = 0;
        EthTx& tx = guest->tx[queue];
        while (const auto done = guest->poll(tx)) {
            EXPECT_EQ(done->type, std::uint32_t{MANA_HW_ETH_CQE_TX_OK});
            EXPECT_EQ(done->queue_id, tx.sq.id);
            ++count;
        }
        EXPECT_FALSE(tx.cq.ring.overflowed());
        tx.cq.arm();
        return count;
    }
    /// Those of a queue's CQ.
    int events(std::size_t queue = 0) {
        int count = 0;
        while (const auto eqe = guest->eq->poll())
            if (eqe->type == 3 && eqe->data[0] == guest->tx[queue].cq.id) ++count;
        EXPECT_FALSE(guest->eq->ring.overflowed());
        guest->eq->arm();
        return count;
    }
    [[nodiscard]] std::size_t kept() const {
        std::size_t count = 0;
        for (const auto& queue : life->ledger.send_queues) count += queue.queue.get().there ? 1 : 0;
        return count;
    }

    openmana::test::SimWorld world;
    openmana::test::SimExecutor executor{world};
    base::GuestMemory memory;
    openmana::test::GuestRam ram{memory};
    openmana::test::FakeIrq irq;
    std::vector<std::unique_ptr<gdma::FunctionLedger>> ledgers;
    std::unique_ptr<Life> life;
    openmana::test::CurrentFunction serving;
    std::optional<openmana::test::HwcDriver> driver;
    std::optional<openmana::test::EthGuest> guest;
};

TEST_F(StaleSendQueuesTest, FramesAreCompletedAndGoNowhere) {
    for (int i = 0; i < 3; ++i) send();
    EXPECT_EQ(completions(), 3);
    crash();
    EXPECT_EQ(completions(), 0);
    for (int i = 0; i < 5; ++i) send();
    send(1);
    EXPECT_EQ(completions(), 5);
    EXPECT_EQ(completions(1), 1);
    EXPECT_TRUE(life->sink.frames.empty());
}

TEST_F(StaleSendQueuesTest, AFrameWhoseDoorbellNobodyTookIsCompletedWithTheNextOne) {
    send();
    EXPECT_EQ(completions(), 1);
    serving.lose_next = true;
    send();
    crash();
    EXPECT_EQ(completions(), 0);
    guest->tx[0].sq.doorbell();  // it is handled again, or for the first time
    guest->tx[0].sq.doorbell();
    EXPECT_EQ(completions(), 1);
}

TEST_F(StaleSendQueuesTest, WhatWasUnderWayIsCompletedAtOnce) {
    // More than a turn: the process ends before the next one.
    constexpr int kFrames = 70;
    for (int i = 0; i < kFrames; ++i) guest->post(guest->tx[0], packet());
    guest->tx[0].sq.doorbell();
    const int before = completions();
    EXPECT_LT(before, kFrames);
    crash();
    EXPECT_EQ(before + completions(), kFrames);
}

TEST_F(StaleSendQueuesTest, TheDriverHearsOfCompletionsWhoseEventIsLost) {
    (void)events();
    send();
    (void)events();
    crash();
    EXPECT_GE(events(), 1);
    EXPECT_EQ(completions(), 1);
    send();
    EXPECT_EQ(events(), 1);
    EXPECT_EQ(completions(), 1);
}

/// The EQ has 2,048 entries, the CQ 256, the SQ 256 of the smallest WQEs.
TEST_F(StaleSendQueuesTest, RingsGoOnWhereverTheyAre) {
    for (const int times : {0, 1, 100, 154, 1, 255, 256, 257, 1023, 2000}) {
        SCOPED_TRACE(times);
        for (int i = 0; i < times; ++i) {
            send(i % 2);
            ASSERT_EQ(completions(i % 2), 1);
            (void)events();
        }
        crash();
        // And the one after that: what a process does that goes on is written down as well.
        for (int i = 0; i < 3; ++i) {
            send();
            ASSERT_EQ(completions(), 1);
            (void)events();
        }
        crash();
        send();
        ASSERT_EQ(completions(), 1);
        (void)events();
        // The driver does what it was asked for, with rings that are new.
        ASSERT_TRUE(driver->shut_down());
        EXPECT_EQ(kept(), 0U);
        guest.emplace(*driver);
        ASSERT_TRUE(driver->bring_up());
        ASSERT_TRUE(guest->probe());
        ASSERT_TRUE(guest->up(2));
        EXPECT_EQ(kept(), 2U);
        send();
        EXPECT_EQ(completions(), 1);
        EXPECT_EQ(life->sink.frames.size(), 1U);
    }
}

TEST_F(StaleSendQueuesTest, AFrameThatAsksForNoCompletionHasNone) {
    crash();
    guest->send(guest->tx[0], packet(), {.no_completion = true});
    send();
    EXPECT_EQ(completions(), 1);
}

TEST_F(StaleSendQueuesTest, ManyFramesTakeSeveralTurns) {
    crash();
    constexpr int kFrames = 200;
    for (int i = 0; i < kFrames; ++i) guest->post(guest->tx[0], packet());
    guest->tx[0].sq.doorbell();
    EXPECT_EQ(completions(), 64);
    send(1);
    EXPECT_EQ(completions(1), 0) << "the other queue's turn comes";
    world.advance({});
    EXPECT_EQ(completions() + 64, kFrames);
    EXPECT_EQ(completions(1), 1);
}

TEST_F(StaleSendQueuesTest, NonsenseIsLeftAlone) {
    crash();
    std::array<std::byte, 32> wqe;
    wqe.fill(std::byte{0xff});
    guest->tx[0].sq.post_raw(wqe);
    guest->tx[0].sq.doorbell();
    EXPECT_EQ(completions(), 0);
    driver->ring_sq(guest->tx[0].sq.page, guest->tx[0].sq.id, guest->tx[0].sq.head() + (1U << 20));
    EXPECT_EQ(completions(), 0);
    driver->ring_sq(guest->tx[0].sq.page + 1, guest->tx[0].sq.id, guest->tx[0].sq.head());
    driver->ring_cq(guest->tx[0].cq.page + 1, guest->tx[0].cq.id, 0, true);
    driver->ring_eq(guest->eq->page + 1, guest->eq->id, 0, true);
    send(1);
    EXPECT_EQ(completions(1), 1);
}

TEST_F(StaleSendQueuesTest, QueuesThatWereDestroyedAreForgotten) {
    EXPECT_EQ(kept(), 2U);
    ASSERT_TRUE(guest->down());
    EXPECT_EQ(kept(), 0U);
    crash();
}

/// Nothing that the ledger could say of them is enough.
TEST_F(StaleSendQueuesTest, QueuesInSeveralPiecesAreNotKept) {
    ASSERT_TRUE(guest->down());
    guest->scattered = true;
    ASSERT_TRUE(guest->up());
    EXPECT_EQ(kept(), 0U);
    crash();
    send();
    EXPECT_EQ(completions(), 0);
}

TEST_F(StaleSendQueuesTest, ACrashInTheMiddleOfAResetLeavesNothing) {
    life->ledger.channel.channel.set({});
    crash();
    EXPECT_EQ(kept(), 0U);
}

}  // namespace
}  // namespace openmana::eth::test
