// SPDX-License-Identifier: Apache-2.0
#include "fabric/xdp_uplink.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "base/hold_meter.h"
#include "fabric/uplink_mtu.h"
#include "support/network_namespace.h"
#include "unit/fabric/frames.h"

namespace openmana::fabric {
namespace {

using namespace std::chrono_literals;
using openmana::test::NetworkNamespace;
using test::FrameMaker;

constexpr base::MacAddr kBroadcast{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
constexpr base::MacAddr kFar{0x02, 0, 0, 0, 0, 0x0f};  // behind the other end of the wire
constexpr auto kPatience = 20s;

/// A frame without IP, whose bytes all say something.
base::Frame frame_of(const base::MacAddr& to, const base::MacAddr& from, std::uint32_t number,
                     std::size_t size = 100) {
    base::Frame frame(size);
    for (std::size_t i = 0; i < size; ++i) frame[i] = static_cast<std::byte>(i * 7 + number);
    std::memcpy(frame.data(), to.data(), to.size());
    std::memcpy(frame.data() + 6, from.data(), from.size());
    base::store_be<std::uint16_t>(frame.data() + 12, 0x88b5);
    base::store_be(frame.data() + 14, number);
    return frame;
}

std::uint32_t number_in(base::FrameView frame) {
    return base::load_be<std::uint32_t>(frame.data() + 14);
}

/// A NIC's place: keeps what comes.
class KeepingPort final : public Port {
public:
    void deliver(base::FrameViews frames) override {
        for (const base::FrameView frame : frames) seen.emplace_back(frame.begin(), frame.end());
    }
    std::vector<base::Frame> seen;
};

/// A packet socket of the host.
class HostSocket {
public:
    explicit HostSocket(const std::string& interface)
        : fd_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)) {
        const int buffer = 64 << 20;
        (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer);
        const int on = 1;
        (void)::setsockopt(fd_.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on);
        const timeval patience{20, 0};
        (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        sockaddr_ll address{};
        address.sll_family = AF_PACKET;
        address.sll_protocol = htons(ETH_P_ALL);
        address.sll_ifindex = static_cast<int>(::if_nametoindex(interface.c_str()));
        bound_ =
            ::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    }
    [[nodiscard]] bool bound() const { return bound_; }
    void send(const base::Frame& frame) const {
        ASSERT_EQ(::send(fd_.get(), frame.data(), frame.size(), 0),
                  static_cast<ssize_t>(frame.size()));
    }
    /// The next that is one of ours; the kernel sends some of its own.
    [[nodiscard]] base::Frame receive(std::uint16_t type = 0x88b5) const {
        base::Frame frame(70000);
        for (;;) {
            const ssize_t n = ::recv(fd_.get(), frame.data(), frame.size(), 0);
            if (n < 0) return {};
            if (n >= 14 && base::load_be<std::uint16_t>(frame.data() + 12) == type) {
                frame.resize(static_cast<std::size_t>(n));
                return frame;
            }
        }
    }
    /// How many of ours are there now.
    [[nodiscard]] std::size_t waiting() const {
        std::size_t count = 0;
        base::Frame frame(70000);
        for (;;) {
            const ssize_t n = ::recv(fd_.get(), frame.data(), frame.size(), MSG_DONTWAIT);
            if (n < 0) return count;
            if (base::load_be<std::uint16_t>(frame.data() + 12) == 0x88b5) ++count;
        }
    }

private:
    base::UniqueFd fd_;
    bool bound_ = false;
};

/// A wire: `near`, which is the uplink's, and `far`.
class XdpUplinkTest : public ::testing::Test {
protected:
    void SetUp() override {
        if (!space.made()) GTEST_SKIP() << "network namespaces are made by root alone";
        if (!make_wire()) GTEST_SKIP() << "no veth devices here";
        if (!base::UniqueFd(::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0)))
            GTEST_SKIP() << "no AF_XDP here";
        network.attach(port, &test::kMacA);
    }
    /// A wire on which the host says nothing of its own: without an address it has no IPv6.
    static bool make_wire(unsigned mtu = 1500, const std::string& more = "") {
        const std::string size = " mtu " + std::to_string(mtu) + " ";
        return NetworkNamespace::ip("link add near" + size + more + " type veth peer name far" +
                                    size + more) &&
               NetworkNamespace::ip("link set near addrgenmode none up") &&
               NetworkNamespace::ip("link set far addrgenmode none up");
    }
    static UplinkConfig config() {
        UplinkConfig result;
        result.kind = UplinkConfig::Kind::kXdp;
        result.name = "xdp=near";
        result.interface = "near";
        result.xdp.addresses = {test::kMacA};
        return result;
    }
    void make(const UplinkConfig& with) {
        auto made = Uplink::create(*loop, network, with);
        ASSERT_TRUE(made.has_value()) << made.error().text << ' ' << made.error().detail;
        uplink = std::move(*made);
        ASSERT_TRUE(serve_until([&] { return uplink->connected(); }));
    }
    void make() { make(config()); }
    /// False if it does not come.
    template <typename Done>
    bool serve_until(Done done, base::Duration patience = kPatience) {
        bool late = false;
        base::Timer end(*loop, [&] {
            late = true;
            loop->stop();
        });
        std::unique_ptr<base::Timer> look;
        look = std::make_unique<base::Timer>(*loop, [&] {
            if (done())
                loop->stop();
            else
                look->arm(1ms);
        });
        if (done()) return true;
        end.arm(patience);
        look->arm(1ms);
        loop->run();
        return !late;
    }
    std::uint64_t counter(const std::string& name) const {
        std::uint64_t found = 0;
        uplink->visit_counters([&](const base::CounterInfo& info, std::uint64_t value) {
            if (info.name == name) found = value;
        });
        return found;
    }
    static base::MacAddr mac_of(const std::string& interface) {
        ifreq request{};
        std::memcpy(request.ifr_name, interface.data(), interface.size());
        const base::UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        base::MacAddr mac{};
        if (::ioctl(fd.get(), SIOCGIFHWADDR, &request) == 0)
            std::memcpy(mac.data(), request.ifr_hwaddr.sa_data, mac.size());
        return mac;
    }

