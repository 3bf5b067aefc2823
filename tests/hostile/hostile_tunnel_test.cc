// SPDX-License-Identifier: Apache-2.0
// Two hosts with VXLAN tunnels between them, each with two networks at one local address. In one of
// these an end of a tunnel means harm, and so does a host that is in none: they send all that a
// datagram can be. In the other network verified traffic goes on undisturbed.
//
// OPENMANA_HOSTILE_SECONDS and OPENMANA_HOSTILE_SEED are those of hostile_test.cc.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "fabric/vxlan.h"
#include "fabric/vxlan_uplink.h"
#include "hostile/hostile_machines.h"

namespace openmana::test {
namespace {

using fabric::TunnelEnd;
using fabric::VxlanEndpoint;
using fabric::VxlanUplink;

constexpr std::uint32_t kOurs = 5;
constexpr std::uint32_t kTheirs = 6;

/// A UDP socket of an address of the loopback.
class Socket {
public:
    explicit Socket(const char* ip) : end_{*fabric::parse_ip(ip), 0, kTheirs} {
        base::SocketAddress address = fabric::socket_address_of(end_);
        fd_ = base::UniqueFd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        EXPECT_EQ(::bind(fd_.get(), address.get(), address.length), 0);
        EXPECT_EQ(::getsockname(fd_.get(), address.get(), &address.length), 0);
        end_.port = fabric::port_of(address);
    }
    [[nodiscard]] const TunnelEnd& end() const { return end_; }
    void send(const TunnelEnd& to, std::span<const std::byte> datagram) {
        const base::SocketAddress address = fabric::socket_address_of(to);
        (void)::sendto(fd_.get(), datagram.data(), datagram.size(), 0, address.get(),
                       address.length);
    }
    /// What came, cut to the buffer; empty if there is nothing.
    std::span<std::byte> receive(std::span<std::byte> buffer) {
        const ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
        return buffer.first(n > 0 ? static_cast<std::size_t>(n) : 0);
    }

private:
    TunnelEnd end_;
    base::UniqueFd fd_;
};

/// A host: two networks with a NIC each, which share an endpoint and its thread.
struct TunnelHost {
    TunnelHost(const base::Clock& clock, const char* ip, std::uint8_t number)
        : own(Socket(ip).end()),
          ours(clock),
          theirs(clock),
          left(ours, number),
          right(theirs, number) {}
    ~TunnelHost() {
        stop();
        uplinks.clear();
    }
    void join(const TunnelEnd& other, const TunnelEnd& hostile) {
        auto made = VxlanEndpoint::create(*loop, fabric::socket_address_of(own), 0, {7, 8});
        ASSERT_TRUE(made);
        endpoint = std::move(*made);
        for (const bool is_ours : {true, false}) {
            fabric::UplinkConfig config;
            config.kind = fabric::UplinkConfig::Kind::kVxlan;
            config.name = is_ours ? "ours" : "theirs";
            config.local = endpoint->local();
            config.vxlan.vni = is_ours ? kOurs : kTheirs;
            config.vxlan.remotes = {other};
            config.vxlan.remotes[0].vni = config.vxlan.vni;
            if (!is_ours) config.vxlan.remotes.push_back(hostile);
            auto uplink =
                VxlanUplink::create(*loop, is_ours ? ours : theirs, config, *endpoint, *loop);
            ASSERT_TRUE(uplink);
            uplinks.push_back(std::move(*uplink));
        }
    }
    void start() {
        left.start();
        right.start();
        thread = std::thread([this] { loop->run(); });
    }
    void stop() {
        left.stop();
        right.stop();
        if (!thread.joinable()) return;
        loop->stop();
        thread.join();
    }
    [[nodiscard]] std::uint64_t counter(std::size_t uplink, std::string_view name) const {
        std::uint64_t found = UINT64_MAX;
        uplinks[uplink]->visit_counters([&](const base::CounterInfo& info, std::uint64_t value) {
            if (name == info.name) found = value;
        });
        return found;
    }

