// SPDX-License-Identifier: Apache-2.0
#include "fabric/vxlan_endpoint.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/endian.h"
#include "base/keyed_hash.h"
#include "base/log.h"
#include "fabric/vxlan.h"
#include "fabric/vxlan_uplink.h"

namespace openmana::fabric {
namespace {

using base::ErrorCode;

constexpr int kReadsPerTurn = 4;
constexpr base::Duration kSecond = std::chrono::seconds(1);
constexpr std::size_t kPortTries = 1024;
constexpr std::size_t kUdpIpv4 = 20 + 8;
constexpr std::size_t kUdpIpv6 = 40 + 8;

bool set(int fd, int level, int option, int value) {
    return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
}

}  // namespace

base::Result<std::unique_ptr<VxlanEndpoint>> VxlanEndpoint::create(
    std::span<base::EventLoop* const> loops, const base::SocketAddress& local, int ttl,
    const Key& key) {
    std::unique_ptr<VxlanEndpoint> endpoint(new VxlanEndpoint(*loops.front(), local, ttl, key));
    for (base::EventLoop* const loop : loops) {
        TRY(auto receiver, base::DatagramSocket::open(local, receiver_options(loops.size())));
        // Who tunnels over IPv6 may leave the outer checksum away (RFC 6935).
        if (local.family() == AF_INET6) (void)set(receiver.fd(), IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
        endpoint->receivers_.push_back({loop, std::move(receiver)});
    }
    TRY_VOID(endpoint->open_senders());
    TRY_VOID(endpoint->watch());
    return endpoint;
}

base::DatagramSocket::Options VxlanEndpoint::receiver_options(std::size_t queues) {
    base::DatagramSocket::Options options;
    options.traffic_class = true;
    options.shared = queues > 1;
    return options;
}

base::DatagramSocket::Options VxlanEndpoint::sender_options() {
    base::DatagramSocket::Options options;
    options.receives = false;
    options.errors = true;
    return options;
}

void VxlanEndpoint::save(base::StateWriter& out) const {
    out.begin("VXEP", 2);
    out(ttl_, key_);
    out.count(receivers_.size());
    for (const Receiver& receiver : receivers_) out.descriptor(receiver.socket.fd());
    for (const base::DatagramSocket& sender : senders_) out.descriptor(sender.fd());
    base::save_counters(out, counters_);
    out.end();
}

base::Result<std::unique_ptr<VxlanEndpoint>> VxlanEndpoint::create(
    std::span<base::EventLoop* const> loops, const base::SocketAddress& local, int ttl,
    base::StateReader& in) {
    const auto version = in.begin("VXEP", 2);
    const auto ttl_before = in.get<int>();
    const auto key = in.get<Key>();
    in.require(ttl_before == ttl, "the sockets that are handed over have another TTL");
    const std::size_t queues = version < 2 ? 1 : in.count(1);
    in.require(queues == loops.size(), "there is another number of sockets that are handed over");
    TRY_VOID(in.result());
    std::unique_ptr<VxlanEndpoint> endpoint(new VxlanEndpoint(*loops.front(), local, ttl, key));
    base::UniqueFd socket;
    for (base::EventLoop* const loop : loops) {
        socket = in.descriptor();
        TRY_VOID(in.result());
        TRY(auto receiver,
            base::DatagramSocket::inherit(std::move(socket), local, receiver_options(queues)));
        endpoint->receivers_.push_back({loop, std::move(receiver)});
    }
    for (std::size_t i = 0; i < kSenders; ++i) {
        socket = in.descriptor();
        TRY_VOID(in.result());
        TRY(const auto bound, base::DatagramSocket::bound(socket));
        if (bound.family() != local.family() || ip_of(bound) != ip_of(local))
            return base::fail(ErrorCode::kInvalidArgument, "socket of another address");
        TRY(auto sender, base::DatagramSocket::inherit(std::move(socket), bound, sender_options()));
        // The other process may have been told too much, and not hear for a moment.
        sender.hear(true);
        endpoint->senders_.push_back(std::move(sender));
    }
    base::load_counters(in, endpoint->counters_);
    in.end();
    TRY_VOID(in.result());
    TRY_VOID(endpoint->watch());
    return endpoint;
}

VxlanEndpoint::~VxlanEndpoint() {
    for (const Receiver& receiver : receivers_) receiver.loop->remove(receiver.socket.fd());
    for (const base::DatagramSocket& sender : senders_) loop_.remove(sender.fd());
}

/// Each has a port of those that RFC 7348 recommends, by chance.
base::Result<void> VxlanEndpoint::open_senders() {
    std::uint64_t tries = 0;
    while (senders_.size() < kSenders) {
        const std::uint64_t words[] = {tries++};
        const auto port = static_cast<std::uint16_t>(
            kFirstSourcePort + base::KeyedHash::hash(words, key_) % (65536U - kFirstSourcePort));
        auto sender = base::DatagramSocket::open(socket_address_of({ip_of(local_), port, 0}),
                                                 sender_options());
        if (!sender && sender.error().detail == EADDRINUSE && tries < kPortTries) continue;
        if (!sender) return tl::unexpected(sender.error());
        const int level = ipv4() ? IPPROTO_IP : IPPROTO_IPV6;
        if (ttl_ != 0 && !set(sender->fd(), level, ipv4() ? IP_TTL : IPV6_UNICAST_HOPS, ttl_))
            return base::fail(ErrorCode::kIo, "cannot set the TTL", static_cast<unsigned>(errno));
        senders_.push_back(std::move(*sender));
    }
    return {};
}

base::Result<void> VxlanEndpoint::watch() {
    for (std::size_t i = 0; i < receivers_.size(); ++i)
        TRY_VOID(receivers_[i].loop->add(receivers_[i].socket.fd(), EPOLLIN,
                                         [this, i](std::uint32_t) { read(i); }));
    // Errors are told without being asked for.
    for (std::size_t i = 0; i < senders_.size(); ++i)
        TRY_VOID(loop_.add(senders_[i].fd(), 0, [this, i](std::uint32_t) { read_errors(i); }));
    return {};
}

base::DatagramSocket::Sent VxlanEndpoint::send(std::size_t sender,
                                               std::span<const base::Datagram> datagrams,
                                               base::DatagramSocket::Failures* failures) {
    // Only who sends is told something.
    if (!senders_[sender].hears()) hear_later(sender);
    const auto sent = senders_[sender].send(datagrams, failures);
    // Tells of itself alone, so relaxed.
    if (sent.too_large > 0) refused_.store(sent.largest, std::memory_order_relaxed);
    return sent;
}

void VxlanEndpoint::read(std::size_t queue) {
    base::DatagramSocket& receiver = receivers_[queue].socket;
    bool more = true;
    std::array<Tunnelled, VxlanUplink::kBurst> burst;
    for (int i = 0; i < kReadsPerTurn && more; ++i) {
        std::size_t count = 0;
        std::uint32_t vni = 0;
        const auto hand_over = [&] {
            if (count == 0) return;
            const auto found = uplinks_.find(vni);
            if (found == uplinks_.end())
                counters_.unknown_network.add(count);
            else
                found->second->take(queue, std::span(burst).first(count));
            count = 0;
        };
        const base::SocketAddress* from = nullptr;
        roce::Gid sender{};
        for (const base::ReceivedDatagram& datagram : receiver.receive(more)) {
            const auto packet = decode_vxlan(datagram.bytes);
            if (!packet) {
                counters_.malformed.add();
                continue;
            }
            if (count == burst.size() || packet->vni != vni) hand_over();
            vni = packet->vni;
            if (datagram.from != from) {
                from = datagram.from;
                sender = ip_of(*from);
            }
            burst[count++] = {datagram.bytes.subspan(Vxlan::kBytes), sender,
                              datagram.traffic_class};
        }
        hand_over();
    }
}

void VxlanEndpoint::read_errors(std::size_t sender) {
    base::DatagramSocket& socket = senders_[sender];
    Heard& heard = heard_[sender];
    const base::TimePoint now = loop_.clock().now();
    if (now - heard.since >= kSecond) heard = {now, 0};
    while (const auto error = socket.read_error()) {
        if (error->error != 0) tell(*error);
        if (++heard.messages < kMessagesPerSecond) continue;
        socket.hear(false);
        hear_later(sender);
        return;
    }
}

/// From any thread.
void VxlanEndpoint::hear_later(std::size_t sender) {
    std::atomic<base::TimePoint>& hears_at = hears_at_[sender];
    const base::TimePoint now = loop_.clock().now();
    base::TimePoint at = hears_at.load(std::memory_order_relaxed);
    if (at == base::TimePoint{}) {
        if (hears_at.compare_exchange_strong(at, now + kSecond, std::memory_order_relaxed))
            counters_.not_heard.add();
    } else if (now >= at &&
               hears_at.compare_exchange_strong(at, base::TimePoint{}, std::memory_order_relaxed)) {
        senders_[sender].hear(true);
    }
}

/// Whether it is told later: the thread whose datagram was the first one too large has not come
/// back from its call.
bool VxlanEndpoint::tell_later(const base::NetworkError& error) {
    constexpr base::Duration kPause = std::chrono::milliseconds(10);
    if (!error.of_host || refused_.load(std::memory_order_relaxed) != 0) return false;
    if (!std::exchange(untold_, error)) later_.arm(kPause);
    return true;
}

/// One line for what may come as often as frames are sent.
void VxlanEndpoint::tell(const base::NetworkError& error) {
    const bool too_large = error.error == EMSGSIZE;
    (too_large ? counters_.mtu_messages : counters_.unreachable).add();
    const roce::Gid peer = ip_of(error.peer);
    const std::uint64_t words[] = {base::load_le<std::uint64_t>(peer.data()),
                                   base::load_le<std::uint64_t>(peer.data() + 8),
                                   std::uint64_t{too_large} << 1 | std::uint64_t{error.of_host}};
    base::TimePoint& next = next_line_[base::KeyedHash::hash(words, key_) % kPlaces];
    const base::TimePoint now = loop_.clock().now();
    if (now < next) return;
    next = now + kRest;
    if (!too_large || !tell_later(error)) warn(error);
}

void VxlanEndpoint::warn(const base::NetworkError& error) {
    const roce::Gid peer = ip_of(error.peer);
    if (error.error != EMSGSIZE) {
        OM_WARN("vxlan unreachable: local={} peer={} reason=\"{}\"", local_.text(), ip_text(peer),
                std::strerror(error.error));
        return;
    }
    const std::size_t around =
        (ipv4() ? Vxlan::kOverIpv4 : Vxlan::kOverIpv6) + Vxlan::kInnerEthernet;
    const std::size_t inside = error.mtu > around ? error.mtu - around : 0;
    if (!error.of_host) {
        OM_WARN("vxlan too large: local={} peer={} path_mtu={} told_by=router guest_mtu={}",
                local_.text(), ip_text(peer), error.mtu, inside);
        return;
    }
    const std::size_t bytes =
        refused_.load(std::memory_order_relaxed) + (ipv4() ? kUdpIpv4 : kUdpIpv6);
    OM_WARN("vxlan too large: local={} peer={} packet={} path_mtu={} guest_mtu={}", local_.text(),
            ip_text(peer), bytes, error.mtu, inside);
}

}  // namespace openmana::fabric
