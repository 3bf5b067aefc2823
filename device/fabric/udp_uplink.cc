// SPDX-License-Identifier: Apache-2.0
#include "fabric/udp_uplink.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>

namespace openmana::fabric {
namespace {

constexpr std::size_t kSendBurst = 64;

}  // namespace

base::Result<std::unique_ptr<UdpUplink>> UdpUplink::create(base::EventLoop& loop, Switch& network,
                                                           const UplinkConfig& config) {
    base::DatagramSocket::Options options;
    options.remote = config.remote;
    options.fragments = true;
    TRY(auto socket, base::DatagramSocket::open(config.local, options));
    std::unique_ptr<UdpUplink> uplink(new UdpUplink(loop, network, config, std::move(socket)));
    TRY_VOID(loop.add(uplink->socket_.fd(), EPOLLIN,
                      [raw = uplink.get()](std::uint32_t) { raw->read(); }));
    return uplink;
}

UdpUplink::~UdpUplink() {
    network_.detach(*this);
    loop_.remove(socket_.fd());
}

void UdpUplink::deliver(base::FrameViews frames) {
    std::array<base::Datagram, kSendBurst> datagrams;
    while (!frames.empty()) {
        const base::FrameViews burst = frames.first(std::min(frames.size(), kSendBurst));
        frames = frames.subspan(burst.size());
        for (std::size_t i = 0; i < burst.size(); ++i) datagrams[i] = {{}, burst[i], nullptr, 0};
        const auto sent = socket_.send(std::span(datagrams).first(burst.size()));
        count_sent(sent.datagrams, sent.bytes);
        if (sent.dropped + sent.too_large > 0)
            counters_.tx_dropped.add(sent.dropped + sent.too_large);
    }
}

/// One call a turn, so that who else is on the thread waits for no more.
void UdpUplink::read() {
    bool more = false;  // the loop asks again
    frames_.clear();
    for (const base::ReceivedDatagram& datagram : socket_.receive(more))
        frames_.push_back(datagram.bytes);
    receive(frames_);
}

}  // namespace openmana::fabric
