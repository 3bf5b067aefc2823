// SPDX-License-Identifier: Apache-2.0
#include "manad/network_control.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "manad/daemon.h"
#include "support/loopback.h"

namespace openmana::manad {
namespace {

using fabric::Direction;
using nlohmann::json;

/// A daemon of two NICs that nobody is attached to; its threads do not run.
class NetworkControlTest : public ::testing::Test {
protected:
    NetworkControlTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "network-XXXXXX").string();
        directory = ::mkdtemp(pattern.data());
        for (const char* name : {"a", "b"}) {
            NicOptions nic;
            nic.nic.name = name;
            nic.nic.mac = default_mac(name);
            nic.socket = directory / name;
            options.nics.push_back(nic);
        }
    }
    ~NetworkControlTest() override {
        daemon.reset();
        std::filesystem::remove_all(directory);
    }
    void start() {
        std::string subject;
        auto created = Daemon::create(options, subject);
        ASSERT_TRUE(created.has_value()) << subject << ": " << created.error().text;
        daemon = std::move(*created);
    }
    std::string refusal() {
        std::string subject;
        auto created = Daemon::create(options, subject);
        EXPECT_FALSE(created.has_value());
        return subject;
    }
    json ask(const char* command, const char* action, const char* nic = "a",
             json more = json::object()) {
        more["command"] = command;
        more["action"] = action;
        if (*nic != '\0') more["nic"] = nic;
        return daemon->handle(more);
    }
    std::uintmax_t size(const std::string& path) const { return std::filesystem::file_size(path); }

    std::filesystem::path directory;
    Options options;
    std::unique_ptr<Daemon> daemon;
};

TEST_F(NetworkControlTest, ACaptureStartsOnceAndStops) {
    start();
    const std::string file = directory / "a.pcap";
    EXPECT_TRUE(ask("capture", "start", "a", {{"file", file}})["ok"]);
    EXPECT_EQ(size(file), 24u);
    EXPECT_FALSE(ask("capture", "start", "a", {{"file", file}})["ok"]);
    const json shown = ask("capture", "show", "");
    ASSERT_EQ(shown["rows"].size(), 1u);
    EXPECT_EQ(shown["rows"][0]["file"], file);
    const json stopped = ask("capture", "stop");
    EXPECT_TRUE(stopped["ok"]);
    EXPECT_EQ(stopped["frames"], 0);
    EXPECT_FALSE(ask("capture", "stop")["ok"]);
}

TEST_F(NetworkControlTest, ACaptureThatCannotBeWrittenSaysWhy) {
    start();
    const json answer = ask("capture", "start", "a", {{"file", directory / "no" / "a.pcap"}});
    EXPECT_FALSE(answer["ok"]);
    EXPECT_NE(answer["error"].get<std::string>().find("No such file or directory"),
              std::string::npos);
    EXPECT_TRUE(ask("capture", "show", "")["rows"].empty());
}

TEST_F(NetworkControlTest, AFileIsWrittenByOneCaptureOrFlowLogOnly) {
    options.pcap = directory / "all.pcap";
    start();
    const std::string file = directory / "a.pcap";
    EXPECT_TRUE(ask("capture", "start", "a", {{"file", file}})["ok"]);
    for (const std::string& taken : {file, options.pcap}) {
        const json capture = ask("capture", "start", "b", {{"file", taken}});
        EXPECT_EQ(capture["error"], taken + ": another capture or flow log writes this file");
        EXPECT_FALSE(ask("policy", "set", "b", {{"options", "flow-log=" + taken}})["ok"]);
        EXPECT_EQ(size(taken), 24u) << "was emptied";
    }
    EXPECT_TRUE(ask("capture", "stop", "a")["ok"]);
    EXPECT_TRUE(ask("capture", "start", "b", {{"file", file}})["ok"]);
}

