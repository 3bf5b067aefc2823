// SPDX-License-Identifier: Apache-2.0
// UDP uplinks with several queues: pairs of ports, with a thread each.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "fabric/udp_uplink.h"
#include "support/eventually.h"
#include "support/temp_dir.h"
#include "unit/fabric/frames.h"
#include "unit/fabric/queue_threads.h"

namespace openmana::fabric {
namespace {

using ::openmana::test::eventually;

using test::kFlows;
using test::kQueues;

/// Two hosts with addresses of the loopback that no other test has, and a thread for each queue.
class UdpQueuesTest : public ::testing::Test {
protected:
    struct Side {
        Side(const base::Clock& clock, const base::MacAddr& mac) : network(clock) {
            network.attach(port, &mac);
        }
        ~Side() {
            loops.stop();
            uplink.reset();
            network.detach(port);
        }
        [[nodiscard]] std::uint64_t counter(std::string_view name) const {
            std::uint64_t found = UINT64_MAX;
            uplink->visit_counters([&](const base::CounterInfo& info, std::uint64_t value) {
                if (name == info.name) found = value;
            });
            EXPECT_NE(found, UINT64_MAX) << name;
            return found;
        }
        Switch network;
        test::SharedPort port;
        test::QueueLoops loops;
        UplinkConfig config;
        std::unique_ptr<UdpUplink> uplink;
    };
    UdpQueuesTest() {
        const auto pid = static_cast<unsigned>(::getpid());
        const auto address = [pid](unsigned host) {
            return *base::SocketAddress::parse(
                fmt::format("127.{}.{}.{}:4500", pid >> 8 & 127, pid & 255, host));
        };
        near.config.local = far.config.remote = address(1);
        near.config.remote = far.config.local = address(2);
        near.config.queues = far.config.queues = kQueues;
    }
    static void make(Side& side) {
        auto made = UdpUplink::create(side.loops.all(), side.network, side.config);
        ASSERT_TRUE(made) << made.error().text;
        side.uplink = std::move(*made);
    }
    void join() {
        make(near);
        make(far);
        near.loops.start();
        far.loops.start();
    }
    /// Frames of all flows by turns; the number of a frame says which flow it is of.
    static void send(Side& side, std::uint32_t first, std::uint32_t count) {
        std::vector<base::Frame> frames;
        for (std::uint32_t i = first; i < first + count; ++i) {
            frames.push_back(test::FrameMaker{}.udp(1000 + i % kFlows, 4791));
            base::store_le(frames.back().data() + 42, i);
        }
        const std::vector<base::FrameView> views(frames.begin(), frames.end());
        side.network.forward(side.port, views);
    }

    base::SystemClock clock;
    const ::openmana::test::TempDir folder{"queues"};
    Side near{clock, test::kMacA};
    Side far{clock, test::kMacB};
};

TEST_F(UdpQueuesTest, FlowsKeepTheirOrderAndAllThreadsBringFrames) {
    join();
    constexpr std::uint32_t kFrames = 6400;
    for (std::uint32_t first = 0; first < kFrames; first += 160) {
        send(near, first, 160);
        ASSERT_TRUE(eventually([&] { return far.port.seen().size() == first + 160; }));
    }
    test::expect_flows_in_order(far.port.seen());
    EXPECT_EQ(far.port.threads(), kQueues);
    EXPECT_EQ(near.counter("fabric.uplink.tx_frames"), kFrames);
    EXPECT_EQ(far.counter("fabric.uplink.rx_frames"), kFrames);
    EXPECT_EQ(far.network.counters().learned.value(), 1U) << "one station behind one port";
    // And back, to the one who was learned.
    base::Frame answer = test::FrameMaker{}.reversed().udp(1, 2);
    far.network.forward(far.port, answer);
    EXPECT_TRUE(eventually([&] { return near.port.seen().size() == 1; }));
}

TEST_F(UdpQueuesTest, AreEncryptedEachByItself) {
    for (Side* side : {&near, &far}) {
        side->config.encryption.key_file = folder.path() + "/key";
        side->config.encryption.limits.packets = 100;
    }
    std::ofstream(folder.path() + "/key") << std::string(64, '1') << "\n";
    ASSERT_EQ(::chmod((folder.path() + "/key").c_str(), 0600), 0);
    join();
    for (std::uint32_t first = 0; first < 1600; first += 160) {
        send(near, first, 160);
        ASSERT_TRUE(eventually([&] { return far.port.seen().size() == first + 160; }));
    }
    test::expect_flows_in_order(far.port.seen());
    EXPECT_GE(near.counter("fabric.uplink.esp_rekeys"), kQueues) << "of all queues together";
    near.loops.stop();
    for (std::size_t i = 0; i < kQueues; ++i) {
        ASSERT_NE(near.uplink->encryption(i), nullptr);
        EXPECT_TRUE(near.uplink->encryption(i)->rekey());
    }
    EXPECT_EQ(near.uplink->encryption(kQueues), nullptr);
}

TEST_F(UdpQueuesTest, GoToAnotherProcessWithTheirSockets) {
    join();
    send(near, 0, 160);
    ASSERT_TRUE(eventually([&] { return far.port.seen().size() == 160; }));
    near.loops.stop();
    base::StateWriter out(clock.now());
    near.uplink->save(out);
    auto parcel = std::make_shared<base::Parcel>();
    for (const int descriptor : out.descriptors())
        parcel->descriptors.emplace_back(::dup(descriptor));
    parcel->bytes = std::move(out).finish();
    ASSERT_EQ(parcel->descriptors.size(), kQueues);
    near.uplink.reset();
    near.config.inherited = parcel;
    make(near);
    near.loops.start();
    send(near, 160, 160);
    ASSERT_TRUE(eventually([&] { return far.port.seen().size() == 320; }));
    test::expect_flows_in_order(far.port.seen());
    EXPECT_EQ(near.counter("fabric.uplink.tx_frames"), 320U);
}

/// What a manad wrote that had no queues yet.
TEST_F(UdpQueuesTest, AStateOfTheFirstVersionIsOneQueue) {
    make(far);
    far.loops.start();
    const auto socket = base::DatagramSocket::open(
        near.config.local, {.remote = near.config.remote, .fragments = true});
    ASSERT_TRUE(socket);
    UplinkCounters counters;
    counters.tx_frames.add(7);
    base::StateWriter out(clock.now());
    out.begin("UDP ", 1);
    out.descriptor(socket->fd());
    base::save_counters(out, counters);
    out(false);
    out.bytes(base::StateWriter(clock.now()).finish());
    out.end();
    near.config.inherited = std::make_shared<base::Parcel>();
    near.config.inherited->descriptors.emplace_back(::dup(socket->fd()));
    near.config.inherited->bytes = std::move(out).finish();
    make(near);
    send(near, 0, 160);
    EXPECT_TRUE(eventually([&] { return far.port.seen().size() == 160; }));
    EXPECT_EQ(far.port.threads(), kQueues);
    EXPECT_EQ(near.counter("fabric.uplink.tx_frames"), 167U);
}

/// One of the ports is somebody else's.
TEST_F(UdpQueuesTest, AreAllThereOrNone) {
    make(near);
    near.config.inherited.reset();
    const auto again = UdpUplink::create(near.loops.all(), near.network, near.config);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().detail, static_cast<unsigned>(EADDRINUSE));
    near.uplink.reset();
    make(near);
}

}  // namespace
}  // namespace openmana::fabric
