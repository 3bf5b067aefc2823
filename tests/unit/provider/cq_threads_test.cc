// SPDX-License-Identifier: Apache-2.0
// CQs that one thread arms while another polls: neither waits for the other.
#include <atomic>
#include <thread>

#include "provider_fixture.h"

namespace openmana::test {
namespace {

constexpr std::uint32_t kEntries = 64, kWrap = 8 * kEntries;
constexpr std::uint32_t kCqes = 200 * 4 * kEntries;

/// Polls as many CQEs as the device writes, while another thread arms; how often it did.
std::uint32_t poll_while_armed(TestCq& cq) {
    std::atomic<bool> stop = false;
    std::atomic<std::uint32_t> armed = 0;
    std::thread other([&] {
        while (!stop) {
            mana_lock(&cq.dp.arm_lock);
            mana_dp_cq_arm(&cq.dp, false);
            mana_unlock(&cq.dp.arm_lock);
            ++armed;
            // Again when the poller is about to tell the device what it took.
            const auto at = mana_load_relaxed(&cq.dp.consumer);
            while (!stop && mana_load_relaxed(&cq.dp.consumer) - at < 4 * kEntries - armed % 4)
                mana_relax();
        }
    });
    while (armed == 0) std::this_thread::yield();
    const mana_hw_rnic_armed_cqe of_nobody{};
    for (std::uint32_t i = 0; i < kCqes; ++i) {
        cq.write(of_nobody, 1, false);
        EXPECT_TRUE(cq.poll().empty());
    }
    stop = true;
    other.join();
    return armed;
}

TEST(CqThreadsTest, StockDoorbellsComeInOrder) {
    DoorbellSink sink;
    const Tables tables;
    // No lock here: under TSan this also says that doorbells of one CQ are rung one at a time.
    std::uint32_t last_armed = 0, armings = 0, others = 0;
    sink.forward = [&](std::uint32_t, std::uint64_t value) {
        const auto index = static_cast<std::uint32_t>(value >> 32) & (kWrap - 1);
        if ((value >> 63) != 0) {
            last_armed = index;
            ++armings;
            return;
        }
        // One that only tells what was taken is far behind the arming before it: it undoes none.
        ++others;
        EXPECT_TRUE(armings == 0 || ((index - last_armed) & (kWrap - 1)) >= 3 * kEntries - 1);
    };
    TestCq cq(sink, tables, kEntries, false);
    const auto armed = poll_while_armed(cq);
    EXPECT_EQ(cq.dp.consumer, kEntries + kCqes);
    EXPECT_EQ(armings, armed);
    EXPECT_GT(armings + others, kCqes / (6 * kEntries));
    // The arming that comes last is for what comes next, or a little ahead of it.
    mana_dp_cq_arm(&cq.dp, false);
    EXPECT_LT((last_armed - cq.dp.consumer) & (kWrap - 1), kEntries);
}

TEST(CqThreadsTest, ExtendedRecordNeverGoesBack) {
    DoorbellSink sink;
    const Tables tables;
    TestCq cq(sink, tables, kEntries, true);
    const auto armed = poll_while_armed(cq);
    EXPECT_EQ(cq.dp.record->consumer, kEntries + kCqes);
    EXPECT_EQ(cq.dp.record->arm >> MANA_HW_EXT_ARM_SEQUENCE_SHIFT,
              armed & (0xffffffffU >> MANA_HW_EXT_ARM_SEQUENCE_SHIFT));
    EXPECT_EQ(sink.count, 0U);
}

}  // namespace
}  // namespace openmana::test
