// SPDX-License-Identifier: Apache-2.0
#include "manad/control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "support/no_more_fds.h"

namespace openmana::manad {
namespace {

using nlohmann::json;

class ControlServerTest : public ::testing::Test {
protected:
    ControlServerTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "control-XXXXXX").string();
        directory = ::mkdtemp(pattern.data());
        path = directory + "/control";
        server = ControlServer::create(*loop, path, [](const json& request, int) {
                     return json{{"ok", true}, {"echo", request}};
                 }).value();
        thread = std::thread([this] { loop->run(); });
    }
    ~ControlServerTest() override {
        loop->stop();
        thread.join();
        server.reset();
        std::filesystem::remove_all(directory);
    }
    static void send(const base::UniqueFd& fd, const std::string& text) {
        ASSERT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(text.size()));
    }
    /// The next line, or what came before the connection ended.
    static std::string line(const base::UniqueFd& fd) {
        std::string text;
        char c = 0;
        while (::recv(fd.get(), &c, 1, 0) == 1 && c != '\n') text += c;
        return text;
    }
    std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
    std::string directory;
    std::string path;
    std::unique_ptr<ControlServer> server;
    std::thread thread;
};

TEST_F(ControlServerTest, AnswersEachLineInOrder) {
    const auto fd = base::connect_unix(path).value();
    send(fd, "{\"n\":1}\n{\"n\":");
    EXPECT_EQ(json::parse(line(fd))["echo"]["n"], 1);
    send(fd, "2}\n");
    EXPECT_EQ(json::parse(line(fd))["echo"]["n"], 2);
}

TEST_F(ControlServerTest, AClientForWhomNoDescriptorIsLeftWaitsWithoutSpinning) {
    if (!::openmana::test::kCanBeWithoutFds) GTEST_SKIP() << "a sanitizer needs descriptors";
    const base::UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    {
        const ::openmana::test::NoMoreFds none;
        const auto before = ::openmana::test::cpu_time();
        ASSERT_TRUE(::openmana::test::connect_to(client, path));
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        EXPECT_LT(::openmana::test::cpu_time() - before, std::chrono::milliseconds(150));
    }
    send(client, "{}\n");
    EXPECT_TRUE(json::parse(line(client))["ok"].get<bool>());
}

TEST_F(ControlServerTest, SaysWhatIsNoRequestAndGoesOn) {
    const auto fd = base::connect_unix(path).value();
    send(fd, "hello\n[1]\n{}\n");
    EXPECT_FALSE(json::parse(line(fd))["ok"].get<bool>());
    EXPECT_FALSE(json::parse(line(fd))["ok"].get<bool>());
    EXPECT_TRUE(json::parse(line(fd))["ok"].get<bool>());
}

/// Whoever copies a request goes down into it, a call for each level.
TEST_F(ControlServerTest, WhatIsNestedTooDeeplyIsRefused) {
    const auto nested = [](std::size_t levels) {
        return "{\"a\":" + std::string(levels, '[') + std::string(levels, ']') + "}\n";
    };
    const auto fd = base::connect_unix(path).value();
    send(fd, nested(ControlServer::kMaxDepth));
    EXPECT_TRUE(json::parse(line(fd))["ok"].get<bool>());
    send(fd, nested(ControlServer::kMaxDepth + 1));
    EXPECT_EQ(json::parse(line(fd)).value("error", ""),
              "a request is nested 16 levels deep at most");
    send(fd, "{}\n");
    EXPECT_TRUE(json::parse(line(fd))["ok"].get<bool>());
}

TEST_F(ControlServerTest, BytesThatAreNoTextDoNotEndIt) {
    const auto fd = base::connect_unix(path).value();
    send(fd, "{\"a\":\"\xff\xfe\"}\n{}\n");
    line(fd);
    EXPECT_TRUE(json::parse(line(fd))["ok"].get<bool>());
}

TEST_F(ControlServerTest, AnswersAClientThatHasFinishedSending) {
    const auto fd = base::connect_unix(path).value();
    send(fd, "{}\n");
    ::shutdown(fd.get(), SHUT_WR);
    EXPECT_TRUE(json::parse(line(fd))["ok"].get<bool>());
    EXPECT_EQ(line(fd), "");
}

TEST_F(ControlServerTest, DropsALineWithoutEndAndServesOthers) {
    const auto hostile = base::connect_unix(path).value();
    const auto good = base::connect_unix(path).value();
    const std::string junk(ControlServer::kMaxLine + 4097, 'x');
    ::send(hostile.get(), junk.data(), junk.size(), MSG_NOSIGNAL);
    EXPECT_EQ(line(hostile), "");
    send(good, "{}\n");
    EXPECT_TRUE(json::parse(line(good))["ok"].get<bool>());
}

