// SPDX-License-Identifier: Apache-2.0
// A daemon of several networks; its threads do not run.
#include "manad/networks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "manad/daemon.h"
#include "support/eventually.h"
#include "support/loopback.h"
#include "unit/fabric/frames.h"

namespace openmana::manad {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

class NetworksTest : public ::testing::Test {
protected:
    NetworksTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "networks-XXXXXX").string();
        directory = ::mkdtemp(pattern.data());
    }
    ~NetworksTest() override {
        daemon.reset();
        std::filesystem::remove_all(directory);
    }
    void add(const std::string& name, const std::string& network, const base::MacAddr& mac) {
        NicOptions nic;
        nic.nic.name = name;
        nic.nic.mac = mac;
        nic.network = network;
        nic.socket = directory / name;
        options.nics.push_back(nic);
    }
    void start() {
        std::string subject;
        auto created = Daemon::create(options, subject);
        ASSERT_TRUE(created.has_value()) << subject << ": " << created.error().text;
        daemon = std::move(*created);
    }
    /// As a guest does, a frame to each; once for each NIC.
    void send(const std::string& nic, const std::vector<base::MacAddr>& destinations) {
        base::EventLoop& loop = daemon->find(nic)->thread().loop();
        loop.post([&] {
            fabric::test::FrameMaker maker;
            maker.source_mac = daemon->find(nic)->nic().config().mac;
            for (const base::MacAddr& destination : destinations) {
                maker.destination_mac = destination;
                daemon->find(nic)->nic().path().from_guest(maker.udp(1, 2));
            }
            loop.post([&] { loop.stop(); });
        });
        loop.run();
    }
    std::uint64_t received(const std::string& nic) {
        return daemon->find(nic)->nic().counters().rx_frames.value();
    }
    /// Names of all rows that have one.
    static std::vector<std::string> names(const json& rows, const char* key) {
        std::vector<std::string> names;
        for (const json& row : rows) names.push_back(row.value(key, ""));
        return names;
    }

    static constexpr base::MacAddr kMac1{2, 0, 0, 0, 0, 1};
    static constexpr base::MacAddr kMac2{2, 0, 0, 0, 0, 2};
    static constexpr base::MacAddr kAll{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    std::filesystem::path directory;
    Options options;
    std::unique_ptr<Daemon> daemon;
};

TEST_F(NetworksTest, AreNamedInStatusStatsAndUplinks) {
    add("a", "red", kMac1);
    add("b", "red", kMac2);
    add("c", "blue", kMac1);
    options.uplinks.push_back(
        *parse_uplink("stream=" + (directory / "s").string() + ",listen,network=green"));
    start();
    const auto ask = [&](const char* command) { return daemon->handle({{"command", command}}); };
    EXPECT_THAT(names(ask("status")["nics"], "network"), ElementsAre("red", "red", "blue"));
    EXPECT_EQ(ask("uplinks")["uplinks"][0]["network"], "green");
    send("a", {kMac2, kAll});
    send("c", {kMac2});
    const json stats = ask("stats");
    EXPECT_THAT(names(stats["nics"], "network"), ElementsAre("red", "red", "blue"));
    EXPECT_THAT(names(stats["networks"], "network"), ElementsAre("red", "blue", "green"));
    const auto count = [&](std::size_t network, const char* name) {
        return stats["networks"][network]["counters"].value(name, -1);
    };
    EXPECT_EQ(count(0, "fabric.switch.forwarded"), 1);
    EXPECT_EQ(count(0, "fabric.switch.flooded"), 1);
    EXPECT_EQ(count(1, "fabric.switch.forwarded"), 0) << "B is not there";
    EXPECT_EQ(count(1, "fabric.switch.flooded"), 1);
    EXPECT_EQ(count(2, "fabric.switch.flooded"), 0);
    EXPECT_EQ(stats["switch"].value("fabric.switch.flooded", -1), 2) << "of all";
    EXPECT_EQ(received("b"), 2U);
    EXPECT_EQ(received("c"), 0U);
}

TEST_F(NetworksTest, OneNicInOneServesItsUdpUplinks) {
    add("a", "red", kMac1);
    add("b", "blue", kMac1);
    add("c", "blue", kMac2);
    for (const char* const network : {"red", "blue", "green"}) {
        const auto [local, remote] = ::openmana::test::free_udp_addresses();
        options.uplinks.push_back(*parse_uplink(fmt::format("udp=local={},remote={},network={}",
                                                            local.text(), remote.text(), network)));
    }
    start();
    const auto threads = [&] {
        std::vector<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
            std::string name;
            std::getline(std::ifstream(entry.path() / "comm"), name);
            names.push_back(name);
        }
        return std::ranges::count(names, "uplink");
    };
    ASSERT_TRUE(daemon->start());
    EXPECT_TRUE(::openmana::test::eventually([&] { return threads() == 2; }))
        << threads() << ", not that of blue, which has two NICs, and of green, which has none";
}

TEST_F(NetworksTest, ACaptureOfAllSaysWhichAFrameWasIn) {
    add("a", "red", kMac1);
    add("b", "blue", kMac1);
    options.pcap = directory / "all.pcap";
    start();
    const auto file_size = [&] { return std::filesystem::file_size(options.pcap); };
    const auto empty = file_size();
    send("b", {kAll, kAll, kAll});
    send("a", {kAll});
    ASSERT_EQ(daemon->handle({{"command", "capture"}, {"action", "show"}})["rows"][0]["frames"], 4);
    std::ifstream file(options.pcap, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(bytes.find("red"), std::string::npos);
    EXPECT_NE(bytes.find("blue"), std::string::npos);
    std::vector<std::uint32_t> interfaces;
    for (std::size_t at = empty; at + 12 <= bytes.size();
         at += base::load_le<std::uint32_t>(bytes.data() + at + 4))
        interfaces.push_back(base::load_le<std::uint32_t>(bytes.data() + at + 8));
    EXPECT_THAT(interfaces, ElementsAre(1, 1, 1, 0));
}

TEST_F(NetworksTest, TwoHundredNicsInSixtyFourOfThemMeetTheirOwnAlone) {
    constexpr std::size_t kNics = 200, kNetworks = 64;
    for (std::size_t i = 0; i < kNics; ++i)
        add(fmt::format("n{}", i), fmt::format("net{}", i % kNetworks),
            {2, 0, 0, 0, 1, static_cast<std::uint8_t>(i / kNetworks)});
    start();
    send("n1", {kAll, {2, 0, 0, 0, 1, 2}});
    for (std::size_t i = 0; i < kNics; ++i) {
        const std::uint64_t expected = i == 1 || i % kNetworks != 1 ? 0 : i == 129 ? 2 : 1;
        EXPECT_EQ(received(fmt::format("n{}", i)), expected) << i;
    }
    EXPECT_EQ(daemon->handle({{"command", "stats"}})["networks"].size(), kNetworks);
}

}  // namespace
}  // namespace openmana::manad
