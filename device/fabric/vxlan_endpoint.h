// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/counters.h"
#include "base/datagram_socket.h"
#include "base/event_loop.h"
#include "base/once_per.h"
#include "base/result.h"
#include "base/socket_address.h"
#include "base/state.h"
#include "fabric/tunnel_end.h"

namespace openmana::fabric {

class VxlanUplink;

#define OM_VXLAN_ENDPOINT_COUNTERS(X)                                                           \
    X(malformed, "fabric.vxlan.malformed",                                                      \
      "datagrams dropped: without a VXLAN header, a frame, or one station's address as source") \
    X(unknown_network, "fabric.vxlan.unknown_network",                                          \
      "datagrams dropped: of a VNI that no uplink with this local address has")                 \
    X(unreachable, "fabric.vxlan.unreachable",                                                  \
      "messages of the network that another end, or a way to it, is not there")                 \
    X(mtu_messages, "fabric.vxlan.mtu_messages",                                                \
      "messages of the host or a router that a datagram is too large for the way to another "   \
      "end, which change nothing")                                                              \
    X(not_heard, "fabric.vxlan.not_heard",                                                      \
      "times that one of 16 sockets had so many messages that it heard no more for a second")

OM_COUNTERS(VxlanEndpointCounters, OM_VXLAN_ENDPOINT_COUNTERS);

/// One address of this host at which VXLAN tunnels end, for any number of networks: sockets for
/// what comes in, each with a loop, and some that send, since the source port has to tell flows
/// apart (RFC 7348, section 4.1). By that port the host gives a flow to one of those that receive.
/// Sends from any thread. Made and destroyed while no loop runs, or on the only one; outlives its
/// uplinks.
///
/// What the network says of datagrams is for the log and counters alone, and anybody can make it
/// up: each socket that sends hears so many messages a second, and then none until that is over.
class VxlanEndpoint {
public:
    static constexpr std::size_t kSenders = 16;
    static constexpr std::uint16_t kFirstSourcePort = 49152;
    /// Of each socket that sends.
    static constexpr unsigned kMessagesPerSecond = 16;
    using Key = std::array<std::uint64_t, 2>;

    /// `ttl` 0: the host's. The key chooses source ports, and which flows share one.
    static base::Result<std::unique_ptr<VxlanEndpoint>> create(
        std::span<base::EventLoop* const> loops, const base::SocketAddress& local, int ttl,
        const Key& key);
    static base::Result<std::unique_ptr<VxlanEndpoint>> create(base::EventLoop& loop,
                                                               const base::SocketAddress& local,
                                                               int ttl, const Key& key) {
        return create(std::array{&loop}, local, ttl, key);
    }
    /// The same with the sockets of another process, as its save() has them.
    static base::Result<std::unique_ptr<VxlanEndpoint>> create(
        std::span<base::EventLoop* const> loops, const base::SocketAddress& local, int ttl,
        base::StateReader& in);
    /// While nobody sends or receives.
    void save(base::StateWriter& out) const;
    ~VxlanEndpoint();
    VxlanEndpoint(const VxlanEndpoint&) = delete;
    VxlanEndpoint& operator=(const VxlanEndpoint&) = delete;

    /// False if another uplink has the VNI.
    [[nodiscard]] bool add(std::uint32_t vni, VxlanUplink& uplink) {
        return uplinks_.emplace(vni, &uplink).second;
    }
    void remove(std::uint32_t vni, const VxlanUplink& uplink) {
        const auto found = uplinks_.find(vni);
        if (found != uplinks_.end() && found->second == &uplink) uplinks_.erase(found);
    }
    [[nodiscard]] bool ipv4() const { return local_.family() == AF_INET; }
    [[nodiscard]] const base::SocketAddress& local() const { return local_; }
    [[nodiscard]] int ttl() const { return ttl_; }
    [[nodiscard]] const Key& key() const { return key_; }
    /// How many loops frames come in on.
    [[nodiscard]] std::size_t queues() const { return receivers_.size(); }
    [[nodiscard]] const VxlanEndpointCounters& counters() const { return counters_; }
    /// By the flow that they all belong to. From any thread.
    base::DatagramSocket::Sent send(std::size_t sender, std::span<const base::Datagram> datagrams,
                                    base::DatagramSocket::Failures* failures = nullptr);
    void count_malformed() { counters_.malformed.add(); }

private:
    VxlanEndpoint(base::EventLoop& loop, const base::SocketAddress& local, int ttl, const Key& key)
        : loop_(loop), local_(local), ttl_(ttl), key_(key) {}
    [[nodiscard]] static base::DatagramSocket::Options receiver_options(std::size_t queues);
    [[nodiscard]] static base::DatagramSocket::Options sender_options();
    base::Result<void> open_senders();
    base::Result<void> watch();
    void read(std::size_t queue);
    void read_errors(std::size_t sender);
    void hear_later(std::size_t sender);
    void tell(const base::NetworkError& error);
    [[nodiscard]] bool tell_later(const base::NetworkError& error);
    void warn(const base::NetworkError& error);

    base::EventLoop& loop_;
    const base::SocketAddress local_;
    const int ttl_;
    const Key key_;
    struct Receiver {
        base::EventLoop* loop;
        base::DatagramSocket socket;
    };
    std::vector<Receiver> receivers_;
    std::vector<base::DatagramSocket> senders_;  // told of errors on the first loop
    /// Of each sender; of the first loop.
    struct Heard {
        base::TimePoint since{};
        unsigned messages = 0;
    };
    std::array<Heard, kSenders> heard_;
    /// When a sender that hears nothing may again; the epoch's begin: nobody has seen yet that it
    /// does not. Each tells of itself alone, so relaxed.
    std::array<std::atomic<base::TimePoint>, kSenders> hears_at_{};
    std::unordered_map<std::uint32_t, VxlanUplink*> uplinks_;
    VxlanEndpointCounters counters_;
    std::atomic<std::size_t> refused_{0};       // bytes of the last datagram that was too large
    std::optional<base::NetworkError> untold_;  // until it is known how large that was
    base::Timer later_{loop_, [this] { warn(*std::exchange(untold_, std::nullopt)); }};
    /// When the next line about another end may come, each in the place that it shares with others.
    static constexpr base::Duration kRest = std::chrono::seconds(60);
    static constexpr std::size_t kPlaces = 64;
    std::array<base::TimePoint, kPlaces> next_line_{};
};

}  // namespace openmana::fabric
