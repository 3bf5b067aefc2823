// SPDX-License-Identifier: Apache-2.0
#include "fabric/capture.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <vector>

#include "support/hex.h"
#include "unit/fabric/frames.h"
#include "unit/fabric/full_disk.h"

namespace openmana::fabric {
namespace {

using namespace std::chrono_literals;
using ::openmana::test::SimWorld;

class CaptureTest : public ::testing::Test {
protected:
    CaptureTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "capture-XXXXXX").string();
        directory = ::mkdtemp(pattern.data());
        path = (directory / "a.pcap").string();
    }
    ~CaptureTest() override { std::filesystem::remove_all(directory); }
    std::unique_ptr<Capture> open() {
        // The clock starts at one second; the calendar then says 1700000000.5 s.
        auto capture = Capture::create(path, world, base::WallTime(1699999999s + 500ms));
        EXPECT_TRUE(capture.has_value());
        return std::move(*capture);
    }
    std::string bytes() const {
        std::ifstream file(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    std::filesystem::path directory;
    std::string path;
    SimWorld world;
};

template <typename T>
T field(const std::string& bytes, std::size_t at) {
    return base::load_le<T>(bytes.data() + at);
}

TEST_F(CaptureTest, WritesPcapWithNanoseconds) {
    const auto capture = open();
    world.advance(7ns);
    capture->frame(test::numbered(1, 64));
    capture->flush();
    const std::string file = bytes();
    ASSERT_EQ(file.size(), 24u + 16 + 64);
    EXPECT_EQ(field<std::uint32_t>(file, 0), 0xa1b23c4d) << "pcap magic of nanosecond files";
    EXPECT_EQ(field<std::uint16_t>(file, 4), 2);
    EXPECT_EQ(field<std::uint16_t>(file, 6), 4);
    EXPECT_EQ(field<std::uint32_t>(file, 20), 1u) << "LINKTYPE_ETHERNET";
    EXPECT_EQ(field<std::uint32_t>(file, 24), 1700000000u);
    EXPECT_EQ(field<std::uint32_t>(file, 28), 500000007u);
    EXPECT_EQ(field<std::uint32_t>(file, 32), 64u);
    EXPECT_EQ(field<std::uint32_t>(file, 36), 64u);
    const base::Frame frame = test::numbered(1, 64);
    EXPECT_EQ(std::memcmp(file.data() + 40, frame.data(), frame.size()), 0);
}

TEST_F(CaptureTest, TheFileIsValidFromTheStartAndWholeAtTheEnd) {
    auto capture = open();
    EXPECT_EQ(bytes().size(), 24u);
    for (std::uint32_t i = 0; i < 100; ++i) capture->frame(test::numbered(i, 64));
    capture.reset();
    EXPECT_EQ(bytes().size(), 24u + 100 * 80);
}

TEST_F(CaptureTest, EndsWithAWholePacketAtAnyMoment) {
    const auto capture = open();
    constexpr std::size_t kFrame = 9018;
    constexpr std::size_t kPacket = 16 + kFrame;
    const std::uint32_t count = 5 * Capture::kBufferSize / kPacket;
    std::uintmax_t before = 24;
    int writes = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        capture->frame(test::numbered(i, kFrame));
        const std::uintmax_t now = std::filesystem::file_size(path);
        ASSERT_EQ((now - 24) % kPacket, 0u) << "after frame " << i;
        writes += now != before ? 1 : 0;
        before = now;
    }
    EXPECT_EQ(writes, 5 - 1) << "frames gather before they are written";
}

/// The packets of a pcapng file by the number of their interface, and what is wrong with it.
struct Blocks {
    explicit Blocks(const std::string& file) {
        for (std::size_t at = 0; at < file.size();) {
            const auto type = field<std::uint32_t>(file, at);
            const auto length = field<std::uint32_t>(file, at + 4);
            if (length < 12 || length % 4 != 0 || length > file.size() - at ||
                field<std::uint32_t>(file, at + length - 4) != length) {
                whole = false;
                return;
            }
            types.push_back(type);
            if (type == 6) ++packets[field<std::uint32_t>(file, at + 8)];
            at += length;
        }
    }
    bool whole = true;
    std::vector<std::uint32_t> types;
    std::map<std::uint32_t, std::size_t> packets;
};

// draft-ietf-opsawg-pcapng 4.1 to 4.3
TEST_F(CaptureTest, OfSeveralPointsIsPcapngWithAnInterfaceForEach) {
    const std::vector<std::string> points = {"red", "blue"};
    auto created = Capture::create(path, world, base::WallTime(1699999999s + 500ms), points);
    ASSERT_TRUE(created.has_value());
    const auto capture = std::move(*created);
    const std::string head = bytes();
    const auto bytes_of = [](const std::string& hex) { return ::openmana::test::from_hex(hex); };
    const auto expected = bytes_of(
        "0a0d0d0a 1c000000 4d3c2b1a 0100 0000 ffffffffffffffff 1c000000"
        "01000000 28000000 0100 0000 00000400 0200 0300 72656400 0900 0100 09000000 0000 0000"
        "28000000"
        "01000000 28000000 0100 0000 00000400 0200 0400 626c7565 0900 0100 09000000 0000 0000"
        "28000000");
    ASSERT_EQ(head.size(), expected.size());
    EXPECT_EQ(std::memcmp(head.data(), expected.data(), expected.size()), 0);

    world.advance(7ns);
    const base::Frame frame = test::numbered(1, 61);
    capture->tap(1).frame(frame);
    capture->flush();
    const std::string packet = bytes().substr(head.size());
    ASSERT_EQ(packet.size(), 28U + 61 + 3 + 4);
    const std::uint64_t time = 1700000000'500000007ULL;
    EXPECT_EQ(field<std::uint32_t>(packet, 0), 6U);
    EXPECT_EQ(field<std::uint32_t>(packet, 4), packet.size());
    EXPECT_EQ(field<std::uint32_t>(packet, 8), 1U) << "blue";
    EXPECT_EQ(field<std::uint32_t>(packet, 12), static_cast<std::uint32_t>(time >> 32));
    EXPECT_EQ(field<std::uint32_t>(packet, 16), static_cast<std::uint32_t>(time));
    EXPECT_EQ(field<std::uint32_t>(packet, 20), 61U);
    EXPECT_EQ(field<std::uint32_t>(packet, 24), 61U);
    EXPECT_EQ(std::memcmp(packet.data() + 28, frame.data(), frame.size()), 0);
    EXPECT_EQ(packet.substr(28 + 61, 3), std::string(3, '\0'));
    EXPECT_EQ(field<std::uint32_t>(packet, 28 + 64), packet.size());
}

TEST_F(CaptureTest, OfSeveralPointsEndsWithAWholePacketToo) {
    const std::vector<std::string> points = {"red", "blue", "green"};
    auto created = Capture::create(path, world, base::WallTime(), points);
    ASSERT_TRUE(created.has_value());
    const std::uint32_t count = 3 * Capture::kBufferSize / 9018;
    for (std::uint32_t i = 0; i < count; ++i) {
        (*created)->tap(i % 3).frame(test::numbered(i, 9018 - i % 4));
        if (i % 40 != 0) continue;
        ASSERT_TRUE(Blocks(bytes()).whole) << "after frame " << i;
    }
    created->reset();
    const Blocks blocks(bytes());
    ASSERT_TRUE(blocks.whole);
    EXPECT_EQ(blocks.packets.size(), 3U);
    EXPECT_EQ(blocks.packets.at(0) + blocks.packets.at(1) + blocks.packets.at(2), count);
}

TEST_F(CaptureTest, AFullDiskEndsOneOfSeveralPointsOnce) {
    const std::vector<std::string> points = {"red", "blue"};
    auto created = Capture::create(path, world, base::WallTime(), points);
    ASSERT_TRUE(created.has_value());
    ASSERT_TRUE(test::fill_disk_of(path));
    (*created)->tap(0).frame(test::numbered(1));
    (*created)->flush();
    EXPECT_EQ((*created)->error(), ENOSPC);
    (*created)->tap(1).frame(test::numbered(2));
    EXPECT_EQ((*created)->counters().lost.value(), 1U);
}

TEST_F(CaptureTest, SaysWhyItCannotStart) {
    const auto missing = Capture::create(directory / "no" / "a.pcap", world, {});
    ASSERT_FALSE(missing.has_value());
    EXPECT_EQ(missing.error().code, base::ErrorCode::kIo);
    EXPECT_EQ(missing.error().detail, static_cast<unsigned>(ENOENT));
    EXPECT_FALSE(Capture::create("-", world, {}).has_value());
}

TEST_F(CaptureTest, AFullDiskEndsItOnce) {
    const auto capture = open();
    ASSERT_TRUE(test::fill_disk_of(path));
    capture->frame(test::numbered(1));
    capture->flush();
    EXPECT_EQ(capture->error(), ENOSPC);
    capture->frame(test::numbered(2));
    EXPECT_EQ(capture->counters().lost.value(), 1u);
    EXPECT_EQ(capture->counters().frames.value(), 1u);
}

TEST_F(CaptureTest, TakesFramesFromManyThreads) {
    auto capture = open();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
            for (std::uint32_t n = 0; n < 500; ++n) capture->frame(test::numbered(n, 64));
        });
    for (int i = 0; i < 10; ++i) capture->flush();
    for (auto& thread : threads) thread.join();
    capture.reset();
    const std::string file = bytes();
    ASSERT_EQ(file.size(), 24u + 2000 * 80);
    for (std::size_t at = 24; at < file.size(); at += 80)
        ASSERT_EQ(field<std::uint32_t>(file, at + 8), 64u);
}

