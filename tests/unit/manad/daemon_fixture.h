// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unix_socket.h"
#include "manad/daemon.h"
#include "manad/ledger.h"
#include "support/eventually.h"
#include "support/rdma_host.h"

namespace openmana::manad {

using nlohmann::json;
using test::eventually;

/// How long requests wait: short, since it is waited for here.
inline constexpr auto kPatience = std::chrono::milliseconds(200);

/// A daemon with its threads and three NICs, asked through its control socket.
class DaemonTest : public ::testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (std::filesystem::temp_directory_path() / "daemon-XXXXXX").string();
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        directory = pattern;
        Options options;
        options.control = directory / "control";
        for (std::uint8_t i = 1; i <= 3; ++i) {
            NicOptions nic;
            nic.nic.name = std::string(1, static_cast<char>('a' + i - 1));
            nic.nic.mac = test::test_mac(i);
            nic.socket = directory / nic.nic.name;
            options.nics.push_back(nic);
        }
        configure(options);
        std::string subject;
        auto created = Daemon::create(options, subject, kPatience, nullptr, ledger.get());
        ASSERT_TRUE(created) << subject << ": " << created.error().text;
        daemon = std::move(*created);
        ASSERT_TRUE(daemon->start());
        thread = std::thread([this] { daemon->run(); });
        control = base::connect_unix(options.control).value();
        ASSERT_TRUE(ask({{"command", "status"}})["ok"]);  // it runs
    }
    void TearDown() override {
        if (thread.joinable()) {
            daemon->stop();
            thread.join();
        }
        daemon.reset();
        std::filesystem::remove_all(directory);
    }
    virtual void configure(Options&) {}
    json ask(const json& request) const {
        const std::string line = request.dump() + "\n";
        if (::send(control.get(), line.data(), line.size(), MSG_NOSIGNAL) < 0) return {};
        std::string answer;
        for (char c = 0; c != '\n'; answer += c)
            if (::recv(control.get(), &c, 1, 0) != 1) return {};
        return json::parse(answer);
    }
    /// A NIC that does not hang answers, if not in time, then another time.
    [[nodiscard]] bool succeeds(const json& request) const {
        return eventually([&] { return ask(request)["ok"] == true; });
    }
    /// Of the NICs that are there, in the order of their coming.
    [[nodiscard]] std::vector<std::string> names() const {
        std::vector<std::string> names;
        const json status = ask({{"command", "status"}});
        for (const json& row : status["nics"]) names.push_back(row["nic"]);
        return names;
    }
    NicServer& nic(const char* name) const { return *daemon->find(name); }
    base::EventLoop& loop_of(const char* name) const { return nic(name).thread().loop(); }
    /// The state of nic a as the network's control knows it.
    json rows(const char* command) const {
        return ask({{"command", command}, {"action", "show"}})["rows"];
    }

    std::filesystem::path directory;
    std::unique_ptr<Ledger> ledger;  // null: the daemon writes nothing down
    std::unique_ptr<Daemon> daemon;
    std::thread thread;
    base::UniqueFd control;
};

}  // namespace openmana::manad
