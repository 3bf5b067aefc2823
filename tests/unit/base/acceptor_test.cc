// SPDX-License-Identifier: Apache-2.0
#include "base/acceptor.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <sstream>
#include <vector>

#include "support/no_more_fds.h"

namespace openmana::base {
namespace {

using namespace std::chrono_literals;
using ::openmana::test::kCanBeWithoutFds;
using ::openmana::test::NoMoreFds;

constexpr const char* kWarning = "warning test accept: id=7 reason=\"Too many open files\"\n";

/// The turns of a loop: one that sleeps makes none.
class TurnCounter final : public Poller {
public:
    State poll() override {
        ++turns;
        return State::kIdle;
    }
    std::uint64_t turns = 0;
};

class AcceptorTest : public ::testing::Test {
protected:
    AcceptorTest() : log_before(spdlog::default_logger()) {
        auto sink = std::make_shared<spdlog::sinks::ostream_sink_st>(log);
        sink->set_pattern("%l %v");
        spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink));
        loop->add_poller(counter);
        std::string pattern = (std::filesystem::temp_directory_path() / "acceptor-XXXXXX").string();
        directory = ::mkdtemp(pattern.data());
        path = directory + "/s";
        acceptor = Acceptor::create(*loop, path, "test accept: id=7").value();
    }
    ~AcceptorTest() override {
        acceptor.reset();
        loop->remove_poller(counter);
        std::filesystem::remove_all(directory);
        spdlog::set_default_logger(log_before);
    }
    void start() {
        acceptor->start([this](UniqueFd client) { clients.push_back(std::move(client)); });
    }
    /// Puts one client more into the socket's queue.
    void connect() { others.push_back(connect_unix(path).value()); }
    void run_for(Duration time) {
        Timer end(*loop, [&] { loop->stop(); });
        end.arm(time);
        loop->run();
    }
    void run_until_clients(std::size_t count) {
        for (int i = 0; i < 1000 && clients.size() < count; ++i) run_for(5ms);
        EXPECT_EQ(clients.size(), count);
    }

    std::ostringstream log;
    const std::shared_ptr<spdlog::logger> log_before;
    TurnCounter counter;
    std::unique_ptr<EventLoop> loop = EventLoop::create().value();
    std::string directory;
    std::string path;
    std::unique_ptr<Acceptor> acceptor;
    std::vector<UniqueFd> clients;
    std::vector<UniqueFd> others;
};

/// With a process that has no descriptors left, for a while.
class AcceptorShortageTest : public AcceptorTest {
protected:
    void SetUp() override {
        if (!kCanBeWithoutFds) GTEST_SKIP() << "a sanitizer needs descriptors";
    }
    /// A client comes in the shortage: the acceptor says so and pauses.
    void connect_in_vain() {
        connect();
        const NoMoreFds none;
        run_for(10ms);
    }
};

TEST_F(AcceptorTest, HandsOverEachClient) {
    start();
    connect();
    connect();
    run_until_clients(2);
    EXPECT_EQ(::write(clients[0].get(), "x", 1), 1);
    char byte = 0;
    EXPECT_EQ(::read(others[0].get(), &byte, 1), 1);
    EXPECT_EQ(byte, 'x');
    EXPECT_EQ(log.str(), "");
}

TEST_F(AcceptorTest, WhoComesBeforeTheStartWaits) {
    connect();
    run_for(5ms);
    start();
    run_until_clients(1);
}

TEST_F(AcceptorTest, WhileItHoldsClientsWait) {
    acceptor->start([this](UniqueFd client) {
        clients.push_back(std::move(client));
        acceptor->hold();
    });
    connect();
    connect();
    run_until_clients(1);
    run_for(20ms);
    EXPECT_EQ(clients.size(), 1u);
    acceptor->resume();
    run_until_clients(2);
}

TEST_F(AcceptorTest, AHoldFromAnotherHandlerOfTheSameTurnCounts) {
    // Both sockets are readable when the loop looks; whose handler is first is not told, so that
    // each holds the other.
    std::size_t taken = 0;
    auto second = Acceptor::create(*loop, directory + "/t", "test accept: id=8").value();
    acceptor->start([&](UniqueFd) {
        ++taken;
        second->hold();
    });
    second->start([&](UniqueFd) {
        ++taken;
        acceptor->hold();
    });
    connect();
    others.push_back(connect_unix(directory + "/t").value());
    run_for(20ms);
    EXPECT_EQ(taken, 1u);
}

TEST_F(AcceptorShortageTest, WithoutDescriptorsItSleepsSaysSoOnceAndServesLater) {
    start();
    connect();
    {
        const NoMoreFds none;
        const TimePoint before = loop->now();
        run_for(Acceptor::kPause * 7 / 2);
        // It wakes to try again and at the end, and for nothing else; a loop that spins does not
        // sleep but turns.
        const auto tries =
            static_cast<std::uint64_t>((loop->now() - before) / Acceptor::kPause + 1);
        EXPECT_LE(loop->sleeps(), 2 * tries);
        EXPECT_LT(counter.turns, 1000 * tries);
        EXPECT_EQ(log.str(), kWarning);
        EXPECT_TRUE(clients.empty());
    }
    run_until_clients(1);
    EXPECT_EQ(log.str(), kWarning);
}

TEST_F(AcceptorShortageTest, TheNextShortageIsSaidAgain) {
    start();
    for (std::size_t i = 1; i <= 2; ++i) {
        connect_in_vain();
        run_until_clients(i);
    }
    EXPECT_EQ(log.str(), std::string(kWarning) + kWarning);
}

TEST_F(AcceptorShortageTest, AHoldOutlastsThePause) {
    start();
    connect_in_vain();
    EXPECT_EQ(log.str(), kWarning);
    acceptor->hold();
    const auto turns = counter.turns;
    run_for(Acceptor::kPause * 3 / 2);
    EXPECT_TRUE(clients.empty());
    EXPECT_LT(counter.turns - turns, 1000u);
    acceptor->resume();
    run_until_clients(1);
}

TEST_F(AcceptorShortageTest, AResumeWithoutAHoldDoesNotShortenThePause) {
    TimePoint taken{};
    acceptor->start([&](UniqueFd client) {
        taken = loop->now();
        clients.push_back(std::move(client));
    });
    const TimePoint before = loop->now();
    connect_in_vain();
    acceptor->resume();
    run_until_clients(1);
    EXPECT_GE(taken - before, Acceptor::kPause);
}

TEST_F(AcceptorShortageTest, MayGoWhileItPauses) {
    start();
    connect();
    const NoMoreFds none;
    run_for(10ms);
    EXPECT_EQ(log.str(), kWarning);
    acceptor.reset();
    EXPECT_FALSE(std::filesystem::exists(path));
    run_for(Acceptor::kPause * 3 / 2);
    EXPECT_TRUE(clients.empty());
}

TEST_F(AcceptorTest, APathThatIsServedIsRefused) {
    const auto second = Acceptor::create(*loop, path, "test accept:");
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, ErrorCode::kBusy);
}

}  // namespace
}  // namespace openmana::base
