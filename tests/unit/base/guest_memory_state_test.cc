// SPDX-License-Identifier: Apache-2.0
// Guest memory that goes to another process of this host: the same ranges of the same files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <filesystem>

#include "base/guest_memory.h"
#include "support/state_damage.h"

namespace openmana::base {
namespace {

using test::for_each_damage;
using test::read_state;
using test::Written;

constexpr std::uint64_t kPage = 4096;
constexpr std::size_t kMost = 8192;

UniqueFd memory_file(std::uint64_t bytes) {
    UniqueFd fd(::memfd_create("guest", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    return fd;
}
UniqueFd reading(const UniqueFd& fd) {
    return UniqueFd(
        ::open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), O_RDONLY | O_CLOEXEC));
}
std::ptrdiff_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
}

class GuestMemoryStateTest : public ::testing::Test {
protected:
    /// A guest's: RAM in two pieces of one file, with a ROM and a BAR of another device between.
    void map_guest() {
        ASSERT_TRUE(memory.map_fd(GuestAddr(0), 4 * kPage, ram, 0, true, true));
        ASSERT_TRUE(memory.map_fd(GuestAddr(0xc0000), kPage, reading(ram), 4 * kPage, true, false));
        ASSERT_TRUE(memory.map_hole(GuestAddr(0xfe000000), 0x10000));
        ASSERT_TRUE(memory.map_fd(GuestAddr(1ULL << 32), 2 * kPage, ram, 5 * kPage, true, true));
        ASSERT_TRUE(memory.map_fd(GuestAddr(2ULL << 32), kPage, plugged, 0, true, true));
    }
    [[nodiscard]] Written state() const {
        return test::written({}, [&](StateWriter& out) { memory.save(out); });
    }
    /// The reason of a refusal, or "".
    static std::string load(const Written& state, GuestMemory& target, std::size_t most = kMost) {
        const auto read = read_state(state, {}, [&](StateReader& in) { target.load(in, most); });
        return read ? "" : read.error().text;
    }

