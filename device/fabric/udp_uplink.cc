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
    TRY(auto state, open_inherited(config.inherited, loop.clock().now()));
    base::UniqueFd inherited;
    if (state) {
        state->begin("UDP ", 1);
        inherited = state->descriptor();
    }
    TRY(auto socket,
        inherited ? base::DatagramSocket::inherit(std::move(inherited), config.local, options)
                  : base::DatagramSocket::open(config.local, options));
    std::unique_ptr<UplinkEncryption> encryption;
    if (!config.encryption.key_file.empty()) {
        TRY(encryption, UplinkEncryption::create(loop, config.encryption, config.local,
                                                 config.remote, config.name));
    }
    std::unique_ptr<UdpUplink> uplink(
        new UdpUplink(loop, network, config, std::move(socket), std::move(encryption)));
    TRY_VOID(loop.add(uplink->socket_.fd(), EPOLLIN,
                      [raw = uplink.get()](std::uint32_t) { raw->read(); }));
    if (!state) {
        uplink->send_notice();
        return uplink;
    }
    uplink->load(*state);
    state->end();
    TRY_VOID(state->result());
    return uplink;
}

UdpUplink::~UdpUplink() {
    network_.detach(*this);
    loop_.remove(socket_.fd());
}

/// What was encrypted may not be any more, or the other way round: so that stands by itself.
void UdpUplink::save(base::StateWriter& out) const {
    out.begin("UDP ", 1);
    out.descriptor(socket_.fd());
    base::save_counters(out, counters_);
    base::StateWriter encryption(loop_.clock().now());
    if (encryption_) encryption_->save(encryption);
    out(encryption_ != nullptr);
    out.bytes(std::move(encryption).finish());
    out.end();
}

void UdpUplink::load(base::StateReader& in) {
    base::load_counters(in, counters_);
    const auto encrypted = in.get<bool>();
    const auto bytes = in.bytes();
    if (!encrypted || !encryption_ || !in.ok()) return;
    auto state = base::StateReader::open(bytes, loop_.clock().now());
    if (state) encryption_->load(*state);
    const auto loaded = state ? state->result() : tl::unexpected(state.error());
    if (!loaded) in.refuse(loaded.error());
}

void UdpUplink::visit_counters(const CounterVisitor& visitor) const {
    Uplink::visit_counters(visitor);
    if (encryption_) encryption_->counters().visit(visitor);
}

void UdpUplink::send(std::span<const base::Datagram> datagrams) {
    const auto sent = socket_.send(datagrams);
    count_sent(sent.datagrams, sent.bytes);
    if (const auto lost = sent.dropped + sent.too_large; lost > 0) counters_.tx_dropped.add(lost);
}

void UdpUplink::deliver(base::FrameViews frames) {
    while (!frames.empty() && encryption_) {
        const UplinkEncryption::Sealed* sealed = nullptr;
        frames = frames.subspan(encryption_->seal(frames, sealed));
        send(sealed->datagrams());
    }
    if (frames.empty()) return;
    std::array<base::Datagram, kSendBurst> datagrams;
    while (!frames.empty()) {
        const base::FrameViews burst = frames.first(std::min(frames.size(), kSendBurst));
        frames = frames.subspan(burst.size());
        for (std::size_t i = 0; i < burst.size(); ++i) datagrams[i] = {{}, burst[i], nullptr, 0};
        send(std::span(datagrams).first(burst.size()));
    }
}

void UdpUplink::send_notice() {
    if (!encryption_) return;
    if (const auto notice = encryption_->notice()) (void)socket_.send(std::span(&*notice, 1));
}

/// One call a turn, so that who else is on the thread waits for no more.
void UdpUplink::read() {
    bool more = false;  // the loop asks again
    frames_.clear();
    const auto datagrams = socket_.receive(more);
    if (encryption_)
        encryption_->open(datagrams, frames_);
    else
        for (const base::ReceivedDatagram& datagram : datagrams) frames_.push_back(datagram.bytes);
    receive(frames_);
    send_notice();
}

}  // namespace openmana::fabric
