// SPDX-License-Identifier: Apache-2.0
// A daemon with its threads, asked through its control socket, while NICs of it hang.
#include "manad/daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/gate.h"
#include "base/handover_mutex.h"
#include "daemon_fixture.h"
#include "fabric/flow_file.h"
#include "held_loop.h"
#include "manad/take_over.h"
#include "rnic/adapter.h"
#include "support/raw_vfio_user.h"
#include "support/rdma_host.h"
#include "support/remote_nic.h"

namespace openmana::manad {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST_F(DaemonTest, StatusShowsAllNicsAndMarksThoseThatHang) {
    const HeldLoop a(loop_of("a"));
    const HeldLoop b(loop_of("b"));
    json status = ask({{"command", "status"}});
    ASSERT_EQ(status["nics"].size(), 3U);
    for (const std::size_t i : {0U, 1U}) {
        const json& row = status["nics"][i];
        EXPECT_GE(row["hangs_s"], 0.2);
        EXPECT_EQ(row["doing"], HeldLoop::kDoing);
        EXPECT_EQ(row["link"], "up");
        EXPECT_TRUE(row["qps"].is_null());
    }
    EXPECT_TRUE(eventually([&] {
        status = ask({{"command", "status"}});
        return !status["nics"][2].contains("hangs_s");
    }));
    const json& alive = status["nics"][2];
    EXPECT_EQ(alive["qps"], 0);
    EXPECT_EQ(alive["client"], false);
}

TEST_F(DaemonTest, NicsThatHangAreWaitedForTogether) {
    using Clock = std::chrono::steady_clock;
    EXPECT_TRUE(eventually([&] {
        const HeldLoop a(loop_of("a"));
        const HeldLoop b(loop_of("b"));
        const auto start = Clock::now();
        ask({{"command", "status"}});
        return Clock::now() - start < 2 * kPatience;
    }));
}

TEST_F(DaemonTest, ARequestToANicThatHangsFailsAndIsNotCarriedOutLater) {
    HeldLoop held(loop_of("a"));
    for (int i = 0; i < 2; ++i) {
        const json answer = ask({{"command", "link"}, {"nic", "a"}, {"state", "down"}});
        EXPECT_EQ(answer["ok"], false);
        EXPECT_EQ(answer["error"],
                  "NIC 'a' does not answer: nothing was done; it is at: held 0x25, waits for the "
                  "test");
    }
    EXPECT_EQ(
        ask({{"command", "stats"}, {"nic", "a"}})["nics"][0]["counters"]["manad.thread.unanswered"],
        2);
    EXPECT_TRUE(succeeds({{"command", "link"}, {"nic", "b"}, {"state", "down"}}));
    held.release();
    EXPECT_TRUE(eventually([&] {
        return !ask({{"command", "status"}})["nics"][0].contains("hangs_s");
    }));
    EXPECT_EQ(ask({{"command", "status"}})["nics"][0]["link"], "up");
    EXPECT_TRUE(succeeds({{"command", "link"}, {"nic", "a"}, {"state", "down"}}));
}

TEST_F(DaemonTest, WhatANicThatHangsWasNotToldIsNotShownAsSet) {
    const HeldLoop held(loop_of("a"));
    const auto fails = [&](json request) {
        request["nic"] = "a";
        EXPECT_THAT(ask(request)["error"].get<std::string>(),
                    StartsWith("NIC 'a' does not answer: nothing was done"));
    };
    fails({{"command", "fault"}, {"action", "set"}, {"options", "loss=1%"}});
    fails({{"command", "policy"}, {"action", "set"}, {"options", "mac-check=on"}});
    fails({{"command", "capture"}, {"action", "start"}, {"file", directory / "a.pcap"}});
    fails({{"command", "fault"}, {"action", "clear"}});
    fails({{"command", "policy"}, {"action", "clear"}});
    fails({{"command", "reset"}});
    fails({{"command", "qps"}});
    for (const char* command : {"fault", "policy", "capture"})
        EXPECT_THAT(rows(command), IsEmpty()) << command;
}

TEST_F(DaemonTest, ANicThatHangsLeavesTheFileOfItsCaptureAlone) {
    const std::filesystem::path file = directory / "a.pcap";
    std::ofstream(file) << "of an earlier capture";
    const auto size = std::filesystem::file_size(file);
    const HeldLoop held(loop_of("a"));
    EXPECT_EQ(
        ask({{"command", "capture"}, {"action", "start"}, {"nic", "a"}, {"file", file}})["ok"],
        false);
    EXPECT_EQ(std::filesystem::file_size(file), size);
}

/// Holds up whoever lets go of it.
class HoldingSink : public fabric::FlowSink {
public:
    explicit HoldingSink(std::shared_future<void> released) : released_(std::move(released)) {}
    ~HoldingSink() override { released_.wait(); }
    HoldingSink(const HoldingSink&) = delete;
    HoldingSink& operator=(const HoldingSink&) = delete;
    void line(std::string_view) override {}

private:
    const std::shared_future<void> released_;
};

TEST_F(DaemonTest, WhatANicIsAtIsShownAsSet) {
    std::promise<void> released;
    loop_of("a").post([&of = nic("a").nic(), end = released.get_future().share()] {
        of.path().set_policy(fabric::PolicyConfig{}, std::make_shared<HoldingSink>(end), {});
    });
    EXPECT_TRUE(eventually([&] {
        const json answer = ask(
            {{"command", "policy"}, {"action", "set"}, {"nic", "a"}, {"options", "mac-check=on"}});
        return answer.value("error", "") ==
               "NIC 'a' does not answer: the request is under way; it is at: policy set";
    })) << "it has begun what it does not end";
    const json shown = rows("policy");
    ASSERT_EQ(shown.size(), 1U);
    EXPECT_EQ(shown[0]["options"], "mac-check=on");
    released.set_value();
    EXPECT_TRUE(succeeds({{"command", "policy"}, {"action", "clear"}, {"nic", "a"}}));
    EXPECT_THAT(rows("policy"), IsEmpty());
}

/// A daemon that captures all frames, and those of nic a.
class CapturesTest : public DaemonTest {
protected:
    static constexpr std::uintmax_t kEmpty = 24;  // a file's header
    static constexpr std::uintmax_t kOne = kEmpty + 16 + 60;
    void configure(Options& options) override {
        all = directory / "all.pcap";
        options.pcap = all;
    }
    void SetUp() override {
        DaemonTest::SetUp();
        if (HasFatalFailure()) return;
        file = directory / "a.pcap";
        ASSERT_TRUE(
            succeeds({{"command", "capture"}, {"action", "start"}, {"nic", "a"}, {"file", file}}));
    }
    static bool grows(const std::filesystem::path& path) {
        return eventually([&] { return std::filesystem::file_size(path) == kOne; });
    }
    std::filesystem::path all;
    std::filesystem::path file;
};

/// Whoever writes a capture has its lock, and waits for as long as the disk takes.
TEST_F(CapturesTest, AreWrittenByNoMainThread) {
    HeldLoop c(loop_of("c"));
    HeldLoop b(loop_of("b"));
    HeldLoop a(loop_of("a"), [&of = nic("a").nic()] { of.path().from_guest(base::Frame(60)); });
    // This has them written out, as the main thread's timer does; but all whom it asks are held.
    const json shown = rows("capture");
    ASSERT_EQ(shown.size(), 2U);
    for (const json& row : shown) EXPECT_EQ(row["frames"], 1) << row;
    EXPECT_EQ(std::filesystem::file_size(all), kEmpty);
    EXPECT_EQ(std::filesystem::file_size(file), kEmpty);
    for (HeldLoop* const held : {&a, &b, &c}) held->release();
    EXPECT_TRUE(grows(all));
    EXPECT_TRUE(grows(file));
}

TEST_F(CapturesTest, WhatIsShownIsInTheFiles) {
    std::promise<void> sent;
    loop_of("a").post([&of = nic("a").nic(), &sent] {
        of.path().from_guest(base::Frame(60));
        sent.set_value();
    });
    sent.get_future().wait();
    EXPECT_TRUE(eventually([&] {
        for (const json& row : rows("capture"))
            if (row["frames"] != 1) return false;
        return std::filesystem::file_size(all) == kOne && std::filesystem::file_size(file) == kOne;
    }));
    const json stopped = ask({{"command", "capture"}, {"action", "stop"}, {"nic", "a"}});
    EXPECT_EQ(stopped["frames"], 1) << stopped;
}

TEST_F(DaemonTest, FiguresOfQueuePairsNameTheNicsThatAreMissing) {
    const HeldLoop held(loop_of("a"));
    json answer;
    EXPECT_TRUE(eventually([&] {
        answer = ask({{"command", "qps"}});
        return answer["ok"] == true && answer["silent"].size() == 1;
    })) << answer;
    EXPECT_THAT(answer["silent"][0].get<std::string>(), StartsWith("NIC 'a' does not answer"));
}

TEST_F(DaemonTest, FiguresOfTheMainThreadAreThoseOfTheSwitch) {
    const json stats = ask({{"command", "stats"}});
    EXPECT_EQ(stats["switch"].value("manad.thread.hangs", -1), 0);
}

TEST_F(DaemonTest, ItSaysWhichNicKeepsItFromStopping) {
    HeldLoop held(loop_of("a"));
    daemon->stop();
    const std::vector<std::string> lines{std::string("nic=a doing=\"") + HeldLoop::kDoing + "\""};
    EXPECT_TRUE(eventually([&] { return daemon->hanging() == lines; })) << "the others end at once";
    held.release();
    thread.join();
    EXPECT_THAT(daemon->hanging(), IsEmpty());
}

TEST_F(DaemonTest, AMainThreadThatHangsIsNamed) {
    HeldLoop held(daemon->loop());
    daemon->stop();
    EXPECT_THAT(daemon->hanging(), ElementsAre(StartsWith("thread=control doing=\"held")));
    held.release();
    thread.join();
}

TEST_F(DaemonTest, ACommandThatHangsIsNamed) {
    const auto guest = test::RemoteNic::attach(nic("a").socket());
    ASSERT_NE(guest, nullptr);
    test::RdmaHost host(*guest, guest->ram(), guest->irq(), test::test_mac(1), test::ipv4_gid(1));
    ASSERT_TRUE(host.bring_up());
    const LoopWatch& watch = nic("a").thread().watch();
    std::thread asking;
    {
        const base::Gate::Visit visit(nic("a").nic().function().gate());
        asking = std::thread([&] { EXPECT_TRUE(host.hwc().create_pd().has_value()); });
        EXPECT_TRUE(eventually([&] {
            return watch.doing() == "hwc_req 0x1d, waits for the visitors of its gate to leave";
        })) << watch.doing();
    }
    asking.join();
}

/// To make the record of a queue pair takes its responder's lock, which is somebody else's here.
TEST_F(DaemonTest, StatusLooksAtNoQueuePair) {
    const auto guest = test::RemoteNic::attach(nic("a").socket());
    ASSERT_NE(guest, nullptr);
    test::RdmaHost host(*guest, guest->ram(), guest->irq(), test::test_mac(1), test::ipv4_gid(1));
    ASSERT_TRUE(host.bring_up());
    auto cq = host.create_cq();
    ASSERT_TRUE(cq.has_value());
    const auto first = host.create_rc(*cq, *cq);
    const auto second = host.create_rc(*cq, *cq);
    ASSERT_TRUE(first && second);
    std::vector<std::unique_lock<base::HandoverMutex>> locks;
    nic("a").nic().rdma().adapter().qps.for_each(
        [&](rnic::Qp& qp) { locks.emplace_back(qp.responder.mutex); });
    json status;
    EXPECT_TRUE(eventually([&] {
        status = ask({{"command", "status"}});
        return !status["nics"][0].contains("hangs_s");
    }));
    EXPECT_EQ(status["nics"][0]["qps"], locks.size());
    EXPECT_EQ(status["nics"][0]["client"], true);
    const std::size_t count = locks.size();
    locks.clear();
    EXPECT_TRUE(eventually([&] {
        json answer = ask({{"command", "qps"}});
        return answer["silent"].empty() && answer["qps"].size() == count;
    })) << "that takes the locks";
}

// What the client has begun is in no state that another process reads.
TEST_F(DaemonTest, NobodyComesInItsPlaceWhileAGuestIsBeingMoved) {
    const auto guest = test::RemoteNic::attach(nic("b").socket());
    ASSERT_NE(guest, nullptr);
    test::RawVfioUser client(guest->client().fd());
    const json take_over{{"command", "take-over"}, {"format", HandedOver::kFormat}};
    ASSERT_TRUE(client.set_state(test::RawVfioUser::kStop).ok());
    EXPECT_EQ(ask(take_over)["error"], "the guest of NIC 'b' is being moved");
    ASSERT_TRUE(client.set_state(test::RawVfioUser::kRunning).ok());
    ASSERT_TRUE(client.log(1ULL << 32, 4096));
    EXPECT_EQ(ask(take_over)["error"], "the guest of NIC 'b' is being moved");
}

}  // namespace
}  // namespace openmana::manad
