// SPDX-License-Identifier: Apache-2.0
// A manad with a monitor, under clients in traffic: what their drivers see when it is killed, and
// how monitor and daemon end.
#include "monitor_fixture.h"

namespace openmana::test {
namespace {

TEST_F(MonitorTest, GuestsInTrafficAreAskedForAResetAndGoOn) {
    start_monitored();
    attach();
    std::size_t files = 0;
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 10; ++j) ASSERT_NO_FATAL_FAILURE(exchange());
        ASSERT_GT(monitored_->kill(), 0);
        ASSERT_NO_FATAL_FAILURE(recover());
        if (i == 0) files = monitored_->open_files();
    }
    EXPECT_TRUE(monitored_->files_back_to(files)) << "each one leaves files open";
}

TEST_F(MonitorTest, ACommandThatNobodyAnsweredIsRefusedOnce) {
    start_monitored();
    attach();
    for (int i = 0; i < 3; ++i) {
        HwcDriver& hwc = a_->host->hwc();
        // Nobody has told the process that it is there when it ends.
        hwc.queue_request(Request(MANA_HW_LIST_DEVICES, 40, 4096));
        ASSERT_GT(monitored_->kill(), 0);
        ASSERT_TRUE(hears_of_reset(*a_));
        hwc.ring_requests();
        std::optional<Response> response;
        for (int j = 0; !response && j < 10000; ++j) {
            response = hwc.take_response();
            if (!response) ::usleep(1000);
        }
        ASSERT_TRUE(response && response->arrived);
        EXPECT_NE(response->status, 0U);
        EXPECT_EQ(response->get<std::uint32_t>(4), MANA_HW_LIST_DEVICES);
        ::usleep(50000);
        EXPECT_FALSE(hwc.take_response()) << "it is answered twice";
        ASSERT_NO_FATAL_FAILURE(begin_anew(*a_, 1));
    }
}

TEST_F(MonitorTest, NicsAndPoliciesThatCameLaterAreThere) {
    start_monitored();
    attach();
    const json added = ask({{"command", "nic"},
                            {"action", "add"},
                            {"options", "id=c,mac=02:00:00:00:00:03,socket=" + folder_ + "/c"},
                            {"policy", "limit=2G"}});
    ASSERT_EQ(added["ok"], true) << added;
    const json before = limit_a();
    ASSERT_TRUE(before.is_object());
    const Client late(folder_ + "/c", 3);
    ASSERT_GT(monitored_->kill(), 0);
    ASSERT_TRUE(hears_of_reset(*a_));
    json status;
    for (int i = 0; i < 5000 && !status.is_object(); ++i) {
        status = ask({{"command", "status"}});
        ::usleep(1000);
    }
    ASSERT_EQ(status["nics"].size(), 3) << status;
    EXPECT_EQ(status["nics"][2]["nic"], "c");
    EXPECT_EQ(status["nics"][2]["client"], true);
    EXPECT_EQ(policies(), before);
}

/// There is no state of such a NIC: the next process would know nothing of its driver.
TEST_F(MonitorTest, NobodyTakesItsPlaceBeforeTheDriversHaveReset) {
    start_monitored();
    attach();
    ASSERT_GT(monitored_->kill(), 0);
    ASSERT_TRUE(hears_of_reset(*a_) && hears_of_reset(*b_));
    ASSERT_NO_FATAL_FAILURE(begin_anew(*a_, 1));
    auto all = words();
    all.insert(all.end(), {"--take-over", folder_ + "/control"});
    Process next(all);
    const auto status = next.wait();
    ASSERT_TRUE(status && WIFEXITED(*status));
    EXPECT_EQ(WEXITSTATUS(*status), 1);
    ASSERT_NO_FATAL_FAILURE(begin_anew(*b_, 2));
    ASSERT_NO_FATAL_FAILURE(connect());
    for (int i = 0; i < 10; ++i) ASSERT_NO_FATAL_FAILURE(exchange());
}

