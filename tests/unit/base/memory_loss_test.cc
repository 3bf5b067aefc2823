// SPDX-License-Identifier: Apache-2.0
// Memory of a client that goes away while it is in use, and files that are no memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/bus_guard.h"
#include "base/guest_memory.h"
#include "base/hold_meter.h"

namespace openmana::base {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kHugePage = 2U << 20;
constexpr unsigned kHuge2MiB = 21U << 26;  // MFD_HUGE_2MB of <linux/memfd.h>

UniqueFd memory_file(std::uint64_t bytes, unsigned flags = 0) {
    UniqueFd fd(::memfd_create("guest", MFD_CLOEXEC | flags));
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
    return fd;
}

std::size_t mappings_of_this_process() {
    std::ifstream maps("/proc/self/maps");
    return static_cast<std::size_t>(
        std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n'));
}

/// As the kernel has it of the mapping at an address: "rd", "wr", "dd", ... (proc(5), smaps).
std::string flags_of_mapping(const void* address) {
    std::ifstream maps("/proc/self/smaps");
    const auto wanted = reinterpret_cast<std::uintptr_t>(address);
    bool here = false;
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t start = 0;
        std::uintptr_t end = 0;
        if (std::sscanf(line.c_str(), "%lx-%lx ", &start, &end) == 2)
            here = wanted >= start && wanted < end;
        if (here && line.starts_with("VmFlags:")) return line + " ";
    }
    return "";
}

class MemoryLossTest : public ::testing::Test {
protected:
    void SetUp() override {
        ASSERT_EQ(::sigaction(SIGBUS, nullptr, &before_), 0);
        ASSERT_TRUE(BusGuard::install());
        auto created = MemoryLoss::create();
        ASSERT_TRUE(created);
        loss = std::move(*created);
    }
    void TearDown() override { ::sigaction(SIGBUS, &before_, nullptr); }
    /// Of a page each.
    [[nodiscard]] bool touch(GuestMemory& memory, std::uint64_t address) {
        return memory.write(GuestAddr(address), std::as_bytes(std::span("x", 1)));
    }

