// SPDX-License-Identifier: Apache-2.0
// A manad with a monitor that is killed at each system call of its NIC's thread, and at
// instructions between them, while it serves each type of message: the client has one answer to
// each message, and goes on.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "monitored_manad.h"
#include "support/temp_dir.h"
#include "support/vfio_user_client.h"
#include "traced_thread.h"
#include "vfio_user/device_backend.h"

namespace openmana::test {
namespace {

using vfio_user::Command;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kLent = 0x100000;   // what the client has mapped before
constexpr std::uint64_t kOther = 0x200000;  // and what it maps in the message
constexpr std::uint64_t kSize = 0x10000;
constexpr std::uint32_t kConfig = 7;
/// Of one monitor: it gives up behind five within a minute.
constexpr unsigned kEndsOfOne = 4;

template <typename T>
Bytes bytes_of(const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    return {bytes.begin(), bytes.end()};
}

/// A message, and what is asked about it when it has been answered.
struct Case {
    const char* name;
    Command command;
    Bytes payload;
    std::vector<int> fds;
    bool (*check)(VfioUserClient& client);
    std::uint32_t error = 0;  ///< that is the answer
    bool fresh = false;       ///< before anything else was said
    std::uint32_t flags = 0;  ///< vfio_user::kFlagNoReply: the check asks for what was done
};

std::uint32_t error_of(const base::Result<void>& result) {
    return result ? 0 : static_cast<std::uint32_t>(result.error().detail);
}

const base::UniqueFd& lent_file() {
    static const base::UniqueFd file = make_memfd(4 * kSize);
    return file;
}
const base::UniqueFd& eventfd(unsigned vector) {
    static const base::UniqueFd fds[] = {make_eventfd(), make_eventfd(), make_eventfd()};
    return fds[vector];
}

bool anything(VfioUserClient&) {
    return true;
}

vfio_user::DmaMapRequest map_request(std::uint64_t address) {
    return {.argsz = sizeof(vfio_user::DmaMapRequest),
            .flags = 3,
            .offset = kSize,
            .address = address,
            .size = kSize};
}

bool other_is_mapped_once(VfioUserClient& client) {
    return error_of(client.dma_map(kOther, kSize, lent_file().get())) == EEXIST &&
           client.dma_unmap(kOther, kSize).has_value() &&
           error_of(client.dma_unmap(kOther, kSize)) == ENOENT;
}

Bytes config_write(std::uint64_t offset, std::uint8_t value) {
    Bytes payload = bytes_of(vfio_user::RegionAccess{offset, kConfig, 1});
    payload.push_back(std::byte{value});
    return payload;
}

Bytes hello() {
    Bytes payload = bytes_of(vfio_user::VersionHead{0, 0});
    const std::string text = R"({"capabilities":{"max_msg_fds":8}})";
    const auto bytes = std::as_bytes(std::span(text.c_str(), text.size() + 1));
    payload.insert(payload.end(), bytes.begin(), bytes.end());
    return payload;
}

std::vector<Case> cases_of_what_is_lent() {
    using namespace vfio_user;
    const auto vector_1_fires = [](VfioUserClient& client) {
        (void)take_signals(eventfd(1));
        return client.set_irqs(kIrqDataNone | kIrqActionTrigger, 1, 1).has_value() &&
               wait_signal(eventfd(1), 10);
    };
    const IrqSet assign{.argsz = sizeof(IrqSet),
                        .flags = kIrqDataEventfd | kIrqActionTrigger,
                        .index = kIrqMsix,
                        .start = 1,
                        .count = 2};
    const IrqSet disable{.argsz = sizeof(IrqSet),
                         .flags = kIrqDataNone | kIrqActionTrigger,
                         .index = kIrqMsix,
                         .start = 0,
                         .count = 0};
    return {{"map",
             Command::kDmaMap,
             bytes_of(map_request(kOther)),
             {lent_file().get()},
             other_is_mapped_once},
            {"map of nothing",
             Command::kDmaMap,
             bytes_of(map_request(kOther)),
             {},
             other_is_mapped_once},
            {"map of what is mapped",
             Command::kDmaMap,
             bytes_of(map_request(kLent + 0x1000)),
             {lent_file().get()},
             anything,
             EEXIST},
            {"unmap",
             Command::kDmaUnmap,
             bytes_of(DmaUnmapRequest{sizeof(DmaUnmapRequest), 0, kLent, kSize}),
             {},
             [](VfioUserClient& client) {
                 return error_of(client.dma_unmap(kLent, kSize)) == ENOENT &&
                        client.dma_map(kLent, kSize, lent_file().get()).has_value();
             }},
            {"unmap all",
             Command::kDmaUnmap,
             bytes_of(DmaUnmapRequest{sizeof(DmaUnmapRequest), kUnmapAll, 0, 0}),
             {},
             [](VfioUserClient& client) {
                 return client.dma_map(kLent, kSize, lent_file().get()).has_value();
             }},
            {"eventfds",
             Command::kSetIrqs,
             bytes_of(assign),
             {eventfd(1).get(), eventfd(2).get()},
             vector_1_fires},
            {"no eventfds", Command::kSetIrqs, bytes_of(disable), {}, anything}};
}

Bytes feature_message(std::uint32_t flags, vfio_user::Feature feature) {
    return bytes_of(
        vfio_user::FeatureHead{.argsz = 64, .flags = flags | static_cast<std::uint32_t>(feature)});
}

std::vector<Case> cases_of_registers() {
    using namespace vfio_user;
    const auto line_size_is_64 = [](VfioUserClient& client) {
        const auto value = client.read_value<std::uint8_t>(kConfig, 0x0C);
        return value && *value == 64;
    };
    Bytes multi = bytes_of(std::uint64_t{2});
    for (const std::uint64_t offset : {0x0CULL, 0x3CULL}) {
        WriteEntry entry{.offset = offset, .region = kConfig, .count = 1};
        entry.data[0] = std::byte{64};
        const Bytes bytes = bytes_of(entry);
        multi.insert(multi.end(), bytes.begin(), bytes.end());
    }
    return {
        {"configuration", Command::kRegionWrite, config_write(0x0C, 64), {}, line_size_is_64},
        {"posted configuration",
         Command::kRegionWrite,
         config_write(0x0C, 64),
         {},
         line_size_is_64,
         0,
         false,
         kFlagNoReply},
        {"several writes", Command::kRegionWriteMulti, multi, {}, line_size_is_64},
        {"read", Command::kRegionRead, bytes_of(RegionAccess{0, kConfig, 4096}), {}, anything},
        {"device",
         Command::kDeviceGetInfo,
         bytes_of(DeviceInfo{.argsz = sizeof(DeviceInfo)}),
         {},
         anything},
        {"region",
         Command::kGetRegionInfo,
         bytes_of(RegionInfoMessage{.argsz = sizeof(RegionInfoMessage)}),
         {},
         anything},
        {"interrupts",
         Command::kGetIrqInfo,
         bytes_of(IrqInfoMessage{.argsz = sizeof(IrqInfoMessage), .index = kIrqMsix}),
         {},
         anything},
        {"feature",
         Command::kDeviceFeature,
         feature_message(kFeatureGet, Feature::kMigration),
         {},
         anything},
        {"reset", Command::kDeviceReset, {}, {}, anything},
        {"hello",
         Command::kVersion,
         hello(),
         {},
         [](VfioUserClient& client) {
             return client.dma_map(kLent, kSize, lent_file().get()).has_value();
         },
         0,
         true},
    };
}

/// Of a device that no driver uses, so that nothing is lost that could be moved.
Bytes go_to(vfio_user::DeviceState state) {
    Bytes payload = feature_message(vfio_user::kFeatureSet, vfio_user::Feature::kMigDeviceState);
    const Bytes wanted = bytes_of(vfio_user::MigState{.state = state, .data_fd = 0});
    payload.insert(payload.end(), wanted.begin(), wanted.end());
    return payload;
}

vfio_user::DeviceState device_state(VfioUserClient& client) {
    using namespace vfio_user;
    const auto reply = client.call(Command::kDeviceFeature,
                                   feature_message(kFeatureGet, Feature::kMigDeviceState));
    if (!reply || reply->size() < sizeof(FeatureHead) + sizeof(MigState)) return {};
    return base::load_le<MigState>(reply->data() + sizeof(FeatureHead)).state;
}

/// What the data of a move were went with the process, if it ended behind the message.
std::vector<Case> cases_of_states() {
    using vfio_user::DeviceState;
    const auto runs = [](VfioUserClient& client) {
        return device_state(client) == DeviceState::kRunning;
    };
    const auto is_stopped = [](VfioUserClient& client) {
        return device_state(client) == DeviceState::kStop &&
               client.call(Command::kDeviceFeature, go_to(DeviceState::kRunning)).has_value();
    };
    const auto can_be_copied = [](VfioUserClient& client) {
        const DeviceState state = device_state(client);
        return (state == DeviceState::kStop || state == DeviceState::kStopCopy) &&
               client.call(Command::kDeviceFeature, go_to(DeviceState::kStopCopy)).has_value();
    };
    const auto resumes = [](VfioUserClient& client) {
        const DeviceState state = device_state(client);
        return (state == DeviceState::kResuming || state == DeviceState::kError) &&
               client.reset().has_value() && device_state(client) == DeviceState::kRunning;
    };
    return {{"run", Command::kDeviceFeature, go_to(DeviceState::kRunning), {}, runs},
            {"stop", Command::kDeviceFeature, go_to(DeviceState::kStop), {}, is_stopped},
            {"copy", Command::kDeviceFeature, go_to(DeviceState::kStopCopy), {}, can_be_copied},
            {"resume", Command::kDeviceFeature, go_to(DeviceState::kResuming), {}, resumes}};
}

std::vector<Case> cases() {
    std::vector<Case> all = cases_of_what_is_lent();
    for (auto more : {cases_of_registers(), cases_of_states()})
        for (Case& test : more) all.push_back(std::move(test));
    return all;
}

class CrashTest : public testing::Test {
protected:
    void SetUp() override { ::signal(SIGPIPE, SIG_IGN); }
    void TearDown() override {
        if (manad_) end();
    }
    /// By the monitor, which passes it on.
    void end() {
        ::kill(manad_->process().pid(), SIGTERM);
        const auto status = manad_->process().wait();
        EXPECT_TRUE(status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
        manad_.reset();
    }
    void start() {
        if (manad_) end();
        manad_ = std::make_unique<MonitoredManad>(
            std::vector<std::string>{OPENMANA_MANAD, "--monitor", "on", "--nic",
                                     "id=a,socket=" + socket_ + more_of_nic_, "--log", "off"});
        ASSERT_TRUE(manad_->says_ready());
        ends_ = 0;
        files_ = manad_->open_files();
    }
    void attach(const Case& test) {
        auto connected = VfioUserClient::connect(socket_);
        ASSERT_TRUE(connected);
        client_ = std::move(*connected);
        if (test.fresh) return;
        ASSERT_TRUE(client_->negotiate());
        ASSERT_TRUE(client_->dma_map(kLent, kSize, lent_file().get()));
        ASSERT_TRUE(client_->set_eventfd(0, eventfd(0)));
    }
    /// Kills the process where the NIC's thread makes its `stop`th system call from `act` on, or so
    /// many instructions behind that, and waits for the next one. False if `done` says that all was
    /// done before, or with a failure.
    template <typename Act, typename Done>
    bool killed_at(unsigned stop, unsigned instructions, Act&& act, Done&& done) {
        const pid_t process = manad_->serving();
        {
            TracedThread thread(process, find_thread(process, "nic-a"));
            if (!thread.attached()) {
                ADD_FAILURE() << "the thread of the NIC cannot be traced";
                return false;
            }
            act();
            if (HasFailure() || !thread.run_to(stop, instructions, done)) return false;
            thread.kill();
        }
        ++ends_;
        if (manad_->serving_after(process) >= 0) return true;
        ADD_FAILURE() << "nobody goes on";
        return false;
    }
    /// Whether the process was killed: the message was not served before.
    bool one(const Case& test, unsigned stop, unsigned instructions) {
        if (!test.fresh) attach(test);
        if (HasFatalFailure()) return false;
        const auto send = [&] {
            // One that comes while the thread is traced has to be accepted, too.
            if (test.fresh) attach(test);
            if (HasFatalFailure()) return;
            EXPECT_TRUE(client_->send(test.command, test.payload, test.flags, test.fds));
        };
        const auto has_answer = [&] {
            pollfd entry{.fd = client_->fd(), .events = POLLIN, .revents = 0};
            return test.flags != 0 || ::poll(&entry, 1, 0) == 1;
        };
        const bool killed = killed_at(stop, instructions, send, has_answer);
        if (HasFailure()) return false;
        if (test.flags == 0) {
            const auto reply = client_->receive();
            if (!reply) {
                ADD_FAILURE() << "no answer: " << reply.error().text;
                return false;
            }
            EXPECT_EQ(reply->header.command, test.command);
            EXPECT_EQ(reply->header.error, test.error);
        }
        // The next answer is the next message's, so there was one.
        EXPECT_TRUE(client_->device_info());
        EXPECT_TRUE(test.check(*client_));
        EXPECT_TRUE(client_->device_info());
        client_.reset();
        EXPECT_TRUE(manad_->files_back_to(files_))
            << manad_->open_files() << " files, " << files_ << " before";
        return killed;
    }
    void at(const Case& test, unsigned stop, unsigned instructions, bool& killed) {
        SCOPED_TRACE("stop " + std::to_string(stop) + ", instruction " +
                     std::to_string(instructions));
        if (!manad_ || ends_ == kEndsOfOne) start();
        if (!HasFatalFailure()) killed = one(test, stop, instructions);
    }

    const TempDir temp_{"openmana-crash"};
    const std::string socket_ = temp_.path() + "/a";
    std::string more_of_nic_;
    std::unique_ptr<MonitoredManad> manad_;
    std::unique_ptr<VfioUserClient> client_;
    unsigned ends_ = 0;
    std::size_t files_ = 0;
};

class MessageCrashTest : public CrashTest, public testing::WithParamInterface<std::size_t> {};

TEST_P(MessageCrashTest, EachMessageHasOneAnswerWhereverManadEnds) {
    const Case test = cases()[GetParam()];
    unsigned stops = 0;
    for (bool killed = true; killed; ++stops) {
        killed = false;
        at(test, stops + 1, 0, killed);
        if (HasFailure()) return;
        ASSERT_LT(stops, 500U) << "it never waits";
    }
    ASSERT_GT(stops, 4U) << "the message was served in fewer system calls than that takes";
    base::Random random(GetParam() + 1);
    for (unsigned i = 0; i < stops; ++i) {
        bool killed = false;
        at(test, 1 + static_cast<unsigned>(random.below(stops - 1)),
           static_cast<unsigned>(random.below(1ULL << (4 + random.below(9)))), killed);
        if (HasFailure()) return;
    }
    std::printf("%s: %u system call stops\n", test.name, stops - 1);
}

/// A client that goes, wherever manad ends meanwhile.
class RetainCrashTest : public CrashTest {
protected:
    RetainCrashTest() { more_of_nic_ = ",retain=600"; }
    /// Whether the process was killed before it waited for the next client.
    bool leave_at(unsigned stop) {
        if (!manad_ || ends_ == kEndsOfOne) start();
        auto client = VfioUserClient::connect(socket_);
        if (!client || !(*client)->negotiate() || !(*client)->reset() ||
            !(*client)->dma_map(kLent, kSize, lent_file().get()) ||
            !(*client)->set_eventfd(0, eventfd(0))) {
            ADD_FAILURE() << "no client";
            return false;
        }
        const bool killed = killed_at(
            stop, 0, [&] { client->reset(); }, [] { return true; });
        if (HasFailure()) return false;
        auto next = VfioUserClient::connect(socket_);
        EXPECT_TRUE(next && (*next)->negotiate());
        if (next) {
            EXPECT_EQ(device_state(**next), vfio_user::DeviceState::kStop) << "it is not kept";
            EXPECT_TRUE((*next)->reset());
        }
        return killed;
    }
};

TEST_F(RetainCrashTest, WhatTheClientLeavesIsKeptWhereverManadEnds) {
    unsigned stops = 0;
    for (bool killed = true; killed; ++stops) {
        SCOPED_TRACE("stop " + std::to_string(stops + 1));
        killed = leave_at(stops + 1);
        if (HasFailure()) return;
        ASSERT_LT(stops, 500U) << "it never waits";
    }
    ASSERT_GT(stops, 4U);
    // Nothing of those that went is left, but for the last one's end.
    EXPECT_TRUE(manad_->files_back_to(files_));
}

INSTANTIATE_TEST_SUITE_P(Messages, MessageCrashTest, testing::Range<std::size_t>(0, cases().size()),
                         [](const auto& info) {
                             std::string name = cases()[info.param].name;
                             std::ranges::replace(name, ' ', '_');
                             return name;
                         });

}  // namespace
}  // namespace openmana::test
