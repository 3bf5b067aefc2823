// SPDX-License-Identifier: Apache-2.0
// A device that moves, message by message: what a client may ask, what it gets for an answer, and
// that a message with a fault disturbs nothing.
#include "vfio_user/migration.h"

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/vfio_user_client.h"
#include "unit/vfio_user/fake_backend.h"
#include "unit/vfio_user/message_bytes.h"
#include "vfio_user/session.h"
#include "vfio_user/version.h"

namespace openmana::vfio_user {
namespace {

using test::Reply;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;
using testing::SizeIs;
using State = DeviceState;

constexpr std::uint32_t kGet = 1U << 16;
constexpr std::uint32_t kSet = 1U << 17;
constexpr std::uint32_t kProbe = 1U << 18;

class MigrationTest : public testing::Test {
protected:
    void SetUp() override { negotiate(session_, "{}"); }

    static void negotiate(Session& session, const std::string& text) {
        auto payload = pack(VersionHead{});
        Writer(payload).put_bytes(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
        ASSERT_EQ(ask(session, Command::kVersion, payload).header.error, 0U);
    }
    static Reply ask(Session& session, Command command, std::span<const std::byte> payload) {
        std::vector<std::byte> message;
        put_message(message, 7, command, 0, payload);
        const auto room = session.receive_room();
        EXPECT_LE(message.size(), room.size());
        std::copy(message.begin(), message.end(), room.begin());
        EXPECT_TRUE(session.receive(message.size(), {}));
        const auto output = session.output();
        EXPECT_GE(output.size(), sizeof(Header));
        Reply reply{.header = base::load_le<Header>(output.data()), .payload = {}};
        EXPECT_EQ(reply.header.size, output.size());
        reply.payload.assign(output.begin() + sizeof(Header), output.end());
        if (reply.header.error != 0) {
            EXPECT_THAT(reply.payload, IsEmpty());
        }
        session.sent(output.size());
        return reply;
    }
    Reply ask(Command command, std::span<const std::byte> payload) {
        return ask(session_, command, payload);
    }
    std::uint32_t error_of(Command command, std::span<const std::byte> payload) {
        return ask(command, payload).header.error;
    }
    std::uint32_t set_state(State state) {
        return error_of(Command::kDeviceFeature,
                        pack(FeatureHead{16, kSet | 2U}, MigState{state, 0}));
    }
    State state() {
        const auto reply = ask(Command::kDeviceFeature, pack(FeatureHead{16, kGet | 2U}));
        EXPECT_THAT(reply.payload, SizeIs(16));
        return base::load_le<MigState>(reply.payload.data() + 8).state;
    }
    /// Into a state by the straight way, after a reset.
    void bring_to(State wanted) {
        ASSERT_EQ(error_of(Command::kDeviceReset, {}), 0U);
        if (wanted == State::kError) {
            ASSERT_EQ(set_state(State::kResuming), 0U);
            device_.next_error = base::Error{base::ErrorCode::kInvalidArgument, "no state"};
            ASSERT_EQ(set_state(State::kStop), static_cast<unsigned>(EINVAL));
        } else {
            ASSERT_EQ(set_state(wanted), 0U);
        }
        (void)device_.take();
    }
    Reply read(std::uint32_t size) {
        return ask(Command::kMigDataRead, pack(MigData{8 + size, size}));
    }
    std::uint32_t write(std::span<const std::byte> piece) {
        const auto size = static_cast<std::uint32_t>(piece.size());
        auto payload = pack(MigData{8 + size, size});
        Writer(payload).put_bytes(piece);
        return error_of(Command::kMigDataWrite, payload);
    }
    static constexpr auto kInvalid = static_cast<unsigned>(EINVAL);

    FakeBackend backend_;
    FakeMovable device_;
    Counters counters_;
    Session session_{backend_, counters_, "nic", &device_};
};

TEST_F(MigrationTest, ADeviceThatCannotMoveOffersNothing) {
    Session fixed(backend_, counters_, "nic");
    negotiate(fixed, "{}");
    for (const Command command :
         {Command::kDeviceFeature, Command::kMigDataRead, Command::kMigDataWrite})
        EXPECT_EQ(ask(fixed, command, pack(FeatureHead{64, kProbe | kGet | 1U})).header.error,
                  static_cast<unsigned>(EOPNOTSUPP));
}

TEST_F(MigrationTest, WhatIsOfferedIsSaidByteForByte) {
    const auto reply = ask(Command::kDeviceFeature, bytes({16, 0, 0, 0, 1, 0, 1, 0}));
    EXPECT_THAT(reply.payload,
                ElementsAreArray(bytes({16, 0, 0, 0, 1, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0})));
    const auto state = ask(Command::kDeviceFeature, bytes({32, 0, 0, 0, 2, 0, 1, 0}));
    EXPECT_THAT(state.payload,
                ElementsAreArray(bytes({16, 0, 0, 0, 2, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0})));
    const auto size = ask(Command::kDeviceFeature, bytes({16, 0, 0, 0, 9, 0, 1, 0}));
    EXPECT_THAT(
        size.payload,
        ElementsAreArray(bytes({16, 0, 0, 0, 9, 0, 1, 0, 0x56, 0x34, 0x12, 0, 0, 0, 0, 0})));
    // As QEMU sends it: with room for the answer.
    const auto roomy =
        ask(Command::kDeviceFeature, bytes({16, 0, 0, 0, 1, 0, 1, 0, 9, 9, 9, 9, 9, 9, 9, 9}));
    EXPECT_THAT(roomy.payload,
                ElementsAreArray(bytes({16, 0, 0, 0, 1, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0})));
}

TEST_F(MigrationTest, ProbeSaysWhatCanBeDoneWithEachFeature) {
    struct Offer {
        std::uint32_t feature, operations;
    };
    for (const Offer offer : {Offer{0, 0}, Offer{1, kGet}, Offer{2, kGet | kSet}, Offer{3, 0},
                              Offer{4, 0}, Offer{5, 0}, Offer{6, kSet}, Offer{7, kSet},
                              Offer{8, kGet}, Offer{9, kGet}, Offer{10, 0}, Offer{0xffff, 0}}) {
        for (const std::uint32_t asked : {0U, kGet, kSet, kGet | kSet}) {
            const auto request = pack(FeatureHead{8, kProbe | asked | offer.feature});
            const bool good = offer.operations != 0 && (asked & ~offer.operations) == 0;
            const auto reply = ask(Command::kDeviceFeature, request);
            EXPECT_EQ(reply.header.error, good ? 0U : kInvalid) << offer.feature << " " << asked;
            if (good) {
                EXPECT_EQ(reply.payload, request);
            }
        }
    }
    EXPECT_THAT(device_.take(), IsEmpty());
    EXPECT_EQ(error_of(Command::kDeviceFeature, pack(FeatureHead{7, kProbe | 1U})), kInvalid);
}

TEST_F(MigrationTest, AFeatureIsToBeGotOrSetAndNothingElse) {
    for (const std::uint32_t flags : {2U, kGet | kSet | 2U, 1U << 19 | kGet | 2U,
                                      1U << 31 | kProbe | 2U, kSet | 1U, kGet | 6U, kSet | 8U})
        EXPECT_EQ(error_of(Command::kDeviceFeature,
                           pack(FeatureHead{16, flags}, MigState{State::kStop, 0})),
                  kInvalid)
            << flags;
    EXPECT_THAT(device_.take(), IsEmpty());
}

// Whatever is cut off a message, and whatever its argsz says too little of: an error, and nothing
// has happened.
TEST_F(MigrationTest, MessagesThatAreTooShortOrTooLongDisturbNothing) {
    const std::vector<std::vector<std::byte>> whole = {
        pack(FeatureHead{16, kSet | 2U}, MigState{State::kStop, 0}),
        pack(FeatureHead{40, kSet | 6U}, LoggingControl{4096, 1, 0}, LoggingRange{0, 4096})};
    for (const auto& message : whole) {
        for (std::size_t length = 0; length < message.size(); ++length)
            EXPECT_EQ(error_of(Command::kDeviceFeature, std::span(message).first(length)), kInvalid)
                << length;
        for (std::uint32_t argsz = 0; argsz < message.size(); ++argsz) {
            auto small = message;
            base::store_le(small.data(), argsz);
            EXPECT_EQ(error_of(Command::kDeviceFeature, small), kInvalid) << argsz;
        }
        auto longer = message;
        longer.resize(message.size() + 8);
        base::store_le(longer.data(), static_cast<std::uint32_t>(longer.size()));
        EXPECT_EQ(error_of(Command::kDeviceFeature, longer), kInvalid);
    }
    for (const std::uint32_t feature : {1U, 2U, 9U})
        for (std::uint32_t argsz = 0; argsz < 16; ++argsz)
            EXPECT_EQ(error_of(Command::kDeviceFeature, pack(FeatureHead{argsz, kGet | feature})),
                      kInvalid);
    EXPECT_EQ(state(), State::kRunning);
    EXPECT_THAT(device_.take(), IsEmpty());
}

// Each state to each: the way is the shortest that does not pass STOP_COPY, as libvfio-user's table
// has it but for RUNNING_P2P, which that does not know.
TEST_F(MigrationTest, EachStateIsReachedFromEachOtherThatIsNotForbidden) {
    using Calls = std::vector<std::string>;
    const std::vector<State> from = {State::kRunning, State::kRunningP2p, State::kStop,
                                     State::kStopCopy, State::kResuming};
    for (const State first : from) {
        for (const State target : from) {
            bring_to(first);
            ASSERT_EQ(state(), first);
            EXPECT_EQ(set_state(target), 0U);
            EXPECT_EQ(state(), target);
            const auto running = [](State s) {
                return s == State::kRunning || s == State::kRunningP2p;
            };
            Calls expected;
            if (running(first) && !running(target)) expected.push_back("stop");
            if (first == State::kResuming && first != target) expected.push_back("load 0");
            if (target == State::kStopCopy && first != target) expected.push_back("save");
            if (!running(first) && running(target)) expected.push_back("start");
            EXPECT_EQ(device_.take(), expected)
                << static_cast<unsigned>(first) << " to " << static_cast<unsigned>(target);
        }
    }
}

TEST_F(MigrationTest, NoStateThatIsNoneAndNoneThatIsNotOfferedIsReached) {
    for (const State first :
         {State::kRunning, State::kRunningP2p, State::kStop, State::kStopCopy, State::kResuming}) {
        bring_to(first);
        for (const std::uint32_t target : {0U, 6U, 7U, 8U, 255U, 0xffffffffU}) {
            EXPECT_EQ(set_state(static_cast<State>(target)), kInvalid);
            EXPECT_EQ(state(), first);
        }
        EXPECT_THAT(device_.take(), IsEmpty());
    }
}

TEST_F(MigrationTest, OnlyAResetLeadsOutOfTheErrorState) {
    bring_to(State::kError);
    for (std::uint32_t target = 0; target < 9; ++target)
        EXPECT_EQ(set_state(static_cast<State>(target)), kInvalid) << target;
    EXPECT_EQ(state(), State::kError);
    EXPECT_EQ(read(8).header.error, kInvalid);
    EXPECT_EQ(write(bytes({1})), kInvalid);
    EXPECT_THAT(device_.take(), IsEmpty());
    EXPECT_EQ(counters_.states_refused.value(), 1U);

    (void)backend_.take();
    EXPECT_EQ(error_of(Command::kDeviceReset, {}), 0U);
    EXPECT_THAT(backend_.take(), ElementsAre("reset"));
    EXPECT_THAT(device_.take(), ElementsAre("start"));
    EXPECT_EQ(state(), State::kRunning);
}

TEST_F(MigrationTest, AResetStartsADeviceThatWasStoppedAndForgetsWhatWasMoved) {
    device_.state = bytes({1, 2, 3});
    bring_to(State::kStopCopy);
    EXPECT_EQ(error_of(Command::kDeviceReset, {}), 0U);
    EXPECT_THAT(device_.take(), ElementsAre("start"));
    bring_to(State::kResuming);
    EXPECT_EQ(write(bytes({9, 9})), 0U);
    EXPECT_EQ(error_of(Command::kDeviceReset, {}), 0U);
    EXPECT_EQ(set_state(State::kResuming), 0U);
    EXPECT_EQ(set_state(State::kStop), 0U);
    EXPECT_THAT(device_.take(), ElementsAre("start", "stop", "load 0"));
}

TEST_F(MigrationTest, TheStateIsReadInPiecesOfAnySize) {
    for (int i = 0; i < 100; ++i) device_.state.push_back(static_cast<std::byte>(i));
    for (const std::uint32_t size : {1U, 7U, 99U, 100U, 101U, 1U << 20}) {
        bring_to(State::kStopCopy);
        std::vector<std::byte> all;
        for (;;) {
            const auto reply = read(size);
            ASSERT_EQ(reply.header.error, 0U);
            const auto head = base::load_le<MigData>(reply.payload.data());
            EXPECT_EQ(head.argsz, reply.payload.size());
            ASSERT_EQ(head.size, reply.payload.size() - 8);
            all.insert(all.end(), reply.payload.begin() + 8, reply.payload.end());
            if (head.size < size) break;
        }
        EXPECT_EQ(all, device_.state);
        EXPECT_EQ(base::load_le<MigData>(read(4).payload.data()).size, 0U) << "nothing is left";
    }
}

TEST_F(MigrationTest, WhoStopsReadingAndBeginsAgainGetsAllOfIt) {
    device_.state = bytes({1, 2, 3, 4});
    bring_to(State::kStopCopy);
    EXPECT_THAT(read(3).payload, SizeIs(11));
    EXPECT_EQ(set_state(State::kStop), 0U);
    EXPECT_EQ(read(3).header.error, kInvalid);
    device_.state = bytes({5, 6});
    EXPECT_EQ(set_state(State::kStopCopy), 0U);
    EXPECT_THAT(read(8).payload, ElementsAreArray(bytes({10, 0, 0, 0, 2, 0, 0, 0, 5, 6})));
}

TEST_F(MigrationTest, ReadsAreNotLongerThanTheClientTakesOrHasRoomFor) {
    Session small(backend_, counters_, "nic", &device_);
    negotiate(small, "{\"capabilities\":{\"max_data_xfer_size\":64}}");
    ASSERT_EQ(ask(small, Command::kDeviceFeature,
                  pack(FeatureHead{16, kSet | 2U}, MigState{State::kStopCopy, 0}))
                  .header.error,
              0U);
    EXPECT_EQ(ask(small, Command::kMigDataRead, pack(MigData{100, 65})).header.error, kInvalid);
    EXPECT_EQ(ask(small, Command::kMigDataRead, pack(MigData{71, 64})).header.error, kInvalid);
    EXPECT_EQ(ask(small, Command::kMigDataRead, pack(MigData{72, 64})).header.error, 0U);
    EXPECT_EQ(ask(small, Command::kMigDataRead, bytes({8, 0, 0, 0, 0, 0, 0})).header.error,
              kInvalid);
    EXPECT_EQ(ask(small, Command::kMigDataRead, pack(MigData{7, 0xfffffff9})).header.error,
              kInvalid);
}

TEST_F(MigrationTest, TheStateIsWrittenInPiecesAndTakenAtTheEnd) {
    bring_to(State::kResuming);
    EXPECT_EQ(write(bytes({1, 2, 3})), 0U);
    EXPECT_EQ(write({}), 0U);
    EXPECT_EQ(write(bytes({4})), 0U);
    EXPECT_THAT(device_.take(), IsEmpty());
    EXPECT_EQ(set_state(State::kRunning), 0U);
    EXPECT_THAT(device_.take(), ElementsAre("load 4", "start"));
    EXPECT_THAT(device_.state, ElementsAreArray(bytes({1, 2, 3, 4})));
    EXPECT_EQ(counters_.states_loaded.value(), 1U);
}

TEST_F(MigrationTest, WritesWithAWrongSizeAreRefusedAndLeaveOutNothing) {
    bring_to(State::kResuming);
    EXPECT_EQ(write(bytes({1, 2})), 0U);
    const auto data = [](std::uint32_t argsz, std::uint32_t size, std::size_t have) {
        auto payload = pack(MigData{argsz, size});
        payload.resize(payload.size() + have);
        return payload;
    };
    for (const auto& wrong : {data(12, 4, 3), data(12, 4, 5), data(11, 4, 4), data(8, 1U << 31, 4),
                              std::vector<std::byte>(7)})
        EXPECT_EQ(error_of(Command::kMigDataWrite, wrong), kInvalid);
    device_.most = 4;
    EXPECT_EQ(write(bytes({3, 4, 5})), static_cast<unsigned>(ENOSPC));
    EXPECT_EQ(write(bytes({3, 4})), 0U);
    EXPECT_EQ(set_state(State::kStop), 0U);
    EXPECT_THAT(device_.state, ElementsAreArray(bytes({1, 2, 3, 4})));
}

TEST_F(MigrationTest, DataFlowInNoOtherState) {
    for (const State other :
         {State::kRunning, State::kRunningP2p, State::kStop, State::kResuming}) {
        bring_to(other);
        EXPECT_EQ(read(1).header.error, kInvalid);
    }
    for (const State other :
         {State::kRunning, State::kRunningP2p, State::kStop, State::kStopCopy}) {
        bring_to(other);
        EXPECT_EQ(write(bytes({1})), kInvalid);
    }
}

TEST_F(MigrationTest, ASourceThatCannotSayWhatItIsStaysStoppedAndGoesOn) {
    bring_to(State::kRunning);
    device_.next_error = base::Error{base::ErrorCode::kExhausted, "no room"};
    EXPECT_EQ(set_state(State::kStopCopy), static_cast<unsigned>(ENOSPC));
    EXPECT_EQ(state(), State::kStop);
    EXPECT_EQ(set_state(State::kRunning), 0U);
    EXPECT_THAT(device_.take(), ElementsAre("stop", "save", "start"));
}

TEST_F(MigrationTest, LoggingIsStartedWithOurPageSizeByteForByte) {
    auto request = pack(FeatureHead{56, kSet | 6U}, LoggingControl{65536, 2, 0},
                        LoggingRange{0, 1U << 20}, LoggingRange{1ULL << 32, 4096});
    const auto reply = ask(Command::kDeviceFeature, request);
    base::store_le(request.data() + 8, std::uint64_t{4096});
    EXPECT_EQ(reply.payload, request);
    EXPECT_THAT(device_.take(), ElementsAre("log"));
    const auto all = pack(FeatureHead{24, kSet | 6U}, LoggingControl{4096, 0, 0});
    EXPECT_EQ(ask(Command::kDeviceFeature, all).payload, all);
    const auto end = pack(FeatureHead{8, kSet | 7U});
    EXPECT_EQ(ask(Command::kDeviceFeature, end).payload, end);
    EXPECT_THAT(device_.take(), ElementsAre("log", "log no more"));
}

TEST_F(MigrationTest, LoggingOfWhatCannotBeIsNotStarted) {
    const auto start = [&](LoggingControl control, LoggingRange range) {
        return error_of(Command::kDeviceFeature, pack(FeatureHead{40, kSet | 6U}, control, range));
    };
    for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{4097}, UINT64_MAX})
        EXPECT_EQ(start({size, 1, 0}, {0, 4096}), kInvalid);
    for (const std::uint32_t count : {0U, 2U, 1U << 28, 0xffffffffU})
        EXPECT_EQ(start({4096, count, 0}, {0, 4096}), kInvalid);
    for (const LoggingRange range : {LoggingRange{0, 0}, LoggingRange{1, 4096},
                                     LoggingRange{0, 4095}, LoggingRange{~0ULL << 12, 8192}})
        EXPECT_EQ(start({4096, 1, 0}, range), kInvalid);
    EXPECT_THAT(device_.take(), IsEmpty());
    device_.next_error = base::Error{base::ErrorCode::kExhausted, "no memory"};
    EXPECT_EQ(start({4096, 1, 0}, {0, 4096}), static_cast<unsigned>(ENOSPC));
}

TEST_F(MigrationTest, AReportHasABitForEachUnitInWholeWords) {
    struct Case {
        std::uint64_t length, unit;
        std::uint32_t bytes;
    };
    for (const Case c : {Case{4096, 4096, 8}, Case{64 * 4096, 4096, 8}, Case{65 * 4096, 4096, 16},
                         Case{65 * 4096, 8192, 8}, Case{4096, 1ULL << 40, 8}}) {
        const auto reply = ask(
            Command::kDeviceFeature,
            pack(FeatureHead{32 + c.bytes, kGet | 8U}, LoggingReport{1 << 20, c.length, c.unit}));
        ASSERT_EQ(reply.header.error, 0U);
        auto expected =
            pack(FeatureHead{32 + c.bytes, kGet | 8U}, LoggingReport{1 << 20, c.length, c.unit});
        expected.resize(expected.size() + c.bytes);
        expected[32] = std::byte{0xa5};
        EXPECT_EQ(reply.payload, expected);
        EXPECT_THAT(device_.take(), ElementsAre(fmt::format("report 0x100000 {:#x} {:#x} {}",
                                                            c.length, c.unit, c.bytes)));
        EXPECT_EQ(error_of(Command::kDeviceFeature, pack(FeatureHead{31 + c.bytes, kGet | 8U},
                                                         LoggingReport{1 << 20, c.length, c.unit})),
                  kInvalid);
    }
}

TEST_F(MigrationTest, AReportOfWhatCannotBeIsRefused) {
    const auto report = [&](LoggingReport request) {
        return error_of(Command::kDeviceFeature, pack(FeatureHead{1U << 30, kGet | 8U}, request));
    };
    for (const LoggingReport wrong :
         {LoggingReport{0, 4096, 2048}, LoggingReport{0, 4096, 0}, LoggingReport{0, 4096, 12288},
          LoggingReport{0, 0, 4096}, LoggingReport{1, 4096, 4096}, LoggingReport{0, 4097, 4096},
          LoggingReport{~0ULL << 12, 8192, 4096},
          LoggingReport{0, (8ULL * kMaxDataTransfer + 1) * 4096, 4096},
          LoggingReport{0, ~0ULL << 12, 4096}})
        EXPECT_EQ(report(wrong), kInvalid);
    for (std::size_t length = 8; length < 32; ++length) {
        auto cut = pack(FeatureHead{64, kGet | 8U}, LoggingReport{0, 4096, 4096});
        cut.resize(length);
        EXPECT_EQ(error_of(Command::kDeviceFeature, cut), kInvalid);
    }
    EXPECT_THAT(device_.take(), IsEmpty());
    EXPECT_EQ(report({0, 8ULL * kMaxDataTransfer * 4096, 4096}), 0U);
    device_.next_error = base::Error{base::ErrorCode::kInvalidArgument, "no log"};
    EXPECT_EQ(report({0, 4096, 4096}), kInvalid);
}

}  // namespace
}  // namespace openmana::vfio_user
