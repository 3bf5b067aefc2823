// SPDX-License-Identifier: Apache-2.0
// Which pages of guest memory were found to be written to.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <vector>

#include "base/guest_memory.h"

namespace openmana::base {
namespace {

constexpr std::uint64_t kPage = PageLog::kPage;
using Pages = std::set<std::uint64_t>;

class WriteLogTest : public ::testing::Test {
protected:
    void SetUp() override {
        ASSERT_TRUE(memory.map_host(GuestAddr(kFirst), low));
        ASSERT_TRUE(memory.map_host(GuestAddr(kFirst + low.size()), high));
        ASSERT_TRUE(memory.map_host(GuestAddr(kFar), far));
        ASSERT_TRUE(memory.map_host(GuestAddr(1ULL << 50), fixed, false));
        ASSERT_TRUE(memory.log_writes());
    }
    /// The units, from kFirst on, that were written to since this was asked.
    Pages take(std::uint64_t unit = kPage, std::uint64_t length = kFar + 64 * kPage - kFirst) {
        std::vector<std::byte> bits((length / unit + 64) / 8);
        memory.take_written(GuestAddr(kFirst), length, {GuestAddr(kFirst), unit, bits});
        Pages pages;
        for (std::uint64_t i = 0; i < bits.size() * 8; ++i)
            if ((bits[i / 8] >> (i % 8) & std::byte{1}) != std::byte{0}) pages.insert(i);
        return pages;
    }
    void touch(std::uint64_t offset, std::uint64_t length) {
        std::vector<std::span<std::byte>> found;
        ASSERT_TRUE(memory.resolve(GuestAddr(kFirst + offset), length, Access::kWrite, found));
    }

    static constexpr std::uint64_t kFirst = 16 * kPage;
    static constexpr std::uint64_t kFar = kFirst + (1ULL << 20) * kPage;
    std::vector<std::byte> low = std::vector<std::byte>(100 * kPage);
    std::vector<std::byte> high = std::vector<std::byte>(100 * kPage);
    std::vector<std::byte> far = std::vector<std::byte>(64 * kPage);
    std::vector<std::byte> fixed = std::vector<std::byte>(kPage);
    GuestMemory memory;
};

TEST_F(WriteLogTest, NamesThePagesAndEachOnce) {
    EXPECT_EQ(take(), Pages());
    touch(0, 1);
    touch(3 * kPage - 1, 1);
    touch(3 * kPage - 1, 2);
    touch(63 * kPage, 2 * kPage);
    touch(10 * kPage, 0);
    EXPECT_EQ(take(), (Pages{0, 2, 3, 63, 64}));
    EXPECT_EQ(take(), Pages());
    touch(64 * kPage + 5, 8);
    EXPECT_EQ(take(), Pages{64});
}

TEST_F(WriteLogTest, LongWritesOverSeveralWordsAndRanges) {
    touch(kPage / 2, 190 * kPage);
    Pages expected;
    for (std::uint64_t i = 0; i <= 190; ++i) expected.insert(i);
    EXPECT_EQ(take(), expected);
}

TEST_F(WriteLogTest, ReadingAndLookingForWhatCanBeWrittenLeavesNoTrace) {
    std::array<std::byte, 64> bytes{};
    EXPECT_TRUE(memory.read(GuestAddr(kFirst), bytes));
    EXPECT_FALSE(memory.find(GuestAddr(kFirst), 64, Access::kRead).empty());
    EXPECT_FALSE(memory.find(GuestAddr(kFirst), 64, Access::kWritable).empty());
    EXPECT_TRUE(memory.find(GuestAddr(1ULL << 50), 64, Access::kWritable).empty());
    EXPECT_EQ(take(), Pages());
    EXPECT_TRUE(memory.write(GuestAddr(kFirst + 5 * kPage), bytes));
    EXPECT_FALSE(memory.find(GuestAddr(kFirst + 6 * kPage), 64, Access::kWrite).empty());
    EXPECT_EQ(take(), (Pages{5, 6}));
}

TEST_F(WriteLogTest, AResolverNotesEachPieceThatItFindsAgain) {
    std::vector<std::span<std::byte>> found;
    GuestMemory::Resolver writes(memory, Access::kWrite, found);
    for (const std::uint64_t page : {7, 9, 11})
        ASSERT_TRUE(writes.add(GuestAddr(kFirst + page * kPage), kPage));
    GuestMemory::Resolver reads(memory, Access::kRead, found);
    for (const std::uint64_t page : {1, 2})
        ASSERT_TRUE(reads.add(GuestAddr(kFirst + page * kPage), kPage));
    EXPECT_EQ(take(), (Pages{7, 9, 11}));
}

TEST_F(WriteLogTest, UnitsOfSeveralPagesAreOneIfAnyOfThemIs) {
    touch(3 * kPage, 1);
    touch(200 * kPage - 1, 1);
    EXPECT_EQ(take(4 * kPage), (Pages{0, 49}));
    touch(0, 1);
    EXPECT_EQ(take(1ULL << 40), Pages{0});
}

TEST_F(WriteLogTest, WhatIsNotAskedForStays) {
    touch(2 * kPage, 1);
    touch(70 * kPage, 1);
    EXPECT_EQ(take(kPage, 64 * kPage), Pages{2});
    EXPECT_EQ(take(), Pages{70});
}

TEST_F(WriteLogTest, ARangeThatComesLaterIsLoggedAndOneThatGoesIsNot) {
    std::vector<std::byte> other(kPage);
    touch(150 * kPage, 1);
    ASSERT_TRUE(memory.unmap(GuestAddr(kFirst + low.size()), high.size()));
    ASSERT_TRUE(memory.map_host(GuestAddr(kFirst + 150 * kPage), other));
    EXPECT_EQ(take(), Pages());
    touch(150 * kPage, 8);
    EXPECT_EQ(take(), Pages{150});
    EXPECT_NE(memory.generation(), 0U);
}

TEST_F(WriteLogTest, BeginningTwiceForgetsNothingAndEndingForgetsAll) {
    touch(0, 1);
    ASSERT_TRUE(memory.log_writes());
    EXPECT_EQ(take(), Pages{0});
    touch(0, 1);
    memory.log_no_writes();
    EXPECT_FALSE(memory.logs_writes());
    touch(1, 1);
    EXPECT_EQ(take(), Pages());
    ASSERT_TRUE(memory.log_writes());
    EXPECT_EQ(take(), Pages());
}

}  // namespace
}  // namespace openmana::base
