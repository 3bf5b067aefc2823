// SPDX-License-Identifier: Apache-2.0
// The hardware channel of a function whose process has ended: its driver is asked for a reset, and
// what it commands until then is refused.
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/endian.h"
#include "support/current_function.h"
#include "support/state_damage.h"
#include "unit/gdma/fixture.h"

#include <mana/gdma.h>

namespace openmana::gdma {
namespace {

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
    void crash_again() {
        std::memcpy(static_cast<void*>(&left_again), &left, sizeof left);
        third.emplace(executor, memory, irq, FunctionConfig());
        third->use_ledger(left_again);
        served.function = &*third;
        third->recover();
        third->request_reset();
    }
    void command(int times) {
        for (int i = 0; i < times; ++i)
            ASSERT_TRUE(driver->call(test::Request(MANA_HW_LIST_DEVICES, 40, 4096)).ok());
    }
    void request() { driver->queue_request(test::Request(MANA_HW_LIST_DEVICES, 40, 4096)); }
    /// Without a look at the EQ.
    void ring() { driver->hwc_sq.doorbell(); }
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
        const auto response = driver->take_response();
        ASSERT_TRUE(response);
        EXPECT_EQ(response->status, MANA_HW_STATUS_BUSY);
        EXPECT_EQ(response->bytes.size(), sizeof(mana_hw_response));
        EXPECT_FALSE(driver->hwc_cq.ring.overflowed());
        driver->post_receive();
    }
    /// As 7.2, which acts on reset requests, says of itself.
    void resets_itself() {
        ASSERT_TRUE(driver
                        ->call(test::Request(MANA_HW_VERIFY_DRIVER_VERSION, 640, 72)
                                   .put<std::uint64_t>(40, MANA_HW_PROTOCOL_VERSION)
                                   .put<std::uint64_t>(48, MANA_HW_PROTOCOL_VERSION)
                                   .put<std::uint64_t>(56, 0x27e686d))
                        .ok());
    }

    /// Reads a state of a channel that has the ring at this address in two pieces.
    base::Result<void> load_split(std::vector<std::byte> state, std::uint64_t ring) {
        constexpr std::uint64_t kBytes = MANA_HW_HWC_QUEUE_BYTES;
        const auto place_of = [&](std::string_view bytes) {
            const auto found = std::ranges::search(state, std::as_bytes(std::span(bytes)));
            EXPECT_FALSE(found.empty());
            return static_cast<std::size_t>(found.begin() - state.begin());
        };
        // The number of pieces, then address and length of each.
        struct [[gnu::packed]] {
            std::uint32_t pieces = 1;
            std::uint64_t address, length;
        } const whole{1, ring, kBytes};
        const std::size_t at = place_of({reinterpret_cast<const char*>(&whole), sizeof whole});
        base::store_le<std::uint32_t>(&state[at], 2);
        base::store_le<std::uint64_t>(&state[at + 12], kBytes / 2);
        std::array<std::byte, 16> second_piece;
        base::store_le<std::uint64_t>(second_piece.data(), ring + kBytes / 2);
        base::store_le<std::uint64_t>(&second_piece[8], kBytes / 2);
        state.insert(state.begin() + static_cast<std::ptrdiff_t>(at + sizeof whole),
                     second_piece.begin(), second_piece.end());
        // The parts that it is in: a tag and a version, then their length.
        for (const std::string_view tag : {"GDMA", "TABL"}) {
            std::byte* const length = &state[place_of(tag) + 8];
            base::store_le(length, base::load_le<std::uint64_t>(length) + second_piece.size());
        }
        Function other{executor, memory, irq, FunctionConfig()};
        const auto body = test::with_head(std::span(state).subspan(24));
        TRY(auto in, base::StateReader::open(body, world.now()));
        return other.load(in);
    }

    test::SimWorld world;
    test::SimExecutor executor{world};
    base::GuestMemory memory;
    test::GuestRam ram{memory};
    test::FakeIrq irq;
    FunctionLedger ledger;
    FunctionLedger left, left_again;
    Function first{executor, memory, irq, FunctionConfig()};
    std::optional<Function> second, third;
    test::CurrentFunction served;
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

TEST_F(StaleHwcTest, OneThatResetsItselfIsAnsweredUntilItHasHeard) {
    resets_itself();
    crash();
    for (int i = 0; i < 2; ++i) {
        request();
        ring();
        expect_refusal();
    }
    (void)driver->hwc_eq.drain();
    driver->hwc_eq.arm();
    for (int i = 0; i < 3; ++i) {
        request();
        ring();
        world.advance(std::chrono::seconds(10));
        ASSERT_FALSE(driver->take_response()) << "where its buffer was is something else";
    }
}

TEST_F(StaleHwcTest, OneThatDoesNotResetItselfIsAnsweredAfterThatToo) {
    crash();
    expect_reset_request();
    for (int i = 0; i < 3; ++i) {
        request();
        driver->ring_requests();
        expect_refusal();
    }
}

/// Whether it is answered, or not: the next process knows.
TEST_F(StaleHwcTest, NothingIsAnsweredByTheProcessAfterThat) {
    for (const bool hears : {false, true}) {
        SCOPED_TRACE(hears);
        resets_itself();
        crash();
        if (hears) expect_reset_request();
        for (int i = 0; i < 3; ++i) {
            request();
            ring();
            if (!hears) expect_refusal();
        }
        crash_again();
        ring();
        EXPECT_FALSE(driver->take_response());
        request();
        ring();
        expect_refusal();
        ASSERT_TRUE(driver->shut_down());
        third.reset();
        second.reset();
        served.function = &first;
        ASSERT_TRUE(driver->bring_up());
    }
}

TEST_F(StaleHwcTest, WhatItsDriverIsGoesWithTheState) {
    resets_itself();
    base::StateWriter out(world.now());
    first.save(out);
    const std::vector<std::byte> state = std::move(out).finish();
    Function other{executor, memory, irq, FunctionConfig()};
    FunctionLedger of_other;
    other.use_ledger(of_other);
    auto in = base::StateReader::open(state, world.now());
    ASSERT_TRUE(in);
    const auto loaded = other.load(*in);
    ASSERT_TRUE(loaded) << loaded.error().text;
    EXPECT_EQ(of_other.channel.driver_caps, 0x27e686dU);
}

/// A state that somebody made: whoever goes on behind a crash finds rings in one piece alone.
TEST_F(StaleHwcTest, AChannelWhoseRingsAreInPiecesIsRefused) {
    const auto state = test::written(world.now(), [&](base::StateWriter& out) { first.save(out); });
    for (const std::uint64_t ring : {ledger.channel.channel.get().eq.ring.address,
                                     ledger.channel.channel.get().cq.ring.address}) {
        const auto loaded = load_split(state.bytes, ring);
        ASSERT_FALSE(loaded);
        EXPECT_STREQ(loaded.error().text, "HWC that cannot be");
    }
}

TEST_F(StaleHwcTest, AfterTheResetNothingIsWritten) {
    crash();
    request();
    ASSERT_TRUE(driver->shut_down());
    driver->ring_requests();
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
