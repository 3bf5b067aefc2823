// SPDX-License-Identifier: Apache-2.0
#include "fabric/udp_queue.h"

#include <netinet/in.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <utility>

namespace openmana::fabric {
namespace {

constexpr std::size_t kSendBurst = 64;

/// The same address with a port so much higher.
base::SocketAddress with_port_behind(base::SocketAddress address, std::size_t more) {
    in_port_t* const port = address.family() == AF_INET
                                ? &reinterpret_cast<sockaddr_in*>(address.get())->sin_port
                                : &reinterpret_cast<sockaddr_in6*>(address.get())->sin6_port;
    *port = htons(static_cast<std::uint16_t>(ntohs(*port) + more));
    return address;
}

void add(base::DatagramSocket::Sent& all, const base::DatagramSocket::Sent& more) {
    all.datagrams += more.datagrams;
    all.bytes += more.bytes;
    all.dropped += more.dropped;
    all.too_large += more.too_large;
}

}  // namespace

base::Result<std::unique_ptr<UdpQueue>> UdpQueue::create(base::EventLoop& loop,
                                                         const UplinkConfig& config,
                                                         std::size_t number,
                                                         base::UniqueFd inherited,
                                                         Receive receive) {
    const base::SocketAddress local = with_port_behind(config.local, number);
    const base::SocketAddress remote = with_port_behind(config.remote, number);
    base::DatagramSocket::Options options;
    options.remote = remote;
    options.fragments = true;
    TRY(auto socket, inherited ? base::DatagramSocket::inherit(std::move(inherited), local, options)
                               : base::DatagramSocket::open(local, options));
    std::unique_ptr<UplinkEncryption> encryption;
    if (!config.encryption.key_file.empty()) {
        TRY(encryption,
            UplinkEncryption::create(loop, config.encryption, local, remote, config.name));
    }
    std::unique_ptr<UdpQueue> queue(
        new UdpQueue(loop, std::move(socket), std::move(encryption), std::move(receive)));
    TRY_VOID(loop.add(queue->socket_.fd(), EPOLLIN,
                      [raw = queue.get()](std::uint32_t) { raw->read(); }));
    return queue;
}

void UdpQueue::save_encryption(base::StateWriter& out) const {
    base::StateWriter encryption(loop_.clock().now());
    if (encryption_) encryption_->save(encryption);
    out(encryption_ != nullptr);
    out.bytes(std::move(encryption).finish());
}

void UdpQueue::load_encryption(base::StateReader& in) {
    const auto encrypted = in.get<bool>();
    const auto bytes = in.bytes();
    if (!encrypted || !encryption_ || !in.ok()) return;
    auto state = base::StateReader::open(bytes, loop_.clock().now());
    if (state) encryption_->load(*state);
    const auto loaded = state ? state->result() : tl::unexpected(state.error());
    if (!loaded) in.refuse(loaded.error());
}

base::DatagramSocket::Sent UdpQueue::send(base::FrameViews frames) {
    base::DatagramSocket::Sent all;
    while (!frames.empty() && encryption_) {
        const UplinkEncryption::Sealed* sealed = nullptr;
        frames = frames.subspan(encryption_->seal(frames, sealed));
        add(all, socket_.send(sealed->datagrams()));
    }
    std::array<base::Datagram, kSendBurst> datagrams;
    while (!frames.empty()) {
        const base::FrameViews burst = frames.first(std::min(frames.size(), kSendBurst));
        frames = frames.subspan(burst.size());
        for (std::size_t i = 0; i < burst.size(); ++i) datagrams[i] = {{}, burst[i], nullptr, 0};
        add(all, socket_.send(std::span(datagrams).first(burst.size())));
    }
    return all;
}

void UdpQueue::send_notice() {
    if (!encryption_) return;
    if (const auto notice = encryption_->notice()) (void)socket_.send(std::span(&*notice, 1));
}

/// One call a turn, so that who else is on the thread waits for no more.
void UdpQueue::read() {
    bool more = false;  // the loop asks again
    frames_.clear();
    const auto datagrams = socket_.receive(more);
    if (encryption_)
        encryption_->open(datagrams, frames_);
    else
        for (const base::ReceivedDatagram& datagram : datagrams) frames_.push_back(datagram.bytes);
    receive_(frames_);
    send_notice();
}

}  // namespace openmana::fabric
