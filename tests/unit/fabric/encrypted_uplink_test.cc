// SPDX-License-Identifier: Apache-2.0
// Two switches joined by an encrypted UDP uplink, through sockets of the loopback.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "fabric/uplink.h"
#include "support/loopback.h"
#include "support/temp_dir.h"
#include "unit/fabric/frames.h"

namespace openmana::fabric {
namespace {

using test::number_of;
using test::numbered;

class NumbersPort final : public Port {
public:
    void deliver(base::FrameViews frames) override {
        for (const base::FrameView frame : frames) seen.push_back(number_of(frame));
    }
    std::vector<std::uint32_t> seen;
};

class EncryptedUplinkTest : public ::testing::Test {
protected:
    /// One side: a switch, an uplink, and what came.
    struct Side {
        Side(const base::Clock& clock, const base::MacAddr& mac, std::string file)
            : network(clock), key_file(std::move(file)) {
            network.attach(port, &mac);
        }
        ~Side() {
            uplink.reset();
            network.detach(port);
        }
        [[nodiscard]] std::uint64_t counter(const std::string& name) const {
            std::uint64_t found = 0;
            uplink->visit_counters([&](const base::CounterInfo& info, std::uint64_t value) {
                if (info.name == "fabric.uplink." + name) found = value;
            });
            return found;
        }
        void write_key(char digit, mode_t mode = 0600) const {
            std::ofstream(key_file) << std::string(64, digit) << "\n";
            ASSERT_EQ(::chmod(key_file.c_str(), mode), 0);
        }
        Switch network;
        NumbersPort port;
        std::string key_file;
        UplinkConfig config;
        std::unique_ptr<Uplink> uplink;
    };
    EncryptedUplinkTest() {
        std::tie(near.config.local, near.config.remote) = ::openmana::test::free_udp_addresses();
        far.config.local = near.config.remote;
        far.config.remote = near.config.local;
        for (Side* side : {&near, &far}) {
            side->write_key('1');
            side->config.name = "test";
            side->config.encryption.key_file = side->key_file;
        }
    }
    void make(Side& side) {
        auto made = Uplink::create(*loop, side.network, side.config);
        ASSERT_TRUE(made) << made.error().text;
        side.uplink = std::move(*made);
    }
    void join() {
        make(near);
        make(far);
    }
    void serve_until(const std::function<bool()>& done) {
        const auto deadline = clock.now() + std::chrono::seconds(20);
        std::function<void()> look = [&] {
            if (done() || clock.now() > deadline)
                loop->stop();
            else
                loop->post(look);
        };
        loop->post(look);
        loop->run();
        ASSERT_TRUE(done());
    }
    /// A frame each way arrives.
    void talk() {
        const std::size_t before[] = {near.port.seen.size(), far.port.seen.size()};
        near.network.forward(near.port, numbered(1));
        serve_until([&] { return far.port.seen.size() == before[1] + 1; });
        far.network.forward(far.port, test::FrameMaker{}.reversed().udp(1, 2, 18));
        serve_until([&] { return near.port.seen.size() == before[0] + 1; });
    }

