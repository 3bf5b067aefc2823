// SPDX-License-Identifier: Apache-2.0
// What the network of a daemon has goes along when another process takes its place: uplinks,
// captures, flow logs, faults. Nothing of it is lost, and nothing is there twice.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "base/endian.h"
#include "base/socket_address.h"
#include "fabric/vxlan.h"
#include "support/eventually.h"
#include "take_over_fixture.h"

namespace openmana::test {
namespace {

using namespace std::chrono_literals;

std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// That address, with whichever port the host gives.
base::SocketAddress any_port(const char* text) {
    base::SocketAddress address = *base::SocketAddress::parse(text);
    reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = 0;
    return address;
}

/// A frame from a station that nobody knows, for all.
std::vector<std::byte> broadcast(std::uint8_t station) {
    std::vector<std::byte> frame(60);
    for (std::size_t i = 0; i < 6; ++i) frame[i] = std::byte{0xff};
    frame[6] = std::byte{0x06};
    frame[11] = std::byte{station};
    frame[12] = std::byte{0x88};
    frame[13] = std::byte{0xb5};
    return frame;
}

class TakeOverNetworkTest : public TakeOverTest {
protected:
    /// Of the only uplink.
    std::uint64_t uplink_counter(const char* name) const {
        return ask({{"command", "uplinks"}})["uplinks"][0]["counters"][name].get<std::uint64_t>();
    }
    json set(const char* command, const char* action, const std::string& options) const {
        return ask({{"command", command}, {"action", action}, {"nic", "a"}, {"options", options}});
    }
    json show(const char* command) const {
        return ask({{"command", command}, {"action", "show"}})["rows"];
    }
    void exchange_some(int rounds = 20) {
        for (int i = 0; i < rounds; ++i) ASSERT_NO_FATAL_FAILURE(exchange());
    }
};

class TakeOverStreamTest : public TakeOverNetworkTest {
protected:
    static bool send(const base::UniqueFd& socket, std::span<const std::byte> bytes) {
        return ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(bytes.size());
    }
    static std::vector<std::byte> with_length(const std::vector<std::byte>& frame) {
        std::vector<std::byte> all(4);
        base::store_be(all.data(), static_cast<std::uint32_t>(frame.size()));
        all.insert(all.end(), frame.begin(), frame.end());
        return all;
    }
};

TEST_F(TakeOverStreamTest, AConnectionGoesOnInTheMiddleOfAFrame) {
    more_ = {"--uplink", "stream=" + folder_ + "/other,listen"};
    start();
    attach();
    auto socket = base::connect_unix(folder_ + "/other");
    ASSERT_TRUE(socket.has_value());
    const auto frame = with_length(broadcast(1));
    ASSERT_TRUE(send(*socket, frame));
    ASSERT_TRUE(send(*socket, std::span(frame).first(30)));
    ASSERT_TRUE(eventually([&] { return uplink_counter("fabric.uplink.rx_frames") == 1; }));
    ASSERT_NO_FATAL_FAILURE(take_over());
    ASSERT_TRUE(send(*socket, std::span(frame).subspan(30)));
    EXPECT_TRUE(eventually([&] { return uplink_counter("fabric.uplink.rx_frames") == 2; }));
    EXPECT_EQ(uplink_counter("fabric.uplink.protocol_errors"), 0);
    EXPECT_EQ(uplink_counter("fabric.uplink.connects"), 1);
    // The next one is waited for at the same path.
    socket->reset();
    ASSERT_TRUE(eventually([&] {
        return ask({{"command", "uplinks"}})["uplinks"][0]["connected"] == false;
    }));
    const auto another = base::connect_unix(folder_ + "/other");
    ASSERT_TRUE(another.has_value());
    EXPECT_TRUE(eventually([&] { return uplink_counter("fabric.uplink.connects") == 2; }));
}

TEST_F(TakeOverStreamTest, WhatTheOtherEndHasNotTakenYetComes) {
    more_ = {"--uplink", "stream=" + folder_ + "/other,listen"};
    start();
    attach();
    const auto socket = base::connect_unix(folder_ + "/other");
    ASSERT_TRUE(socket.has_value());
    // To a station that only the uplink can have, until its socket is full.
    Peer nobody = b_->as_peer(0x900);
    nobody.mac = {0x02, 0, 0, 0, 0, 0x77};
    auto& host = *a_->host;
    const auto cq = host.create_cq();
    const auto lost = host.create_rc(*cq, *cq);
    ASSERT_TRUE(host.connect(*lost, 0x100, nobody, 1024));
    for (std::uint64_t i = 0; i < 64; ++i)
        ASSERT_TRUE(host.post_send(
            *lost, {.opcode = MANA_HW_RNIC_WQE_SEND, .sges = {a_->slot(0)}, .id = i}));
    ASSERT_TRUE(eventually([&] { return uplink_counter("fabric.uplink.tx_frames") >= 100; }));
    ASSERT_NO_FATAL_FAILURE(take_over());
    // What there is are frames from the first byte to the last that fits.
    std::vector<std::byte> all;
    std::size_t frames = 0;
    std::size_t at = 0;
    const auto sent = [&] { return uplink_counter("fabric.uplink.tx_frames"); };
    for (int i = 0; i < 2000 && frames < sent(); ++i) {
        std::byte buffer[65536];
        const ssize_t n = ::recv(socket->get(), buffer, sizeof buffer, MSG_DONTWAIT);
        if (n > 0) all.insert(all.end(), buffer, buffer + n);
        while (all.size() - at >= 4) {
            const auto length = base::load_be<std::uint32_t>(all.data() + at);
            ASSERT_TRUE(length >= 60 && length <= 9100) << "no length of a frame: " << length;
            if (all.size() - at - 4 < length) break;
            at += 4 + length;
            ++frames;
        }
        if (n <= 0) ::usleep(1000);
    }
    EXPECT_GE(frames, sent());
    EXPECT_EQ(at, all.size());
}

TEST_F(TakeOverStreamTest, OneThatGoesToAnOtherEndHasNoSecondConnection) {
    auto listener = base::UnixListener::create({folder_ + "/other"});
    ASSERT_TRUE(listener.has_value());
    more_ = {"--uplink", "stream=" + folder_ + "/other"};
    start();
    attach();
    base::UniqueFd connection;
    ASSERT_TRUE(eventually([&] { return static_cast<bool>(connection = listener->accept()); }));
    ASSERT_NO_FATAL_FAILURE(take_over());
    ASSERT_TRUE(send(connection, with_length(broadcast(1))));
    EXPECT_TRUE(eventually([&] { return uplink_counter("fabric.uplink.rx_frames") == 1; }));
    EXPECT_FALSE(listener->accept()) << "another connection";
}

TEST_F(TakeOverNetworkTest, AVxlanNetworkKnowsWhoIsBehindWhichEnd) {
    // A port that was free a moment ago.
    const auto local = any_port("127.0.0.1:1");
    base::UniqueFd probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(probe.get(), local.get(), local.length), 0);
    base::SocketAddress bound;
    bound.length = sizeof bound.storage;
    ASSERT_EQ(::getsockname(probe.get(), bound.get(), &bound.length), 0);
    probe.reset();
    const std::string table = folder_ + "/table";
    std::ofstream(table) << "02:00:00:00:00:55 dst 127.0.0.3\n";
    more_ = {"--uplink", "vxlan=local=" + bound.text() + ",vni=7,remote=127.0.0.2,fdb=" + table,
             "--uplink", "vxlan=local=" + bound.text() + ",vni=8,remote=127.0.0.2,network=other"};
    start();
    attach();
    const base::UniqueFd peer(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const auto address = any_port("127.0.0.2:1");
    ASSERT_EQ(::bind(peer.get(), address.get(), address.length), 0);
    const auto send = [&](std::uint8_t station) {
        const auto head = fabric::encode_vxlan(7);
        auto datagram = std::vector<std::byte>(head.begin(), head.end());
        const auto frame = broadcast(station);
        datagram.insert(datagram.end(), frame.begin(), frame.end());
        ASSERT_EQ(
            ::sendto(peer.get(), datagram.data(), datagram.size(), 0, bound.get(), bound.length),
            static_cast<ssize_t>(datagram.size()));
    };
    const auto table_rows = [&] {
        json rows = ask({{"command", "fdb"}})["rows"];
        std::multiset<std::string> all;
        for (json& row : rows) {
            row.erase("age_s");
            all.insert(row.dump());
        }
        return all;
    };
    send(1);
    ASSERT_EQ(
        ask({{"command", "fdb"}, {"line", "add 02:00:00:00:00:66 dst 127.0.0.4 src_vni 7"}})["ok"],
        true);
    ASSERT_TRUE(eventually([&] { return table_rows().size() >= 5; })) << ask({{"command", "fdb"}});
    const auto before = table_rows();
    ASSERT_NO_FATAL_FAILURE(take_over());
    EXPECT_EQ(table_rows(), before);
    const std::uint64_t frames = uplink_counter("fabric.uplink.rx_frames");
    EXPECT_GE(frames, 1);
    send(2);
    EXPECT_TRUE(eventually([&] { return uplink_counter("fabric.uplink.rx_frames") > frames; }));
    // The file is watched by the one that goes on.
    std::ofstream(table) << "02:00:00:00:00:57 dst 127.0.0.3\n";
    EXPECT_TRUE(eventually([&] {
        return ask({{"command", "fdb"}}).dump().find("02:00:00:00:00:57") != std::string::npos;
    }));
}

/// The packets of a pcap file: their times, and whether they are whole.
std::vector<std::uint64_t> times_of(const std::string& file) {
    std::vector<std::uint64_t> times;
    const auto field = [&](std::size_t at) {
        return base::load_le<std::uint32_t>(file.data() + at);
    };
    OM_CHECK(file.size() >= 24 && field(0) == 0xa1b23c4d);
    for (std::size_t at = 24; at < file.size();) {
        OM_CHECK(file.size() - at >= 16 && file.size() - at - 16 >= field(at + 8));
        times.push_back(std::uint64_t{field(at)} * 1'000'000'000 + field(at + 4));
        at += 16 + field(at + 8);
    }
    return times;
}

TEST_F(TakeOverNetworkTest, ACaptureGoesOnInTheSameFile) {
    start();
    attach();
    const std::string file = folder_ + "/a.pcap";
    ASSERT_EQ(
        ask({{"command", "capture"}, {"action", "start"}, {"nic", "a"}, {"file", file}})["ok"],
        true);
    exchange_some();
    for (int i = 0; i < 3; ++i) {
        ASSERT_NO_FATAL_FAILURE(take_over());
        exchange_some();
    }
    const json row = show("capture")[0];
    const json end = ask({{"command", "capture"}, {"action", "stop"}, {"nic", "a"}});
    ASSERT_EQ(end["ok"], true) << end;
    const auto times = times_of(content_of(file));
    EXPECT_EQ(times.size(), end["frames"].get<std::size_t>());
    EXPECT_GE(times.size(), row["frames"].get<std::size_t>());
    EXPECT_GE(times.size(), 4U * 20 * 2);
    EXPECT_TRUE(std::ranges::is_sorted(times)) << "a time went back";
}

TEST_F(TakeOverNetworkTest, ACaptureOfEverythingGoesOnInTheSameFile) {
    const std::string file = folder_ + "/all.pcap";
    more_ = {"--pcap", file};
    start();
    attach();
    exchange_some();
    ASSERT_NO_FATAL_FAILURE(take_over());
    exchange_some();
    const json row = show("capture")[0];
    const auto times = times_of(content_of(file));
    EXPECT_GE(times.size(), row["frames"].get<std::size_t>());
    EXPECT_GE(times.size(), 2U * 20 * 2);
    EXPECT_TRUE(std::ranges::is_sorted(times)) << "a time went back";
}

TEST_F(TakeOverNetworkTest, AFlowLogHasEachConnectionOnce) {
    start();
    attach();
    const std::string file = folder_ + "/flows";
    ASSERT_EQ(set("policy", "set", "flow-log=" + file)["ok"], true);
    exchange_some();
    ASSERT_NO_FATAL_FAILURE(take_over());
    exchange_some();
    ASSERT_NO_FATAL_FAILURE(take_over());
    ASSERT_EQ(ask({{"command", "policy"}, {"action", "clear"}, {"nic", "a"}})["ok"], true);
    std::map<std::string, int> events;
    std::set<std::string> starts;
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
        const json event = json::parse(line, nullptr, false);
        ASSERT_TRUE(event.is_object()) << line;
        ++events[event["event"].get<std::string>()];
        starts.insert(event["start"].get<std::string>());
        if (event["event"] == "end") {
            // Each SEND of a, and its acknowledgement; each WRITE of b.
            EXPECT_EQ(event["tx_operations"].get<std::uint64_t>(), round_ - 1) << line;
            EXPECT_EQ(event["rx_operations"].get<std::uint64_t>(), round_ - 1) << line;
            EXPECT_EQ(event["retransmits"], 0) << line;
        }
    }
    EXPECT_EQ(events["start"], 1);
    EXPECT_EQ(events["end"], 1);
    EXPECT_EQ(starts.size(), 1) << "an end has another start than the start";
}

TEST_F(TakeOverNetworkTest, FaultsAreWhatTheyWereLast) {
    start();
    attach();
    ASSERT_EQ(set("fault", "set", "dir=tx,dup=10%,seed=5")["ok"], true);
    ASSERT_EQ(set("fault", "set", "dir=rx,delay=100us")["ok"], true);
    exchange_some();
    const json before = show("fault");
    ASSERT_EQ(before.size(), 2) << before;
    const auto duplicated = [&] {
        const json stats = ask({{"command", "stats"}});
        for (const json& nic : stats["nics"])
            if (nic["nic"] == "a")
                return nic["counters"]["fabric.fault.duplicated"].get<std::uint64_t>();
        return std::uint64_t{0};
    };
    const std::uint64_t count = duplicated();
    ASSERT_NO_FATAL_FAILURE(take_over());
    EXPECT_EQ(show("fault"), before);
    EXPECT_GE(duplicated(), count);
    exchange_some();
    EXPECT_GT(duplicated(), count);
}

TEST_F(TakeOverNetworkTest, SocketsAreGoneWithTheLastOne) {
    start();
    attach();
    ASSERT_NO_FATAL_FAILURE(take_over());
    a_.reset();
    b_.reset();
    ::kill(manad_->pid(), SIGTERM);
    (void)manad_->wait();
    for (const char* name : {"/a", "/b", "/control", "/metrics"})
        EXPECT_FALSE(std::filesystem::exists(folder_ + name)) << name;
}

}  // namespace
}  // namespace openmana::test
