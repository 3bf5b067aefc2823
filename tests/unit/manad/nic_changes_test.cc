// SPDX-License-Identifier: Apache-2.0
// NICs that come and go while others are in traffic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mana/rnic_queue.h>

#include <array>
#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/endian.h"
#include "base/gate.h"
#include "daemon_fixture.h"
#include "held_loop.h"
#include "support/loopback.h"
#include "support/remote_nic.h"

namespace openmana::manad {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

/// A guest with a driver, and memory that a peer may write to.
struct Guest {
    static constexpr std::uint64_t kBytes = 64U << 10;

    static std::unique_ptr<Guest> start(const std::string& socket, std::uint8_t number) {
        auto guest = std::make_unique<Guest>();
        guest->nic = test::RemoteNic::attach(socket);
        if (!guest->nic) return nullptr;
        guest->host.emplace(*guest->nic, guest->nic->ram(), guest->nic->irq(),
                            test::test_mac(number), test::ipv4_gid(number));
        if (!guest->host->bring_up()) return nullptr;
        guest->memory = guest->host->ram().alloc(kBytes);
        const auto mr = guest->host->hwc().create_mr(guest->host->pd, guest->memory, kBytes, 15);
        if (!mr) return nullptr;
        guest->mr = *mr;
        return guest;
    }
    /// A queue pair of its own for each life of a peer.
    bool make_qp() {
        auto made = host->create_cq(16384);
        if (!made) return false;
        cq = std::move(*made);
        qp = host->create_rc(cq, cq, 8192);
        return qp != nullptr;
    }
    [[nodiscard]] test::Peer peer() const { return {host->gid(), host->mac(), qp->qpn(), kPsn}; }
    bool connect(const test::Peer& to) { return host->connect(*qp, kPsn, to); }
    /// False if there is no room for it now.
    bool write(const Guest& to, std::uint64_t value, bool ring = true) {
        base::store_le<std::uint64_t>(host->ram().at(memory), value);
        test::SendWr wr;
        wr.opcode = MANA_HW_RNIC_WQE_WRITE;
        wr.sges = {{memory.value(), gdma::Key(mr.lkey), kBytes / 2}};
        wr.remote_address = to.memory.value() + kBytes / 2;
        wr.rkey = to.mr.rkey;
        return host->post_send(*qp, wr, ring);
    }
    /// What came of the oldest.
    test::Completion completion() {
        std::vector<test::Completion> done;
        test::HostQp* const mine = qp.get();
        if (!eventually([&] {
                host->poll(cq, std::span(&mine, 1), done);
                return !done.empty();
            }))
            return {.vendor = ~0U};
        return done.front();
    }
    [[nodiscard]] std::uint64_t got() {
        return base::load_le<std::uint64_t>(host->ram().at(memory + kBytes / 2));
    }