    std::unique_ptr<MemoryLoss> loss;
    std::array<std::byte, 64> buffer{};

private:
    struct sigaction before_ {};
};

TEST_F(MemoryLossTest, ACoreDumpHasNothingOfIt) {
    GuestMemory memory(loss.get());
    const UniqueFd fd = memory_file(kPage);
    ASSERT_TRUE(memory.map_fd(GuestAddr(0), kPage, fd, 0, true, true));
    const auto host = memory.find(GuestAddr(0), 1, Access::kRead);
    ASSERT_FALSE(host.empty());
    EXPECT_NE(flags_of_mapping(host.data()).find(" dd "), std::string::npos)
        << flags_of_mapping(host.data());
}

TEST_F(MemoryLossTest, AFileThatShrinksLeavesZerosAndItsOwnerIsTold) {
    GuestMemory memory(loss.get());
    const UniqueFd fd = memory_file(2 * kPage);
    ASSERT_TRUE(memory.map_fd(GuestAddr(0), 2 * kPage, fd, 0, true, true));
    ASSERT_EQ(::pwrite(fd.get(), "x", 1, kPage), 1);
    ASSERT_EQ(::ftruncate(fd.get(), 0), 0);
    EXPECT_EQ(loss->count(), 0U);
    buffer.fill(std::byte{1});
    ASSERT_TRUE(memory.read(GuestAddr(kPage), buffer));
    EXPECT_EQ(buffer, decltype(buffer){});
    EXPECT_EQ(memory.take_losses(), 1U);
    std::uint64_t told = 0;
    EXPECT_EQ(::read(loss->fd(), &told, sizeof told), static_cast<ssize_t>(sizeof told));
}

/// One page in two of 512 MiB, 65,536 of them, as many as the system gives a process mappings.
TEST_F(MemoryLossTest, ATruncatedGuestTakesFewMappings) {
    constexpr std::uint64_t kBytes = 512U << 20;
    const std::size_t before = mappings_of_this_process();
    const pid_t child = ::fork();  // without the cure the process ends
    ASSERT_GE(child, 0);
    if (child == 0) {
        GuestMemory memory(loss.get());
        const UniqueFd fd = memory_file(kBytes);
        bool good = memory.map_fd(GuestAddr(0), kBytes, fd, 0, true, true).has_value() &&
                    ::ftruncate(fd.get(), 0) == 0;
        for (std::uint64_t at = 0; good && at < kBytes; at += 2 * kPage) good = touch(memory, at);
        good = good && mappings_of_this_process() < before + 64 && loss->count() < 64;
        ::_exit(good ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_FALSE(WIFSIGNALED(status)) << "ended by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(MemoryLossTest, TheFirstAccessReplacesNoMoreThanItsNeighbourhood) {
    constexpr std::uint64_t kBytes = 64U << 20;
    GuestMemory memory(loss.get());
    const UniqueFd fd = memory_file(kBytes);
    ASSERT_TRUE(memory.map_fd(GuestAddr(0), kBytes, fd, 0, true, true));
    ASSERT_TRUE(touch(memory, 0));
    ASSERT_EQ(::ftruncate(fd.get(), kBytes / 2), 0);
    ASSERT_TRUE(touch(memory, kBytes - 1));
    ASSERT_EQ(::pwrite(fd.get(), "still", 5, 0), 5);
    ASSERT_TRUE(memory.read(GuestAddr(0), std::span(buffer).first(5)));
    EXPECT_EQ(std::memcmp(buffer.data(), "still", 5), 0) << "the rest is the client's";
    EXPECT_EQ(loss->count(), 1U);
}

/// Who maps memory waits for nobody's many ranges.
TEST(BusGuardTest, ARangeIsRegisteredInOneStepAmongMany) {
    std::vector<std::uint32_t> places;
    const auto add = [&](std::uint64_t number) {
        const auto place = BusGuard::add(
            {reinterpret_cast<const void*>((1ULL << 45) + number * kPage), kPage}, nullptr);
        if (place) places.push_back(*place);
        return place.has_value();
    };
    const std::uint64_t before = work_done;
    std::uint64_t count = 0;
    while (add(count)) ++count;
    EXPECT_GT(count, BusGuard::kMaxRanges / 2) << "as many as there are, but for those of others";
    EXPECT_EQ(work_done - before, count + 1);
    EXPECT_FALSE(add(count));
    const std::uint32_t middle = places[count / 2];
    BusGuard::remove(middle);
    places.erase(places.begin() + static_cast<std::ptrdiff_t>(count / 2));
    ASSERT_TRUE(add(count));
    EXPECT_EQ(places.back(), middle);
    for (const std::uint32_t place : places) BusGuard::remove(place);
    EXPECT_EQ(work_done - before, 2 * count + 4);
}

TEST(LostPieceTest, IsAnAlignedStepCutToItsRange) {
    constexpr std::uintptr_t kStart = 0x7f0000101000;
    constexpr std::size_t kLength = 0x800000;
    const auto first = lost_piece(kStart, kLength, kStart + 5, kHugePage);
    EXPECT_EQ(first.start, kStart);
    EXPECT_EQ(first.start + first.length, 0x7f0000200000U);
    const auto middle = lost_piece(kStart, kLength, 0x7f0000345678, kHugePage);
    EXPECT_EQ(middle.start, 0x7f0000200000U);
    EXPECT_EQ(middle.length, kHugePage);
    const auto last = lost_piece(kStart, kLength, kStart + kLength - 1, kHugePage);
    EXPECT_EQ(last.start, 0x7f0000800000U);
    EXPECT_EQ(last.start + last.length, kStart + kLength);
    const auto all = lost_piece(kStart, kLength, kStart + kPage, std::size_t{1} << 40);
    EXPECT_EQ(all.start, kStart);
    EXPECT_EQ(all.length, kLength);
}

TEST_F(MemoryLossTest, AFullFileSystemIsALossToo) {
    std::string folder = testing::TempDir() + "full-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    if (::mount("none", folder.c_str(), "tmpfs", 0, "size=64k") != 0) {
        std::filesystem::remove(folder);
        GTEST_SKIP() << "cannot mount a small tmpfs: " << std::strerror(errno);
    }
    {
        const UniqueFd fd(::open((folder + "/ram").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
        ASSERT_EQ(::ftruncate(fd.get(), 1 << 20), 0);
        GuestMemory memory(loss.get());
        ASSERT_TRUE(memory.map_fd(GuestAddr(0), 1 << 20, fd, 0, true, true));
        for (std::uint64_t at = 0; at < 1 << 20; at += kPage) ASSERT_TRUE(touch(memory, at));
        EXPECT_GE(loss->count(), 1U);
    }
    EXPECT_EQ(::umount2(folder.c_str(), MNT_DETACH), 0);
    std::filesystem::remove(folder);
}

TEST(FileMappingTest, EnclosingPagesHoldThePart) {
    const auto whole = enclosing_pages(0x200000, 0x400000, kHugePage);
    EXPECT_EQ(whole.offset, 0x200000U);
    EXPECT_EQ(whole.length, 0x400000U);
    EXPECT_EQ(whole.skip, 0U);
    // What q35 gives: below the VGA window, and from 1 MiB on.
    const auto low = enclosing_pages(0, 0xA0000, kHugePage);
    EXPECT_EQ(low.offset, 0U);
    EXPECT_EQ(low.length, kHugePage);
    const auto high = enclosing_pages(0x100000, 0x7FF00000, kHugePage);
    EXPECT_EQ(high.offset, 0U);
    EXPECT_EQ(high.length, 0x80000000U);
    EXPECT_EQ(high.skip, 0x100000U);
    const auto inside = enclosing_pages(0x2FF000, 0x2000, kHugePage);
    EXPECT_EQ(inside.offset, 0x200000U);
    EXPECT_EQ(inside.length, kHugePage);
    EXPECT_EQ(inside.skip, 0xFF000U);
    const auto across = enclosing_pages(0x3FF000, 0x2000, kHugePage);
    EXPECT_EQ(across.offset, 0x200000U);
    EXPECT_EQ(across.length, 2 * kHugePage);
    const auto small = enclosing_pages(0x3000, 0x1000, kPage);
    EXPECT_EQ(small.offset, 0x3000U);
    EXPECT_EQ(small.length, kPage);
    EXPECT_EQ(small.skip, 0U);
}

/// Huge pages for a test, taken from the system and given back.
class HugePages {
public:
    explicit HugePages(std::uint64_t pages) {
        before_ = read();
        if (before_ < pages) write(pages);
    }
    ~HugePages() { write(before_); }
    static std::uint64_t read() {
        std::uint64_t pages = 0;
        std::ifstream(kPath) >> pages;
        return pages;
    }

private:
    static constexpr const char* kPath = "/proc/sys/vm/nr_hugepages";
    static void write(std::uint64_t pages) { std::ofstream(kPath) << pages; }
    std::uint64_t before_ = 0;
};

TEST_F(MemoryLossTest, PartsOfHugePagesAreMappedAndReplaced) {
    constexpr std::uint64_t kBytes = 4 * kHugePage;
    const HugePages reserved(4);
    const UniqueFd fd(::memfd_create("guest", MFD_CLOEXEC | MFD_HUGETLB | kHuge2MiB));
    if (!fd) GTEST_SKIP() << "no huge pages: " << std::strerror(errno);
    ASSERT_EQ(::ftruncate(fd.get(), kBytes), 0);
    GuestMemory memory(loss.get());
    if (HugePages::read() < 4) GTEST_SKIP() << "the system cannot reserve 4 huge pages of 2 MiB";
    ASSERT_TRUE(memory.map_fd(GuestAddr(0), 0xA0000, fd, 0, true, true));
    ASSERT_TRUE(memory.map_fd(GuestAddr(1 << 20), kBytes - (1 << 20), fd, 1 << 20, true, true));
    buffer.fill(std::byte{7});
    ASSERT_TRUE(memory.write(GuestAddr((1 << 20) + 100), buffer));
    void* file = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd.get(), 0);
    ASSERT_NE(file, MAP_FAILED);
    EXPECT_EQ(std::memcmp(static_cast<char*>(file) + (1 << 20) + 100, buffer.data(), 64), 0);
    ::munmap(file, kBytes);
    ASSERT_EQ(::ftruncate(fd.get(), 0), 0);
    ASSERT_TRUE(memory.read(GuestAddr((1 << 20) + 100), buffer));
    EXPECT_EQ(buffer, decltype(buffer){});
    for (std::uint64_t at = 1 << 20; at < kBytes; at += kPage) ASSERT_TRUE(touch(memory, at));
    EXPECT_TRUE(touch(memory, 0));
    EXPECT_GE(loss->count(), 2U);
}

TEST(FileMappingTest, AFileThatCanBeSealedCannotShrinkAnyMore) {
    GuestMemory memory;
    const UniqueFd fd = memory_file(2 * kPage, MFD_ALLOW_SEALING);
    ASSERT_TRUE(memory.map_fd(GuestAddr(0), kPage, fd, 0, true, true));
    EXPECT_NE(::ftruncate(fd.get(), 0), 0);
    EXPECT_EQ(::ftruncate(fd.get(), 4 * kPage), 0) << "it may grow";
}

TEST(FileMappingTest, FilesThatAreNoMemoryAreRefused) {
    GuestMemory memory;
    const auto refused = [&](const UniqueFd& fd) {
        const auto mapped = memory.map_fd(GuestAddr(0), kPage, fd, 0, true, true);
        return !mapped && mapped.error().code == ErrorCode::kUnsupported;
    };
    const UniqueFd program(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    struct statfs system {};
    ASSERT_EQ(::fstatfs(program.get(), &system), 0);
    EXPECT_TRUE(system.f_type == TMPFS_MAGIC || refused(program));
    EXPECT_TRUE(refused(UniqueFd(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC))));
    EXPECT_TRUE(refused(UniqueFd(::open("/dev/zero", O_RDWR | O_CLOEXEC))));
    EXPECT_TRUE(refused(UniqueFd()));
    EXPECT_EQ(memory.range_count(), 0U);
}

/// A file on FUSE whose server is this process and never answers: whoever asks for its attributes
/// or touches its pages waits for ever.
TEST(FileMappingTest, AFileOnFuseIsRefusedWithoutAskingForIt) {
    const UniqueFd fuse(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (!fuse) GTEST_SKIP() << "no /dev/fuse: " << std::strerror(errno);
    std::string point = testing::TempDir() + "fuse-XXXXXX";
    ASSERT_NE(::mkdtemp(point.data()), nullptr);
    const std::string options =
        "fd=" + std::to_string(fuse.get()) + ",rootmode=100644,user_id=0,group_id=0";
    const std::string file = point + "/file";
    std::ofstream(file) << "under the mount";
    if (::mount("silent", file.c_str(), "fuse", MS_NODEV | MS_NOSUID, options.c_str()) != 0) {
        const int error = errno;
        std::filesystem::remove_all(point);
        GTEST_SKIP() << "cannot mount FUSE: " << std::strerror(error);
    }
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        ::alarm(5);
        const UniqueFd fd(::open(file.c_str(), O_PATH | O_CLOEXEC));
        GuestMemory memory;
        const auto mapped = memory.map_fd(GuestAddr(0), kPage, fd, 0, true, true);
        ::_exit(!mapped && mapped.error().code == ErrorCode::kUnsupported ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(::umount2(file.c_str(), MNT_DETACH), 0);
    std::filesystem::remove_all(point);
}

}  // namespace
}  // namespace openmana::base
