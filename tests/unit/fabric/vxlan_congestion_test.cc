// SPDX-License-Identifier: Apache-2.0
// A switch between two ends of a tunnel sets the mark of congestion outside, where it sees no
// RDMA; the sender inside slows down.
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "fabric/vxlan.h"
#include "fabric/vxlan_uplink.h"
#include "unit/fabric/nic_fixture.h"

namespace openmana::fabric::nic_test {
namespace {

constexpr std::uint32_t kVni = 5;

/// A UDP socket of an address of the loopback, with any port.
class Socket {
public:
    explicit Socket(const char* ip) : end_{*parse_ip(ip), 0, kVni} {
        base::DatagramSocket::Options options;
        options.traffic_class = true;
        auto made = base::DatagramSocket::open(socket_address_of(end_), options);
        EXPECT_TRUE(made);
        base::SocketAddress address;
        address.length = sizeof address.storage;
        EXPECT_EQ(::getsockname(made->fd(), address.get(), &address.length), 0);
        end_.port = port_of(address);
        socket_.emplace(std::move(*made));
    }
    [[nodiscard]] const TunnelEnd& end() const { return end_; }
    [[nodiscard]] base::DatagramSocket& socket() { return *socket_; }

private:
    TunnelEnd end_;
    std::optional<base::DatagramSocket> socket_;
};

/// What is between the two ends: each sends to it and takes what comes from it.
class MarkingRouter {
public:
    bool marks = false;
    [[nodiscard]] const TunnelEnd& end() const { return between_.end(); }
    void forward(const TunnelEnd& one, const TunnelEnd& other) {
        bool more = true;
        while (more) {
            for (const base::ReceivedDatagram& datagram : between_.socket().receive(more)) {
                const bool back = ip_of(*datagram.from) == other.address;
                const base::SocketAddress to = socket_address_of(back ? one : other);
                std::uint8_t tos = datagram.traffic_class;
                if (marks && (tos & 3) != 0) tos |= 3;
                const base::Datagram sent{{}, datagram.bytes, &to, tos};
                EXPECT_EQ(between_.socket().send({&sent, 1}).datagrams, 1u);
            }
        }
    }

private:
    Socket between_{"127.0.0.9"};
};

class VxlanCongestionTest : public ::testing::Test {
protected:
    struct Side {
        Side(base::EventLoop& loop, Switch& network, const char* ip, const TunnelEnd& router) {
            // A port that is free now.
            own = Socket(ip).end();
            auto made = VxlanEndpoint::create(loop, socket_address_of(own), 0, {1, 2});
            EXPECT_TRUE(made);
            endpoint = std::move(*made);
            UplinkConfig config;
            config.name = ip;
            config.local = endpoint->local();
            config.vxlan.vni = kVni;
            config.vxlan.remotes = {router};
            auto joined = VxlanUplink::create(loop, network, config, *endpoint, loop);
            EXPECT_TRUE(joined);
            uplink = std::move(*joined);
        }
        TunnelEnd own;
        std::unique_ptr<VxlanEndpoint> endpoint;
        std::unique_ptr<VxlanUplink> uplink;
    };

    VxlanCongestionTest() {
        EXPECT_TRUE(b.host.connect(*b.qp, 0x900, a.as_peer(0x100), 1024));
        EXPECT_TRUE(a.host.connect(*a.qp, 0x100, b.as_peer(0x900), 1024));
    }
    void step() {
        router.forward(left.own, right.own);
        loop->post([this] { loop->stop(); });
        loop->run();
        world.advance(std::chrono::microseconds(5));
    }
    /// Writes so many times; how long it took in virtual time.
    base::Duration write(std::size_t count) {
        constexpr std::uint32_t kLength = 1 << 16;
        base::Random random(1);
        for (std::byte& byte : a.bytes(kLength)) byte = static_cast<std::byte>(random.next());
        const base::TimePoint begin = world.now();
        for (std::size_t i = 0; i < count; ++i) {
            SendWr request;
            request.opcode = MANA_HW_RNIC_WQE_WRITE;
            request.id = i;
            request.sges = {{a.buffer.value(), gdma::Key(a.mr.lkey), kLength}};
            request.remote_address = b.buffer.value();
            request.rkey = b.mr.rkey;
            EXPECT_TRUE(a.host.post_send(*a.qp, request));
        }
        for (int i = 0; i < 200000 && a.done.size() < count; ++i) {
            step();
            a.poll();
        }
        EXPECT_EQ(a.done.size(), count);
        for (const Completion& completion : a.done) EXPECT_EQ(completion.vendor, 0);
        EXPECT_TRUE(std::ranges::equal(a.bytes(kLength), b.bytes(kLength)));
        a.done.clear();
        return world.now() - begin;
    }
    static std::uint64_t counter(Machine& machine, const std::string& name) {
        std::uint64_t result = 0;
        machine.nic.visit_counters([&](const base::CounterInfo& info, std::uint64_t value) {
            if (name == info.name) result = value;
        });
        return result;
    }

    SimWorld world;
    std::unique_ptr<base::EventLoop> loop = std::move(*base::EventLoop::create());
    Switch near{world};
    Switch far{world};
    MarkingRouter router;
    Machine a{world, near, 1};
    Machine b{world, far, 2};
    Side left{*loop, near, "127.0.0.1", router.end()};
    Side right{*loop, far, "127.0.0.2", router.end()};
};

TEST_F(VxlanCongestionTest, AMarkOutsideSlowsTheSenderInside) {
    const base::Duration free = write(16);
    EXPECT_EQ(counter(a, "rnic.cnp.received"), 0u);
    router.marks = true;
    const base::Duration marked = write(16);
    EXPECT_GT(right.uplink->vxlan_counters().ecn_marked.value(), 0u);
    EXPECT_GT(counter(b, "rnic.ecn.received"), 0u);
    EXPECT_GT(counter(a, "rnic.cnp.received"), 0u);
    EXPECT_GT(marked, free);
}

}  // namespace
}  // namespace openmana::fabric::nic_test
