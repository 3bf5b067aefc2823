// SPDX-License-Identifier: Apache-2.0
#include "fabric/uplink.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/unix_socket.h"
#include "fabric/stream_uplink.h"
#include "support/loopback.h"
#include "support/no_more_fds.h"
#include "unit/fabric/frames.h"

namespace openmana::fabric {
namespace {

using namespace std::chrono_literals;
using test::number_of;
using test::numbered;

/// A port that remembers numbers, and ends the loop when it has seen enough.
class CountingPort final : public Port {
public:
    CountingPort(base::EventLoop& loop) : loop_(loop) {}
    void deliver(base::FrameViews frames) override {
        ++calls;
        for (const base::FrameView frame : frames) {
            seen.push_back(number_of(frame));
            sizes.push_back(frame.size());
            if (seen.size() == wanted) loop_.stop();
        }
    }
    std::size_t wanted = 1;
    unsigned calls = 0;
    std::vector<std::uint32_t> seen;
    std::vector<std::size_t> sizes;

private:
    base::EventLoop& loop_;
};

/// Two switches joined by uplinks on one loop; a test sends on one and runs the loop until the
/// other has it.
class UplinkTest : public ::testing::Test {
protected:
    UplinkTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "uplink-XXXXXX").string();
        directory = ::mkdtemp(pattern.data());
        near.attach(near_port, &test::kMacA);
        far.attach(far_port, &test::kMacB);
    }
    ~UplinkTest() override {
        near_uplink.reset();
        far_uplink.reset();
        std::filesystem::remove_all(directory);
    }
    std::unique_ptr<Uplink> make(Switch& network, const UplinkConfig& config) {
        auto uplink = Uplink::create(*loop, network, config);
        EXPECT_TRUE(uplink.has_value()) << (uplink ? "" : uplink.error().text);
        return uplink ? std::move(*uplink) : nullptr;
    }
    UplinkConfig stream(bool listen) const {
        UplinkConfig config;
        config.kind = UplinkConfig::Kind::kStream;
        config.name = listen ? "server" : "client";
        config.path = directory / "s";
        config.listen = listen;
        return config;
    }
    /// Serves until `done`, looking after each bit of work.
    void serve_until(const std::function<bool()>& done) {
        std::function<void()> look = [&] {
            if (done())
                loop->stop();
            else
                loop->post(look);
        };
        loop->post(look);
        loop->run();
    }
    void join_streams() {
        far_uplink = make(far, stream(true));
        near_uplink = make(near, stream(false));
        serve_until([&] { return near_uplink->connected() && far_uplink->connected(); });
    }

    std::filesystem::path directory;
    base::SystemClock clock;
    std::unique_ptr<base::EventLoop> loop = std::move(*base::EventLoop::create());
    Switch near{clock};
    Switch far{clock};
    CountingPort near_port{*loop};
    CountingPort far_port{*loop};
    std::unique_ptr<Uplink> near_uplink;
    std::unique_ptr<Uplink> far_uplink;
};

TEST_F(UplinkTest, UdpCarriesFramesBothWaysAndTheSwitchLearns) {
    UplinkConfig config;
    std::tie(config.local, config.remote) = ::openmana::test::free_udp_addresses();
    near_uplink = make(near, config);
    std::swap(config.local, config.remote);
    far_uplink = make(far, config);
    far_port.wanted = 2;
    near.forward(near_port, numbered(1));
    near.forward(near_port, numbered(2, 9018));
    loop->run();
    EXPECT_EQ(far_port.seen, (std::vector<std::uint32_t>{1, 2}));
    EXPECT_EQ(far_port.sizes, (std::vector<std::size_t>{60, 9018}));
    EXPECT_EQ(far.counters().learned.value(), 1u);
    base::Frame answer = test::FrameMaker{}.reversed().udp(1, 2, 18);
    far.forward(far_port, answer);
    loop->run();
    EXPECT_EQ(near_port.seen.size(), 1u);
    EXPECT_EQ(far.counters().forwarded.value() + far.counters().flooded.value(), 3u);
    EXPECT_EQ(near_uplink->counters().tx_frames.value(), 2u);
    EXPECT_EQ(near_uplink->counters().rx_frames.value(), 1u);
}