/// What another process of the host makes of a capture.
std::unique_ptr<Capture> resumed(const Capture& before, const SimWorld& world) {
    base::StateWriter out(world.now());
    before.save(out);
    std::vector<base::UniqueFd> descriptors;
    for (const int fd : out.descriptors()) descriptors.emplace_back(::dup(fd));
    const auto bytes = std::move(out).finish();
    auto in = base::StateReader::open(bytes, world.now(), descriptors);
    if (!in) return nullptr;
    auto capture = Capture::resume(*in, world, base::WallTime(1699999999s + 500ms));
    return capture ? std::move(*capture) : nullptr;
}

TEST_F(CaptureTest, AnotherProcessGoesOnBehindWhatWasWritten) {
    auto capture = open();
    for (std::uint32_t i = 0; i < 100; ++i) capture->frame(test::numbered(i, 64));
    capture->flush();
    auto next = resumed(*capture, world);
    ASSERT_NE(next, nullptr);
    capture.reset();
    EXPECT_EQ(next->path(), path);
    for (std::uint32_t i = 100; i < 150; ++i) next->frame(test::numbered(i, 64));
    EXPECT_EQ(next->counters().frames.value(), 150);
    next.reset();
    const std::string file = bytes();
    ASSERT_EQ(file.size(), 24u + 150 * 80);
    for (std::uint32_t i = 0; i < 150; ++i) {
        const base::Frame frame = test::numbered(i, 64);
        ASSERT_EQ(std::memcmp(file.data() + 24 + 80 * i + 16, frame.data(), frame.size()), 0) << i;
    }
}

