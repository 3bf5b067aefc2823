// SPDX-License-Identifier: Apache-2.0
// The hardware channel of a function whose process has ended: its driver is asked for a reset, and
// what it commands until then is refused.
#include <cstring>

#include "unit/gdma/fixture.h"

#include <mana/gdma.h>

namespace openmana::gdma {
namespace {

/// The function that serves now.
struct Served final : pci::FunctionModel {
    Function* function = nullptr;
    [[nodiscard]] std::uint64_t bar0_size() const override { return function->bar0_size(); }
    void bar0_read(std::uint64_t offset, std::span<std::byte> data) override {
        function->bar0_read(offset, data);
    }
    void bar0_write(std::uint64_t offset, std::span<const std::byte> data) override {
        // As doorbells come, of which nobody waits for an answer.
        const base::BarWrite write{offset, data};
        function->bar0_writes(std::span(&write, 1));
    }
    void reset() override { function->reset(); }
};

class StaleHwcTest : public testing::Test {
protected:
    StaleHwcTest() {
        first.use_ledger(ledger);
        served.function = &first;
        driver.emplace(served, ram, irq);
    }
    void SetUp() override { ASSERT_TRUE(driver->bring_up()); }
    /// The process ends as it is, and another one goes on.
    void crash() {
        std::memcpy(static_cast<void*>(&left), &ledger, sizeof ledger);
        FunctionConfig config;
        config.seed = 77;  // other numbers
        second.emplace(executor, memory, irq, config);
        second->use_ledger(left);
        served.function = &*second;
        interrupts = irq.count(0);
        second->recover();
        second->request_reset();
    }
    void command(int times) {
        for (int i = 0; i < times; ++i)
            ASSERT_TRUE(driver->call(test::Request(MANA_HW_LIST_DEVICES, 40, 4096)).ok());
    }
    void request() { driver->queue_request(test::Request(MANA_HW_LIST_DEVICES, 40, 4096)); }
    /// The reset request, which is the only event: 7.2 warns of one about a CQ without entries.
    void expect_reset_request() {
        bool asked = false;
        while (const auto eqe = driver->hwc_eq.poll()) {
            EXPECT_EQ(eqe->type, 135);
            asked = true;
        }
        EXPECT_TRUE(asked);
        EXPECT_FALSE(driver->hwc_eq.ring.overflowed());
        driver->hwc_eq.arm();
    }
    void expect_refusal() {
        world.advance(kQuiet);
        const auto response = driver->take_response();
        ASSERT_TRUE(response);
        EXPECT_EQ(response->status, MANA_HW_STATUS_BUSY);
        EXPECT_EQ(response->bytes.size(), sizeof(mana_hw_response));
        EXPECT_FALSE(driver->hwc_cq.ring.overflowed());
        driver->post_receive();
    }
    static constexpr base::Duration kQuiet = std::chrono::milliseconds(20);

    test::SimWorld world;
    test::SimExecutor executor{world};
    base::GuestMemory memory;
    test::GuestRam ram{memory};
    test::FakeIrq irq;
    FunctionLedger ledger;
    FunctionLedger left;
    Function first{executor, memory, irq, FunctionConfig()};
    std::optional<Function> second;
    Served served;
    std::optional<test::HwcDriver> driver;
    std::uint64_t interrupts = 0;
};

TEST_F(StaleHwcTest, TheDriverIsAskedForAResetByAnInterrupt) {
    crash();
    EXPECT_GT(irq.count(0), interrupts);
    expect_reset_request();
}

TEST_F(StaleHwcTest, RingsGoOnWhereverTheyAre) {
    // A lap of the CQ has 64 entries, one of the EQ 256; after eight laps the owner bits repeat.
    for (const int times : {1, 40, 1, 21, 1, 1, 100, 31, 60, 1, 255, 1, 300, 700}) {
        SCOPED_TRACE(times);
        command(times);
        crash();
        expect_reset_request();
        request();
        driver->ring_requests();
        expect_refusal();
        // The driver does what it was asked for, with rings that are new.
        ASSERT_TRUE(driver->shut_down());
        second.reset();
        served.function = &first;
        ASSERT_TRUE(driver->bring_up());
        command(times);
    }
}

TEST_F(StaleHwcTest, AnAnsweredRequestIsNotAnsweredAgain) {
    command(3);
    request();
    driver->ring_requests();
    ASSERT_TRUE(driver->take_response());
    driver->post_receive();
    crash();
    driver->ring_requests();  // the same message once more
    world.advance(std::chrono::seconds(1));
    EXPECT_FALSE(driver->take_response());
    request();
    driver->ring_requests();
    expect_refusal();
}

TEST_F(StaleHwcTest, ARequestThatNobodyHasSeenIsRefused) {
    command(2);
    request();
    crash();
    driver->ring_requests();
    expect_refusal();
}

TEST_F(StaleHwcTest, ItIsRefusedWhenNoOtherHasComeForAWhile) {
    crash();
    request();
    driver->ring_requests();
    world.advance(kQuiet - std::chrono::milliseconds(1));
    EXPECT_FALSE(driver->take_response());
    request();
    driver->ring_requests();
    world.advance(kQuiet - std::chrono::milliseconds(1));
    EXPECT_FALSE(driver->take_response()) << "its driver does not wait";
}

TEST_F(StaleHwcTest, AfterTheResetNothingIsWritten) {
    crash();
    request();
    driver->ring_requests();
    ASSERT_TRUE(driver->shut_down());
    world.advance(std::chrono::seconds(1));
    EXPECT_FALSE(driver->take_response());
    EXPECT_FALSE(left.channel.channel.get().there);
    ASSERT_TRUE(driver->bring_up());
    command(3);
}

TEST_F(StaleHwcTest, WhatWasInTheApertureIsThere) {
    driver->write32(0x2000, 0x12345678);
    crash();
    EXPECT_EQ(driver->read32(0x2000), 0x12345678U);
}

TEST_F(StaleHwcTest, WithoutAChannelNobodyIsAsked) {
    ASSERT_TRUE(driver->shut_down());
    crash();
    EXPECT_EQ(irq.count(0), interrupts);
}

}  // namespace
}  // namespace openmana::gdma
