// SPDX-License-Identifier: Apache-2.0
// A conversation whose process has ended, between any two of its steps, and that another one goes
// on with from its ledger.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/vfio_user_client.h"
#include "unit/vfio_user/fake_backend.h"
#include "vfio_user/session.h"

namespace openmana::vfio_user {
namespace {

using base::UniqueFd;
using test::make_memfd;
using testing::ElementsAre;
using testing::IsEmpty;

template <typename T>
std::vector<std::byte> message(std::uint16_t id, Command command, const T& payload,
                               std::uint32_t flags = 0) {
    std::vector<std::byte> result;
    put_message(result, id, command, flags, std::as_bytes(std::span(&payload, 1)));
    return result;
}
const std::vector<std::byte> kHello = message(1, Command::kVersion, VersionHead{});
const std::vector<std::byte> kMap =
    message(2, Command::kDmaMap, DmaMapRequest{32, 3, 0, 0x1000, 0x1000});
const std::vector<std::byte> kUnmap =
    message(3, Command::kDmaUnmap, DmaUnmapRequest{24, 0, 0x1000, 0x1000});
const std::vector<std::byte> kInfo =
    message(4, Command::kDeviceGetInfo, DeviceInfo{.argsz = sizeof(DeviceInfo)});

/// The ids of the replies, and their errors.
struct Answer {
    std::uint16_t id;
    std::uint32_t error;
    friend bool operator==(const Answer&, const Answer&) = default;
};

class SessionLedgerTest : public testing::Test {
protected:
    SessionLedgerTest() {
        ledger->begin_session();
        begin();
    }
    void begin() {
        session = std::make_unique<Session>(backend, counters, "nic", nullptr,
                                            DeviceState::kRunning, &*ledger);
    }
    /// The process ends: nothing of the session is undone, nor are its descriptors closed.
    void end() {
        ledger_then = std::make_unique_for_overwrite<ServerLedger>();
        std::memcpy(static_cast<void*>(ledger_then.get()), ledger.get(), sizeof *ledger);
        for (const int number : ledger->descriptors_of_session())
            copies.emplace_back(number, ::fcntl(number, F_DUPFD_CLOEXEC, 100));
        session.reset();
        std::memcpy(static_cast<void*>(ledger.get()), ledger_then.get(), sizeof *ledger);
        for (const auto& [number, copy] : copies) {
            EXPECT_EQ(::dup3(copy, number, O_CLOEXEC), number);
            ::close(copy);
        }
        copies.clear();
    }
    /// Another one goes on.
    void go_on() {
        end();
        begin();
        EXPECT_TRUE(session->recover());
        EXPECT_TRUE(session->backlog());
        EXPECT_TRUE(session->resume());
    }
    /// As the system call does: the session is not told.
    void take(std::span<const std::byte> bytes) {
        ServerLedger::Transfer& transfer = session->next_receive();
        ASSERT_LE(bytes.size(), transfer.vector.iov_len);
        std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(transfer.vector.iov_base));
        transfer.message.msg_hdr.msg_controllen = 0;
        transfer.message.msg_len = static_cast<unsigned>(bytes.size());
    }
    /// With a descriptor, by a socket.
    void take(std::span<const std::byte> bytes, int fd) {
        int pair[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        const UniqueFd ours(pair[0]);
        test::VfioUserClient theirs{UniqueFd(pair[1])};
        ASSERT_TRUE(theirs.send_raw(bytes, std::span<const int>(&fd, 1)));
        ServerLedger::Transfer& transfer = session->next_receive();
        ASSERT_EQ(::recvmmsg(ours.get(), &transfer.message, 1, MSG_CMSG_CLOEXEC, nullptr), 1);
    }
    bool feed(std::span<const std::byte> bytes) {
        const auto room = session->receive_room();
        std::copy(bytes.begin(), bytes.end(), room.begin());
        return session->receive(bytes.size(), {}).has_value();
    }
    std::vector<Answer> answers() {
        std::vector<Answer> all;
        auto output = session->output();
        const std::size_t size = output.size();
        while (!output.empty()) {
            const auto header = base::load_le<Header>(output.data());
            all.push_back({header.id, header.error});
            output = output.subspan(header.size);
        }
        session->sent(size);
        return all;
    }

    FakeBackend backend;
    Counters counters;
    std::unique_ptr<ServerLedger> ledger = std::make_unique_for_overwrite<ServerLedger>();
    std::unique_ptr<ServerLedger> ledger_then;
    std::vector<std::pair<int, int>> copies;
    std::unique_ptr<Session> session;
};

TEST_F(SessionLedgerTest, WhatWasTakenAndNotHandledIsHandled) {
    take(kHello);
    go_on();
    EXPECT_THAT(answers(), ElementsAre(Answer{1, 0}));
    EXPECT_TRUE(feed(kInfo));
    EXPECT_THAT(answers(), ElementsAre(Answer{4, 0}));
}

TEST_F(SessionLedgerTest, AMessageComesWithItsDescriptor) {
    ASSERT_TRUE(feed(kHello));
    (void)answers();
    const UniqueFd file = make_memfd(0x1000);
    take(kMap, file.get());
    go_on();
    EXPECT_THAT(answers(), ElementsAre(Answer{2, 0}));
    EXPECT_THAT(backend.take(), ElementsAre("map 0x1000 0x1000 offset=0x0 rw fd=true"));
}

TEST_F(SessionLedgerTest, AnAnsweredMessageIsNotHandledAgainAndItsAnswerIsSent) {
    ASSERT_TRUE(feed(kHello));
    ASSERT_TRUE(feed(kMap));
    go_on();
    EXPECT_THAT(backend.take(), ElementsAre("map 0x1000 0x1000 offset=0x0 rw fd=false"));
    EXPECT_THAT(answers(), ElementsAre(Answer{1, 0}, Answer{2, 0}));
}

TEST_F(SessionLedgerTest, WhatWasSentIsNotSentAgain) {
    ASSERT_TRUE(feed(kHello));
    (void)answers();
    ASSERT_TRUE(feed(kInfo));
    const std::size_t all = session->output().size();
    session->next_send().message.msg_len = 10;
    go_on();
    EXPECT_EQ(session->output().size(), all - 10);
    session->next_send().message.msg_len = static_cast<unsigned>(all - 10);
    go_on();
    EXPECT_THAT(session->output(), IsEmpty());
}

TEST_F(SessionLedgerTest, AMapThatMayHaveBeenDoneIsDone) {
    ASSERT_TRUE(feed(kHello));
    (void)answers();
    backend.has = true;
    backend.next_error = base::Error{base::ErrorCode::kBusy, "overlaps"};
    take(kMap);
    go_on();
    EXPECT_THAT(answers(), ElementsAre(Answer{2, 0}));
    // One that comes behind it is refused as ever.
    backend.next_error = base::Error{base::ErrorCode::kBusy, "overlaps"};
    EXPECT_TRUE(feed(kMap));
    EXPECT_THAT(answers(), ElementsAre(Answer{2, EEXIST}));
}

TEST_F(SessionLedgerTest, AMapOfSomethingElseIsRefused) {
    ASSERT_TRUE(feed(kHello));
    (void)answers();
    backend.next_error = base::Error{base::ErrorCode::kBusy, "overlaps"};
    take(kMap);
    go_on();
    EXPECT_THAT(answers(), ElementsAre(Answer{2, EEXIST}));
}

TEST_F(SessionLedgerTest, AnUnmapThatMayHaveBeenDoneIsDone) {
    ASSERT_TRUE(feed(kHello));
    (void)answers();
    backend.next_error = base::Error{base::ErrorCode::kNotFound, "no such range"};
    take(kUnmap);
    go_on();
    EXPECT_THAT(answers(), ElementsAre(Answer{3, 0}));
    backend.next_error = base::Error{base::ErrorCode::kNotFound, "no such range"};
    EXPECT_TRUE(feed(kUnmap));
    EXPECT_THAT(answers(), ElementsAre(Answer{3, ENOENT}));
}

TEST_F(SessionLedgerTest, PartsOfAMessageStayTogether) {
    ASSERT_TRUE(feed(kHello));
    (void)answers();
    // Two whole ones and the beginning of a third, which moves to the front.
    std::vector<std::byte> bytes = kInfo;
    bytes.insert(bytes.end(), kInfo.begin(), kInfo.end());
    bytes.insert(bytes.end(), kMap.begin(), kMap.begin() + 20);
    ASSERT_TRUE(feed(bytes));
    go_on();
    EXPECT_THAT(answers(), ElementsAre(Answer{4, 0}, Answer{4, 0}));
    take(std::span(kMap).subspan(20));
    go_on();
    EXPECT_THAT(answers(), ElementsAre(Answer{2, 0}));
}

TEST_F(SessionLedgerTest, WritesThatNobodyWaitsForAreDoneBeforeWhatComesBehindThem) {
    ASSERT_TRUE(feed(kHello));
    (void)answers();
    struct Write {
        RegionAccess access{0x10000, 0, 8};
        std::uint64_t value = 1;
    };
    std::vector<std::byte> bytes = message(9, Command::kRegionWrite, Write{}, kFlagNoReply);
    bytes.insert(bytes.end(), kInfo.begin(), kInfo.end());
    take(bytes);
    go_on();
    EXPECT_THAT(backend.take(), ElementsAre("write 0 0x10000 8 0100000000000000"));
    EXPECT_THAT(answers(), ElementsAre(Answer{4, 0}));
}

TEST_F(SessionLedgerTest, LongAnswersOutlastAnyNumberOfEnds) {
    ASSERT_TRUE(feed(kHello));
    (void)answers();
    const std::vector<std::byte> read =
        message(7, Command::kRegionRead, RegionAccess{0, 0, 200000});
    std::vector<std::byte> bytes;
    for (int i = 0; i < 20; ++i) bytes.insert(bytes.end(), read.begin(), read.end());
    take(bytes);
    std::size_t came = 0;
    std::vector<std::byte> all;
    for (int i = 0; came < 20U * (32 + 200000) && i < 1000; ++i) {
        go_on();
        const auto output = session->output();
        const std::size_t n = std::min<std::size_t>(output.size(), 150000);
        all.insert(all.end(), output.begin(), output.begin() + static_cast<std::ptrdiff_t>(n));
        session->next_send().message.msg_len = static_cast<unsigned>(n);
        came += n;
    }
    ASSERT_EQ(all.size(), 20U * (32 + 200000));
    for (std::size_t i = 0; i < 20; ++i) {
        const auto header = base::load_le<Header>(all.data() + i * (32 + 200000));
        ASSERT_EQ(header.id, 7);
        ASSERT_EQ(header.size, 32U + 200000);
    }
}

}  // namespace
}  // namespace openmana::vfio_user