    const TunnelEnd own;
    std::unique_ptr<base::EventLoop> loop = std::move(*base::EventLoop::create());
    fabric::Switch ours;
    fabric::Switch theirs;
    Machine left;   // in ours
    Machine right;  // in theirs
    std::unique_ptr<VxlanEndpoint> endpoint;
    std::vector<std::unique_ptr<VxlanUplink>> uplinks;
    std::thread thread;
};

/// Throws datagrams at two hosts: as an end of a tunnel of the one network, and as a stranger.
class TunnelAttack {
public:
    TunnelAttack(std::vector<TunnelEnd> victims, std::uint64_t seed)
        : victims_(std::move(victims)), random_(seed) {}
    [[nodiscard]] const TunnelEnd& end() const { return known_.end(); }
    void start() {
        thread_ = std::thread([this] {
            while (!stop_.load(std::memory_order_acquire)) {
                for (int i = 0; i < 32; ++i) one();
                // So much that what is for others still finds a place in the sockets' queues.
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        });
    }
    void stop() {
        stop_.store(true, std::memory_order_release);
        if (thread_.joinable()) thread_.join();
    }
    ~TunnelAttack() { stop(); }
    [[nodiscard]] std::uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }

private:
    void one() {
        const TunnelEnd& victim = victims_[random_.below(victims_.size())];
        Socket& from = random_.below(4) == 0 ? stranger_ : known_;
        sent_.fetch_add(1, std::memory_order_relaxed);
        if (random_.below(8) == 0) return send_back(victim);
        const std::size_t size = random_.below(3) == 0 ? random_.below(40) : random_.below(2000);
        std::vector<std::byte> datagram(fabric::Vxlan::kBytes + size);
        for (std::byte& byte : datagram) byte = static_cast<std::byte>(random_.next());
        // Reserved bits are whatever they are; often it is a header, and of a network that exists.
        if (random_.below(16) != 0) datagram[0] |= std::byte{8};
        if (random_.below(8) != 0) {
            datagram[4] = datagram[5] = {};
            datagram[6] = static_cast<std::byte>(random_.below(4) == 0 ? kOurs : kTheirs);
        }
        if (size >= 34) fill(std::span(datagram).subspan(fabric::Vxlan::kBytes));
        from.send(victim,
                  std::span(datagram).first(random_.below(16) == 0 ? random_.below(datagram.size())
                                                                   : datagram.size()));
    }
    /// An Ethernet header, often with addresses of NICs, and what looks like IP behind it.
    void fill(std::span<std::byte> frame) {
        const auto put = [&](std::size_t at, const base::MacAddr& mac) {
            std::memcpy(frame.data() + at, mac.data(), mac.size());
        };
        const auto nic = [&] { return test_mac(static_cast<std::uint8_t>(2 + random_.below(2))); };
        switch (random_.below(4)) {
            case 0:
                put(0, nic());
                break;
            case 1:
                std::memset(frame.data(), 0xff, 6);
                break;
            default:
                break;
        }
        switch (random_.below(3)) {
            case 0:
                put(6, nic());
                break;
            case 1:
                put(6, {2, 0x77, 0, static_cast<std::uint8_t>(random_.next()),
                        static_cast<std::uint8_t>(random_.next()),
                        static_cast<std::uint8_t>(random_.next())});
                break;
            default:
                break;
        }
        static constexpr std::array<std::uint16_t, 5> kTypes = {0x0800, 0x86dd, 0x8100, 0x0806,
                                                                0x8915};
        const std::uint16_t type = kTypes[random_.below(kTypes.size())];
        frame[12] = static_cast<std::byte>(type >> 8);
        frame[13] = static_cast<std::byte>(type);
        if (random_.below(2) == 0) frame[14] = std::byte{0x45};
    }
    /// What came from a host, to the same or the other: a loop.
    void send_back(const TunnelEnd& victim) {
        std::array<std::byte, 4096> buffer;
        const std::span<std::byte> got = known_.receive(buffer);
        if (!got.empty()) known_.send(victim, got);
    }

