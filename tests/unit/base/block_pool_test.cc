// SPDX-License-Identifier: Apache-2.0
#include "base/block_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

namespace openmana::base {
namespace {

constexpr std::size_t kBytes = 1500;

void* take(BlockPool& pool) {
    EXPECT_TRUE(pool.prepare());
    return pool.take();
}

TEST(BlockPool, BlocksAreApartAndStartAtACacheLine) {
    MemoryAccount account;
    BlockPool pool(kBytes, account);
    // More than the first pieces of memory hold.
    std::vector<void*> blocks;
    for (int i = 0; i < 5000; ++i) blocks.push_back(take(pool));
    for (std::size_t i = 0; i < blocks.size(); ++i)
        std::memset(blocks[i], static_cast<int>(i % 251), kBytes);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(blocks[i]) % 64, 0U);
        const auto* const bytes = static_cast<const unsigned char*>(blocks[i]);
        ASSERT_EQ(bytes[0], i % 251);
        ASSERT_EQ(bytes[kBytes - 1], i % 251);
    }
    for (void* const block : blocks) pool.give_back(block);
}

TEST(BlockPool, WhatComesBackIsUsedAgain) {
    MemoryAccount account;
    BlockPool pool(kBytes, account);
    void* const kept = take(pool);
    std::set<void*> seen;
    for (int i = 0; i < 1000; ++i) {
        void* const block = take(pool);
        EXPECT_NE(block, kept);
        seen.insert(block);
        pool.give_back(block);
    }
    EXPECT_EQ(seen.size(), 1U);
    pool.give_back(kept);
    // All memory went back; the next block has some again.
    void* const again = take(pool);
    std::memset(again, 1, kBytes);
    pool.give_back(again);
}

TEST(BlockPool, IsPaidForPieceByPiece) {
    constexpr std::uint64_t kPieces = (512U << 10) + (2U << 20);
    MemoryAccount account(kPieces + 1000);
    BlockPool pool(kBytes, account);
    std::vector<void*> blocks;
    while (pool.prepare()) blocks.push_back(pool.take());
    EXPECT_EQ(account.used(), kPieces);
    EXPECT_EQ(blocks.size(), (512U << 10) / 1536 + (2U << 20) / 1536);
    pool.give_back(blocks.back());
    EXPECT_TRUE(pool.prepare()) << "one that came back";
    blocks.pop_back();
    for (void* const block : blocks) pool.give_back(block);
    EXPECT_EQ(account.used(), 0U);
}

}  // namespace
}  // namespace openmana::base