TEST_F(ControlServerTest, TakesTheLongestPolicy) {
    const auto fd = base::connect_unix(path).value();
    // 1,024 rules with two IPv6 addresses each.
    const std::string text(1024 * 120, 'x');
    std::thread sender([&] { send(fd, json{{"options", text}}.dump() + "\n"); });
    const std::string answer = line(fd);
    sender.join();
    EXPECT_EQ(json::parse(answer)["echo"]["options"], text);
}

TEST_F(ControlServerTest, ServesSoManyAtATimeAndNoMore) {
    std::vector<base::UniqueFd> clients;
    for (std::size_t i = 0; i < ControlServer::kMaxClients; ++i) {
        clients.push_back(base::connect_unix(path).value());
        send(clients.back(), "{}\n");
        EXPECT_NE(line(clients.back()), "");
    }
    const auto refused = base::connect_unix(path).value();
    EXPECT_EQ(line(refused), "");
    clients.pop_back();
    // The server learns of it some time later.
    std::string answer;
    for (int i = 0; i < 1000 && answer.empty(); ++i) {
        const auto next = base::connect_unix(path).value();
        const std::string request = "{}\n";
        (void)::send(next.get(), request.data(), request.size(), MSG_NOSIGNAL);
        answer = line(next);
    }
    EXPECT_NE(answer, "");
}

/// Whatever it has asked for in one packet: between two of its answers there is a turn for others.
TEST_F(ControlServerTest, AClientGetsOneAnswerInATurn) {
    std::size_t asked = 0;
    const auto turns = base::EventLoop::create().value();
    const auto counting =
        ControlServer::create(*turns, directory + "/turns", [&](const json&, int) {
            ++asked;
            turns->stop();  // when this turn is over
            return json{{"ok", true}};
        }).value();
    const auto fd = base::connect_unix(directory + "/turns").value();
    send(fd, "{}\n{}\n");
    ::shutdown(fd.get(), SHUT_WR);
    turns->run();
    ASSERT_EQ(asked, 1U);
    turns->run();
    EXPECT_EQ(asked, 2U) << "all are answered in the end";
}

/// As many requests as one packet holds, each with a long answer.
TEST_F(ControlServerTest, AClientThatReadsNothingIsNotAnsweredAgain) {
    constexpr std::size_t kAnswer = 1U << 20;
    std::size_t asked = 0;
    const std::string greedy = directory + "/greedy";
    const auto greedy_loop = base::EventLoop::create().value();
    const auto talkative = ControlServer::create(*greedy_loop, greedy, [&](const json&, int) {
                               ++asked;
                               return json(std::string(kAnswer, 'x'));
                           }).value();
    std::thread serving([&] { greedy_loop->run(); });
    const auto fd = base::connect_unix(greedy).value();
    std::string requests;
    for (int i = 0; i < 64; ++i) requests += "{}\n";
    send(fd, requests);
    const auto other = base::connect_unix(greedy).value();
    send(other, "{}\n");
    EXPECT_EQ(line(other).size(), kAnswer + 2) << "who reads is served";
    greedy_loop->stop();
    serving.join();
    EXPECT_LE(asked, 2U);
}

TEST_F(ControlServerTest, AnAnswerThatIsTooLongIsAnError) {
    const std::string endless = directory + "/endless";
    const auto endless_loop = base::EventLoop::create().value();
    const auto talkative = ControlServer::create(*endless_loop, endless, [&](const json&, int) {
                               return json(std::string(ControlServer::kMaxAnswer, 'x'));
                           }).value();
    std::thread serving([&] { endless_loop->run(); });
    const auto fd = base::connect_unix(endless).value();
    send(fd, "{}\n");
    EXPECT_EQ(line(fd), R"({"error":"the answer has more than 16 MiB","ok":false})");
    endless_loop->stop();
    serving.join();
}

TEST_F(ControlServerTest, APathInUseIsRefusedAndOneLeftBehindTakenOver) {
    const auto handler = [](const json&, int) { return json{{"ok", true}}; };
    auto other_loop = base::EventLoop::create().value();
    const auto refused = ControlServer::create(*other_loop, path, handler);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, base::ErrorCode::kBusy);
    const std::string stale = directory + "/stale";
    {
        // A socket whose owner died: bound, never removed.
        auto listener = base::UnixListener::create(directory + "/dead").value();
        std::filesystem::rename(directory + "/dead", stale);
    }
    EXPECT_TRUE(ControlServer::create(*other_loop, stale, handler));
    EXPECT_FALSE(ControlServer::create(*other_loop, directory, handler))
        << "a directory is no socket";
    EXPECT_FALSE(ControlServer::create(*other_loop, directory + "/none/x", handler));
}

}  // namespace
}  // namespace openmana::manad