    base::SystemClock clock;
    const ::openmana::test::TempDir folder{"encrypted"};
    std::unique_ptr<base::EventLoop> loop = std::move(*base::EventLoop::create());
    Side near{clock, test::kMacA, folder.path() + "/near"};
    Side far{clock, test::kMacB, folder.path() + "/far"};
};

TEST_F(EncryptedUplinkTest, CarriesABurstOfAnySizesWholeAndInOrder) {
    join();
    talk();
    std::vector<base::Frame> frames;
    std::vector<base::FrameView> views;
    std::vector<std::uint32_t> numbers = far.port.seen;
    for (std::uint32_t i = 0; i < 300; ++i) {
        frames.push_back(numbered(i, 60 + (i % 7) * (i % 11) * 100));
        numbers.push_back(i);
    }
    for (const auto& frame : frames) views.emplace_back(frame);
    near.network.forward(near.port, views);
    serve_until([&] { return far.port.seen.size() == numbers.size(); });
    EXPECT_EQ(far.port.seen, numbers);
    EXPECT_EQ(near.counter("tx_frames"), 301U);
    EXPECT_EQ(far.counter("rx_frames"), 301U);
    EXPECT_EQ(far.counter("tx_dropped"), 0U);
}

TEST_F(EncryptedUplinkTest, WhatGoesOverThePathIsNoFrame) {
    make(near);
    base::UniqueFd listener(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(listener.get(), near.config.remote.get(), near.config.remote.length), 0);
    const base::Frame frame = numbered(7, 600);
    near.network.forward(near.port, frame);
    std::vector<std::byte> datagram(2000);
    const ssize_t size = ::recv(listener.get(), datagram.data(), datagram.size(), 0);
    ASSERT_EQ(size, static_cast<ssize_t>(esp::sealed_size(600)));
    const auto common = std::ranges::search(datagram, std::span(frame).subspan(20, 16));
    EXPECT_TRUE(common.empty());
}

TEST_F(EncryptedUplinkTest, TakesNothingThatIsNotEncrypted) {
    make(far);
    near.config.encryption.key_file.clear();
    make(near);
    EXPECT_EQ(near.uplink->encryption(), nullptr);
    near.network.forward(near.port, numbered(1, 600));
    serve_until([&] { return far.counter("esp_malformed") + far.counter("esp_unknown") == 1; });
    EXPECT_TRUE(far.port.seen.empty());
    EXPECT_EQ(far.counter("rx_frames"), 0U);
}

TEST_F(EncryptedUplinkTest, WithAnotherKeyNothingComes) {
    far.write_key('2');
    join();
    near.network.forward(near.port, numbered(1));
    serve_until([&] { return far.counter("esp_forged") >= 1; });
    EXPECT_TRUE(far.port.seen.empty());
    // Until the file is another one.
    far.write_key('1');
    const auto keys = far.counter("esp_forged");
    serve_until([&] {
        near.network.forward(near.port, numbered(2));
        return !far.port.seen.empty();
    });
    EXPECT_GE(far.counter("esp_forged"), keys);
}

TEST_F(EncryptedUplinkTest, AnUplinkThatIsMadeAnewIsInTouchAtOnce) {
    join();
    talk();
    far.uplink.reset();
    make(far);
    talk();
}

TEST_F(EncryptedUplinkTest, NewKeysCostNoFrame) {
    near.config.encryption.limits.packets = 10;
    join();
    for (std::uint32_t i = 0; i < 25; ++i) {
        near.network.forward(near.port, numbered(i));
        serve_until([&] { return far.port.seen.size() == i + 1; });
    }
    EXPECT_GE(near.counter("esp_rekeys"), 2U);
    EXPECT_TRUE(near.uplink->encryption()->rekey());
    talk();
}

/// Of memory that is left out of core dumps, which secrets are in.
std::size_t secret_kib() {
    std::ifstream maps("/proc/self/smaps");
    std::size_t size = 0;
    std::size_t sum = 0;
    for (std::string line; std::getline(maps, line);) {
        if (line.starts_with("Size:")) size = std::stoul(line.substr(5));
        if (line.starts_with("VmFlags:") && line.find(" dd") != std::string::npos) sum += size;
    }
    return sum;
}

TEST_F(EncryptedUplinkTest, AKeyThatIsTakenOutOfTheFileIsForgottenWithoutAPacket) {
    join();
    talk();
    const std::size_t before = secret_kib();
    near.write_key('2');
    ASSERT_TRUE(near.uplink->encryption()->rekey());
    EXPECT_EQ(secret_kib(), before);
}

TEST_F(EncryptedUplinkTest, ThreadsSendWhileTheKeyFileChanges) {
    join();
    talk();
    constexpr std::uint32_t kThreads = 3;
    constexpr std::uint32_t kFrames = 200;
    std::atomic<std::uint32_t> left{kThreads};
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < kThreads; ++t)
        threads.emplace_back([&] {
            // Not more at a time than a socket holds.
            for (std::uint32_t i = 0; i < kFrames; ++i) {
                const base::Frame frame = numbered(i, 200);
                near.uplink->deliver(base::FrameView(frame));
                std::this_thread::yield();
            }
            --left;
        });
    for (unsigned i = 0; left != 0; ++i) {
        for (const Side* side : {&near, &far})
            std::ofstream(side->key_file)
                << std::string(64, '1') << "\n"
                << std::string(64, static_cast<char>('2' + i % 8)) << "\n";
        loop->post([this] { loop->stop(); });
        loop->run();
    }
    for (auto& thread : threads) thread.join();
    serve_until([&] { return far.counter("rx_frames") == kThreads * kFrames + 1; });
    EXPECT_EQ(far.counter("esp_forged") + far.counter("esp_old"), 0U);
}

TEST_F(EncryptedUplinkTest, NeedsItsKeyFileAndAnAddress) {
    const auto refusal = [&] {
        const auto made = Uplink::create(*loop, near.network, near.config);
        return std::string(made ? "" : made.error().text);
    };
    near.write_key('1', 0644);
    EXPECT_EQ(refusal(), "a key file is for its owner alone: chmod 600");
    near.write_key('1');
    near.config.local = *base::SocketAddress::parse("0.0.0.0:4500");
    EXPECT_EQ(refusal(), "an encrypted uplink needs the address that the other end has for it");
}

TEST(TunnelEndTest, IsAddressAndPort) {
    EXPECT_EQ(*tunnel_end(*base::SocketAddress::parse("192.0.2.1:4500")),
              (esp::Endpoint{{192, 0, 2, 1}, 4500, false}));
    EXPECT_EQ(
        *tunnel_end(*base::SocketAddress::parse("[2001:db8::1]:65535")),
        (esp::Endpoint{{0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 65535, true}));
    EXPECT_FALSE(tunnel_end(*base::SocketAddress::parse("[::]:4500")));
}

TEST(TunnelEndTest, IsTheIpv4AddressThatAnIpv6AddressMaps) {
    EXPECT_EQ(*tunnel_end(*base::SocketAddress::parse("[::ffff:192.0.2.1]:4500")),
              (esp::Endpoint{{192, 0, 2, 1}, 4500, false}));
    EXPECT_FALSE(tunnel_end(*base::SocketAddress::parse("[::ffff:0.0.0.0]:4500")));
}

}  // namespace
}  // namespace openmana::fabric