TEST_F(UplinkTest, UdpCarriesABurstOfAnySizesWholeAndInOrder) {
    UplinkConfig config;
    std::tie(config.local, config.remote) = ::openmana::test::free_udp_addresses();
    near_uplink = make(near, config);
    std::swap(config.local, config.remote);
    far_uplink = make(far, config);
    std::vector<base::Frame> frames;
    for (std::uint32_t i = 0; i < 150; ++i)
        frames.push_back(numbered(i, i % 70 < 50 ? 1098 : 60 + i * 7));
    const std::vector<base::FrameView> views(frames.begin(), frames.end());
    far_port.wanted = frames.size();
    near.forward(near_port, views);
    loop->run();
    ASSERT_EQ(far_port.seen.size(), frames.size());
    for (std::uint32_t i = 0; i < frames.size(); ++i) {
        EXPECT_EQ(far_port.seen[i], i);
        EXPECT_EQ(far_port.sizes[i], frames[i].size());
    }
    EXPECT_LT(far_port.calls, 20U) << "together";
    EXPECT_EQ(near_uplink->counters().tx_frames.value(), frames.size());
    EXPECT_EQ(far_uplink->counters().rx_frames.value(), frames.size());
}

TEST_F(UplinkTest, NobodyOutsideSpeaksForANicHere) {
    struct : Claims::Claimant {
        [[nodiscard]] const std::string& claimant_name() const override { return name; }
        [[nodiscard]] Standing standing(const roce::Gid&) const override { return its; }
        void claim_changed(const roce::Address&) override {}
        std::string name = "far";
        Standing its = Standing::kGranted;
    } nic;
    EXPECT_TRUE(far.claims().claim(nic, test::gid("10.0.0.1")));
    nic.its = Standing::kFree;
    EXPECT_TRUE(far.claims().claim(nic, test::gid("10.0.0.7")));
    join_streams();
    const auto roce_from = [](const char* source) {
        test::FrameMaker maker;
        maker.source = test::gid(source);
        return maker.roce({}, 64);
    };
    near.forward(near_port, roce_from("10.0.0.1"));
    near.forward(near_port, roce_from("10.0.0.7"));
    near.forward(near_port, numbered(1));
    far_port.wanted = 99;
    serve_until([&] { return far_uplink->counters().rx_frames.value() == 3; });
    EXPECT_EQ(far_port.seen.size(), 2u);
    EXPECT_EQ(far_uplink->counters().foreign_source.value(), 1u);
}

TEST_F(UplinkTest, UdpWithoutAnotherEndGoesOn) {
    UplinkConfig config;
    std::tie(config.local, config.remote) = ::openmana::test::free_udp_addresses();
    near_uplink = make(near, config);
    for (std::uint32_t i = 0; i < 5; ++i) near.forward(near_port, numbered(i));
    std::swap(config.local, config.remote);
    far_uplink = make(far, config);
    near.forward(near_port, numbered(7));
    loop->run();
    EXPECT_EQ(far_port.seen, std::vector<std::uint32_t>{7});
}

TEST_F(UplinkTest, StreamCarriesFramesBothWays) {
    join_streams();
    far_port.wanted = 100;
    for (std::uint32_t i = 0; i < 100; ++i) near.forward(near_port, numbered(i, 60 + i * 90));
    loop->run();
    ASSERT_EQ(far_port.seen.size(), 100u);
    for (std::uint32_t i = 0; i < 100; ++i) {
        EXPECT_EQ(far_port.seen[i], i);
        EXPECT_EQ(far_port.sizes[i], 60 + i * 90);
    }
    far.forward(far_port, test::FrameMaker{}.reversed().udp(1, 2));
    loop->run();
    EXPECT_EQ(near_port.seen.size(), 1u);
}

TEST_F(UplinkTest, StreamFramesHaveTheirLengthInFront) {
    auto listener = base::UnixListener::create(directory / "s");
    ASSERT_TRUE(listener.has_value());
    near_uplink = make(near, stream(false));
    const base::UniqueFd qemu = listener->accept();
    ASSERT_TRUE(qemu);
    near.forward(near_port, numbered(1, 300));
    unsigned char bytes[400];
    ASSERT_EQ(::recv(qemu.get(), bytes, sizeof bytes, 0), 304);
    EXPECT_EQ(bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3], 300);
    EXPECT_EQ(std::memcmp(bytes + 4, numbered(1, 300).data(), 300), 0);
    // The other way, in pieces that cut everything.
    const base::Frame frame = test::FrameMaker{}.reversed().udp(1, 2);
    std::vector<std::byte> stream(4);
    base::store_be(stream.data(), static_cast<std::uint32_t>(frame.size()));
    stream.insert(stream.end(), frame.begin(), frame.end());
    std::size_t at = 0;
    std::function<void()> drip = [&] {
        ASSERT_EQ(::send(qemu.get(), stream.data() + at, 1, MSG_NOSIGNAL), 1);
        if (++at < stream.size()) loop->post(drip);
    };
    loop->post(drip);
    loop->run();
    EXPECT_EQ(near_port.sizes, std::vector<std::size_t>{frame.size()});
}

