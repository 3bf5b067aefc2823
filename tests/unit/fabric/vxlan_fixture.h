// SPDX-License-Identifier: Apache-2.0
// Hosts of ours and plain sockets on the loopback, as ends of VXLAN tunnels.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/vxlan.h"
#include "fabric/vxlan_uplink.h"
#include "unit/fabric/frames.h"

namespace openmana::fabric::vxlan_test {

using namespace std::chrono_literals;
using Learn = VxlanConfig::Learn;
using test::number_of;

constexpr std::uint32_t kVni = 5;
constexpr VxlanEndpoint::Key kKey{7, 8};

/// A port that keeps what it gets.
class KeepingPort final : public Port {
public:
    void deliver(base::FrameViews views) override {
        for (const base::FrameView view : views) frames.emplace_back(view.begin(), view.end());
    }
    [[nodiscard]] std::vector<std::uint32_t> numbers() const {
        std::vector<std::uint32_t> result;
        for (const base::Frame& frame : frames) result.push_back(number_of(frame));
        return result;
    }
    std::vector<base::Frame> frames;
};

/// A datagram with what its headers say.
struct Datagram {
    std::vector<std::byte> bytes;
    std::uint16_t source_port = 0;
    std::uint8_t tos = 0;
};

/// A socket of an address of the loopback, as another host has one.
class PlainHost {
public:
    explicit PlainHost(const std::string& ip, std::uint16_t port = 0)
        : end_{*parse_ip(ip), port, kVni} {
        base::SocketAddress address = socket_address_of(end_);
        fd_ = base::UniqueFd(
            ::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        const int one = 1;
        if (address.family() == AF_INET) {
            EXPECT_EQ(::setsockopt(fd_.get(), IPPROTO_IP, IP_RECVTOS, &one, sizeof one), 0);
        }
        EXPECT_EQ(::bind(fd_.get(), address.get(), address.length), 0);
        EXPECT_EQ(::getsockname(fd_.get(), address.get(), &address.length), 0);
        end_.port = port_of(address);
    }
    [[nodiscard]] const TunnelEnd& end() const { return end_; }
    void send(const TunnelEnd& to, const base::Frame& frame, int tos = 0,
              std::uint32_t vni = kVni) {
        const VxlanHeader header = encode_vxlan(vni);
        std::vector<std::byte> datagram(header.begin(), header.end());
        datagram.insert(datagram.end(), frame.begin(), frame.end());
        send_bytes(to, datagram, tos);
    }
    void send_bytes(const TunnelEnd& to, const std::vector<std::byte>& datagram, int tos = 0) {
        EXPECT_EQ(::setsockopt(fd_.get(), IPPROTO_IP, IP_TOS, &tos, sizeof tos), 0);
        const base::SocketAddress address = socket_address_of(to);
        EXPECT_EQ(
            ::sendto(fd_.get(), datagram.data(), datagram.size(), 0, address.get(), address.length),
            static_cast<ssize_t>(datagram.size()));
    }
    std::vector<Datagram> receive_all() {
        std::vector<Datagram> all;
        for (;;) {
            Datagram got;
            got.bytes.resize(70000);
            base::SocketAddress from;
            iovec part{got.bytes.data(), got.bytes.size()};
            alignas(cmsghdr) std::array<std::byte, 64> control;
            msghdr message{};
            message.msg_iov = &part;
            message.msg_iovlen = 1;
            message.msg_name = from.get();
            message.msg_namelen = sizeof from.storage;
            message.msg_control = control.data();
            message.msg_controllen = control.size();
            const ssize_t n = ::recvmsg(fd_.get(), &message, 0);
            if (n < 0) return all;
            got.bytes.resize(static_cast<std::size_t>(n));
            got.source_port = port_of(from);
            if (cmsghdr* const header = CMSG_FIRSTHDR(&message); header != nullptr)
                got.tos = *CMSG_DATA(header);
            all.push_back(std::move(got));
        }
    }

private:
    TunnelEnd end_;
    base::UniqueFd fd_;
};

/// A port of an address that nobody has, by asking for any.
inline std::uint16_t free_port(const std::string& ip) {
    return PlainHost(ip).end().port;
}

class VxlanUplinkTest : public ::testing::Test {
protected:
    /// A host of ours: a switch with a NIC's port, an endpoint, and a network.
    struct Host {
        Host(VxlanUplinkTest& test, std::string ip, const base::MacAddr& mac)
            : loop(*test.loop), network(test.clock), own{*parse_ip(ip), free_port(ip), kVni} {
            network.attach(port, &mac);
            auto made = VxlanEndpoint::create(loop, socket_address_of(own), 0, kKey);
            EXPECT_TRUE(made) << (made ? "" : made.error().text);
            endpoint = std::move(*made);
        }
        ~Host() { uplinks.clear(); }
        VxlanUplink& join(std::vector<TunnelEnd> remotes, Learn learn = Learn::kPeers,
                          std::uint32_t vni = kVni, const std::string& file = "", int dscp = -1,
                          std::uint32_t flood = VxlanConfig::kFlood) {
            UplinkConfig config;
            config.kind = UplinkConfig::Kind::kVxlan;
            config.name = "vxlan";
            config.local = endpoint->local();
            config.vxlan.vni = vni;
            config.vxlan.remotes = std::move(remotes);
            config.vxlan.learn = learn;
            config.vxlan.fdb = file;
            config.vxlan.dscp = dscp;
            config.vxlan.flood = flood;
            auto made = VxlanUplink::create(loop, network, config, *endpoint, loop);
            EXPECT_TRUE(made) << (made ? "" : made.error().text);
            uplinks.push_back(std::move(*made));
            return *uplinks.back();
        }
        base::EventLoop& loop;
        Switch network;
        KeepingPort port;
        const TunnelEnd own;
        std::unique_ptr<VxlanEndpoint> endpoint;
        std::vector<std::unique_ptr<VxlanUplink>> uplinks;
    };

    void serve_until(const std::function<bool()>& done) {
        bool late = false;
        base::Timer end(*loop, [&] { late = true; });
        end.arm(20s);
        std::function<void()> look = [&] {
            if (done() || late)
                loop->stop();
            else
                loop->post(look);
        };
        loop->post(look);
        loop->run();
        EXPECT_FALSE(late) << "it did not come";
    }
    /// All that has come is read.
    void serve_a_while() {
        unsigned turns = 0;
        serve_until([&] { return ++turns > 50; });
    }
    static std::uint64_t counter(const VxlanUplink& uplink, std::string_view name) {
        std::uint64_t found = UINT64_MAX;
        uplink.visit_counters([&](const base::CounterInfo& info, std::uint64_t value) {
            if (name == info.name) found = value;
        });
        EXPECT_NE(found, UINT64_MAX) << name;
        return found;
    }

    base::SystemClock clock;
    std::unique_ptr<base::EventLoop> loop = std::move(*base::EventLoop::create());
};

}  // namespace openmana::fabric::vxlan_test
