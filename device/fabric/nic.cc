// SPDX-License-Identifier: Apache-2.0
#include "fabric/nic.h"

#include <cstring>

#include "base/gate.h"
#include "roce/packet.h"

namespace openmana::fabric {
namespace {

gdma::FunctionConfig function_config(const NicConfig& config) {
    gdma::FunctionConfig function;
    function.name = config.name;
    return function;
}

eth::EthernetConfig ethernet_config(const NicConfig& config) {
    eth::EthernetConfig ethernet;
    ethernet.mac = config.mac;
    ethernet.max_mtu = config.max_mtu;
    ethernet.link_speed_mbps = config.link_speed_mbps;
    return ethernet;
}

/// The largest IB MTU whose packets fit an Ethernet MTU; 96 bytes are what the kernel takes off for
/// headers (ROCE 1.10).
std::uint32_t port_mtu(std::uint32_t ethernet) {
    std::uint32_t mtu = 4096;
    while (mtu > 256 && mtu + 96 > ethernet) mtu /= 2;
    return mtu;
}

rnic::RnicConfig rnic_config(const NicConfig& config) {
    rnic::RnicConfig rnic;
    rnic.port_mtu = port_mtu(config.max_mtu);
    rnic.mac = config.mac;
    rnic.error_cqes_unasked = config.error_cqes_unasked;
    rnic.congestion.on = config.congestion;
    rnic.congestion.dcqcn.line_rate = std::uint64_t{config.link_speed_mbps} * 1'000'000;
    rnic.extensions = config.extensions;
    return rnic;
}

}  // namespace

Nic::Nic(base::Executor& executor, base::GuestMemory& memory, pci::IrqSink& irq, Switch& network,
         NicConfig config)
    : config_(std::move(config)),
      executor_(executor),
      switch_(network),
      flap_timer_(executor, [this] { flap(); }),
      path_(executor, config_.name, config_.mac, *this),
      ethernet_sink_(*this),
      function_(executor, memory, irq, function_config(config_)),
      ethernet_(function_, ethernet_config(config_), ethernet_sink_),
      rdma_(function_, rnic_config(config_), *this) {
    switch_.attach(*this, &config_.mac);
}

Nic::~Nic() {
    switch_.detach(*this);
}

void Nic::set_link(bool up) {
    link_wanted_ = up;
    update_link();
}

void Nic::update_link() {
    const bool up = link_wanted_ && !flapped_down_;
    if (up == link()) return;
    link_.store(up, std::memory_order_release);
    ethernet_.set_link(up);
}

void Nic::set_flaps(const std::optional<FlapConfig>& config) {
    flaps_ = config;
    flapped_down_ = false;
    flap_timer_.cancel();
    if (flaps_) flap_timer_.arm(flaps_->up);
    update_link();
}

void Nic::flap() {
    flapped_down_ = !flapped_down_;
    if (flapped_down_) path_.fault_counters().flaps.add();
    flap_timer_.arm(flapped_down_ ? flaps_->down : flaps_->up);
    update_link();
}

void Nic::send(base::Frame frame) {
    if (!link()) {
        counters_.link_down.add();
        return;
    }
    path_.from_guest(std::move(frame));
}

void Nic::transmit_lent(base::Frame& frame) {
    if (path_.transmit_active())
        send(std::move(frame));
    else
        pass_to_network(frame);
}

void Nic::pass_to_network(std::span<const std::byte> frame) {
    if (!link()) {
        counters_.link_down.add();
        return;
    }
    counters_.tx_frames.add();
    counters_.tx_bytes.add(frame.size());
    // RDMA to oneself never reaches the switch, which would not send a frame back to where it came
    // from. Nor does it pass the stages of the other direction: it is one link, crossed once.
    const bool to_self = frame.size() >= config_.mac.size() &&
                         std::memcmp(frame.data(), config_.mac.data(), config_.mac.size()) == 0;
    if (to_self && for_rdma(read_headers(frame))) {
        switch_.observe(frame);
        counters_.rx_frames.add();
        counters_.rx_bytes.add(frame.size());
        rdma_.receive(frame);
        return;
    }
    // What a port sends to a group or to itself comes back to packet queues with a rule for it, as
    // on other RoCE NICs. Here, so that the policy has had its say.
    const bool to_group = !frame.empty() && (frame[0] & std::byte{1}) != std::byte{0};
    if ((to_group || to_self) && ethernet_.receive_own(frame) && to_self) {
        switch_.observe(frame);
        return;
    }
    switch_.forward(*this, frame);
}

bool Nic::for_rdma(const FrameHeaders& headers) const {
    // The RNIC part of the ABI has no VLANs (RNIC 1.7).
    if (!headers.roce() || headers.tagged()) return false;
    return roce::is_multicast(headers.destination) ? rdma_.takes_multicast()
                                                   : rdma_.owns(headers.destination);
}

void Nic::deliver(std::span<const std::byte> frame) {
    if (!link()) {
        counters_.link_down.add();
        return;
    }
    counters_.rx_frames.add();
    counters_.rx_bytes.add(frame.size());
    path_.from_network(frame);
}

void Nic::to_guest(std::span<const std::byte> frame) {
    if (!link()) {  // went down while a stage held the frame
        counters_.link_down.add();
        return;
    }
    const FrameHeaders headers = read_headers(frame);
    const auto hand_over = [&] {
        const bool rdma = for_rdma(headers);
        // A group may have members on both sides.
        if (!rdma || roce::is_multicast(headers.destination)) ethernet_.receive(frame);
        return rdma;
    };
    bool rdma = false;
    if (executor_.on_thread()) {
        rdma = hand_over();
    } else {
        const base::Gate::Visit visit(function_.gate());
        rdma = hand_over();
    }
    if (rdma) rdma_.receive(frame);
}

std::uint64_t Nic::transmit_room() const {
    return path_.transmit_room();
}

rnic::Rnic* Nic::local_peer(const rnic::Rnic& source, const roce::Gid& destination,
                            const base::MacAddr& mac) {
    if (!link() || path_.needs_packets() || switch_.observed()) return nullptr;
    if (mac == config_.mac) return source.owns(destination) ? &rdma_ : nullptr;
    // Only NICs have fixed addresses.
    auto* peer = static_cast<Nic*>(switch_.fixed_port(mac));
    if (peer == nullptr || !peer->link() || peer->path_.needs_packets()) return nullptr;
    if (peer->executor_.on_thread()) return peer->rdma_.owns(destination) ? &peer->rdma_ : nullptr;
    const base::Gate::Visit visit(peer->function_.gate());
    return peer->rdma_.owns(destination) ? &peer->rdma_ : nullptr;
}

}  // namespace openmana::fabric