TEST_F(CaptureTest, AnotherProcessHasThePointsThatThereWere) {
    const std::vector<std::string> points = {"red", "blue"};
    auto created = Capture::create(path, world, base::WallTime(1699999999s + 500ms), points);
    ASSERT_TRUE(created.has_value());
    ASSERT_TRUE((*created)->add_point("green").has_value());
    (*created)->tap(1).frame(test::numbered(1, 64));
    (*created)->flush();
    auto next = resumed(**created, world);
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(next->find_point("black"), nullptr);
    ASSERT_NE(next->find_point("green"), nullptr);
    next->find_point("green")->frame(test::numbered(2, 64));
    ASSERT_TRUE(next->add_point("black").has_value());
    next.reset();
    const Blocks blocks(bytes());
    EXPECT_TRUE(blocks.whole);
    EXPECT_EQ(blocks.packets, (std::map<std::uint32_t, std::size_t>{{1, 1}, {2, 1}}));
    EXPECT_EQ(std::ranges::count(blocks.types, 1u), 4);
}

TEST_F(CaptureTest, OneThatHasEndedStaysSo) {
    const auto capture = open();
    ASSERT_TRUE(test::fill_disk_of(path));
    capture->frame(test::numbered(0, 64));
    capture->flush();
    ASSERT_EQ(capture->error(), ENOSPC);
    const auto next = resumed(*capture, world);
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(next->error(), ENOSPC);
    const auto lost = next->counters().lost.value();
    next->frame(test::numbered(1, 64));
    EXPECT_EQ(next->counters().lost.value(), lost + 1);
}

}  // namespace
}  // namespace openmana::fabric