TEST_F(NetworkControlTest, APipeIsRefusedAndNotWaitedFor) {
    start();
    const std::string pipe = directory / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    const auto try_both = [&] {
        const json capture = ask("capture", "start", "a", {{"file", pipe}});
        EXPECT_EQ(capture["error"], pipe + ": a pipe or socket is no file");
        const json log = ask("policy", "set", "a", {{"options", "flow-log=" + pipe}});
        EXPECT_EQ(log["error"], pipe + ": a pipe or socket is no file");
    };
    try_both();
    const base::UniqueFd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    ASSERT_TRUE(static_cast<bool>(reader));
    try_both();
}

TEST_F(NetworkControlTest, AFlowLogThatWasMovedAwayIsOpenedAnew) {
    start();
    const std::string file = directory / "flows";
    const json wanted{{"options", "flow-log=" + file}};
    EXPECT_TRUE(ask("policy", "set", "a", wanted)["ok"]);
    std::filesystem::rename(file, file + ".1");
    EXPECT_TRUE(ask("policy", "set", "a", wanted)["ok"]);
    EXPECT_TRUE(std::filesystem::exists(file));
    const json shown = ask("policy", "show", "")["rows"];
    EXPECT_EQ(shown[0]["lost"], 0);
    EXPECT_EQ(shown[0]["error"], "");
}

TEST_F(NetworkControlTest, FaultsAreSetForTheDirectionsNamed) {
    start();
    EXPECT_TRUE(ask("fault", "set", "b", {{"options", "loss=1%,seed=4"}})["ok"]);
    EXPECT_TRUE(ask("fault", "set", "b", {{"options", "dir=rx,delay=10us"}})["ok"]);
    EXPECT_TRUE(ask("fault", "set", "b", {{"options", "flap=1s/1ms"}})["ok"]);
    const json shown = ask("fault", "show", "")["rows"];
    ASSERT_EQ(shown.size(), 3u);
    EXPECT_EQ(shown[0]["dir"], "tx");
    EXPECT_EQ(shown[0]["options"], "loss=1%,seed=4");
    EXPECT_EQ(shown[1]["options"], "delay=10us,dir=rx");
    EXPECT_EQ(shown[2]["dir"], "link");
    EXPECT_TRUE(ask("fault", "clear", "b")["ok"]);
    EXPECT_TRUE(ask("fault", "show", "")["rows"].empty());
}

TEST_F(NetworkControlTest, PoliciesAreReplacedAndShareTheirFlowLog) {
    start();
    const std::string file = directory / "flows";
    for (const char* nic : {"a", "b"}) {
        EXPECT_TRUE(ask("policy", "set", nic, {{"options", "limit=1G,flow-log=" + file}})["ok"]);
    }
    EXPECT_EQ(size(file), 0u);
    EXPECT_TRUE(ask("policy", "set", "a", {{"options", "mac-check=on"}})["ok"]);
    const json shown = ask("policy", "show", "")["rows"];
    ASSERT_EQ(shown.size(), 2u);
    EXPECT_EQ(shown[0]["options"], "mac-check=on");
    EXPECT_TRUE(ask("policy", "clear", "a")["ok"]);
    EXPECT_EQ(ask("policy", "show", "")["rows"].size(), 1u);
}

TEST_F(NetworkControlTest, SaysWhatIsWrong) {
    start();
    const auto error = [&](const json& answer) {
        EXPECT_FALSE(answer["ok"]);
        return answer.value("error", "");
    };
    EXPECT_EQ(error(ask("fault", "set", "c", {{"options", "loss=1%"}})), "there is no NIC 'c'");
    EXPECT_EQ(error(ask("fault", "set", "a", {{"options", "lose=1%"}})), "unknown key 'lose'");
    EXPECT_NE(error(ask("fault", "break")), "");
    EXPECT_NE(
        error(ask("policy", "set", "a", {{"options", "acl=forbid any"}})).find("allow or deny"),
        std::string::npos);
    EXPECT_NE(error(ask("policy", "set", "a", {{"options", "flow-log=/dev/null/x"}}))
                  .find("Not a directory"),
              std::string::npos);
    EXPECT_NE(error(ask("policy", "what")), "");
    EXPECT_EQ(error(ask("policy", "set", "a", {{"options", "nic=b,limit=1G"}})),
              "the NIC is named before the options");
    EXPECT_EQ(error(ask("fault", "set", "a", {{"options", "nic=b,loss=1%"}})),
              "the NIC is named before the options");
    EXPECT_NE(error(ask("policy", "set", "a", {{"options", "flow-log=flows"}})), "");
    EXPECT_NE(error(ask("capture", "start", "a", {{"file", "a.pcap"}})), "");
    EXPECT_NE(error(ask("capture", "what")), "");
    EXPECT_NE(error(ask("capture", "start")), "");
}

