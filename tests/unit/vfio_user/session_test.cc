// SPDX-License-Identifier: Apache-2.0
#include "vfio_user/session.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "support/vfio_user_client.h"
#include "unit/vfio_user/fake_backend.h"
#include "unit/vfio_user/message_bytes.h"
#include "vfio_user/version.h"

namespace openmana::vfio_user {
namespace {

using base::UniqueFd;
using test::Reply;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;
using testing::SizeIs;

class SessionTest : public testing::Test {
protected:
    FakeBackend backend_;
    Counters counters_;
    Session session_{backend_, counters_, "nic"};
    std::uint16_t next_id_ = 0;

    /// Hands bytes over as one receive; false if the session ended.
    bool feed(std::span<const std::byte> data, std::size_t fd_count = 0) {
        std::vector<UniqueFd> fds;
        for (std::size_t i = 0; i < fd_count; ++i) fds.push_back(test::make_eventfd());
        const auto room = session_.receive_room();
        EXPECT_LE(data.size(), room.size());
        std::copy(data.begin(), data.end(), room.begin());
        return session_.receive(data.size(), fds).has_value();
    }
    std::vector<std::byte> message(Command command, std::span<const std::byte> payload,
                                   std::uint32_t flags = 0) {
        std::vector<std::byte> result;
        put_message(result, ++next_id_, command, flags, payload);
        return result;
    }
    /// All replies so far.
    std::vector<Reply> replies() {
        const auto output = session_.output();
        std::vector<Reply> result;
        for (std::size_t at = 0; at < output.size();) {
            Reply reply{.header = base::load_le<Header>(output.data() + at), .payload = {}};
            EXPECT_GE(reply.header.size, sizeof(Header));
            EXPECT_LE(reply.header.size, output.size() - at);
            const auto payload =
                output.subspan(at + sizeof(Header), reply.header.size - sizeof(Header));
            reply.payload.assign(payload.begin(), payload.end());
            at += reply.header.size;
            result.push_back(std::move(reply));
        }
        session_.sent(output.size());
        return result;
    }
    /// One command and its one reply.
    Reply ask(Command command, std::span<const std::byte> payload, std::size_t fd_count = 0) {
        EXPECT_TRUE(feed(message(command, payload), fd_count));
        auto all = replies();
        EXPECT_THAT(all, SizeIs(1));
        if (all.size() != 1) return {};
        EXPECT_EQ(all[0].header.id, next_id_);
        EXPECT_EQ(all[0].header.command, command);
        EXPECT_EQ(all[0].header.flags & ~kFlagError, kTypeReply);
        return std::move(all[0]);
    }
    std::uint32_t error_of(Command command, std::span<const std::byte> payload,
                           std::size_t fd_count = 0) {
        const Reply reply = ask(command, payload, fd_count);
        EXPECT_EQ((reply.header.flags & kFlagError) != 0, reply.header.error != 0);
        if (reply.header.error != 0) {
            EXPECT_THAT(reply.payload, IsEmpty());
        }
        return reply.header.error;
    }
    void negotiate() {
        std::vector<std::byte> payload = pack(VersionHead{});
        Writer(payload).put_bytes(
            std::as_bytes(std::span("{\"capabilities\":{\"write_multiple\":true}}")));
        ASSERT_EQ(error_of(Command::kVersion, payload), 0U);
    }
    std::uint32_t set_irqs(std::uint32_t flags, std::uint32_t start, std::uint32_t count,
                           std::size_t fds = 0, std::span<const std::byte> data = {},
                           std::uint32_t index = 2) {
        auto payload = pack(IrqSet{20, flags, index, start, count});
        Writer(payload).put_bytes(data);
        return error_of(Command::kSetIrqs, payload, fds);
    }
};

class NegotiatedSessionTest : public SessionTest {
protected:
    void SetUp() override { negotiate(); }
};

TEST_F(SessionTest, VersionIsAnsweredByteForByte) {
    std::vector<std::byte> request =
        bytes({0x07, 0, 0x01, 0, 0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    ASSERT_TRUE(feed(request));
    std::vector<std::byte> expected =
        bytes({0x07, 0, 0x01, 0, 0, 0, 0, 0, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    const std::string text =
        "{\"capabilities\":{\"max_data_xfer_size\":1048576,\"max_msg_fds\":16}}";
    Writer(expected).put_bytes(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
    expected[4] = static_cast<std::byte>(expected.size());
    EXPECT_THAT(session_.output(), ElementsAreArray(expected));
}

TEST_F(SessionTest, MinorVersionIsTheLowerOfBoth) {
    const Reply reply = ask(Command::kVersion, pack(VersionHead{0, 9}));
    EXPECT_EQ(base::load_le<VersionHead>(reply.payload.data()).minor, kVersionMinor);
}

TEST_F(SessionTest, WrongVersionIsRefusedAndMayBeTriedAgain) {
    EXPECT_EQ(error_of(Command::kVersion, pack(VersionHead{1, 0})),
              static_cast<unsigned>(EOPNOTSUPP));
    EXPECT_EQ(error_of(Command::kVersion, bytes({0, 0, 0})), static_cast<unsigned>(EINVAL));
    EXPECT_EQ(error_of(Command::kVersion, bytes({0, 0, 0, 0, '{', '}'})),
              static_cast<unsigned>(EINVAL));
    negotiate();
    EXPECT_EQ(error_of(Command::kVersion, pack(VersionHead{})), static_cast<unsigned>(EINVAL));
}

TEST_F(SessionTest, CommandBeforeVersionEndsTheSession) {
    EXPECT_FALSE(feed(message(Command::kDeviceGetInfo, pack(DeviceInfo{16, 0, 0, 0}))));
    EXPECT_THAT(backend_.take(), IsEmpty());
}

TEST_F(NegotiatedSessionTest, DeviceInfoIsThatOfAPciDevice) {
    const Reply reply = ask(Command::kDeviceGetInfo, pack(DeviceInfo{16, 0, 0, 0}));
    EXPECT_THAT(reply.payload,
                ElementsAreArray(bytes({16, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0})));
}

TEST_F(NegotiatedSessionTest, RegionInfoOfEveryRegion) {
    for (std::uint32_t index = 0; index < 9; ++index) {
        RegionInfoMessage request{};
        request.argsz = 64;  // more room than needed
        request.index = index;
        const Reply reply = ask(Command::kGetRegionInfo, pack(request));
        ASSERT_THAT(reply.payload, SizeIs(32));
        const auto info = base::load_le<RegionInfoMessage>(reply.payload.data());
        const Region region = backend_.region(index);
        EXPECT_EQ(info.argsz, 32U);
        EXPECT_EQ(info.index, index);
        EXPECT_EQ(info.size, region.size);
        EXPECT_EQ(info.flags, (region.readable ? 1U : 0U) | (region.writable ? 2U : 0U));
        EXPECT_EQ(info.cap_offset, 0U);
    }
    RegionInfoMessage beyond{};
    beyond.argsz = 32;
    beyond.index = 9;
    EXPECT_EQ(error_of(Command::kGetRegionInfo, pack(beyond)), static_cast<unsigned>(EINVAL));
}

TEST_F(NegotiatedSessionTest, IrqInfoOfEveryKind) {
    for (std::uint32_t index = 0; index < 5; ++index) {
        const Reply reply = ask(Command::kGetIrqInfo, pack(IrqInfoMessage{16, 0, index, 0}));
        ASSERT_THAT(reply.payload, SizeIs(16));
        const auto info = base::load_le<IrqInfoMessage>(reply.payload.data());
        EXPECT_EQ(info.count, index == 2 ? 65U : 0U);
        EXPECT_EQ(info.flags, index == 2 ? kIrqFlagEventfd : 0U);
    }
    EXPECT_EQ(error_of(Command::kGetIrqInfo, pack(IrqInfoMessage{16, 0, 5, 0})),
              static_cast<unsigned>(EINVAL));
}

TEST_F(NegotiatedSessionTest, ReplyIsNeverLongerThanArgsz) {
    for (std::uint32_t argsz = 0; argsz < 16; ++argsz) {
        EXPECT_EQ(error_of(Command::kDeviceGetInfo, pack(DeviceInfo{argsz, 0, 0, 0})),
                  static_cast<unsigned>(EINVAL));
        EXPECT_EQ(error_of(Command::kGetIrqInfo, pack(IrqInfoMessage{argsz, 0, 2, 0})),
                  static_cast<unsigned>(EINVAL));
    }
    for (std::uint32_t argsz = 0; argsz < 32; ++argsz) {
        EXPECT_EQ(error_of(Command::kGetRegionInfo, pack(RegionInfoMessage{argsz})),
                  static_cast<unsigned>(EINVAL));
    }
    for (std::uint32_t argsz = 0; argsz < 24; ++argsz) {
        EXPECT_EQ(error_of(Command::kDmaUnmap, pack(DmaUnmapRequest{argsz, 0, 0x1000, 0x1000})),
                  static_cast<unsigned>(EINVAL));
    }
    EXPECT_THAT(backend_.take(), IsEmpty());
}

TEST_F(NegotiatedSessionTest, EveryTruncatedPayloadIsRefused) {
    const std::vector<std::pair<Command, std::vector<std::byte>>> whole = {
        {Command::kVersion, pack(VersionHead{})},
        {Command::kDmaMap, pack(DmaMapRequest{32, 3, 0, 0x1000, 0x1000})},
        {Command::kDmaUnmap, pack(DmaUnmapRequest{24, 0, 0x1000, 0x1000})},
        {Command::kDeviceGetInfo, pack(DeviceInfo{16, 0, 0, 0})},
        {Command::kGetRegionInfo, pack(RegionInfoMessage{32})},
        {Command::kGetIrqInfo, pack(IrqInfoMessage{16, 0, 2, 0})},
        {Command::kSetIrqs, pack(IrqSet{20, kIrqDataBool | kIrqActionTrigger, 2, 0, 3},
                                 std::uint8_t{1}, std::uint8_t{1}, std::uint8_t{1})},
        {Command::kRegionRead, pack(RegionAccess{0, 0, 8})},
        {Command::kRegionWrite, pack(RegionAccess{0, 0, 8}, std::uint64_t{1})},
        {Command::kRegionWriteMulti, pack(std::uint64_t{1}, WriteEntry{0, 0, 8, {}})},
    };
    for (const auto& [command, payload] : whole) {
        for (std::size_t length = 0; length < payload.size(); ++length) {
            EXPECT_EQ(error_of(command, std::span(payload).first(length)),
                      static_cast<unsigned>(EINVAL))
                << static_cast<unsigned>(command) << " cut to " << length;
        }
    }
    EXPECT_THAT(backend_.take(), IsEmpty());
}

TEST_F(NegotiatedSessionTest, UnknownCommandsAreNotOffered) {
    for (const unsigned command : {0U, 6U, 11U, 12U, 14U, 16U, 17U, 18U, 0xFFFFU}) {
        EXPECT_EQ(error_of(static_cast<Command>(command), {}), static_cast<unsigned>(EOPNOTSUPP))
            << command;
    }
    EXPECT_EQ(counters_.unknown.value(), 9U);
    EXPECT_EQ(counters_.refused.value(), 9U);
}

TEST_F(NegotiatedSessionTest, PostedDoorbellsOfOneBatchGetNoReply) {
    std::vector<std::byte> batch;
    for (std::uint64_t i = 0; i < 100; ++i) {
        put_message(batch, 1, Command::kRegionWrite, kFlagNoReply,
                    pack(RegionAccess{0x10000 + 8 * i, 0, 8}, i));
    }
    ASSERT_TRUE(feed(batch));
    EXPECT_THAT(replies(), IsEmpty());
    const auto calls = backend_.take();
    ASSERT_THAT(calls, SizeIs(100));
    EXPECT_EQ(calls[99], "write 0 0x10318 8 6300000000000000");
    EXPECT_EQ(counters_.batches.value(), 2U);
    EXPECT_THAT(backend_.runs, ElementsAre(64U, 36U));
}

TEST_F(NegotiatedSessionTest, PostedDoorbellsStayInOrderWithEverythingElse) {
    std::vector<std::byte> batch;
    const auto post = [&](std::uint64_t offset, std::uint32_t region) {
        put_message(batch, 1, Command::kRegionWrite, kFlagNoReply,
                    pack(RegionAccess{offset, region, 4}, std::uint32_t{1}));
    };
    const WriteEntry entry{0x18, 0, 4, {}};
    const WriteEntry refused{FakeBackend::kBarSize, 0, 4, {}};
    post(0x8, 0);
    post(0x10, 0);
    put_message(batch, 2, Command::kRegionWriteMulti, kFlagNoReply,
                pack(std::uint64_t{3}, entry, refused, entry));
    post(FakeBackend::kBarSize, 0);
    post(4, 7);
    post(0x20, 0);
    put_message(batch, 3, Command::kRegionRead, 0, pack(RegionAccess{0x20, 0, 4}));
    post(0x28, 0);
    put_message(batch, 4, Command::kRegionWrite, 0,
                pack(RegionAccess{0x30, 0, 4}, std::uint32_t{1}));
    post(0x38, 0);
    put_message(batch, 5, Command::kDeviceReset, 0, {});
    post(0x40, 0);
    ASSERT_TRUE(feed(batch));
    EXPECT_THAT(replies(), SizeIs(3));
    EXPECT_THAT(
        backend_.take(),
        ElementsAre("write 0 0x8 4 01000000", "write 0 0x10 4 01000000", "write 0 0x18 4 00000000",
                    "write 0 0x18 4 00000000", "write 7 0x4 4 01000000", "write 0 0x20 4 01000000",
                    "read 0 0x20 4", "write 0 0x28 4 01000000", "write 0 0x30 4 01000000",
                    "write 0 0x38 4 01000000", "reset", "write 0 0x40 4 01000000"));
    EXPECT_THAT(backend_.runs, ElementsAre(4U, 1U, 1U, 1U, 1U));
    EXPECT_EQ(counters_.posted_refused.value(), 2U);
}

TEST_F(NegotiatedSessionTest, WritesAreCountedByWhetherTheClientWaits) {
    const auto counts = [&] {
        return std::pair(counters_.writes_posted.value(), counters_.writes_answered.value());
    };
    const WriteEntry entry{0x18, 0, 4, {}};
    const WriteEntry refused{FakeBackend::kBarSize, 0, 4, {}};
    std::vector<std::byte> batch;
    const auto put = [&](std::uint32_t flags) {
        for (const std::uint32_t region : {0U, 0U, 7U, 4U})
            put_message(batch, 1, Command::kRegionWrite, flags,
                        pack(RegionAccess{8, region, 4}, std::uint32_t{1}));
        put_message(batch, 2, Command::kRegionWriteMulti, flags,
                    pack(std::uint64_t{3}, entry, refused, entry));
        put_message(batch, 3, Command::kRegionRead, 0, pack(RegionAccess{0x20, 0, 4}));
    };
    put(kFlagNoReply);
    ASSERT_TRUE(feed(batch));
    EXPECT_EQ(counts(), std::pair(5UL, 0UL)) << "region 4 cannot be written";
    batch.clear();
    put(0);
    ASSERT_TRUE(feed(batch));
    EXPECT_EQ(counts(), std::pair(5UL, 5UL));
}

TEST_F(NegotiatedSessionTest, AnsweredWriteEchoesTheAccess) {
    const Reply reply = ask(Command::kRegionWrite, pack(RegionAccess{4, 7, 2}, std::uint16_t{6}));
    EXPECT_THAT(reply.payload,
                ElementsAreArray(bytes({4, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0})));
    EXPECT_THAT(backend_.take(), ElementsAre("write 7 0x4 2 0600"));
}

TEST_F(NegotiatedSessionTest, ReadReturnsTheAccessAndTheData) {
    const Reply reply = ask(Command::kRegionRead, pack(RegionAccess{0x10, 7, 4}));
    EXPECT_THAT(reply.payload,
                ElementsAreArray(bytes(
                    {0x10, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 4, 0, 0, 0, 0x10, 0x11, 0x12, 0x13})));
}

TEST_F(NegotiatedSessionTest, AccessesOutsideTheirRegionAreRefused) {
    const std::vector<RegionAccess> wrong = {
        {4096, 7, 1},       {4093, 7, 4},           {0, 7, 4097},
        {UINT64_MAX, 7, 1}, {UINT64_MAX - 3, 7, 4}, {0, 1, 1},
        {0, 9, 4},          {0, UINT32_MAX, 4},     {64, 4, 1},
        {1ULL << 63, 0, 8}, {0, 0, (1U << 20) + 1}, {0, 0, UINT32_MAX},
    };
    for (const RegionAccess& access : wrong) {
        EXPECT_EQ(error_of(Command::kRegionRead, pack(access)), static_cast<unsigned>(EINVAL))
            << access.region << " " << access.offset;
        if (access.count > 4097) continue;
        auto payload = pack(access);
        payload.resize(payload.size() + access.count);
        EXPECT_EQ(error_of(Command::kRegionWrite, payload), static_cast<unsigned>(EINVAL));
        ASSERT_TRUE(feed(message(Command::kRegionWrite, payload, kFlagNoReply)));
        EXPECT_THAT(replies(), IsEmpty());
    }
    EXPECT_EQ(counters_.posted_refused.value(), 10U);
    EXPECT_EQ(error_of(Command::kRegionWrite, pack(RegionAccess{0, 4, 1}, std::uint8_t{0})),
              static_cast<unsigned>(EINVAL));
    EXPECT_EQ(error_of(Command::kRegionRead, pack(RegionAccess{0, 5, 1})),
              static_cast<unsigned>(EINVAL));
    EXPECT_THAT(backend_.take(), IsEmpty());
}

TEST_F(NegotiatedSessionTest, WriteWithTooMuchDataIsRefused) {
    EXPECT_EQ(error_of(Command::kRegionWrite, pack(RegionAccess{0, 0, 4}, std::uint64_t{0})),
              static_cast<unsigned>(EINVAL));
    EXPECT_EQ(error_of(Command::kRegionRead, pack(RegionAccess{0, 0, 4}, std::uint64_t{0})),
              static_cast<unsigned>(EINVAL));
}

TEST_F(SessionTest, ReadsRespectTheClientsTransferSize) {
    std::vector<std::byte> payload = pack(VersionHead{});
    Writer(payload).put_bytes(
        std::as_bytes(std::span("{\"capabilities\":{\"max_data_xfer_size\":64}}")));
    ASSERT_EQ(error_of(Command::kVersion, payload), 0U);
    EXPECT_EQ(error_of(Command::kRegionRead, pack(RegionAccess{0, 0, 64})), 0U);
    EXPECT_EQ(error_of(Command::kRegionRead, pack(RegionAccess{0, 0, 65})),
              static_cast<unsigned>(EINVAL));
}

TEST_F(NegotiatedSessionTest, WriteMultipleDoesEachWriteInOrder) {
    WriteEntry first{0x8, 0, 8, {}};
    first.data[0] = std::byte{1};
    WriteEntry second{0x20, 0, 4, {}};
    second.data[1] = std::byte{2};
    const Reply reply = ask(Command::kRegionWriteMulti, pack(std::uint64_t{2}, first, second));
    EXPECT_THAT(reply.payload, ElementsAreArray(bytes({2, 0, 0, 0, 0, 0, 0, 0})));
    EXPECT_THAT(backend_.take(),
                ElementsAre("write 0 0x8 8 0100000000000000", "write 0 0x20 4 00020000"));
    ASSERT_TRUE(
        feed(message(Command::kRegionWriteMulti, pack(std::uint64_t{1}, first), kFlagNoReply)));
    EXPECT_THAT(replies(), IsEmpty());
    EXPECT_THAT(backend_.take(), SizeIs(1));
}

TEST_F(NegotiatedSessionTest, WriteMultipleChecksCountsBeforeItWrites) {
    const WriteEntry good{0, 0, 8, {}};
    const WriteEntry long_one{0, 0, 9, {}};
    const auto einval = static_cast<unsigned>(EINVAL);
    EXPECT_EQ(error_of(Command::kRegionWriteMulti, pack(std::uint64_t{2}, good, long_one)), einval);
    EXPECT_EQ(error_of(Command::kRegionWriteMulti, pack(std::uint64_t{1}, good, good)), einval);
    EXPECT_EQ(error_of(Command::kRegionWriteMulti, pack(std::uint64_t{3}, good, good)), einval);
    EXPECT_EQ(error_of(Command::kRegionWriteMulti, pack((1ULL << 61) + 1, good)), einval);
    EXPECT_EQ(error_of(Command::kRegionWriteMulti, pack(UINT64_MAX, good)), einval);
    EXPECT_THAT(backend_.take(), IsEmpty());
}

TEST_F(NegotiatedSessionTest, WriteMultipleSaysHowManyWereDone) {
    const WriteEntry good{0, 0, 8, {}};
    const WriteEntry outside{FakeBackend::kBarSize, 0, 8, {}};
    const Reply reply =
        ask(Command::kRegionWriteMulti, pack(std::uint64_t{3}, good, outside, good));
    EXPECT_EQ(base::load_le<std::uint64_t>(reply.payload.data()), 2U);
    EXPECT_EQ(error_of(Command::kRegionWriteMulti, pack(std::uint64_t{1}, outside)),
              static_cast<unsigned>(EINVAL));
}

TEST_F(NegotiatedSessionTest, DmaMapPassesRangeAccessAndFd) {
    EXPECT_EQ(
        error_of(Command::kDmaMap, pack(DmaMapRequest{32, 3, 0x2000, 0x100000000, 0x40000000}), 1),
        0U);
    EXPECT_EQ(error_of(Command::kDmaMap, pack(DmaMapRequest{32, 1, 0, 0xC0000, 0x8000}), 1), 0U);
    EXPECT_EQ(error_of(Command::kDmaMap, pack(DmaMapRequest{32, 3, 0, 0xFE000000, 0x800000})), 0U);
    EXPECT_THAT(backend_.take(), ElementsAre("map 0x100000000 0x40000000 offset=0x2000 rw fd=true",
                                             "map 0xc0000 0x8000 offset=0x0 r- fd=true",
                                             "map 0xfe000000 0x800000 offset=0x0 rw fd=false"));
}

TEST_F(NegotiatedSessionTest, DmaMapRefusesUnknownFlagsAndTooManyFds) {
    const auto einval = static_cast<unsigned>(EINVAL);
    EXPECT_EQ(error_of(Command::kDmaMap, pack(DmaMapRequest{32, 4, 0, 0, 0x1000}), 1), einval);
    EXPECT_EQ(error_of(Command::kDmaMap, pack(DmaMapRequest{31, 3, 0, 0, 0x1000}), 1), einval);
    EXPECT_EQ(error_of(Command::kDmaMap, pack(DmaMapRequest{32, 3, 0, 0, 0x1000}), 2), einval);
    EXPECT_THAT(backend_.take(), IsEmpty());
}

TEST_F(NegotiatedSessionTest, DmaMapOverAnotherRangeIsEexist) {
    backend_.next_error = base::Error{base::ErrorCode::kBusy, "overlap"};
    EXPECT_EQ(error_of(Command::kDmaMap, pack(DmaMapRequest{32, 3, 0, 0, 0x1000}), 1),
              static_cast<unsigned>(EEXIST));
}

TEST_F(NegotiatedSessionTest, DmaUnmapEchoesTheRange) {
    const auto request = pack(DmaUnmapRequest{24, 0, 0x1000, 0x3000});
    EXPECT_THAT(ask(Command::kDmaUnmap, request).payload, ElementsAreArray(request));
    EXPECT_THAT(backend_.take(), ElementsAre("unmap 0x1000 0x3000"));
    backend_.next_error = base::Error{base::ErrorCode::kNotFound, "none"};
    EXPECT_EQ(error_of(Command::kDmaUnmap, request), static_cast<unsigned>(ENOENT));
}

TEST_F(NegotiatedSessionTest, DmaUnmapAllTakesNoRange) {
    EXPECT_EQ(error_of(Command::kDmaUnmap, pack(DmaUnmapRequest{24, 2, 0, 0})), 0U);
    EXPECT_THAT(backend_.take(), ElementsAre("unmap all"));
    EXPECT_EQ(error_of(Command::kDmaUnmap, pack(DmaUnmapRequest{24, 2, 0, 0x1000})),
              static_cast<unsigned>(EINVAL));
    EXPECT_EQ(error_of(Command::kDmaUnmap, pack(DmaUnmapRequest{24, 1, 0, 0x1000})),
              static_cast<unsigned>(EOPNOTSUPP));
    EXPECT_EQ(error_of(Command::kDmaUnmap, pack(DmaUnmapRequest{24, 4, 0, 0x1000})),
              static_cast<unsigned>(EINVAL));
    EXPECT_THAT(backend_.take(), IsEmpty());
}

TEST_F(NegotiatedSessionTest, SetIrqsFollowsQemusSequence) {
    const std::uint32_t eventfd = kIrqDataEventfd | kIrqActionTrigger;
    EXPECT_EQ(set_irqs(eventfd, 0, 1), 0U);     // MSI-X enabled
    EXPECT_EQ(set_irqs(eventfd, 0, 1, 1), 0U);  // vector used
    EXPECT_EQ(set_irqs(eventfd, 3, 1, 1), 0U);
    EXPECT_EQ(set_irqs(eventfd, 3, 1, 1), 0U);  // unmasked
    EXPECT_EQ(set_irqs(kIrqDataNone | kIrqActionTrigger, 0, 0), 0U);
    EXPECT_THAT(backend_.take(),
                ElementsAre("assign 2 0 fd=false", "assign 2 0 fd=true", "assign 2 3 fd=true",
                            "assign 2 3 fd=true", "disable 2"));
}

TEST_F(NegotiatedSessionTest, SetIrqsTakesSeveralEventfdsAtOnce) {
    EXPECT_EQ(set_irqs(kIrqDataEventfd | kIrqActionTrigger, 1, 3, 3), 0U);
    EXPECT_THAT(backend_.take(),
                ElementsAre("assign 2 1 fd=true", "assign 2 2 fd=true", "assign 2 3 fd=true"));
    EXPECT_EQ(set_irqs(kIrqDataEventfd | kIrqActionTrigger, 0, 65), 0U);
    EXPECT_THAT(backend_.take(), SizeIs(65));
    EXPECT_EQ(set_irqs(kIrqDataEventfd | kIrqActionTrigger, 1, 3, 2),
              static_cast<unsigned>(EINVAL));
    EXPECT_EQ(set_irqs(kIrqDataEventfd | kIrqActionTrigger, 1, 1, 2),
              static_cast<unsigned>(EINVAL));
    EXPECT_EQ(counters_.fds_dropped.value(), 4U);
}

TEST_F(NegotiatedSessionTest, SetIrqsTriggersAndMasks) {
    EXPECT_EQ(set_irqs(kIrqDataNone | kIrqActionTrigger, 1, 2), 0U);
    EXPECT_EQ(set_irqs(kIrqDataBool | kIrqActionTrigger, 4, 3, 0, bytes({1, 0, 7})), 0U);
    EXPECT_EQ(set_irqs(kIrqDataNone | kIrqActionMask, 64, 1), 0U);
    EXPECT_EQ(set_irqs(kIrqDataBool | kIrqActionUnmask, 63, 2, 0, bytes({0, 1})), 0U);
    EXPECT_THAT(backend_.take(), ElementsAre("trigger 2 1", "trigger 2 2", "trigger 2 4",
                                             "trigger 2 6", "mask 2 64", "unmask 2 64"));
}

TEST_F(NegotiatedSessionTest, SetIrqsRefusesWhatMakesNoSense) {
    const auto einval = static_cast<unsigned>(EINVAL);
    const std::uint32_t trigger = kIrqDataNone | kIrqActionTrigger;
    EXPECT_EQ(set_irqs(trigger, 65, 1), einval);
    EXPECT_EQ(set_irqs(trigger, 0, 66), einval);
    EXPECT_EQ(set_irqs(trigger, UINT32_MAX, 2), einval);
    EXPECT_EQ(set_irqs(trigger, 1, UINT32_MAX), einval);
    EXPECT_EQ(set_irqs(trigger, 1, 0), einval);
    EXPECT_EQ(set_irqs(kIrqDataEventfd | kIrqActionTrigger, 0, 0), einval);
    EXPECT_EQ(set_irqs(kIrqDataNone | kIrqActionMask, 0, 0), einval);
    EXPECT_EQ(set_irqs(0, 0, 1), einval);
    EXPECT_EQ(set_irqs(kIrqDataNone, 0, 1), einval);
    EXPECT_EQ(set_irqs(kIrqActionTrigger, 0, 1), einval);
    EXPECT_EQ(set_irqs(kIrqDataNone | kIrqDataBool | kIrqActionTrigger, 0, 1), einval);
    EXPECT_EQ(set_irqs(kIrqDataNone | kIrqActionTrigger | kIrqActionMask, 0, 1), einval);
    EXPECT_EQ(set_irqs(trigger | 1U << 6, 0, 1), einval);
    EXPECT_EQ(set_irqs(kIrqDataBool | kIrqActionTrigger, 0, 3, 0, bytes({1, 1})), einval);
    EXPECT_EQ(set_irqs(trigger, 0, 1, 0, {}, 0), einval);  // INTx: none
    EXPECT_EQ(set_irqs(trigger, 0, 1, 0, {}, 5), einval);
    EXPECT_EQ(set_irqs(kIrqDataEventfd | kIrqActionMask, 0, 1, 1),
              static_cast<unsigned>(EOPNOTSUPP));
    EXPECT_THAT(backend_.take(), IsEmpty());
    EXPECT_EQ(set_irqs(trigger, 0, 0, 0, {}, 0), 0U);  // nothing to switch off, and that is done
}

TEST_F(NegotiatedSessionTest, ResetReachesTheDevice) {
    EXPECT_EQ(error_of(Command::kDeviceReset, {}), 0U);
    EXPECT_THAT(backend_.take(), ElementsAre("reset"));
}

TEST_F(NegotiatedSessionTest, FdsBelongToTheLastMessageOfTheBatch) {
    std::vector<std::byte> batch =
        message(Command::kDmaMap, pack(DmaMapRequest{32, 3, 0, 0x1000, 0x1000}));
    const auto second = message(Command::kDmaMap, pack(DmaMapRequest{32, 3, 0, 0x2000, 0x1000}));
    batch.insert(batch.end(), second.begin(), second.end());
    ASSERT_TRUE(feed(batch, 1));
    EXPECT_THAT(replies(), SizeIs(2));
    EXPECT_THAT(backend_.take(), ElementsAre("map 0x1000 0x1000 offset=0x0 rw fd=false",
                                             "map 0x2000 0x1000 offset=0x0 rw fd=true"));
}

TEST_F(NegotiatedSessionTest, FdsWaitForTheRestOfTheirMessage) {
    const auto whole = message(Command::kDmaMap, pack(DmaMapRequest{32, 3, 0, 0x1000, 0x1000}));
    const auto next = message(Command::kDmaMap, pack(DmaMapRequest{32, 3, 0, 0x2000, 0x1000}));
    for (std::size_t cut = 1; cut < whole.size(); ++cut) {
        ASSERT_TRUE(feed(std::span(whole).first(cut), 1));
        EXPECT_THAT(replies(), IsEmpty());
        // The rest comes together with another message, and with that one's fd.
        std::vector<std::byte> rest(whole.begin() + static_cast<std::ptrdiff_t>(cut), whole.end());
        rest.insert(rest.end(), next.begin(), next.end());
        ASSERT_TRUE(feed(rest, 1));
        EXPECT_THAT(replies(), SizeIs(2));
        EXPECT_THAT(backend_.take(), ElementsAre("map 0x1000 0x1000 offset=0x0 rw fd=true",
                                                 "map 0x2000 0x1000 offset=0x0 rw fd=true"));
    }
}

TEST_F(NegotiatedSessionTest, FdsThatNobodyWantsAreClosed) {
    EXPECT_EQ(error_of(Command::kDeviceReset, {}, 3), 0U);
    EXPECT_EQ(set_irqs(kIrqDataNone | kIrqActionTrigger, 0, 1, 2), 0U);
    EXPECT_EQ(counters_.fds_dropped.value(), 5U);
}

TEST_F(NegotiatedSessionTest, TooManyFdsInPiecesOfOneMessageEndTheSession) {
    const auto whole = message(Command::kDmaMap, pack(DmaMapRequest{32, 3, 0, 0x1000, 0x1000}));
    ASSERT_TRUE(feed(std::span(whole).first(1), 16));
    EXPECT_FALSE(feed(std::span(whole).subspan(1, 1), 1));
}

TEST_F(NegotiatedSessionTest, BytesMayComeOneByOne) {
    std::vector<std::byte> stream =
        message(Command::kRegionWrite, pack(RegionAccess{8, 0, 4}, 0x11223344U));
    const auto second = message(Command::kDeviceReset, {});
    stream.insert(stream.end(), second.begin(), second.end());
    for (const std::byte byte : stream) ASSERT_TRUE(feed(std::span(&byte, 1)));
    EXPECT_THAT(replies(), SizeIs(2));
    EXPECT_THAT(backend_.take(), ElementsAre("write 0 0x8 4 44332211", "reset"));
}

TEST_F(NegotiatedSessionTest, LargestWritePassesInPieces) {
    std::vector<std::byte> payload = pack(RegionAccess{0, 0, kMaxDataTransfer});
    payload.resize(payload.size() + kMaxDataTransfer, std::byte{0x5A});
    const auto whole = message(Command::kRegionWrite, payload);
    ASSERT_EQ(whole.size(), kMaxMessage);
    for (std::size_t at = 0; at < whole.size(); at += 65521) {
        ASSERT_TRUE(
            feed(std::span(whole).subspan(at, std::min<std::size_t>(65521, whole.size() - at))));
    }
    EXPECT_THAT(replies(), SizeIs(1));
    EXPECT_EQ(backend_.bar[kMaxDataTransfer - 1], std::byte{0x5A});
}

TEST_F(NegotiatedSessionTest, MalformedHeaderEndsTheSessionAfterWhatCameBefore) {
    std::vector<std::byte> stream = message(Command::kDeviceReset, {});
    Writer(stream).put(Header{.id = 2, .command = Command::kDeviceReset, .size = 15});
    EXPECT_FALSE(feed(stream));
    EXPECT_THAT(backend_.take(), ElementsAre("reset"));
}

TEST_F(NegotiatedSessionTest, RepliesThatAreNotTakenStopTheHandling) {
    std::vector<std::byte> batch;
    for (int i = 0; i < 8; ++i) {
        put_message(batch, 1, Command::kRegionRead, 0, pack(RegionAccess{0, 0, 200000}));
    }
    put_message(batch, 1, Command::kDmaMap, 0, pack(DmaMapRequest{32, 3, 0, 0x1000, 0x1000}));
    ASSERT_TRUE(feed(batch, 1));
    EXPECT_TRUE(session_.backlog());
    EXPECT_THAT(backend_.take(), SizeIs(2));
    std::size_t answered = replies().size();
    for (int round = 0; session_.backlog() && round < 10; ++round) {
        ASSERT_TRUE(session_.resume());
        answered += replies().size();
    }
    EXPECT_EQ(answered, 9U);
    EXPECT_EQ(backend_.take().back(), "map 0x1000 0x1000 offset=0x0 rw fd=true");
    EXPECT_FALSE(session_.backlog());
}

TEST_F(NegotiatedSessionTest, RandomBytesNeverLeaveTheSessionConfused) {
    for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
        base::Random random(seed);
        Session session(backend_, counters_, "nic");
        const auto version = message(Command::kVersion, pack(VersionHead{}));
        std::vector<std::byte> stream = version;
        for (int i = 0; i < 8; ++i) {
            std::vector<std::byte> payload(random.below(72));
            for (auto& byte : payload)
                byte = static_cast<std::byte>(random.below(4) == 0 ? random.below(256) : 0);
            put_message(stream, 1, static_cast<Command>(random.below(20)),
                        random.below(8) == 0 ? kFlagNoReply : 0, payload);
        }
        if (seed % 2 == 0)
            stream[random.below(stream.size())] ^= static_cast<std::byte>(1 + random.below(255));
        while (!stream.empty()) {
            const std::size_t piece = 1 + random.below(stream.size());
            std::copy_n(stream.begin(), piece, session.receive_room().begin());
            if (!session.receive(piece, {})) break;
            session.sent(session.output().size());
            while (session.backlog() && session.resume()) session.sent(session.output().size());
            stream.erase(stream.begin(), stream.begin() + static_cast<std::ptrdiff_t>(piece));
        }
        backend_.calls.clear();
    }
}

}  // namespace
}  // namespace openmana::vfio_user
