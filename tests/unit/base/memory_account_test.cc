// SPDX-License-Identifier: Apache-2.0
#include "base/memory_account.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

#include "base/huge_pages.h"

namespace openmana::base {
namespace {

TEST(MemoryAccountTest, AChargeEndsWithItsHolder) {
    MemoryAccount account(100);
    {
        auto first = account.charge(60);
        ASSERT_TRUE(first);
        MemoryAccount::Charge moved = std::move(*first);
        EXPECT_EQ(account.used(), 60U);
        auto second = account.charge(40);
        ASSERT_TRUE(second);
        moved = std::move(*second);
        EXPECT_EQ(account.used(), 40U) << "what it had paid before comes back";
        EXPECT_EQ(moved.bytes(), 40U);
    }
    EXPECT_EQ(account.used(), 0U);
    EXPECT_EQ(account.peak(), 100U);
}

TEST(MemoryAccountTest, WhatIsBeyondTheLimitIsRefusedAndCounted) {
    MemoryAccount account(100);
    const auto most = account.charge(100);
    ASSERT_TRUE(most);
    EXPECT_TRUE(account.charge(0));
    for (const std::uint64_t bytes : {std::uint64_t{1}, UINT64_MAX}) {
        const auto more = account.charge(bytes);
        ASSERT_FALSE(more);
        EXPECT_EQ(more.error().code, ErrorCode::kExhausted);
    }
    EXPECT_EQ(account.used(), 100U);
    EXPECT_EQ(account.refused(), 2U);
}

TEST(MemoryAccountTest, AVectorGrowsAsFarAsItIsPaidFor) {
    MemoryAccount account(1000);
    MemoryAccount::Charge charge;
    std::vector<std::uint64_t> numbers;
    ASSERT_TRUE(reserve(numbers, 30, account, charge));
    EXPECT_EQ(account.used(), heap_cost(240));
    const auto* const memory = numbers.data();
    numbers.resize(30);
    EXPECT_EQ(numbers.data(), memory);
    ASSERT_TRUE(reserve(numbers, 31, account, charge));
    EXPECT_EQ(numbers.capacity(), 60U);
    EXPECT_EQ(account.used(), heap_cost(480));
    // While it grows both are there.
    EXPECT_FALSE(reserve(numbers, 61, account, charge));
    EXPECT_EQ(numbers.capacity(), 60U);
    EXPECT_EQ(account.used(), heap_cost(480));
}

TEST(MemoryAccountTest, HugePagesAreWhole) {
    using Allocator = HugePageAllocator<std::uint64_t>;
    EXPECT_EQ(Allocator::bytes(10), 80U);
    EXPECT_EQ(Allocator::bytes((1U << 20) / 8), 2U << 20);
    EXPECT_EQ(Allocator::bytes((2U << 20) / 8 + 1), 4U << 20);
}

TEST(MemoryAccountTest, ThreadsNeverHaveMoreThanTheLimit) {
    MemoryAccount account(100);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
            for (int n = 0; n < 10000; ++n) {
                const auto first = account.charge(40);
                const auto second = account.charge(30);
            }
        });
    for (auto& thread : threads) thread.join();
    EXPECT_LE(account.peak(), 100U);
    EXPECT_EQ(account.used(), 0U);
}

}  // namespace
}  // namespace openmana::base