TEST_F(NetworkControlTest, TheCommandLineIsApplied) {
    options.pcap = directory / "all.pcap";
    options.uplinks.push_back(*parse_uplink("stream=" + (directory / "s").string() + ",listen"));
    options.faults.push_back(*parse_faults("nic=a,loss=1%"));
    options.policies.push_back(*parse_policy("nic=b,limit=1G"));
    start();
    EXPECT_EQ(size(options.pcap), 24u);
    EXPECT_EQ(ask("fault", "show", "")["rows"].size(), 2u);
    EXPECT_EQ(ask("policy", "show", "")["rows"].size(), 1u);
    EXPECT_EQ(ask("capture", "show", "")["rows"][0]["nic"], "all");
    const json uplinks = daemon->handle({{"command", "uplinks"}})["uplinks"];
    ASSERT_EQ(uplinks.size(), 1u);
    EXPECT_EQ(uplinks[0]["connected"], false);
    EXPECT_TRUE(uplinks[0]["counters"].contains("fabric.uplink.tx_frames"));
    const json stats = daemon->handle({{"command", "stats"}});
    EXPECT_TRUE(stats["nics"][0]["counters"].contains("fabric.fault.lost"));
}

TEST_F(NetworkControlTest, EncryptedUplinksBeginNewKeysWhenTheyAreAsked) {
    const std::string file = directory / "key";
    std::ofstream(file) << std::string(64, '1');
    std::filesystem::permissions(file, std::filesystem::perms(0600));
    const auto [local, remote] = test::free_udp_addresses();
    options.uplinks.push_back(*parse_uplink("udp=local=" + local.text() +
                                            ",remote=" + remote.text() + ",key-file=" + file));
    options.uplinks.push_back(*parse_uplink("stream=" + (directory / "s").string() + ",listen"));
    start();
    const auto rekey = [&](const char* uplink) {
        json request = {{"command", "rekey"}};
        if (uplink != nullptr) request["uplink"] = uplink;
        const json answer = daemon->handle(request);
        return answer["ok"] == true ? std::string() : answer.value("error", "");
    };
    EXPECT_EQ(rekey(nullptr), "");
    EXPECT_EQ(rekey(options.uplinks[0].name.c_str()), "");
    EXPECT_NE(rekey(options.uplinks[1].name.c_str()).find("is not encrypted"), std::string::npos);
    EXPECT_EQ(rekey("no"), "there is no uplink 'no'");
    std::ofstream(file) << "nonsense";
    EXPECT_NE(rekey(nullptr).find("a key is 64 hex digits"), std::string::npos);
    const json uplinks = daemon->handle({{"command", "uplinks"}})["uplinks"];
    EXPECT_TRUE(uplinks[0]["counters"].contains("fabric.uplink.esp_forged"));
    EXPECT_FALSE(uplinks[1]["counters"].contains("fabric.uplink.esp_forged"));
    EXPECT_EQ(uplinks.dump().find("1111"), std::string::npos);
}

TEST_F(NetworkControlTest, WhatCannotBeHadEndsTheStart) {
    options.pcap = directory / "no" / "all.pcap";
    EXPECT_EQ(refusal(), options.pcap);
    options.pcap.clear();
    options.uplinks.push_back(
        *parse_uplink("stream=" + (directory / "no" / "s").string() + ",listen"));
    EXPECT_EQ(refusal(), options.uplinks[0].name);
    options.uplinks.clear();
    options.policies.push_back(*parse_policy("nic=b,flow-log=/dev/null/x"));
    EXPECT_EQ(refusal(), "/dev/null/x");
}

}  // namespace
}  // namespace openmana::manad
