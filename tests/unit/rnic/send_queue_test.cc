// SPDX-License-Identifier: Apache-2.0
// WQEs as the real providers write them (RNIC 9).
#include "rnic/send_queue.h"

#include <gtest/gtest.h>
#include <mana/rnic_queue.h>

#include "support/guest_ram.h"
#include "support/hex.h"

namespace openmana::test {
namespace {

using rnic::Psn;
using rnic::SegmentKind;

constexpr const char* kSgeA = "40332211 007f0000 02010000 b80b0000";
constexpr const char* kZero = "00000000 00000000 00000000 00000000";

class SendWqeTest : public ::testing::Test {
protected:
    rnic::SendWqe parse(const std::string& hex, std::uint32_t psn, std::uint32_t mtu = 1024) {
        const auto bytes = from_hex(hex);
        base::GuestMemory memory;
        GuestRam ram(memory);
        const auto at = ram.alloc(4096);
        std::ranges::copy(bytes, ram.at(at));
        const std::uint64_t page = at.value();
        const gdma::Ring ring(
            memory, std::make_unique<gdma::DmaRegion>(4096, 0, 12, std::span(&page, 1)), 4096);
        auto wqe = gdma::Wqe::fetch(ring, 0, static_cast<std::uint32_t>(bytes.size()), 512);
        EXPECT_TRUE(wqe);
        rnic::SendWqe result;
        result.parse(*wqe, Psn(psn), mtu);
        return result;
    }
};

TEST_F(SendWqeTest, Write) {
    const auto wqe = parse(
        std::string("01000000 02060004 45563412 01000000 00700000 78563412 01feca00 b80b0000") +
            kSgeA + kZero,
        0x123456);
    EXPECT_EQ(wqe.error, 0U);
    EXPECT_EQ(wqe.kind, SegmentKind::kWrite);
    EXPECT_EQ(wqe.first, Psn(0x123456));
    EXPECT_EQ(wqe.last(), Psn(0x123458));
    EXPECT_EQ(wqe.mtu, 1024U);
    EXPECT_EQ(wqe.address, 0x0000700012345678ULL);
    EXPECT_EQ(wqe.rkey, roce::RKey(0xcafe01U));
    EXPECT_EQ(wqe.length, 3000U);
    ASSERT_EQ(wqe.sges.size(), 1U);
    EXPECT_EQ(wqe.sges[0].address, 0x7f0011223340ULL);
    EXPECT_EQ(wqe.sges[0].key, gdma::Key(0x102));
    EXPECT_EQ(wqe.sges[0].length, 3000U);
}

TEST_F(SendWqeTest, WriteOfTwoSges) {
    const auto wqe = parse(
        std::string("00000000 02060004 05593412 02000000 00700000 78563412 01feca00 1c0c0000") +
            kSgeA + "80776655 007f0000 04030000 64000000",
        0x123459);
    EXPECT_EQ(wqe.error, 0U);
    EXPECT_EQ(wqe.length, 3100U);
    EXPECT_EQ(wqe.last() + 1, Psn(0x12345d));
    EXPECT_EQ(wqe.sges.size(), 2U);
}

TEST_F(SendWqeTest, SendWithFence) {
    const auto wqe =
        parse(std::string("01000000 02060044 e25d3412 03000000") + kZero + kSgeA + kZero, 0x12345d);
    EXPECT_EQ(wqe.error, 0U);
    EXPECT_EQ(wqe.kind, SegmentKind::kSend);
    EXPECT_TRUE(wqe.fence);
    EXPECT_TRUE(wqe.solicited);
    EXPECT_FALSE(wqe.immediate);
    EXPECT_EQ(wqe.last() + 1, Psn(0x123460));
}

TEST_F(SendWqeTest, SendWithImmediateOfNothing) {
    const auto wqe =
        parse(std::string("01000000 02060044 43603412 04000000 ddccbbaa 00000000 00000000 00000000"
                          "01000000 00000000 00000000 00000000") +
                  kZero,
              0x123460);
    EXPECT_EQ(wqe.error, 0U);
    EXPECT_TRUE(wqe.immediate);
    EXPECT_EQ(wqe.value, 0xaabbccddU);
    EXPECT_EQ(wqe.length, 0U);
    EXPECT_EQ(wqe.packets, 1U);
}

TEST_F(SendWqeTest, WriteWithImmediate) {
    const auto wqe =
        parse(std::string("00000000 01070044 46613412 05000000 00700000 78563412 01feca00 b80b0000"
                          "ddccbbaa 00000000 00000000 00000000") +
                  kSgeA,
              0x123461);
    EXPECT_EQ(wqe.error, 0U);
    EXPECT_EQ(wqe.kind, SegmentKind::kWrite);
    EXPECT_TRUE(wqe.immediate);
    EXPECT_EQ(wqe.value, 0xaabbccddU);
    ASSERT_EQ(wqe.sges.size(), 1U);
    EXPECT_EQ(wqe.sges[0].length, 3000U);
}

TEST_F(SendWqeTest, Read) {
    const auto wqe =
        parse(std::string("01000000 02060004 47643412 06000000 00700000 78563412 01feca00 b80b0000"
                          "01000000 00000000 00000000 00000000") +
                  kZero,
              0x123464);
    EXPECT_EQ(wqe.error, 0U);
    EXPECT_TRUE(wqe.is_read());
    EXPECT_EQ(wqe.length, 3000U);
    EXPECT_EQ(wqe.packets, 3U);
}

TEST_F(SendWqeTest, NonsenseHasItsVendorError) {
    const std::string tail =
        std::string(" 01000000 00700000 78563412 01feca00 b80b0000") + kSgeA + kZero;
    const auto error = [&](const std::string& head, std::uint32_t psn, std::uint32_t mtu = 1024) {
        return parse(head + tail, psn, mtu).error;
    };
    EXPECT_EQ(error("01000000 02060004 45563412", 0x123457),
              unsigned{MANA_HW_RNIC_VE_TX_WQE_FIELD});
    EXPECT_EQ(error("01000000 02060004 4a563412", 0x123456),
              unsigned{MANA_HW_RNIC_VE_TX_UNSUPPORTED});
    EXPECT_EQ(error("01000000 02060004 40563412", 0x123456),
              unsigned{MANA_HW_RNIC_VE_TX_UNSUPPORTED});
    EXPECT_EQ(error("01000000 02060003 45563412", 0x123456), unsigned{MANA_HW_RNIC_VE_TX_MTU});
    EXPECT_EQ(error("01000000 02060004 45563412", 0x123456, 512), unsigned{MANA_HW_RNIC_VE_TX_MTU});
    EXPECT_EQ(error("00000000 01060004 46563412", 0x123456), unsigned{MANA_HW_RNIC_VE_TX_WQE_SIZE});
    const auto wrong_total = parse(
        std::string("01000000 02060004 45563412 01000000 00700000 78563412 01feca00 b90b0000") +
            kSgeA + kZero,
        0x123456);
    EXPECT_EQ(wrong_total.error, unsigned{MANA_HW_RNIC_VE_TX_LENGTH});
}

TEST(SendQueueTest, GrowsAndKeepsOrder) {
    base::MemoryAccount account;
    rnic::SendSlots slots(account);
    rnic::SendQueue queue(slots);
    for (std::uint32_t i = 0; i < 5; ++i) queue.push()->length = i;
    queue.pop();
    queue.pop();
    for (std::uint32_t i = 5; i < 40; ++i) queue.push()->length = i;
    for (std::uint32_t i = 2; i < 40; ++i) {
        EXPECT_EQ(queue.front().length, i);
        queue.pop();
    }
    EXPECT_TRUE(queue.empty());
}

TEST(SendQueueTest, EmptyQueuesShareTheirSlots) {
    base::MemoryAccount account;
    rnic::SendSlots slots(account);
    rnic::SendQueue first(slots);
    rnic::SendQueue second(slots);
    const rnic::SendWqe* const slot = first.push();
    first.settle();
    EXPECT_NE(second.push(), slot) << "in use";
    second.pop();
    first.pop();
    first.settle();
    EXPECT_EQ(first.push(), slot);
    first.pop();
    first.settle();
    second.settle();
    rnic::SendQueue third(slots);
    ASSERT_NE(third.push(), nullptr);
    EXPECT_EQ(first.push(), slot);
}

TEST(SendQueueTest, IsFullWhenNobodyPaysForMore) {
    constexpr std::uint64_t kLimit = 12 * rnic::SendSlots::kSlotCost;
    base::MemoryAccount account(kLimit);
    rnic::SendSlots slots(account);
    rnic::SendQueue queue(slots);
    // Its own two, then four; to grow to eight takes both for a moment.
    for (std::uint32_t i = 0; i < 8; ++i) {
        rnic::SendWqe* const slot = queue.push();
        ASSERT_NE(slot, nullptr) << i;
        slot->length = i;
    }
    EXPECT_EQ(account.used(), 8 * rnic::SendSlots::kSlotCost);
    EXPECT_EQ(queue.push(), nullptr);
    EXPECT_GT(account.refused(), 0U);
    queue.pop();
    rnic::SendWqe* const next = queue.push();
    ASSERT_NE(next, nullptr) << "as the oldest one ends it goes on";
    next->length = 8;
    for (std::uint32_t i = 1; i <= 8; ++i) {
        EXPECT_EQ(queue.front().length, i);
        queue.pop();
    }
    queue.settle();
    EXPECT_EQ(account.used(), 8 * rnic::SendSlots::kSlotCost) << "spare ones are paid for";
    slots.clear();
    EXPECT_EQ(account.used(), 0U);
}

/// One that grew has given its smaller slots back, and who reads its state has no more.
TEST(SendQueueTest, ReservesWithWhatOneThatGrewHas) {
    base::MemoryAccount account(8 * rnic::SendSlots::kSlotCost);
    rnic::SendSlots slots(account);
    rnic::SendQueue queue(slots);
    ASSERT_TRUE(queue.reserve(5));
    EXPECT_EQ(account.used(), account.limit());
    for (int i = 0; i < 8; ++i) EXPECT_NE(queue.push(), nullptr);
    EXPECT_EQ(queue.push(), nullptr);
    rnic::SendQueue other(slots);
    EXPECT_FALSE(other.reserve(3));
    EXPECT_TRUE(other.reserve(rnic::SendSlots::kFew)) << "those are paid for by its queue pair";
}

TEST(SendQueueTest, ManySpareSlotsAreNotKept) {
    base::MemoryAccount account;
    rnic::SendSlots slots(account);
    rnic::SendQueue queues[] = {rnic::SendQueue(slots), rnic::SendQueue(slots)};
    for (auto& queue : queues)
        for (int i = 0; i < 600; ++i) ASSERT_NE(queue.push(), nullptr);
    for (auto& queue : queues) {
        while (!queue.empty()) queue.pop();
        queue.settle();
    }
    EXPECT_EQ(account.used(), 1024 * rnic::SendSlots::kSlotCost) << "those of one";
}

// Queues of both formats use the slots by turns, and a stock one does not know all of their fields.
TEST(SendQueueTest, SlotsComeAsNew) {
    base::MemoryAccount account;
    rnic::SendSlots slots(account);
    rnic::SendQueue extended(slots);
    rnic::SendQueue stock(slots);
    rnic::SendWqe& used = *extended.push();
    used.is_inline = true;
    used.inline_data.resize(100);
    used.local = used.signaled = used.fence = true;
    used.error = MANA_HW_RNIC_VE_TX_WQE_SIZE;
    used.sges.resize(3);
    extended.pop();
    extended.settle();
    const rnic::SendWqe& slot = *stock.push();
    ASSERT_EQ(&slot, &used);
    EXPECT_FALSE(slot.is_inline || slot.local || slot.signaled || slot.fence);
    EXPECT_EQ(slot.error, 0U);
    EXPECT_TRUE(slot.inline_data.empty() && slot.sges.empty());
}

}  // namespace
}  // namespace openmana::test
