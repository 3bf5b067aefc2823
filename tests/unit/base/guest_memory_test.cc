// SPDX-License-Identifier: Apache-2.0
#include "base/guest_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "base/hold_meter.h"

namespace openmana::base {
namespace {

constexpr std::uint64_t kPage = 4096;

UniqueFd memory_file(std::uint64_t bytes) {
    UniqueFd fd(::memfd_create("guest", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    return fd;
}

class GuestMemoryTest : public ::testing::Test {
protected:
    GuestMemory memory;
    std::array<std::byte, 64> buffer{};
};

TEST_F(GuestMemoryTest, ReadsWhatAnotherMappingOfTheFileWrote) {
    const UniqueFd fd = memory_file(4 * kPage);
    ASSERT_TRUE(memory.map_fd(GuestAddr(0x10000), 2 * kPage, fd, kPage, true, true));
    const char text[] = "written by the guest";
    ASSERT_EQ(::pwrite(fd.get(), text, sizeof text, kPage + 100),
              static_cast<ssize_t>(sizeof text));
    ASSERT_TRUE(memory.read(GuestAddr(0x10000 + 100), std::span(buffer).first(sizeof text)));
    EXPECT_STREQ(reinterpret_cast<const char*>(buffer.data()), text);
}

TEST_F(GuestMemoryTest, RefusesAMapPastTheEndOfItsFile) {
    const UniqueFd fd = memory_file(2 * kPage);
    EXPECT_FALSE(memory.map_fd(GuestAddr(0), 3 * kPage, fd, 0, true, true));
    EXPECT_FALSE(memory.map_fd(GuestAddr(0), kPage, fd, 2 * kPage, true, true));
    EXPECT_EQ(memory.range_count(), 0u);
}

TEST_F(GuestMemoryTest, RefusesOverlapAndUnalignedMaps) {
    const UniqueFd fd = memory_file(8 * kPage);
    ASSERT_TRUE(memory.map_fd(GuestAddr(4 * kPage), 2 * kPage, fd, 0, true, true));
    EXPECT_FALSE(memory.map_fd(GuestAddr(3 * kPage), 2 * kPage, fd, 0, true, true));
    EXPECT_FALSE(memory.map_fd(GuestAddr(5 * kPage), 2 * kPage, fd, 0, true, true));
    EXPECT_FALSE(memory.map_fd(GuestAddr(4 * kPage), kPage, fd, 0, true, true));
    EXPECT_FALSE(memory.map_fd(GuestAddr(1), kPage, fd, 0, true, true));
    EXPECT_FALSE(memory.map_fd(GuestAddr(0), 0, fd, 0, true, true));
    EXPECT_TRUE(memory.map_fd(GuestAddr(6 * kPage), kPage, fd, 0, true, true));
}

TEST_F(GuestMemoryTest, ReadOnlyRangesRefuseWrites) {
    const UniqueFd fd = memory_file(kPage);
    ASSERT_TRUE(memory.map_fd(GuestAddr(0), kPage, fd, 0, true, false));
    EXPECT_TRUE(memory.read(GuestAddr(0), buffer));
    EXPECT_FALSE(memory.write(GuestAddr(0), buffer));
    EXPECT_TRUE(memory.find(GuestAddr(0), 1, Access::kWrite).empty());
}

TEST_F(GuestMemoryTest, HolesAreKnownButHoldNothing) {
    ASSERT_TRUE(memory.map_hole(GuestAddr(0xc0000), kPage));
    EXPECT_FALSE(memory.read(GuestAddr(0xc0000), buffer));
    EXPECT_TRUE(memory.is_hole(GuestAddr(0xc0000 + kPage - 1)));
    EXPECT_FALSE(memory.is_hole(GuestAddr(0xc0000 + kPage)));
    EXPECT_EQ(memory.unmap(GuestAddr(0xc0000), kPage).value().bytes, kPage);
    EXPECT_FALSE(memory.is_hole(GuestAddr(0xc0000)));
}

TEST_F(GuestMemoryTest, AccessesCrossNeighbouringRanges) {
    std::array<std::byte, kPage> low{};
    std::array<std::byte, kPage> high{};
    ASSERT_TRUE(memory.map_host(GuestAddr(0), low));
    ASSERT_TRUE(memory.map_host(GuestAddr(kPage), high));
    buffer.fill(std::byte{0x5a});
    ASSERT_TRUE(memory.write(GuestAddr(kPage - 10), buffer));
    EXPECT_EQ(low[kPage - 1], std::byte{0x5a});
    EXPECT_EQ(high[53], std::byte{0x5a});
    EXPECT_EQ(high[54], std::byte{0});
    std::vector<std::span<std::byte>> pieces;
    ASSERT_TRUE(memory.resolve(GuestAddr(kPage - 10), 64, Access::kRead, pieces));
    ASSERT_EQ(pieces.size(), 2u);
    EXPECT_EQ(pieces[0].size(), 10u);
    EXPECT_EQ(pieces[1].size(), 54u);
}

TEST_F(GuestMemoryTest, PiecesInAnyOrderAreFoundInTheirRanges) {
    std::array<std::byte, 2 * kPage> low{};
    std::array<std::byte, kPage> high{};
    std::array<std::byte, kPage> rom{};
    ASSERT_TRUE(memory.map_host(GuestAddr(0), low));
    ASSERT_TRUE(memory.map_host(GuestAddr(2 * kPage), high));
    ASSERT_TRUE(memory.map_host(GuestAddr(8 * kPage), rom, false));
    ASSERT_TRUE(memory.map_hole(GuestAddr(9 * kPage), kPage));
    std::vector<std::span<std::byte>> found;
    GuestMemory::Resolver pieces(memory, Access::kWrite, found);
    ASSERT_TRUE(pieces.add(GuestAddr(kPage), kPage));
    ASSERT_TRUE(pieces.add(GuestAddr(0), 16));
    ASSERT_TRUE(pieces.add(GuestAddr(2 * kPage + 8), 8));
    ASSERT_TRUE(pieces.add(GuestAddr(2 * kPage - 4), 8));  // passes the end of its range
    ASSERT_TRUE(pieces.add(GuestAddr(3 * kPage - 1), 1));
    const std::vector<const std::byte*> starts = {low.data() + kPage, low.data(),
                                                  high.data() + 8,    low.data() + 2 * kPage - 4,
                                                  high.data(),        high.data() + kPage - 1};
    const std::vector<std::size_t> sizes = {kPage, 16, 8, 4, 4, 1};
    ASSERT_EQ(found.size(), starts.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].data(), starts[i]) << i;
        EXPECT_EQ(found[i].size(), sizes[i]) << i;
    }
    EXPECT_FALSE(pieces.add(GuestAddr(8 * kPage), 8)) << "not writable";
    EXPECT_FALSE(pieces.add(GuestAddr(9 * kPage), 8)) << "a hole";
    EXPECT_FALSE(pieces.add(GuestAddr(3 * kPage - 4), 8)) << "nothing behind it";
    EXPECT_FALSE(pieces.add(GuestAddr(7 * kPage), 8)) << "nothing there";
}

/// A client may ask about all addresses that there are.
TEST_F(GuestMemoryTest, OnlyWhatIsLoggedIsLookedAt) {
    std::array<std::byte, 5 * kPage> low{};
    std::array<std::byte, kPage> rom{};
    std::array<std::byte, kPage> high{};
    constexpr std::uint64_t kHigh = 1ULL << 62;
    ASSERT_TRUE(memory.map_host(GuestAddr(kPage), low));
    ASSERT_TRUE(memory.map_host(GuestAddr(16 * kPage), rom, false));
    ASSERT_TRUE(memory.map_hole(GuestAddr(17 * kPage), 1ULL << 30));
    ASSERT_TRUE(memory.map_host(GuestAddr(kHigh), high));
    ASSERT_TRUE(memory.log_writes());
    using Piece = std::pair<std::uint64_t, std::uint64_t>;
    std::vector<Piece> pieces;
    const auto look = [&](std::uint64_t address, std::uint64_t length) {
        pieces.clear();
        memory.each_logged(
            GuestAddr(address), length, 2 * kPage,
            [&](GuestAddr at, std::uint64_t bytes) { pieces.emplace_back(at.value(), bytes); });
        return pieces;
    };
    const std::vector<Piece> all = {
        {kPage, 2 * kPage}, {3 * kPage, 2 * kPage}, {5 * kPage, kPage}, {kHigh, kPage}};
    EXPECT_EQ(look(0, UINT64_MAX - kPage + 1), all);
    EXPECT_EQ(look(2 * kPage, kPage), (std::vector<Piece>{{2 * kPage, kPage}}));
    EXPECT_EQ(look(4 * kPage, 1ULL << 61), (std::vector<Piece>{{4 * kPage, 2 * kPage}}));
    EXPECT_TRUE(look(16 * kPage, 1ULL << 61).empty());
}

TEST_F(GuestMemoryTest, LogsGoWithWhatIsUnmapped) {
    std::array<std::byte, kPage> ram{};
    std::array<std::byte, kPage> more{};
    ASSERT_TRUE(memory.map_host(GuestAddr(0), ram));
    ASSERT_TRUE(memory.map_host(GuestAddr(kPage), more));
    ASSERT_TRUE(memory.log_writes());
    EXPECT_EQ(memory.unmap(GuestAddr(0), kPage).value().logs.size(), 1U);
    EXPECT_EQ(memory.unmap_all().logs.size(), 1U);
}

TEST_F(GuestMemoryTest, UnmapTakesWholeRangesOnly) {
    std::array<std::byte, 4 * kPage> ram{};
    ASSERT_TRUE(memory.map_host(GuestAddr(0), std::span(ram).first(2 * kPage)));
    ASSERT_TRUE(memory.map_host(GuestAddr(2 * kPage), std::span(ram).last(2 * kPage)));
    EXPECT_FALSE(memory.unmap(GuestAddr(0), kPage));
    EXPECT_FALSE(memory.unmap(GuestAddr(kPage), 3 * kPage));
    EXPECT_EQ(memory.range_count(), 2u);
    EXPECT_EQ(memory.unmap(GuestAddr(0), 4 * kPage).value().bytes, 4 * kPage);
    EXPECT_FALSE(memory.read(GuestAddr(0), buffer));
}

TEST_F(GuestMemoryTest, AddressesAtTheEndOfTheSpaceDoNotWrap) {
    std::array<std::byte, kPage> ram{};
    ASSERT_TRUE(memory.map_host(GuestAddr(UINT64_MAX - kPage + 1), ram));
    EXPECT_TRUE(memory.read(GuestAddr(UINT64_MAX - 63), buffer));
    EXPECT_FALSE(memory.read(GuestAddr(UINT64_MAX - 62), buffer));
    EXPECT_FALSE(memory.map_hole(GuestAddr(UINT64_MAX), 2));
    EXPECT_FALSE(memory.unmap(GuestAddr(UINT64_MAX), 2));
}

TEST_F(GuestMemoryTest, NothingIsFoundWhileItIsNotReachable) {
    std::array<std::byte, kPage> first{};
    std::array<std::byte, kPage> second{};
    const auto at = std::span(buffer).first(8);
    ASSERT_TRUE(memory.map_host(GuestAddr(0x1000), first));
    const std::uint64_t before = memory.generation();
    memory.set_reachable(false);
    EXPECT_NE(memory.generation(), before);
    ASSERT_TRUE(memory.map_host(GuestAddr(0x4000), second));
    for (const std::uint64_t address : {0x1000, 0x4000}) {
        EXPECT_FALSE(memory.read(GuestAddr(address), at));
        EXPECT_FALSE(memory.write(GuestAddr(address), at));
        EXPECT_TRUE(memory.find(GuestAddr(address), 8, Access::kRead).empty());
    }
    ASSERT_TRUE(memory.unmap(GuestAddr(0x1000), kPage));
    EXPECT_EQ(memory.range_count(), 1U);
    memory.set_reachable(true);
    EXPECT_FALSE(memory.read(GuestAddr(0x1000), at));
    EXPECT_TRUE(memory.read(GuestAddr(0x4000), at));
}

TEST_F(GuestMemoryTest, GenerationChangesWithEveryChange) {
    std::array<std::byte, kPage> ram{};
    const auto start = memory.generation();
    ASSERT_TRUE(memory.map_host(GuestAddr(0), ram));
    const auto mapped = memory.generation();
    EXPECT_NE(start, mapped);
    ASSERT_TRUE(memory.unmap(GuestAddr(0), kPage));
    EXPECT_NE(mapped, memory.generation());
}

/// Under an exclusion, whatever a client has mapped before.
TEST(GuestMemory, AChangeMovesNoMoreThanAllRanges) {
    constexpr std::uint64_t kRanges = 8192;
    GuestMemory memory;
    std::uint64_t most = 0;
    const auto work = [&](auto&& change) {
        const std::uint64_t before = work_done;
        change();
        most = std::max(most, work_done - before);
    };
    for (std::uint64_t i = 1; i < kRanges; ++i)
        work([&] { ASSERT_TRUE(memory.map_hole(GuestAddr(i * 8192), 4096)); });
    work([&] { ASSERT_TRUE(memory.map_hole(GuestAddr(0), 4096)); });
    work([&] { ASSERT_TRUE(memory.unmap(GuestAddr(0), 4096)); });
    work([&] { (void)memory.unmap_all(); });
    EXPECT_GT(most, 100U);
    EXPECT_LE(most, 1 + kRanges / kSmallSteps);
}

}  // namespace
}  // namespace openmana::base