    NetworkNamespace space;
    base::SystemClock clock;
    Switch network{clock};
    KeepingPort port;
    std::unique_ptr<base::EventLoop> loop = std::move(*base::EventLoop::create());
    std::unique_ptr<Uplink> uplink;
};

TEST_F(XdpUplinkTest, CarriesFramesBothWaysByteForByte) {
    make();
    const HostSocket far("far");
    for (const std::size_t size : {60UL, 61UL, 1514UL}) {
        const base::Frame in = frame_of(test::kMacA, kFar, 1, size);
        port.seen.clear();
        far.send(in);
        ASSERT_TRUE(serve_until([&] { return !port.seen.empty(); })) << size;
        EXPECT_EQ(port.seen.front(), in);
        const base::Frame out = frame_of(kFar, test::kMacA, 2, size);
        network.forward(port, out);
        EXPECT_EQ(far.receive(), out);
    }
    EXPECT_EQ(counter("fabric.uplink.tx_frames"), 3U);
    EXPECT_EQ(counter("fabric.uplink.tx_dropped"), 0U);
    EXPECT_EQ(counter("fabric.uplink.rx_frames"), 3U);
}

TEST_F(XdpUplinkTest, TheKernelsOwnModeCarriesThemToo) {
    UplinkConfig generic = config();
    generic.xdp.mode = XdpConfig::Mode::kGeneric;
    make(generic);
    const HostSocket far("far");
    far.send(frame_of(test::kMacA, kFar, 1));
    ASSERT_TRUE(serve_until([&] { return !port.seen.empty(); }));
    network.forward(port, frame_of(kFar, test::kMacA, 2));
    EXPECT_EQ(number_in(far.receive()), 2U);
}

TEST_F(XdpUplinkTest, BurstsKeepTheirOrder) {
    constexpr std::uint32_t kFrames = 5000;
    make();
    const HostSocket far("far");
    std::vector<base::Frame> frames;
    std::vector<base::FrameView> views;
    for (std::uint32_t i = 0; i < kFrames; ++i) frames.push_back(frame_of(kFar, test::kMacA, i));
    for (std::uint32_t i = 0; i < kFrames;) {
        views.clear();
        for (; views.size() < 150 && i < kFrames; ++i) views.emplace_back(frames[i]);
        network.forward(port, views);
    }
    for (std::uint32_t i = 0; i < kFrames; ++i) ASSERT_EQ(number_in(far.receive()), i);
    for (std::uint32_t i = 0; i < kFrames; ++i) {
        far.send(frame_of(test::kMacA, kFar, i));
        if (i % 100 == 99) {
            ASSERT_TRUE(serve_until([&] { return port.seen.size() == i + 1; }));
        }
    }
    for (std::uint32_t i = 0; i < kFrames; ++i) ASSERT_EQ(number_in(port.seen[i]), i);
    EXPECT_EQ(counter("fabric.xdp.kernel_tx_invalid"), 0U);
}

TEST_F(XdpUplinkTest, WhatNobodyTakesInTimeIsCounted) {
    constexpr std::uint32_t kFrames = XdpMemory::kChunks + 100;
    make();
    const HostSocket far("far");
    for (std::uint32_t i = 0; i < kFrames; ++i) far.send(frame_of(test::kMacA, kFar, i));
    ASSERT_TRUE(serve_until([&] {
        return port.seen.size() + counter("fabric.xdp.kernel_rx_dropped") +
                   counter("fabric.xdp.kernel_rx_full") ==
               kFrames;
    }));
    EXPECT_EQ(port.seen.size(), XdpMemory::kChunks);
    // And all memory is there again.
    port.seen.clear();
    for (std::uint32_t i = 0; i < XdpMemory::kChunks; ++i) far.send(frame_of(test::kMacA, kFar, i));
    EXPECT_TRUE(serve_until([&] { return port.seen.size() == XdpMemory::kChunks; }));
}

TEST_F(XdpUplinkTest, FramesOfSeveralChunksAreWhole) {
    if (!kernel_has_xdp_fragments()) GTEST_SKIP() << "no XDP of several buffers (Linux 6.6)";
    for (const auto mode : {XdpConfig::Mode::kAuto, XdpConfig::Mode::kGeneric}) {
        SCOPED_TRACE(static_cast<int>(mode));
        ASSERT_TRUE(NetworkNamespace::ip("link del near") && make_wire(9000));
        UplinkConfig large = config();
        large.xdp.mode = mode;
        make(large);
        const HostSocket far("far");
        for (const std::size_t size : {3839UL, 3840UL, 3841UL, 4095UL, 4096UL, 4097UL, 4174UL,
                                       7680UL, 8191UL, 8192UL, 8193UL, 9014UL}) {
            port.seen.clear();
            const base::Frame in = frame_of(test::kMacA, kFar, 5, size);
            far.send(in);
            ASSERT_TRUE(serve_until([&] { return !port.seen.empty(); })) << size;
            EXPECT_TRUE(port.seen.front() == in) << size;
            const base::Frame out = frame_of(kFar, test::kMacA, 6, size);
            network.forward(port, out);
            EXPECT_TRUE(far.receive() == out) << size;
        }
        // Many at once: some end in the next look at the ring.
        port.seen.clear();
        for (std::uint32_t i = 0; i < 300; ++i) far.send(frame_of(test::kMacA, kFar, i, 9000));
        ASSERT_TRUE(serve_until([&] { return port.seen.size() == 300; }));
        for (std::uint32_t i = 0; i < 300; ++i)
            EXPECT_TRUE(port.seen[i] == frame_of(test::kMacA, kFar, i, 9000)) << i;
        uplink.reset();
    }
}

TEST_F(XdpUplinkTest, AQueueIsHeldForABurstAtMost) {
    const base::HoldMeter meter;
    make();
    const HostSocket far("far");
    const base::Frame frame = frame_of(kFar, test::kMacA, 1);
    const std::vector<base::FrameView> views(1000, frame);
    network.forward(port, views);
    const auto causes = meter.causes();
    const auto found = std::ranges::find_if(causes, [](const base::HoldMeter::Cause& cause) {
        return std::string_view(cause.longest.cause.what) == "queue of an XDP uplink";
    });
    ASSERT_NE(found, causes.end());
    EXPECT_GT(found->largest.work, 0U);
    EXPECT_LE(found->largest.work, XdpQueue::kBurst);
}

TEST_F(XdpUplinkTest, MoreThanTheMtuIsDroppedAndCounted) {
    make();
    const HostSocket far("far");
    network.forward(port, frame_of(kFar, test::kMacA, 1, 1519));
    network.forward(port, frame_of(kFar, test::kMacA, 2, 1514));
    EXPECT_EQ(number_in(far.receive()), 2U);
    EXPECT_EQ(counter("fabric.xdp.tx_large"), 1U);
    EXPECT_EQ(counter("fabric.uplink.tx_dropped"), 1U);
}

TEST_F(XdpUplinkTest, TheHostKeepsWhatIsForIt) {
    make();
    const HostSocket far("far"), host("near");
    far.send(frame_of(mac_of("near"), kFar, 1));
    EXPECT_EQ(number_in(host.receive()), 1U);
    // Of what is for all both get one.
    far.send(frame_of(kBroadcast, kFar, 2));
    EXPECT_EQ(number_in(host.receive()), 2U);
    KeepingPort other;  // another uplink's place: to it what is for all goes
    network.attach(other, nullptr);
    far.send(frame_of(kBroadcast, kFar, 3));
    ASSERT_TRUE(serve_until([&] { return !other.seen.empty(); }));
    EXPECT_EQ(number_in(other.seen.back()), 3U);
    // What is for the NIC is not the host's.
    far.send(frame_of(test::kMacA, kFar, 4));
    ASSERT_TRUE(
        serve_until([&] { return !port.seen.empty() && number_in(port.seen.back()) == 4; }));
    EXPECT_EQ(number_in(host.receive()), 3U);
    EXPECT_EQ(host.waiting(), 0U);
    network.detach(other);
}

TEST_F(XdpUplinkTest, AGuestCannotTakeTheHostsAddress) {
    make();
    const HostSocket far("far"), host("near");
    network.forward(port, frame_of(kFar, mac_of("near"), 1));
    EXPECT_EQ(number_in(far.receive()), 1U);
    far.send(frame_of(mac_of("near"), kFar, 2));
    EXPECT_EQ(number_in(host.receive()), 2U);
    EXPECT_EQ(counter("fabric.xdp.refused"), 1U);
}

TEST_F(XdpUplinkTest, WhoSendsIsReachedAndWhoIsSeenOutsideIsNotAnyMore) {
    const base::MacAddr nested{0x02, 0, 0, 0, 0, 0x77};
    make();
    const HostSocket far("far");
    far.send(frame_of(nested, kFar, 1));
    network.forward(port, frame_of(kFar, nested, 2));
    EXPECT_EQ(number_in(far.receive()), 2U);
    far.send(frame_of(nested, kFar, 3));
    ASSERT_TRUE(serve_until([&] { return !port.seen.empty(); }));
    EXPECT_EQ(number_in(port.seen.front()), 3U);  // and not 1
    EXPECT_EQ(counter("fabric.xdp.learned"), 1U);
    far.send(frame_of(kBroadcast, nested, 4));
    ASSERT_TRUE(serve_until([&] { return counter("fabric.xdp.moved") == 1; }));
    const HostSocket host("near");
    far.send(frame_of(nested, kFar, 5));
    EXPECT_EQ(number_in(host.receive()), 5U);
}

TEST_F(XdpUplinkTest, ANicThatCameLaterIsReachedBeforeItSendsAnything) {
    make();
    KeepingPort late;
    network.attach(late, &test::kMacB);
    uplink->expect(test::kMacB);
    const HostSocket far("far");
    far.send(frame_of(test::kMacB, kFar, 1));
    EXPECT_TRUE(serve_until([&] { return !late.seen.empty(); }));
    network.detach(late);
}

TEST_F(XdpUplinkTest, VlanTagsStay) {
    make();
    const HostSocket far("far");
    KeepingPort other;
    network.attach(other, nullptr);
    for (const base::MacAddr& to : {test::kMacA, kBroadcast}) {
        base::Frame tagged = frame_of(to, kFar, 1, 96);
        const std::byte tag[] = {std::byte{0x81}, std::byte{0}, std::byte{0x60}, std::byte{42}};
        tagged.insert(tagged.begin() + 12, std::begin(tag), std::end(tag));
        far.send(tagged);
        KeepingPort& target = to == kBroadcast ? other : port;
        ASSERT_TRUE(serve_until([&] { return !target.seen.empty(); }));
        EXPECT_EQ(target.seen.back(), tagged);
    }
    base::Frame out = frame_of(kFar, test::kMacA, 1, 96);
    const std::byte tag[] = {std::byte{0x81}, std::byte{0}, std::byte{0}, std::byte{42}};
    out.insert(out.begin() + 12, std::begin(tag), std::end(tag));
    network.forward(port, out);
    EXPECT_EQ(counter("fabric.uplink.tx_frames"), 1U);
    network.detach(other);
}

TEST_F(XdpUplinkTest, ListensToAllAsLongAsItLives) {
    const auto links = [] {
        return std::system("ip link show near | grep -q 'prog/xdp'") == 0;  // NOLINT
    };
    const auto told = [] {
        return std::system("ip -d link show near | grep -q 'promiscuity 1'") == 0;  // NOLINT
    };
    make();
    EXPECT_TRUE(told());
    EXPECT_TRUE(links());
    uplink.reset();
    EXPECT_FALSE(told());
    EXPECT_FALSE(links());
}

TEST_F(XdpUplinkTest, AnInterfaceThatGoesDownComesBack) {
    make();
    ASSERT_TRUE(NetworkNamespace::ip("link set near down"));
    ASSERT_TRUE(serve_until([&] { return !uplink->connected(); }));
    network.forward(port, frame_of(kFar, test::kMacA, 1));
    EXPECT_EQ(counter("fabric.xdp.tx_down"), 1U);
    ASSERT_TRUE(serve_until([&] { return counter("fabric.xdp.downs") == 1; }));
    ASSERT_TRUE(NetworkNamespace::ip("link set near up"));
    ASSERT_TRUE(serve_until([&] { return uplink->connected(); }));
    // So does the other end's.
    ASSERT_TRUE(NetworkNamespace::ip("link set far down"));
    ASSERT_TRUE(serve_until([&] { return !uplink->connected(); }));
    ASSERT_TRUE(NetworkNamespace::ip("link set far up"));
    ASSERT_TRUE(serve_until([&] { return uplink->connected(); }));
    const HostSocket far("far");
    network.forward(port, frame_of(kFar, test::kMacA, 2));
    EXPECT_EQ(number_in(far.receive()), 2U);
    far.send(frame_of(test::kMacA, kFar, 3));
    EXPECT_TRUE(serve_until([&] { return !port.seen.empty(); }));
    EXPECT_EQ(counter("fabric.xdp.opens"), 1U);
}

TEST_F(XdpUplinkTest, AnInterfaceThatIsDeletedIsOpenedAnewWhenThereIsOneOfItsName) {
    make();
    for (std::uint64_t turn = 1; turn <= 3; ++turn) {
        ASSERT_TRUE(NetworkNamespace::ip("link del near"));
        ASSERT_TRUE(serve_until([&] { return !uplink->connected(); }));
        network.forward(port, frame_of(kFar, test::kMacA, 1));
        EXPECT_EQ(counter("fabric.xdp.tx_down"), turn);
        ASSERT_TRUE(make_wire());
        ASSERT_TRUE(serve_until([&] { return uplink->connected(); }));
        const HostSocket far("far");
        network.forward(port, frame_of(kFar, test::kMacA, 2));
        EXPECT_EQ(number_in(far.receive()), 2U);
        port.seen.clear();
        far.send(frame_of(test::kMacA, kFar, 3));
        EXPECT_TRUE(serve_until([&] { return !port.seen.empty(); }));
    }
    EXPECT_EQ(counter("fabric.xdp.opens"), 4U);
    EXPECT_EQ(counter("fabric.xdp.downs"), 3U);
}

TEST_F(XdpUplinkTest, ARenamedInterfaceGoesOn) {
    make();
    ASSERT_TRUE(NetworkNamespace::ip("link set near name other"));
    const HostSocket far("far");
    far.send(frame_of(test::kMacA, kFar, 1));
    EXPECT_TRUE(serve_until([&] { return !port.seen.empty(); }));
    network.forward(port, frame_of(kFar, test::kMacA, 2));
    EXPECT_EQ(number_in(far.receive()), 2U);
    EXPECT_TRUE(uplink->connected());
}

TEST_F(XdpUplinkTest, AnMtuThatChangesCounts) {
    make();
    ASSERT_TRUE(NetworkNamespace::ip("link set near mtu 1400"));
    const auto dropped = [&] {
        network.forward(port, frame_of(kFar, test::kMacA, 1, 1500));
        return counter("fabric.xdp.tx_large") != 0;
    };
    EXPECT_TRUE(serve_until(dropped));
}

TEST_F(XdpUplinkTest, EachFlowLeavesByOneQueueInItsOrder) {
    constexpr std::uint32_t kFlows = 40;
    constexpr std::uint32_t kEach = 20;
    ASSERT_TRUE(NetworkNamespace::ip("link del near"));
    if (!make_wire(1500, "numtxqueues 4 numrxqueues 4")) GTEST_SKIP() << "one queue alone";
    make();
    const HostSocket far("far");
    std::vector<base::Frame> frames;
    for (std::uint32_t i = 0; i < kFlows * kEach; ++i) {
        FrameMaker maker;
        maker.destination_mac = kFar;
        base::Frame udp;
        test::append16(udp, 1000 + i % kFlows);  // source port
        test::append16(udp, 4791);
        test::append16(udp, 12);
        test::append16(udp, 0);
        test::append16(udp, i / kFlows);
        test::append16(udp, 0);
        frames.push_back(maker.ip(17, udp));
    }
    const std::vector<base::FrameView> views(frames.begin(), frames.end());
    network.forward(port, views);
    std::map<unsigned, unsigned> next;
    for (std::size_t i = 0; i < frames.size(); ++i) {
        const base::Frame got = far.receive(ETH_P_IP);
        ASSERT_GE(got.size(), 46U);
        const unsigned flow = base::load_be<std::uint16_t>(got.data() + 34);
        EXPECT_EQ(base::load_be<std::uint16_t>(got.data() + 42), next[flow]++) << flow;
    }
    EXPECT_EQ(next.size(), kFlows);
    EXPECT_EQ(counter("fabric.uplink.tx_frames"), frames.size());
}

TEST_F(XdpUplinkTest, ThreadsSendWhileTheInterfaceComesAndGoes) {
    make();
    KeepingPort second;
    network.attach(second, &test::kMacB);
    std::atomic<bool> stop{false};
    const auto sender = [&](Port& from, const base::MacAddr& mac) {
        std::vector<base::Frame> frames;
        for (std::uint32_t i = 0; i < 32; ++i) frames.push_back(frame_of(kFar, mac, i));
        const std::vector<base::FrameView> views(frames.begin(), frames.end());
        while (!stop.load()) {
            network.forward(from, views);
            (void)counter("fabric.xdp.kernel_rx_full");
            std::this_thread::yield();
        }
    };
    std::thread a([&] { sender(port, test::kMacA); });
    std::thread b([&] { sender(second, test::kMacB); });
    for (int turn = 0; turn < 3; ++turn) {
        EXPECT_TRUE(NetworkNamespace::ip("link del near"));
        EXPECT_TRUE(serve_until([&] { return !uplink->connected(); }));
        EXPECT_TRUE(make_wire());
        EXPECT_TRUE(serve_until([&] { return uplink->connected(); }));
        const std::uint64_t sent = counter("fabric.uplink.tx_frames");
        EXPECT_TRUE(serve_until([&] { return counter("fabric.uplink.tx_frames") > sent; }));
    }
    stop.store(true);
    a.join();
    b.join();
    network.detach(second);
}

TEST_F(XdpUplinkTest, SaysWhatItCannotHave) {
    const auto refused = [&](const UplinkConfig& with) {
        const auto made = Uplink::create(*loop, network, with);
        return made ? std::string("made") : std::string(made.error().text);
    };
    UplinkConfig with = config();
    with.interface = "nothing";
    EXPECT_EQ(refused(with), "there is no such interface");
    with.interface = "lo";
    EXPECT_EQ(refused(with), "it is no Ethernet interface");
    with = config();
    with.xdp.queues = 2;
    EXPECT_EQ(refused(with), "the interface has fewer queues");
    with = config();
    with.xdp.mode = XdpConfig::Mode::kZeroCopy;
    EXPECT_EQ(refused(with), "its driver cannot do without copies: mode=auto");
    make();
    EXPECT_EQ(refused(config()), "another program has a queue of the interface");
}

TEST_F(XdpUplinkTest, SaysWhichRightIsMissing) {
    std::string text;
    std::thread([&] {
        // Of this thread alone; the C library's would be of all.
        if (::syscall(SYS_setresuid, 65534, 65534, 65534) != 0) return;
        const auto opened = open_xdp({"near"});
        text = opened ? "opened" : opened.error().text;
    }).join();
    EXPECT_EQ(text, "an XDP program takes CAP_BPF and CAP_NET_ADMIN");
}

/// A queue by itself: frames for an interface that is down stay in its ring.
TEST_F(XdpUplinkTest, AFullRingDropsAndCountsAndGoesOn) {
    auto handles = open_xdp({"near"});
    ASSERT_TRUE(handles.has_value());
    void* const at = ::mmap(nullptr, XdpMemory::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                            handles->memory.get(), 0);
    ASSERT_NE(at, MAP_FAILED);
    XdpQueue queue;
    ASSERT_TRUE(queue
                    .open(std::move(handles->queues[0]),
                          {static_cast<std::byte*>(at), XdpMemory::kBytes}, handles->facts)
                    .has_value());
    ASSERT_TRUE(NetworkNamespace::ip("link set near down"));
    const base::Frame frame = frame_of(kFar, test::kMacA, 1);
    const std::vector<base::FrameView> burst(XdpQueue::kBurst, frame);
    std::uint64_t taken = 0;
    for (std::uint32_t i = 0; i < XdpMemory::kChunks / XdpQueue::kBurst; ++i) {
        const auto sent = queue.send(burst);
        EXPECT_TRUE(sent.waits);
        taken += sent.frames;
    }
    EXPECT_EQ(taken, XdpMemory::kChunks);
    EXPECT_EQ(queue.send(burst).full, XdpQueue::kBurst);
    ASSERT_TRUE(NetworkNamespace::ip("link set near up"));
    const HostSocket far("far");
    while (queue.push()) {
    }
    for (std::uint32_t i = 0; i < XdpMemory::kChunks; ++i) ASSERT_EQ(far.receive(), frame);
    EXPECT_EQ(queue.send(burst).frames, XdpQueue::kBurst);
    queue.close();
    EXPECT_EQ(queue.send(burst).closed, XdpQueue::kBurst);
    ::munmap(at, XdpMemory::kBytes);
}

TEST_F(XdpUplinkTest, TheMtuOfTheInterfaceIsThatOfThePath) {
    const auto found = find_mtu(config());
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->path, 1500U);
    EXPECT_EQ(found->inside, 1500U);
    ASSERT_TRUE(NetworkNamespace::ip("link set near mtu 9000"));
    EXPECT_EQ(find_mtu(config())->inside,
              kernel_has_xdp_fragments() ? 9000U : XdpMemory::kLargestReceived - 18);
    UplinkConfig nothing = config();
    nothing.interface = "nothing";
    EXPECT_FALSE(find_mtu(nothing).has_value());
}

}  // namespace
}  // namespace openmana::fabric
