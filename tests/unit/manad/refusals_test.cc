// SPDX-License-Identifier: Apache-2.0
// A daemon for which the system has no room: it does not start, says why, and leaves nothing.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "base/event_signal.h"
#include "base/log.h"
#include "base/unix_socket.h"
#include "manad/control.h"
#include "manad/daemon.h"
#include "manad/signals.h"
#include "manad/uplink_server.h"
#include "support/eventually.h"
#include "support/faulty_calls.h"
#include "support/loopback.h"
#include "support/temp_dir.h"

namespace openmana::manad {
namespace {

using nlohmann::json;
using test::eventually;
using test::FaultyCalls;

class RefusalsTest : public ::testing::Test {
protected:
    void SetUp() override {
        base::set_log_level(base::LogLevel::kOff);
        (void)base::EventSignal::shared();  // which keeps its descriptors
    }
    void TearDown() override { base::set_log_level(base::LogLevel::kInfo); }
    fabric::UplinkConfig uplink() const {
        fabric::UplinkConfig config;
        config.kind = fabric::UplinkConfig::Kind::kStream;
        config.name = "u";
        config.path = folder + "/uplink";
        config.listen = true;
        return config;
    }
    Options options() const {
        Options all;
        for (const char* name : {"a", "b"}) {
            NicOptions nic;
            nic.nic.name = name;
            nic.nic.mac = default_mac(name);
            nic.socket = folder + "/" + name;
            all.nics.push_back(nic);
        }
        all.uplinks.push_back(uplink());
        all.control = folder + "/control";
        return all;
    }
    static std::size_t open_descriptors() {
        const std::filesystem::directory_iterator all("/proc/self/fd");
        return static_cast<std::size_t>(std::distance(begin(all), end(all)));
    }
    const test::TempDir made{"refusals"};
    const std::string& folder = made.path();
};

TEST_F(RefusalsTest, ADaemonNeedsAllThatItAsksTheSystemFor) {
    const std::size_t before = open_descriptors();
    for (const char* call : {"epoll_create1", "eventfd", "socket", "fchmod", "bind", "listen",
                             "getrandom", "epoll_ctl"}) {
        unsigned refused = 0;
        for (unsigned after = 0;; ++after) {
            ASSERT_LT(after, 200U) << call;
            const FaultyCalls faults(call, ENOMEM, {.after = after});
            std::string subject;
            {
                const auto made = Daemon::create(options(), subject);
                if (!made) {
                    ++refused;
                    EXPECT_EQ(made.error().detail, static_cast<std::uint64_t>(ENOMEM)) << call;
                    EXPECT_NE(subject, "") << call;
                    EXPECT_EQ(faults.failed(), 1U) << call;
                }
            }
            EXPECT_EQ(open_descriptors(), before) << call << " " << after;
            EXPECT_TRUE(std::filesystem::is_empty(folder)) << call << " " << after;
            if (faults.failed() == 0) break;
        }
        EXPECT_GE(refused, 2U) << call;
    }
}

TEST_F(RefusalsTest, AnUplinkHasAThreadOfItsOwn) {
    const base::SystemClock clock;
    fabric::Switch network(clock);
    auto server = UplinkServer::create(uplink(), network, nullptr, nullptr, nullptr);
    ASSERT_TRUE(server) << server.error().text;
    ASSERT_TRUE((*server)->start());
    const UplinkServer& running = **server;
    EXPECT_TRUE(running.thread().serves());
    const auto other = base::connect_unix(folder + "/uplink");
    ASSERT_TRUE(other);
    EXPECT_TRUE(eventually([&] { return running.uplink().connected(); }));
    (*server)->stop();
    EXPECT_FALSE(running.thread().serves());
}

TEST_F(RefusalsTest, AUdpUplinkIsServedByTheThreadOfTheOnlyNic) {
    const base::SystemClock clock;
    fabric::Switch network(clock);
    const std::shared_ptr<LoopThread> nic = std::move(*LoopThread::create("nic=a", "nic-a"));
    fabric::UplinkConfig udp;
    std::tie(udp.local, udp.remote) = test::free_udp_addresses();
    const auto with = UplinkServer::create(udp, network, nic, nullptr, nullptr);
    ASSERT_TRUE(with) << with.error().text;
    EXPECT_EQ(&(*with)->thread(), nic.get());
    ASSERT_TRUE((*with)->start());
    EXPECT_FALSE(nic->serves()) << "that is the NIC's business";
    const auto stream = UplinkServer::create(uplink(), network, nic, nullptr, nullptr);
    ASSERT_TRUE(stream) << stream.error().text;
    EXPECT_NE(&(*stream)->thread(), nic.get()) << "it reads frame by frame";
}

TEST_F(RefusalsTest, AnUplinkWithoutALoopIsNone) {
    const base::SystemClock clock;
    fabric::Switch network(clock);
    const FaultyCalls faults("epoll_create1", EMFILE);
    const auto server = UplinkServer::create(uplink(), network, nullptr, nullptr, nullptr);
    ASSERT_FALSE(server);
    EXPECT_EQ(server.error().detail, static_cast<std::uint64_t>(EMFILE));
}

TEST_F(RefusalsTest, SignalsNeedADescriptorToBeStopped) {
    const FaultyCalls faults("eventfd", EMFILE);
    EXPECT_FALSE(SignalThread::create(base::UniqueFd(), {}, {}));
}

/// On the thread of the test.
class ControlRefusalsTest : public RefusalsTest {
protected:
    void SetUp() override {
        RefusalsTest::SetUp();
        control = ControlServer::create(*loop, folder + "/control", [](const json&, int) {
                      return json{{"ok", true}};
                  }).value();
    }
    void turn() {
        loop->post([this] { loop->stop(); });
        loop->run();
    }
    base::UniqueFd connected() {
        base::UniqueFd client = base::connect_unix(folder + "/control").value();
        turn();
        return client;
    }
    static void ask(const base::UniqueFd& client) {
        EXPECT_EQ(::send(client.get(), "{}\n", 3, MSG_NOSIGNAL), 3);
    }
    static ssize_t answer(const base::UniqueFd& client) {
        std::array<char, 256> buffer;
        return ::recv(client.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    }
    /// A client that asks while `faults` are there is let go, and the next is served.
    void expect_dropped(const base::UniqueFd& client) {
        EXPECT_LE(answer(client), 0);
        EXPECT_NE(::send(client.get(), "{}\n", 3, MSG_NOSIGNAL), 3);
        const base::UniqueFd next = connected();
        ask(next);
        turn();
        EXPECT_GT(answer(next), 0);
    }
    std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
    std::unique_ptr<ControlServer> control;
};

TEST_F(ControlRefusalsTest, AClientThatCannotBeWatchedIsLetGo) {
    base::UniqueFd client = base::connect_unix(folder + "/control").value();
    {
        const FaultyCalls faults("epoll_ctl", ENOSPC);
        turn();
        EXPECT_EQ(faults.failed(), 1U);
    }
    expect_dropped(client);
}

TEST_F(ControlRefusalsTest, AClientThatCannotBeReadIsLetGo) {
    const base::UniqueFd client = connected();
    ask(client);
    {
        const FaultyCalls faults("recv", ECONNRESET);
        turn();
    }
    expect_dropped(client);
}

TEST_F(ControlRefusalsTest, AClientThatCannotBeAnsweredIsLetGo) {
    const base::UniqueFd client = connected();
    ask(client);
    {
        const FaultyCalls faults("send", EPIPE);
        turn();
    }
    expect_dropped(client);
}

TEST_F(ControlRefusalsTest, AClientThatCannotBeWaitedForIsLetGo) {
    const base::UniqueFd client = connected();
    ask(client);
    {
        FaultyCalls faults("send", EAGAIN);
        faults.fail("epoll_ctl", ENOMEM);
        turn();
    }
    expect_dropped(client);
}

TEST_F(ControlRefusalsTest, WhatIsInterruptedIsTriedAgain) {
    const base::UniqueFd client = connected();
    ask(client);
    FaultyCalls faults("recv", EINTR);
    turn();
    faults.fail("send", EINTR);
    turn();
    turn();
    EXPECT_EQ(faults.failed(), 2U);
    EXPECT_GT(answer(client), 0);
}

}  // namespace
}  // namespace openmana::manad
