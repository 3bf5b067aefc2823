// SPDX-License-Identifier: Apache-2.0
#include "gdma/device_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include <gtest/gtest.h>

#include <mana/gdma.h>

#include "unit/gdma/fixture.h"

namespace openmana::gdma {
namespace {

constexpr std::uint64_t kPage = DeviceMemory::kPage;

bool zero(std::span<const std::byte> bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

void soil(std::span<std::byte> bytes) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0x5a});
}

TEST(DeviceMemoryTest, SizeIsThatOfABar) {
    EXPECT_EQ(DeviceMemory(0).size(), kPage);
    EXPECT_EQ(DeviceMemory(5 * kPage).size(), 8 * kPage);
}

TEST(DeviceMemoryTest, PiecesOwnWholePages) {
    DeviceMemory memory(8 * kPage);
    const auto a = memory.allocate(1, 0);
    const auto b = memory.allocate(kPage + 1, 0);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->offset, 0U);
    EXPECT_EQ(a->bytes.size(), 1U);
    EXPECT_EQ(b->offset, kPage);
    EXPECT_EQ(b->bytes.size(), kPage + 1);
    EXPECT_EQ(b->bytes.data(), memory.bytes().data() + kPage);
    EXPECT_EQ(memory.used(), 3 * kPage);
    memory.free(*a);
    EXPECT_EQ(memory.used(), 2 * kPage);
}

TEST(DeviceMemoryTest, FullMemoryRefusesAndTakesWhatIsFreed) {
    DeviceMemory memory(4 * kPage);
    std::vector<DevicePiece> pieces;
    for (int i = 0; i < 4; ++i) pieces.push_back(*memory.allocate(kPage, 0));
    EXPECT_EQ(memory.allocate(1, 0).error().code, base::ErrorCode::kExhausted);
    memory.free(pieces[1]);
    memory.free(pieces[3]);
    EXPECT_FALSE(memory.allocate(2 * kPage, 0)) << "two pages that are no neighbours";
    memory.free(pieces[2]);
    const auto three = memory.allocate(3 * kPage, 0);
    ASSERT_TRUE(three);
    EXPECT_EQ(three->offset, kPage);
}

TEST(DeviceMemoryTest, ImpossibleRequestsAreRefused) {
    DeviceMemory memory(4 * kPage);
    EXPECT_FALSE(memory.allocate(0, 0));
    EXPECT_FALSE(memory.allocate(4 * kPage + 1, 0));
    EXPECT_FALSE(memory.allocate(UINT64_MAX, 0));
    EXPECT_FALSE(memory.allocate(1, 64));
    EXPECT_EQ(memory.used(), 0U);
}

TEST(DeviceMemoryTest, AlignmentIsThatOfThePlaceInTheBar) {
    DeviceMemory memory(16 * kPage);
    (void)memory.allocate(1, 0);
    const auto aligned = memory.allocate(1, 14);
    ASSERT_TRUE(aligned);
    EXPECT_EQ(aligned->offset, 4 * kPage);
    EXPECT_FALSE(memory.allocate(1, 16)) << "only the first page is aligned so";
    EXPECT_FALSE(memory.allocate(1, 63));
}

TEST(DeviceMemoryTest, PieceIsClearedHoweverItCameBack) {
    DeviceMemory memory(2 * kPage);
    const auto before = memory.allocate(2 * kPage, 0);
    ASSERT_TRUE(before);
    soil(before->bytes);
    memory.free(*before);
    EXPECT_TRUE(zero(memory.bytes()));
    // A mapping of before a reset, in a guest that did not care.
    soil(memory.bytes());
    const auto after = memory.allocate(100, 0);
    ASSERT_TRUE(after);
    EXPECT_TRUE(zero(memory.bytes().first(kPage)));
}

TEST(DeviceMemoryTest, ResetFreesAndClearsAll) {
    DeviceMemory memory(2 * kPage);
    ASSERT_TRUE(memory.allocate(2 * kPage, 0));
    soil(memory.bytes());
    const int file = memory.file();
    memory.reset();
    EXPECT_EQ(memory.used(), 0U);
    EXPECT_TRUE(zero(memory.bytes()));
    EXPECT_EQ(memory.file(), file) << "the client has it mapped";
    EXPECT_TRUE(memory.allocate(2 * kPage, 0));
}

