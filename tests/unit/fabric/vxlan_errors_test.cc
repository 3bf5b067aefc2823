// SPDX-License-Identifier: Apache-2.0
// What the network says of datagrams: much of it, and such as somebody made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "support/forged_icmp.h"
#include "unit/fabric/vxlan_fixture.h"

namespace openmana::fabric::vxlan_test {
namespace {

using test::FrameMaker;
using test::numbered;

class VxlanErrorsTest : public VxlanUplinkTest {
protected:
    /// The most that is heard of one sender until now.
    [[nodiscard]] std::uint64_t most_heard() const {
        const auto seconds =
            std::chrono::duration_cast<std::chrono::seconds>(clock.now() - begin_).count();
        return VxlanEndpoint::kMessagesPerSecond * (static_cast<std::uint64_t>(seconds) + 2);
    }
    void serve_a_moment() {
        for (int i = 0; i < 3; ++i) {
            loop->post([this] { loop->stop(); });
            loop->run();
        }
    }

private:
    const base::TimePoint begin_ = clock.now();
};

TEST_F(VxlanErrorsTest, AFloodToAnEndThatIsNotThereIsHeardInSmallPart) {
    Host near(*this, "127.0.0.1", test::kMacA);
    VxlanUplink& uplink = near.join({{*parse_ip("127.0.0.3"), free_port("127.0.0.3"), kVni}});
    constexpr std::uint32_t kFrames = 2000;
    for (std::uint32_t i = 0; i < kFrames; ++i) {
        near.network.forward(near.port, numbered(i));  // of one flow
        serve_a_moment();
    }
    EXPECT_EQ(counter(uplink, "fabric.uplink.tx_frames"), kFrames);
    EXPECT_GT(counter(uplink, "fabric.vxlan.unreachable"), 0u);
    EXPECT_LE(counter(uplink, "fabric.vxlan.unreachable"), most_heard());
    EXPECT_GT(counter(uplink, "fabric.vxlan.not_heard"), 0u);
    // Later it hears again.
    const std::uint64_t heard = counter(uplink, "fabric.vxlan.unreachable");
    serve_until([&] {
        near.network.forward(near.port, numbered(1));
        return counter(uplink, "fabric.vxlan.unreachable") > heard;
    });
}

TEST_F(VxlanErrorsTest, AFloodOfFramesTooLargeIsHeardInSmallPart) {
    Host near(*this, "127.0.0.1", test::kMacA);
    PlainHost peer("127.0.0.2");
    VxlanUplink& uplink = near.join({peer.end()});
    constexpr std::uint32_t kFrames = 2000;
    for (std::uint32_t i = 0; i < kFrames; ++i) {
        near.network.forward(near.port, numbered(i, 65507));
        serve_a_moment();
    }
    EXPECT_EQ(counter(uplink, "fabric.vxlan.too_large"), kFrames);
    EXPECT_LE(counter(uplink, "fabric.vxlan.mtu_messages"), most_heard());
    near.network.forward(near.port, numbered(1));
    EXPECT_EQ(peer.receive_all().size(), 1u);
}

TEST_F(VxlanErrorsTest, AMessageThatSomebodyMakesUpCostsNoFrame) {
    const bool may = openmana::test::in_net_namespace([this] {
        openmana::test::Forger forger;
        Host near(*this, "127.0.0.1", test::kMacA);
        PlainHost peer("127.0.0.2");
        VxlanUplink& uplink = near.join({peer.end()});
        near.network.forward(near.port, numbered(1, 1000));
        const auto got = peer.receive_all();
        ASSERT_EQ(got.size(), 1u);
        const base::SocketAddress sender =
            socket_address_of({near.own.address, got[0].source_port, 0});
        constexpr std::uint32_t kFrames = 200;
        std::size_t arrived = 0;
        for (std::uint32_t i = 0; i < kFrames; ++i) {
            forger.needs_fragments(sender, socket_address_of(peer.end()), 600);
            near.network.forward(near.port, numbered(i, 1000));
            if (i % 8 == 0) serve_a_moment();
            arrived += peer.receive_all().size();
        }
        EXPECT_EQ(arrived, kFrames);
        EXPECT_EQ(counter(uplink, "fabric.vxlan.too_large"), 0u);
        EXPECT_GT(counter(uplink, "fabric.vxlan.mtu_messages"), 0u);
        EXPECT_LE(counter(uplink, "fabric.vxlan.mtu_messages"), most_heard());
    });
    if (!may) GTEST_SKIP() << "needs a network namespace: root";
}

/// The network with a way to one end alone.
TEST_F(VxlanErrorsTest, AnEndThatCannotBeSentToIsNamedAndTheOthersGoOn) {
    const bool may = openmana::test::in_net_namespace([this] {
        Host near(*this, "127.0.0.1", test::kMacA);
        PlainHost peer("127.0.0.2");
        VxlanUplink& uplink = near.join({peer.end(), {*parse_ip("192.0.2.9"), 4789, kVni}});
        EXPECT_TRUE(uplink.failing_ends().empty());
        near.network.forward(near.port, numbered(1));
        EXPECT_EQ(peer.receive_all().size(), 1u);
        EXPECT_TRUE(uplink.connected()) << "there is another";
        auto failing = uplink.failing_ends();
        ASSERT_EQ(failing.size(), 1u);
        EXPECT_EQ(failing[0].end, "192.0.2.9:4789");
        // What it was sent before does not make it better.
        peer.send(near.own, FrameMaker{}.reversed().udp(1, 2));
        serve_until([&] { return near.port.frames.size() == 1; });
        near.network.forward(near.port, FrameMaker{}.udp(1, 2));
        EXPECT_EQ(uplink.failing_ends().size(), 1u);
        VxlanUplink& alone = near.join({{*parse_ip("192.0.2.9"), 4789, kVni}}, Learn::kPeers, 6);
        FrameMaker to_all;
        to_all.destination_mac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
        near.network.forward(near.port, to_all.udp(1, 2));
        EXPECT_FALSE(alone.connected());
        EXPECT_TRUE(uplink.connected());
    });
    if (!may) GTEST_SKIP() << "needs a network namespace: root";
}

}  // namespace
}  // namespace openmana::fabric::vxlan_test