TEST_F(UplinkTest, ASlowOtherEndLosesWholeFramesOnly) {
    auto listener = base::UnixListener::create(directory / "s");
    ASSERT_TRUE(listener.has_value());
    near_uplink = make(near, stream(false));
    const base::UniqueFd qemu = listener->accept();
    const base::Frame frame = numbered(5, 9018);
    std::uint64_t sent = 0;
    for (; near_uplink->counters().tx_dropped.value() == 0; ++sent) near.forward(near_port, frame);
    EXPECT_GT(sent, 400u);
    const std::size_t expected = (sent - 1) * (frame.size() + 4);
    std::size_t received = 0;
    std::vector<std::byte> last;
    // The other end wakes up.
    ASSERT_EQ(::fcntl(qemu.get(), F_SETFL, O_NONBLOCK), 0);
    serve_until([&] {
        std::byte buffer[65536];
        for (ssize_t n = 0; (n = ::recv(qemu.get(), buffer, sizeof buffer, 0)) > 0;) {
            received += static_cast<std::size_t>(n);
            last.insert(last.end(), buffer, buffer + n);
        }
        return received >= expected;
    });
    ASSERT_EQ(received, expected);
    for (std::size_t at = 0; at < last.size(); at += frame.size() + 4) {
        ASSERT_EQ(base::load_be<std::uint32_t>(last.data() + at), frame.size());
        ASSERT_EQ(std::memcmp(last.data() + at + 4, frame.data(), frame.size()), 0);
    }
}

TEST_F(UplinkTest, AServerComesBackAfterItsClientHasGone) {
    join_streams();
    near_uplink.reset();
    serve_until([&] { return !far_uplink->connected(); });
    far.forward(far_port, test::FrameMaker{}.reversed().udp(1, 2));
    EXPECT_EQ(far_uplink->counters().tx_dropped.value(), 1u);
    near_uplink = make(near, stream(false));
    serve_until([&] { return near_uplink->connected() && far_uplink->connected(); });
    near.forward(near_port, numbered(9));
    loop->run();
    EXPECT_EQ(far_port.seen, std::vector<std::uint32_t>{9});
    EXPECT_EQ(far_uplink->counters().connects.value(), 2u);
}

TEST_F(UplinkTest, AClientGoesBackToItsServer) {
    near_uplink = make(near, stream(false));
    EXPECT_FALSE(near_uplink->connected());
    far_uplink = make(far, stream(true));
    serve_until([&] { return near_uplink->connected() && far_uplink->connected(); });
    far_uplink.reset();
    far_uplink = make(far, stream(true));
    serve_until(
        [&] { return near_uplink->counters().connects.value() == 2 && far_uplink->connected(); });
}

TEST_F(UplinkTest, AClientForWhomNoDescriptorIsLeftWaitsWithoutSpinning) {
    if (!::openmana::test::kCanBeWithoutFds) GTEST_SKIP() << "a sanitizer needs descriptors";
    far_uplink = make(far, stream(true));
    const auto client = base::connect_unix(directory / "s");
    ASSERT_TRUE(client.has_value());
    {
        const ::openmana::test::NoMoreFds none;
        bool over = false;
        base::Timer end(*loop, [&] {
            over = true;
            loop->stop();
        });
        end.arm(500ms);
        const auto before = ::openmana::test::cpu_time();
        loop->run();
        EXPECT_TRUE(over);
        EXPECT_FALSE(far_uplink->connected());
        EXPECT_LT(::openmana::test::cpu_time() - before, 150ms);
    }
    serve_until([&] { return far_uplink->connected(); });
}

TEST_F(UplinkTest, WhatIsNoFrameEndsTheConnection) {
    far_uplink = make(far, stream(true));
    for (const std::uint32_t length :
         {0U, 0x7fffffffU, static_cast<std::uint32_t>(StreamUplink::kMaxFrame + 1)}) {
        const auto before = far_uplink->counters().protocol_errors.value();
        auto client = base::connect_unix(directory / "s");
        ASSERT_TRUE(client.has_value());
        std::byte bytes[4];
        base::store_be(bytes, length);
        ASSERT_EQ(::send(client->get(), bytes, 4, MSG_NOSIGNAL), 4);
        serve_until([&] { return far_uplink->counters().protocol_errors.value() > before; });
        EXPECT_FALSE(far_uplink->connected());
    }
}