TEST(DeviceMemoryTest, FileOfAClientCannotBeCutAndIsNotTheNextOnes) {
    DeviceMemory memory(2 * kPage);
    const base::UniqueFd client(::dup(memory.file()));
    ASSERT_TRUE(client);
    EXPECT_LT(::ftruncate(client.get(), 0), 0);
    EXPECT_LT(::ftruncate(client.get(), static_cast<off_t>(4 * kPage)), 0);
    EXPECT_LT(::fcntl(client.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
    const char mark = 'x';
    ASSERT_EQ(::pwrite(client.get(), &mark, 1, 0), 1);
    EXPECT_EQ(memory.bytes()[0], std::byte{'x'});
    memory.renew();
    ASSERT_EQ(::pwrite(client.get(), &mark, 1, 0), 1);
    EXPECT_TRUE(zero(memory.bytes()));
}

class DeviceMemoryBarTest : public DriverFixture {
protected:
    static FunctionConfig with_bar() {
        FunctionConfig config;
        config.max_device_memory = 4 * kPage;
        config.device_memory_bar = true;
        return config;
    }
    DeviceMemoryBarTest() : DriverFixture(with_bar()) {}
    test::Response alloc(std::uint64_t bytes, std::uint32_t room = 48) {
        return driver->call(
            test::Request(MANA_HW_ALLOC_DM, 56, room).put<std::uint64_t>(40, bytes));
    }
};

TEST_F(DeviceMemoryBarTest, AnswerSaysWhereInTheBarIfThereIsRoom) {
    EXPECT_EQ(function.memory_bar_size(), 4 * kPage);
    EXPECT_TRUE(alloc(1, 40).ok());
    const auto second = alloc(1);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(second.get<std::uint64_t>(40), kPage);
}

TEST_F(DeviceMemoryBarTest, RegionShowsWhatTheBarShows) {
    ASSERT_TRUE(alloc(kPage).ok());
    const auto pd = driver->create_pd();
    const auto dm = alloc(kPage);
    const auto response = driver->call(test::Request(MANA_HW_CREATE_MR, 88, 48)
                                           .put<std::uint64_t>(40, pd->handle)
                                           .put<std::uint32_t>(48, MANA_HW_MR_DM)
                                           .put<std::uint64_t>(56, dm.get<std::uint64_t>(32))
                                           .put<std::uint64_t>(64, 8)
                                           .put<std::uint32_t>(72, kLocalRead | kLocalWrite)
                                           .put<std::uint64_t>(80, 16));
    ASSERT_TRUE(response.ok());
    SpanList spans;
    ASSERT_EQ(function.keys().resolve(Key(response.get<std::uint32_t>(40)), Pdn(pd->id), 4, 8,
                                      kLocalWrite, spans),
              MrFault::kNone);
    ASSERT_EQ(spans.size(), 1U);
    EXPECT_EQ(spans[0].data(), function.memory_bar().bytes.data() + kPage + 12);
}

TEST_F(DeviceMemoryBarTest, ResetOfTheFunctionClearsTheBar) {
    ASSERT_TRUE(alloc(4 * kPage).ok());
    soil(function.memory_bar().bytes);
    function.reset();
    EXPECT_TRUE(zero(function.memory_bar().bytes));
    ASSERT_TRUE(driver->bring_up());
    EXPECT_TRUE(alloc(4 * kPage).ok());
}

TEST_F(DeviceMemoryBarTest, NextClientGetsAnotherFile) {
    const base::UniqueFd old(::dup(function.memory_bar().file));
    function.reset();
    function.renew_memory();
    const char mark = 'x';
    ASSERT_EQ(::pwrite(old.get(), &mark, 1, 0), 1);
    EXPECT_TRUE(zero(function.memory_bar().bytes));
}

class NoDeviceMemoryBarTest : public DriverFixture {};

TEST_F(NoDeviceMemoryBarTest, MemoryIsThereAndNoBar) {
    EXPECT_EQ(function.memory_bar_size(), 0U);
    (void)driver->call(test::Request(MANA_HW_ALLOC_DM, 56, 48).put<std::uint64_t>(40, 1));
    const auto second =
        driver->call(test::Request(MANA_HW_ALLOC_DM, 56, 48).put<std::uint64_t>(40, 1));
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(second.get<std::uint64_t>(40), 0U);
}

}  // namespace
}  // namespace openmana::gdma