    const UniqueFd ram = memory_file(7 * kPage);
    const UniqueFd plugged = memory_file(kPage);
    GuestMemory memory;
    GuestMemory other;
    std::array<std::byte, 64> buffer{};
};

TEST_F(GuestMemoryStateTest, TheOtherProcessReachesTheSameMemory) {
    map_guest();
    ASSERT_EQ(load(state(), other), "");
    EXPECT_EQ(other.range_count(), memory.range_count());
    for (const std::uint64_t address :
         {0ULL, 1ULL << 32, (1ULL << 32) + 2 * kPage - 64, 2ULL << 32}) {
        buffer.fill(std::byte(address >> 30) | std::byte{1});
        ASSERT_TRUE(other.write(GuestAddr(address), buffer)) << address;
        std::array<std::byte, 64> seen{};
        ASSERT_TRUE(memory.read(GuestAddr(address), seen)) << address;
        EXPECT_EQ(seen, buffer) << address;
    }
    EXPECT_TRUE(other.read(GuestAddr(0xc0000), buffer));
    EXPECT_FALSE(other.write(GuestAddr(0xc0000), buffer)) << "it can be read alone";
    EXPECT_TRUE(other.is_hole(GuestAddr(0xfe00ffff)));
    EXPECT_FALSE(other.read(GuestAddr(4 * kPage), buffer)) << "nothing is there";
}

TEST_F(GuestMemoryStateTest, AStateThatWasReadIsWrittenAlike) {
    map_guest();
    const Written first = state();
    ASSERT_EQ(load(first, other), "");
    EXPECT_EQ(test::written({}, [&](StateWriter& out) { other.save(out); }).bytes, first.bytes);
    EXPECT_EQ(state().bytes, first.bytes) << "writing changes nothing";
}

TEST_F(GuestMemoryStateTest, ADescriptorGoesForEachFileAndKindOfAccess) {
    map_guest();
    EXPECT_EQ(state().descriptors.size(), 3U);  // RAM, the same to read, what was plugged in
}

TEST_F(GuestMemoryStateTest, ThousandsOfRangesNeedOneDescriptor) {
    constexpr std::uint64_t kRanges = 2000;
    const UniqueFd large = memory_file(kRanges * kPage);
    const auto before = open_descriptors();
    for (std::uint64_t i = 0; i < kRanges; ++i)
        ASSERT_TRUE(memory.map_fd(GuestAddr(2 * i * kPage), kPage, large, i * kPage, true, true));
    EXPECT_EQ(open_descriptors(), before + 1);
    ASSERT_EQ(load(state(), other), "");
    EXPECT_EQ(open_descriptors(), before + 2);
    { const auto gone = memory.unmap_all(); }
    EXPECT_EQ(open_descriptors(), before + 1) << "a file goes with its last range";
}

TEST_F(GuestMemoryStateTest, AClientLendsAFewHundredFilesAtMost) {
    const auto lend = [&](std::uint64_t number) {
        return memory.map_fd(GuestAddr(number * kPage), kPage, memory_file(kPage), 0, true, true);
    };
    for (std::uint64_t i = 0; i < LentFiles::kMost; ++i) ASSERT_TRUE(lend(i)) << i;
    const auto refused = lend(LentFiles::kMost);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
    { const auto gone = memory.unmap(GuestAddr(0), kPage); }
    EXPECT_TRUE(lend(LentFiles::kMost)) << "there is room again";
}

TEST_F(GuestMemoryStateTest, WhatAClientCouldNotMapIsRefused) {
    map_guest();
    const Written good = state();
    EXPECT_EQ(load(good, other, 4), "more DMA ranges than there may be");
    {
        GuestMemory target;
        Written no_files = good;
        no_files.descriptors.clear();
        EXPECT_EQ(load(no_files, target), "a descriptor is missing");
    }
    {
        GuestMemory target;
        const UniqueFd disk(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
        Written no_memory = good;
        no_memory.descriptors[0] = disk.get();
        EXPECT_EQ(load(no_memory, target), "guest memory is neither memfd, tmpfs nor hugetlbfs");
    }
    {
        GuestMemory target;
        const UniqueFd small = memory_file(kPage);
        Written shrunk = good;
        shrunk.descriptors[0] = small.get();
        EXPECT_EQ(load(shrunk, target), "DMA map passes the end of its file");
    }
}

TEST_F(GuestMemoryStateTest, MemoryOfTheCallersDoesNotGo) {
    std::array<std::byte, kPage> own{};
    ASSERT_TRUE(memory.map_host(GuestAddr(0), own));
    EXPECT_EQ(load(state(), other), "DMA range of no file");
}

TEST_F(GuestMemoryStateTest, DamageIsRefusedOrGivesMemoryThatCanBeUsed) {
    map_guest();
    const Written good = state();
    for_each_damage(good.bytes, [&](const std::vector<std::byte>& bytes, const std::string&) {
        GuestMemory target;
        (void)load({bytes, good.descriptors}, target, 16);
        for (const std::uint64_t address : {0ULL, 0xc0000ULL, 0xfe000000ULL, 1ULL << 32})
            if (target.read(GuestAddr(address), buffer))
                (void)target.write(GuestAddr(address), buffer);
        const auto gone = target.unmap_all();
    });
}

TEST_F(GuestMemoryStateTest, PartOfAStateIsRefused) {
    map_guest();
    const Written good = state();
    const std::span<const std::byte> body = std::span(good.bytes).subspan(24);
    for (std::size_t n = 0; n < body.size(); ++n) {
        GuestMemory target;
        EXPECT_NE(load({test::with_head(body.first(n)), good.descriptors}, target), "") << n;
    }
}

}  // namespace
}  // namespace openmana::base
