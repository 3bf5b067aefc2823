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

TEST(BlockPool, BlocksAreApartAndStartAtACacheLine) {
    BlockPool pool(kBytes);
    // More than the first pieces of memory hold.
    std::vector<void*> blocks;
    for (int i = 0; i < 5000; ++i) blocks.push_back(pool.take());
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
    BlockPool pool(kBytes);
    void* const kept = pool.take();
    std::set<void*> seen;
    for (int i = 0; i < 1000; ++i) {
        void* const block = pool.take();
        EXPECT_NE(block, kept);
        seen.insert(block);
        pool.give_back(block);
    }
    EXPECT_EQ(seen.size(), 1U);
    pool.give_back(kept);
    // All memory went back; the next block has some again.
    void* const again = pool.take();
    std::memset(again, 1, kBytes);
    pool.give_back(again);
}

}  // namespace
}  // namespace openmana::base