    static constexpr std::uint32_t kPsn = 1000;
    std::unique_ptr<test::RemoteNic> nic;
    std::optional<test::RdmaHost> host;
    base::GuestAddr memory{};
    test::DriverMr mr;
    test::DriverCq cq;
    std::unique_ptr<test::HostQp> qp;
};

bool connect(Guest& one, Guest& other) {
    return one.make_qp() && other.make_qp() && one.connect(other.peer()) &&
           other.connect(one.peer());
}

class NicChangesTest : public DaemonTest {
protected:
    static json adding(const std::string& options) {
        return {{"command", "nic"}, {"action", "add"}, {"options", options}};
    }
    [[nodiscard]] json adding_d() const {
        return adding("id=d,socket=" + socket("d") + ",mac=" + to_string(test::test_mac(4)));
    }
    static json removing(const char* nic, bool force = false) {
        return {{"command", "nic"}, {"action", "remove"}, {"nic", nic}, {"force", force}};
    }
    [[nodiscard]] std::string socket(const char* nic) const { return directory / nic; }
    [[nodiscard]] std::string error(const json& request) const {
        return ask(request).value("error", "");
    }
    /// Whether all that left are gone.
    [[nodiscard]] bool all_gone() const {
        return eventually([&] { return ask({{"command", "status"}})["leaving"] == 0; });
    }
};

TEST_F(NicChangesTest, ANicThatComesServesItsGuestBesideTheOthers) {
    ASSERT_EQ(ask(adding_d())["ok"], true);
    EXPECT_THAT(names(), ElementsAre("a", "b", "c", "d"));
    const auto d = Guest::start(socket("d"), 4);
    const auto a = Guest::start(socket("a"), 1);
    ASSERT_TRUE(d && a && connect(*d, *a));
    ASSERT_TRUE(d->write(*a, 0x1234));
    EXPECT_EQ(d->completion().vendor, 0U);
    EXPECT_EQ(a->got(), 0x1234U);
}

TEST_F(NicChangesTest, ANicThatWasRemovedIsGone) {
    ASSERT_EQ(ask(removing("b"))["ok"], true);
    EXPECT_THAT(names(), ElementsAre("a", "c"));
    EXPECT_FALSE(std::filesystem::exists(socket("b")));
    EXPECT_EQ(daemon->sockets().size(), 3U) << "a, c and that for control";
    EXPECT_EQ(error(removing("b")), "there is no NIC 'b'");
    EXPECT_TRUE(all_gone());
}

TEST_F(NicChangesTest, ANicWithAClientIsRemovedByForceOnly) {
    const auto a = Guest::start(socket("a"), 1);
    ASSERT_TRUE(a);
    EXPECT_EQ(error(removing("a")),
              "NIC 'a' has a client: take the device from the guest first, or force it");
    EXPECT_TRUE(a->host->hwc().create_pd().has_value()) << "it works as before";
    ASSERT_EQ(ask(removing("a", true))["ok"], true);
    EXPECT_FALSE(a->nic->client().read(0, 0, 4).has_value()) << "the connection has ended";
    EXPECT_TRUE(all_gone());
}

TEST_F(NicChangesTest, WhatContradictsOthersIsRefused) {
    EXPECT_EQ(error(adding("id=a,socket=" + socket("d"))), "two NICs have the id a");
    EXPECT_EQ(error(adding("id=d,socket=" + socket("a"))),
              "socket " + socket("a") + " is named twice");
    EXPECT_EQ(error(adding("id=d,socket=" + socket("d") + ",mac=" + to_string(test::test_mac(1)))),
              "two NICs of the network default have the address " + to_string(test::test_mac(1)));
    EXPECT_EQ(error(adding("id=d")), "socket= is missing");
    EXPECT_EQ(error(adding("id=d,socket=d")), "socket=d is not an absolute path");
    EXPECT_THAT(error(adding("id=d,socket=/nowhere/d")),
                StartsWith("/nowhere/d: cannot bind the socket: "));
    json request = adding("id=d,socket=" + socket("d"));
    request["policy"] = "mac-check=maybe";
    EXPECT_EQ(error(request), "policy: mac-check=maybe is not 'on' or 'off'");
    request["policy"] = "flow-log=/nowhere/log";
    EXPECT_THAT(error(request), StartsWith("/nowhere/log: "));
    EXPECT_EQ(error({{"command", "nic"}, {"action", "move"}}), "'action' is 'add' or 'remove'");
    EXPECT_EQ(error({{"command", "nic"}, {"action", 5}}), "'action' is 'add' or 'remove'");
    EXPECT_THAT(names(), ElementsAre("a", "b", "c"));
    EXPECT_EQ(ask(adding("id=d,socket=" + socket("d")))["ok"], true) << "nothing of it is left";
}

TEST_F(NicChangesTest, ANicComesWithItsPolicy) {
    json request = adding("id=d,socket=" + socket("d"));
    request["policy"] = "mac-check=on,ips=10.0.0.4";
    ASSERT_EQ(ask(request)["ok"], true);
    const json rows = this->rows("policy");
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_EQ(rows[0]["nic"], "d");
    EXPECT_EQ(rows[0]["options"], "ips=10.0.0.4,mac-check=on");
    ASSERT_EQ(ask(removing("d"))["ok"], true);
    EXPECT_TRUE(this->rows("policy").empty());
    ASSERT_EQ(ask(adding_d())["ok"], true);
    EXPECT_TRUE(this->rows("policy").empty()) << "another NIC of that name has none";
}

TEST_F(NicChangesTest, TheFilesOfANicThatGoesAreWhole) {
    const std::string file = directory / "a.pcap";
    ASSERT_EQ(
        ask({{"command", "capture"}, {"action", "start"}, {"nic", "a"}, {"file", file}})["ok"],
        true);
    loop_of("a").post([&of = nic("a").nic()] { of.path().from_guest(base::Frame(60)); });
    ASSERT_EQ(ask(removing("a"))["ok"], true);
    EXPECT_TRUE(all_gone());
    EXPECT_EQ(std::filesystem::file_size(file), 24U + 16 + 60);
}

/// Its addresses are free for those who come after it.
TEST_F(NicChangesTest, ANicMayComeAgain) {
    for (int round = 0; round < 3; ++round) {
        ASSERT_EQ(ask(adding_d())["ok"], true) << round;
        const auto d = Guest::start(socket("d"), 4);
        const auto a = Guest::start(socket("a"), 1);
        ASSERT_TRUE(d && a && connect(*a, *d)) << round;
        ASSERT_TRUE(a->write(*d, 7));
        EXPECT_EQ(a->completion().vendor, 0U);
        ASSERT_EQ(ask(removing("d", true))["ok"], true);
        ASSERT_TRUE(a->write(*d, 8));
        EXPECT_NE(a->completion().vendor, 0U) << "nobody answers";
    }
    EXPECT_TRUE(all_gone());
}

/// A thread that is at work may have found the NIC just before, and uses it until it is done.
TEST_F(NicChangesTest, ANicGoesWhenNobodyCanBeAtWorkWithItAnyMore) {
    HeldLoop b(loop_of("b"));
    ASSERT_EQ(ask(removing("a"))["ok"], true);
    EXPECT_THAT(names(), ElementsAre("b", "c"));
    ASSERT_EQ(ask(adding("id=a,socket=" + socket("a")))["ok"], true) << "the name is free";
    EXPECT_EQ(ask({{"command", "status"}})["leaving"], 1);
    b.release();
    EXPECT_TRUE(all_gone());
    EXPECT_THAT(names(), ElementsAre("b", "c", "a"));
}

TEST_F(NicChangesTest, ANicThatHangsStaysAsItIs) {
    {
        const HeldLoop a(loop_of("a"));
        EXPECT_THAT(error(removing("a", true)),
                    StartsWith("NIC 'a' does not answer: nothing was done; it is at: held"));
        EXPECT_THAT(names(), ElementsAre("a", "b", "c"));
    }
    EXPECT_TRUE(succeeds(removing("a")));
    EXPECT_TRUE(all_gone());
}

/// It is leaving, and comes to the end of that; nothing can be asked of it by then.
TEST_F(NicChangesTest, ANicThatTakesLongToLeaveIsRemovedAllTheSame) {
    {
        const base::Gate::Visit visit(nic("a").nic().function().gate());
        ASSERT_EQ(error(removing("a")), "");
        EXPECT_THAT(names(), ElementsAre("b", "c"));
    }
    EXPECT_TRUE(all_gone());
}

TEST_F(NicChangesTest, ItEndsWhileANicIsLeaving) {
    HeldLoop b(loop_of("b"));
    ASSERT_EQ(ask(removing("a"))["ok"], true);
    ASSERT_EQ(ask({{"command", "status"}})["leaving"], 1);
    daemon->stop();
    b.release();
    thread.join();
}

/// Under ThreadSanitizer as under the others: whoever touches a NIC that has gone is found.
TEST_F(NicChangesTest, OthersInTrafficDoNotNotice) {
    const auto a = Guest::start(socket("a"), 1);
    const auto b = Guest::start(socket("b"), 2);
    const auto c = Guest::start(socket("c"), 3);
    ASSERT_TRUE(a && b && c && connect(*a, *b));
    std::atomic<bool> stop{false};
    std::uint64_t wrong = 0;
    std::uint64_t writes = 0;
    std::thread traffic([&] {
        for (; !stop.load(std::memory_order_relaxed); ++writes)
            if (!a->write(*b, writes) || a->completion().vendor != 0 || b->got() != writes) ++wrong;
    });
    for (int round = 0; round < 20; ++round) {
        ASSERT_EQ(ask(adding_d())["ok"], true) << round;
        const auto d = Guest::start(socket("d"), 4);
        ASSERT_TRUE(d && connect(*c, *d)) << round;
        // c writes to d when that goes, and for a while after.
        std::atomic<bool> gone{false};
        std::thread writer([&] {
            for (std::uint64_t n = 0; !gone.load(std::memory_order_relaxed); ++n)
                if (!c->write(*d, n)) std::this_thread::yield();
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        EXPECT_EQ(ask(removing("d", true))["ok"], true);
        gone.store(true, std::memory_order_relaxed);
        writer.join();
        EXPECT_TRUE(c->host->destroy_rc(*c->qp));
    }
    stop.store(true, std::memory_order_relaxed);
    traffic.join();
    EXPECT_EQ(wrong, 0U) << "of " << writes;
    EXPECT_GT(writes, 20U);
    EXPECT_TRUE(all_gone());
}

/// A NIC alone with an uplink, which its thread serves.
class NicOfAnUplinkTest : public NicChangesTest {
protected:
    void configure(Options& options) override {
        options.nics.resize(1);
        const auto [local, remote] = test::free_udp_addresses();
        options.uplinks.push_back(
            *parse_uplink("udp=local=" + local.text() + ",remote=" + remote.text()));
        other_end = *parse_uplink("udp=local=" + remote.text() + ",remote=" + local.text());
    }
    [[nodiscard]] std::uint64_t came() const {
        return ask({{"command", "uplinks"}})["uplinks"][0]["counters"].value(
            "fabric.uplink.rx_frames", std::uint64_t{0});
    }
    fabric::UplinkConfig other_end;
};

TEST_F(NicOfAnUplinkTest, TheUplinkOutlivesIt) {
    ASSERT_EQ(ask(removing("a"))["ok"], true);
    EXPECT_TRUE(all_gone());
    EXPECT_TRUE(names().empty());
    const base::SystemClock clock;
    auto loop = base::EventLoop::create().value();
    fabric::Switch network(clock);
    const auto other = fabric::Uplink::create(*loop, network, other_end);
    ASSERT_TRUE(other.has_value()) << other.error().text;
    (*other)->deliver(base::Frame(60));
    EXPECT_TRUE(eventually([&] { return came() == 1; }));
    ASSERT_EQ(
        ask(adding("id=a,socket=" + socket("a") + ",mac=" + to_string(test::test_mac(1))))["ok"],
        true);
    EXPECT_NE(Guest::start(socket("a"), 1), nullptr);
}

/// Networks that nobody was in at the start.
class NewNetworksTest : public NicChangesTest {
protected:
    void configure(Options& options) override {
        for (NicOptions& nic : options.nics) nic.network = nic.nic.name == "c" ? "blue" : "red";
        all = directory / "all.pcap";
        options.pcap = all;
    }
    std::filesystem::path all;
};

TEST_F(NewNetworksTest, ANicMayBeTheFirstOfItsNetwork) {
    ASSERT_EQ(ask(adding("id=d,network=green,socket=" + socket("d")))["ok"], true);
    const json status = ask({{"command", "status"}});
    EXPECT_EQ(status["nics"][3]["network"], "green");
    EXPECT_EQ(ask({{"command", "stats"}})["networks"][2]["network"], "green");
    loop_of("d").post([&of = nic("d").nic()] { of.path().from_guest(base::Frame(60)); });
    EXPECT_TRUE(eventually([&] { return rows("capture")[0]["frames"] == 1; }));
    std::ifstream file(all, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(bytes.find("green"), std::string::npos) << "its frames are those of an interface";
}

/// The capture of one network is a file that knows no others.
class OneCaptureTest : public NicChangesTest {
protected:
    void configure(Options& options) override { options.pcap = directory / "all.pcap"; }
};

TEST_F(OneCaptureTest, ASecondNetworkIsRefused) {
    EXPECT_EQ(error(adding("id=d,network=green,socket=" + socket("d"))),
              "green: a capture that was begun with one network has no room for another");
    EXPECT_EQ(ask({{"command", "stats"}})["networks"].size(), 1U);
}

}  // namespace
}  // namespace openmana::manad
