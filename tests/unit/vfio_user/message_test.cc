// SPDX-License-Identifier: Apache-2.0
#include "vfio_user/message.h"

#include <cerrno>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/vfio_user/message_bytes.h"

namespace openmana::vfio_user {
namespace {

using testing::ElementsAreArray;

TEST(MessageTest, HeaderIsTheOneOfTheSpecification) {
    const auto raw = bytes({0x34, 0x12, 0x0A, 0x00, 0x12, 0x00, 0x00, 0x00,  //
                            0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  //
                            0xAA, 0xBB});
    const auto message = first_message(raw);
    ASSERT_TRUE(message && *message);
    EXPECT_EQ((*message)->header.id, 0x1234);
    EXPECT_EQ((*message)->header.command, Command::kRegionWrite);
    EXPECT_EQ((*message)->header.size, 18U);
    EXPECT_FALSE((*message)->header.wants_reply());
    EXPECT_THAT((*message)->payload, ElementsAreArray(bytes({0xAA, 0xBB})));
}

TEST(MessageTest, PutMessageAndFirstMessageAreInverse) {
    std::vector<std::byte> buffer;
    put_message(buffer, 0xBEEF, Command::kDeviceReset, kFlagNoReply, {});
    EXPECT_THAT(
        buffer,
        ElementsAreArray(bytes({0xEF, 0xBE, 0x0D, 0, 0x10, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0})));
    const auto message = first_message(buffer);
    ASSERT_TRUE(message && *message);
    EXPECT_EQ((*message)->header.command, Command::kDeviceReset);
    EXPECT_TRUE((*message)->payload.empty());
}

TEST(MessageTest, EveryPrefixIsIncomplete) {
    std::vector<std::byte> buffer;
    put_message(buffer, 1, Command::kDmaUnmap, 0, std::vector<std::byte>(24));
    for (std::size_t length = 0; length < buffer.size(); ++length) {
        const auto message = first_message(std::span(buffer).first(length));
        ASSERT_TRUE(message) << length;
        EXPECT_FALSE(*message) << length;
    }
    EXPECT_TRUE(*first_message(buffer));
}

TEST(MessageTest, ImpossibleSizesAndTypesAreRefused) {
    for (const std::uint32_t size :
         {0U, 1U, 15U, static_cast<std::uint32_t>(kMaxMessage) + 1, 0xFFFFFFFFU}) {
        std::vector<std::byte> buffer;
        Writer(buffer).put(Header{.id = 1, .command = Command::kVersion, .size = size});
        EXPECT_FALSE(first_message(buffer)) << size;
    }
    for (const std::uint32_t type : {1U, 2U, 15U}) {
        std::vector<std::byte> buffer;
        put_message(buffer, 1, Command::kVersion, type, {});
        EXPECT_FALSE(first_message(buffer)) << type;
    }
    std::vector<std::byte> largest;
    Writer(largest).put(Header{.id = 1, .command = Command::kVersion, .size = kMaxMessage});
    const auto message = first_message(largest);
    ASSERT_TRUE(message);
    EXPECT_FALSE(*message);
}

TEST(MessageTest, ReaderNeverPassesTheEnd) {
    const auto raw = bytes({1, 2, 3, 4, 5});
    Reader reader(raw);
    EXPECT_EQ(reader.take<std::uint32_t>(), 0x04030201U);
    EXPECT_FALSE(reader.take<std::uint16_t>());
    EXPECT_EQ(reader.rest().size(), 1U);
    EXPECT_EQ(reader.take<std::uint8_t>(), 5);
    EXPECT_FALSE(reader.take<std::uint8_t>());
}

TEST(MessageTest, ErrorsBecomeErrnos) {
    using base::Error;
    using base::ErrorCode;
    EXPECT_EQ(errno_of(Error{ErrorCode::kInvalidArgument}), static_cast<unsigned>(EINVAL));
    EXPECT_EQ(errno_of(Error{ErrorCode::kOutOfRange}), static_cast<unsigned>(EINVAL));
    EXPECT_EQ(errno_of(Error{ErrorCode::kNotFound}), static_cast<unsigned>(ENOENT));
    EXPECT_EQ(errno_of(Error{ErrorCode::kUnsupported}), static_cast<unsigned>(EOPNOTSUPP));
    EXPECT_EQ(errno_of(Error{ErrorCode::kExhausted}), static_cast<unsigned>(ENOSPC));
    EXPECT_EQ(errno_of(Error{ErrorCode::kIo, "", ENOMEM}), static_cast<unsigned>(ENOMEM));
    EXPECT_EQ(errno_of(Error{ErrorCode::kIo, "", 0}), static_cast<unsigned>(EIO));
    EXPECT_EQ(errno_of(Error{ErrorCode::kIo, "", 4096}), static_cast<unsigned>(EIO));
    EXPECT_EQ(errno_of(Error{ErrorCode::kPermission}), static_cast<unsigned>(EACCES));
    EXPECT_EQ(errno_of(Error{ErrorCode::kBusy}), static_cast<unsigned>(EBUSY));
    EXPECT_EQ(errno_of(Error{ErrorCode::kProtocol}), static_cast<unsigned>(EPROTO));
    EXPECT_EQ(errno_of(Error{ErrorCode::kClosed}), static_cast<unsigned>(ENOTCONN));
    EXPECT_EQ(errno_of(Error{ErrorCode::kIo, "", 1ULL << 40}), static_cast<unsigned>(EIO));
}

}  // namespace
}  // namespace openmana::vfio_user