    Socket known_{"127.0.0.9"};
    Socket stranger_{"127.0.0.10"};
    const std::vector<TunnelEnd> victims_;
    base::Random random_;
    std::thread thread_;
    std::atomic<bool> stop_{false};
    std::atomic<std::uint64_t> sent_{0};
};

TEST(HostileTunnel, LeavesTheTrafficOfAnotherNetworkAlone) {
    openmana::base::set_log_level(openmana::base::LogLevel::kOff);
    const std::uint64_t seed = from_environment("OPENMANA_HOSTILE_SEED", 1);
    const auto seconds = std::chrono::seconds(from_environment("OPENMANA_HOSTILE_SECONDS", 5));
    SCOPED_TRACE("OPENMANA_HOSTILE_SEED=" + std::to_string(seed));
    base::SystemClock clock;
    TunnelHost near(clock, "127.0.0.1", 2);
    TunnelHost far(clock, "127.0.0.2", 3);
    TunnelAttack attack({near.own, far.own}, seed);
    ASSERT_NO_FATAL_FAILURE(near.join(far.own, attack.end()));
    ASSERT_NO_FATAL_FAILURE(far.join(near.own, attack.end()));
    near.start();
    far.start();

    RdmaHost left(near.left.nic.function(), near.left.ram, near.left.irq, test_mac(2), ipv4_gid(2));
    RdmaHost right(far.left.nic.function(), far.left.ram, far.left.irq, test_mac(3), ipv4_gid(3));
    ASSERT_TRUE(near.left.on_loop([&] { return left.bring_up(); }));
    ASSERT_TRUE(far.left.on_loop([&] { return right.bring_up(); }));
    Stream to_right(left, right, seed);
    Stream to_left(right, left, seed + 1);
    ASSERT_NO_FATAL_FAILURE(connect(near.left, far.left, to_right, to_left));
    Worker left_worker(near.left, {&to_right}, {&to_left});
    Worker right_worker(far.left, {&to_left}, {&to_right});
    near.left.loop->post([&] { left_worker.slice(); });
    far.left.loop->post([&] { right_worker.slice(); });
    attack.start();

    const auto wait_until = [&](Clock::time_point end, auto&& done) {
        while (Clock::now() < end && to_right.failure() == nullptr &&
               to_left.failure() == nullptr && !done()) {
            // The network of the attacker has traffic that it can send back.
            base::Frame frame(60, std::byte{0xff});
            const base::MacAddr mac = near.right.nic.config().mac;
            std::memcpy(frame.data() + 6, mac.data(), mac.size());
            near.theirs.forward(near.right.nic, frame);
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    };
    const auto start = Clock::now();
    wait_until(start + seconds / 3, [] { return false; });
    const std::uint64_t early = resident_bytes();
    const std::uint64_t verified = to_right.verified() + to_left.verified();
    wait_until(start + seconds, [] { return false; });
    EXPECT_GT(to_right.verified() + to_left.verified(), verified) << "the traffic has stopped";
    expect_no_growth(early, resident_bytes());
    left_worker.finish_posting();
    right_worker.finish_posting();
    wait_until(Clock::now() + std::chrono::seconds(60),
               [&] { return to_right.drained() && to_left.drained(); });
    attack.stop();
    for (const Stream* stream : {&to_right, &to_left}) expect_all_verified(*stream);
    for (Machine* machine : {&near.left, &far.left}) expect_no_errors(*machine);
    near.left.on_loop([&] { left_worker.end(); });
    far.left.on_loop([&] { right_worker.end(); });
    near.stop();
    far.stop();

    EXPECT_GT(attack.sent(), 1000U);
    // Nothing of it was ever in our network, and of theirs there was some of everything.
    EXPECT_GT(near.counter(0, "fabric.vxlan.unknown_sender"), 0U);
    EXPECT_LE(near.counter(0, "fabric.fdb.learned"), 1U);
    EXPECT_GT(near.counter(0, "fabric.vxlan.malformed"), 0U);
    EXPECT_GT(near.counter(0, "fabric.vxlan.unknown_network"), 0U);
    EXPECT_GT(near.counter(1, "fabric.vxlan.own_source"), 0U);
    EXPECT_GT(near.counter(1, "fabric.vxlan.unknown_sender"), 0U);
    EXPECT_GT(near.counter(1, "fabric.fdb.learned"), 100U);
    std::printf("verified %llu messages, %llu hostile datagrams\n",
                static_cast<unsigned long long>(to_right.verified() + to_left.verified()),
                static_cast<unsigned long long>(attack.sent()));
}

}  // namespace
}  // namespace openmana::test