constexpr const char* kTap = "omtap0";

/// Sets the TAP interface up, or says why not.
bool bring_up(const base::UniqueFd& socket) {
    ifreq request{};
    std::strcpy(request.ifr_name, kTap);
    if (::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) return false;
    request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
    return ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0;
}

/// Asks the kernel to delete the interface (rtnetlink).
bool delete_tap() {
    struct {
        nlmsghdr header;
        ifinfomsg link;
    } message{};
    message.header.nlmsg_len = sizeof message;
    message.header.nlmsg_type = RTM_DELLINK;
    message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    message.link.ifi_index = static_cast<int>(::if_nametoindex(kTap));
    const base::UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    return ::send(fd.get(), &message, sizeof message, 0) == static_cast<ssize_t>(sizeof message) &&
           ::recv(fd.get(), &message, sizeof message, 0) > 0 && ::if_nametoindex(kTap) == 0;
}

TEST_F(UplinkTest, ATapDeviceCarriesFramesBothWaysAndItsEndIsNoticed) {
    // In a child, for the network namespace of its own.
    constexpr int kSkipped = 77;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const auto work = [&] {
            if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
                return kSkipped;
            if (::access("/dev/net/tun", R_OK | W_OK) != 0) return kSkipped;
            loop = std::move(*base::EventLoop::create());
            UplinkConfig config;
            config.kind = UplinkConfig::Kind::kTap;
            config.interface = "omtap%d";
            config.name = "tap=omtap%d";
            auto uplink = Uplink::create(*loop, near, config);
            if (!uplink || (*uplink)->name() != std::string("tap=") + kTap) return 1;
            const base::UniqueFd host(
                ::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL)));
            sockaddr_ll address{};
            address.sll_family = AF_PACKET;
            address.sll_protocol = htons(ETH_P_ALL);
            address.sll_ifindex = static_cast<int>(::if_nametoindex(kTap));
            // A socket bound to an interface that is down begins with an error.
            if (!bring_up(host) || ::bind(host.get(), reinterpret_cast<const sockaddr*>(&address),
                                          sizeof address) != 0)
                return 2;
            // From the host to the NIC; the kernel may have sent frames of its own before.
            base::Frame frame = numbered(7, 1400);
            std::memcpy(frame.data(), test::kMacA.data(), test::kMacA.size());
            std::memcpy(frame.data() + 6, test::kMacB.data(), test::kMacB.size());
            if (::send(host.get(), frame.data(), frame.size(), 0) !=
                static_cast<ssize_t>(frame.size()))
                return 3;
            const auto arrived = [&](std::uint32_t number) {
                return std::find(near_port.seen.begin(), near_port.seen.end(), number) !=
                       near_port.seen.end();
            };
            near_port.wanted = 0;
            serve_until([&] { return arrived(7); });
            // And back.
            near.forward(near_port, numbered(8, 1400));
            base::Frame got(2000);
            for (;;) {
                const ssize_t n = ::recv(host.get(), got.data(), got.size(), 0);
                if (n < 0) return 4;
                if (n == 1400 && number_of(got) == 8) break;
            }
            if (!(*uplink)->connected()) return 5;
            if (!delete_tap()) return 6;
            serve_until([&] { return !(*uplink)->connected(); });
            near.forward(near_port, numbered(9));
            return (*uplink)->counters().tx_dropped.value() != 0 ? 0 : 7;
        };
        ::alarm(20);
        ::_exit(work());
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped)
        GTEST_SKIP() << "no network namespace or no /dev/net/tun here";
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST_F(UplinkTest, SaysWhatItCannotHave) {
    UplinkConfig config = stream(true);
    config.path = directory / "no" / "s";
    EXPECT_FALSE(Uplink::create(*loop, near, config).has_value());
    config.kind = UplinkConfig::Kind::kTap;
    config.interface = "a-name-that-is-too-long";
    EXPECT_FALSE(Uplink::create(*loop, near, config).has_value());
    config.kind = UplinkConfig::Kind::kUdp;
    config.local = *SocketAddress::parse("192.0.2.1:4000");
    config.remote = *SocketAddress::parse("127.0.0.1:4000");
    const auto udp = Uplink::create(*loop, near, config);
    ASSERT_FALSE(udp.has_value());
    EXPECT_EQ(udp.error().detail, static_cast<unsigned>(EADDRNOTAVAIL));
    // Nothing of it is left on the switch.
    near.forward(near_port, numbered(1));
}

}  // namespace
}  // namespace openmana::fabric