TEST_F(MonitorTest, AnotherOneTakesItsPlaceWithAMonitorOfItsOwn) {
    start_monitored();
    attach();
    auto all = words();
    all.insert(all.end(), {"--take-over", folder_ + "/control"});
    auto next = std::make_unique<MonitoredManad>(all);
    while (monitored_->process().running() && next->process().running())
        ASSERT_NO_FATAL_FAILURE(exchange());
    ASSERT_TRUE(next->process().running()) << "the next manad has ended";
    const auto status = monitored_->process().wait();
    EXPECT_TRUE(status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
    monitored_ = std::move(next);
    ASSERT_TRUE(monitored_->says_ready());
    ASSERT_NO_FATAL_FAILURE(exchange());
    ASSERT_GT(monitored_->kill(), 0);
    ASSERT_NO_FATAL_FAILURE(recover());
}

/// Whenever that is: nobody serves between two processes, for 100 ms behind the second crash.
TEST_F(MonitorTest, AskedToEndBehindACrashItLeavesNoSocket) {
    for (const int later_us : {0, 500, 2000, 20'000, 60'000}) {
        SCOPED_TRACE(later_us);
        start_monitored();
        ASSERT_GT(monitored_->kill(), 0);
        ::kill(monitored_->serving(), SIGKILL);
        ::usleep(static_cast<useconds_t>(later_us));
        ::kill(monitored_->process().pid(), SIGTERM);
        const auto status = monitored_->process().wait();
        EXPECT_TRUE(status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
        for (const char* name : {"/a", "/b", "/control", "/metrics"})
            EXPECT_FALSE(std::filesystem::exists(folder_ + name)) << name;
        monitored_.reset();
    }
}

/// What that one lacks may be there again for the next.
TEST_F(MonitorTest, OneThatCannotStartLeavesTheGuestsToTheNext) {
    start_monitored();
    attach();
    const std::string control = folder_ + "/control";
    std::filesystem::remove(control);
    std::filesystem::create_directory(control);  // no socket can be there
    const pid_t second = monitored_->kill();
    ASSERT_GT(second, 0);
    ASSERT_GT(monitored_->serving_after(second), 0);
    std::filesystem::remove(control);
    ASSERT_NO_FATAL_FAILURE(recover());
    EXPECT_TRUE(limit_a().is_object()) << "it can be asked";
}

/// One that is stopped hears no SIGTERM. The next one removes its sockets.
TEST_F(MonitorTest, OneThatDoesNotEndInTimeIsKilled) {
    start_monitored();
    const pid_t serving = monitored_->serving();
    ASSERT_GT(serving, 0);
    ASSERT_EQ(::kill(serving, SIGSTOP), 0);
    ASSERT_EQ(::kill(monitored_->process().pid(), SIGTERM), 0);
    const bool ended = eventually([&] { return !monitored_->process().running(); });
    if (!ended) ::kill(serving, SIGCONT);
    EXPECT_TRUE(ended);
}

TEST_F(MonitorTest, OneThatAlwaysEndsIsGivenUp) {
    start_monitored();
    attach();
    pid_t serving = monitored_->serving();
    for (int i = 0; i < 5 && serving > 0; ++i) {
        ::kill(serving, SIGKILL);
        if (i < 4) serving = monitored_->serving_after(serving);
    }
    const auto status = monitored_->process().wait();
    EXPECT_TRUE(status && WIFEXITED(*status) && WEXITSTATUS(*status) == 1);
    EXPECT_TRUE(a_->nic->client().closed_by_server());
    monitored_.reset();
    killed_ = true;
}

TEST_F(MonitorTest, WhenTheMonitorEndsSoDoesTheDaemon) {
    start_monitored();
    attach();
    ::kill(monitored_->process().pid(), SIGKILL);
    (void)monitored_->process().wait();
    EXPECT_TRUE(a_->nic->client().closed_by_server());
    EXPECT_TRUE(b_->nic->client().closed_by_server());
    monitored_.reset();
    killed_ = true;
}

TEST_F(MonitorTest, WhatItCannotStartWithEndsBoth) {
    more_ = {"--monitor", "on", "--nic", "id=c,socket=" + folder_ + "/none/c"};
    MonitoredManad manad(words());
    const auto status = manad.process().wait();
    EXPECT_TRUE(status && WIFEXITED(*status) && WEXITSTATUS(*status) == 1);
}

}  // namespace
}  // namespace openmana::test
