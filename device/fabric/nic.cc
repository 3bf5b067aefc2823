// SPDX-License-Identifier: Apache-2.0
#include "fabric/nic.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>

#include "base/gate.h"
#include "base/log.h"
#include "base/mac_at.h"

namespace openmana::fabric {
namespace {

gdma::FunctionConfig function_config(const NicConfig& config) {
    gdma::FunctionConfig function;
    function.name = config.name;
    function.max_memory = config.memory;
    function.seed = config.seed;
    return function;
}

eth::EthernetConfig ethernet_config(const NicConfig& config) {
    eth::EthernetConfig ethernet;
    ethernet.mac = config.mac;
    ethernet.max_mtu = config.max_mtu;
    ethernet.link_speed_mbps = config.link_speed_mbps;
    ethernet.extensions = config.extensions;
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
    rnic.gather = config.gather;
    return rnic;
}

base::MacAddr source_mac(std::span<const std::byte> frame) {
    if (frame.size() < base::kSourceMac + sizeof(base::MacAddr)) return {};
    return base::mac_at(frame, base::kSourceMac);
}

}  // namespace

Nic::Nic(base::Executor& executor, base::GuestMemory& memory, pci::IrqSink& irq, Switch& network,
         NicConfig config)
    : config_(std::move(config)),
      executor_(executor),
      switch_(network),
      flap_timer_(executor, [this] { flap(); }),
      path_(executor, config_.name, config_.mac, *this),
      edge_(config_.vlans),
      guard_(network, this, &config_.mac),
      ethernet_sink_(*this),
      function_(executor, memory, irq, function_config(config_)),
      ethernet_(function_, ethernet_config(config_), ethernet_sink_),
      rdma_(function_, rnic_config(config_), *this),
      demultiplexer_(executor, function_, ethernet_, rdma_, config_.mac) {
    withdrawn_ = true;
    if (!config_.incoming && !config_.apart) appear();
}

Nic::~Nic() {
    detach();
}

void Nic::flush() {
    path_.flush();
    send_burst();
}

void Nic::save(base::StateWriter& out) const {
    out.begin("NIC ", 2);
    out(config_.mac, link_wanted_, withdrawn_);
    base::save_counters(out, counters_);
    function_.save(out);
    path_.save(out);
    out.end();
}

base::Result<void> Nic::load(base::StateReader& in) {
    const auto version = in.begin("NIC ", 2);
    base::MacAddr mac{};
    bool link_wanted = true;
    bool withdrawn = false;
    in(mac, link_wanted);
    if (version > 1) in(withdrawn);
    base::load_counters(in, counters_);
    in.require(mac == config_.mac, "state of a NIC with another MAC address");
    // The guest knows how the link was. How it is to be says the operator of this host: a state
    // that comes while the NIC is stopped is a client's.
    if (in.ok()) {
        if (!stopped_) {
            link_wanted_ = link_wanted;
            link_.store(link_wanted, std::memory_order_release);
        }
        ethernet_.restore_link(link_wanted);
    }
    // One that is stopped is where it is going to be when it starts.
    if (in.ok() && !stopped_) withdrawn ? withdraw() : appear();
    const auto loaded = function_.load(in);
    if (loaded) path_.load(in);
    in.end();
    if (loaded && in.ok()) way_changed();
    if (!loaded) return loaded;
    if (!in.ok()) {
        const base::Gate::Exclusion exclusion(function_.gate(), {"reset"});
        function_.reset();
    }
    return in.result();
}

void Nic::save_stages(base::StateWriter& out) const {
    out.begin("FLAP", 1);
    out(flaps_.has_value(), flapped_down_);
    out(flap_timer_.armed() ? flap_timer_.deadline() : executor_.now());
    out.end();
    path_.save_stages(out);
}

void Nic::load_stages(base::StateReader& in) {
    in.begin("FLAP", 1);
    const auto flaps = in.get<bool>();
    const auto down = in.get<bool>();
    const auto due = in.get<base::TimePoint>();
    in.require(flaps == flaps_.has_value() && (flaps || !down), "other flaps than there are");
    in.end();
    if (in.ok() && flaps_) {
        flapped_down_ = down;
        flap_timer_.arm_at(due);
        // The guest knows: it is not told anything before the other process has ended.
        const bool up = link_wanted_ && !down;
        link_.store(up, std::memory_order_release);
        ethernet_.restore_link(up);
        way_changed();
    }
    path_.load_stages(in);
}

void Nic::leave() {
    set_flaps(std::nullopt);
    set_link(false);
    detach();
}

void Nic::detach() {
    if (std::exchange(detached_, true)) return;
    withdraw();
    switch_.claims().release_all(*this);
    switch_.reach_changed();
}

/// Frames for its addresses go where they are seen next.
void Nic::withdraw() {
    if (std::exchange(withdrawn_, true)) return;
    for (const base::MacAddr& mac : claimed_macs_)
        switch_.take_away(*this, mac, MacRight::kClaimed);
    for (const base::MacAddr& mac : named_macs_) switch_.take_away(*this, mac, MacRight::kNamed);
    switch_.take_away(*this, config_.mac, MacRight::kOwn);
    switch_.reach_changed();
    switch_.detach(*this);
}

/// Whoever was seen with its addresses before: it has them now.
void Nic::appear() {
    if (detached_ || !std::exchange(withdrawn_, false)) return;
    switch_.attach(*this, &config_.mac);
    switch_.give(*this, config_.mac, MacRight::kOwn, true);
    for (const base::MacAddr& mac : named_macs_) switch_.give(*this, mac, MacRight::kNamed, true);
    for (const base::MacAddr& mac : claimed_macs_)
        switch_.give(*this, mac, MacRight::kClaimed, true);
    switch_.reach_changed();
}

/// By what a host sends that asks for its address by RARP (RFC 903), as QEMU does for its own NICs:
/// all that see the frame learn where the MAC address is. Which IP addresses go with that has not
/// changed.
void Nic::announce() {
    constexpr std::size_t kLeast = 60;
    std::vector<base::MacAddr> macs = claimed_macs_;
    macs.push_back(config_.mac);
    for (const base::MacAddr& mac : macs) {
        base::Frame frame(kLeast);
        std::byte* const at = frame.data();
        std::memset(at, 0xff, sizeof mac);
        std::memcpy(at + base::kSourceMac, mac.data(), sizeof mac);
        constexpr std::array<std::uint8_t, 10> kRequest{0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3};
        std::memcpy(at + 12, kRequest.data(), kRequest.size());
        std::memcpy(at + 22, mac.data(), sizeof mac);
        std::memcpy(at + 32, mac.data(), sizeof mac);
        if (into_vlan(frame)) leave_with_burst(frame);
    }
    send_burst();
}

void Nic::stop() {
    OM_CHECK(!stopped_ && !detached_);
    flush();
    withdraw();
    stopped_ = true;
    {
        const base::Gate::Exclusion exclusion(function_.gate(), {"stop"});
        function_.gate().set_away(true);
        link_.store(false, std::memory_order_release);
    }
    way_changed();
}

void Nic::start() {
    OM_CHECK(stopped_);
    stopped_ = false;
    {
        const base::Gate::Exclusion exclusion(function_.gate(), {"start"});
        function_.gate().set_away(false);
        link_.store(carrier(), std::memory_order_release);
    }
    const bool driven = function_.object_counts().eqs != 0;
    if (driven) appear();
    way_changed();
    ethernet_.set_link(carrier());  // which may be another since it was stopped
    if (driven) announce();
}

bool Nic::give_mac(const base::MacAddr& mac, MacRight right) {
    return withdrawn_ || switch_.give(*this, mac, right);
}

void Nic::take_mac(const base::MacAddr& mac, MacRight right) {
    if (!withdrawn_) switch_.take_away(*this, mac, right);
}

void Nic::set_link(bool up) {
    link_wanted_ = up;
    update_link();
}

void Nic::update_link() {
    const bool up = carrier();
    if (stopped_ || up == link()) return;
    link_.store(up, std::memory_order_release);
    way_changed();
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
    if (withdrawn_) [[unlikely]]
        appear();
    path_.from_guest(std::move(frame));
}

/// Of the adapter, whose guest may have lost a MAC address that packets have.
bool Nic::stops_source(std::span<const std::byte> frame) {
    if (may_have(source_mac(frame))) return false;
    counters_.foreign_source.add();
    return true;
}

void Nic::transmit(base::Frame frame) {
    if (!stops_source(frame)) send(std::move(frame));
}

void Nic::transmit_lent(base::Frame& frame) {
    if (stops_source(frame)) return;
    if (withdrawn_) [[unlikely]]
        appear();
    if (path_.transmit_active())
        send(std::move(frame));
    else if (into_vlan(frame))
        leave_with_burst(frame);
}

bool Nic::into_vlan(base::Frame& frame) {
    if (edge_.to_network(frame)) return true;
    counters_.tx_vlan.add();
    return false;
}

void Nic::to_network(base::Frame frame) {
    if (!into_vlan(frame)) return;
    if (guard_.passes(frame))
        leave_with_burst(frame);
    else
        counters_.foreign_source.add();
}

void Nic::leave_with_burst(base::Frame& frame) {
    if (burst_.full_for(frame.size())) send_burst();
    burst_.add(frame);
}

void Nic::send_burst() {
    if (burst_.empty()) return;
    const base::FrameViews frames = burst_.take();
    if (!link()) {
        counters_.link_down.add(frames.size());
        return;
    }
    counters_.tx_frames.add(frames.size());
    std::size_t bytes = 0;
    std::array<base::FrameView, FrameBurst::kMaxFrames> leaving;
    std::size_t count = 0;
    for (const base::FrameView frame : frames) {
        bytes += frame.size();
        if (!stays(frame)) leaving[count++] = frame;
    }
    counters_.tx_bytes.add(bytes);
    switch_.forward(*this, base::FrameViews(leaving).first(count));
}

/// What the NIC sends to itself alone does not pass the stages of the other direction: it is one
/// link, crossed once. The policy has had its say.
bool Nic::stays(base::FrameView frame) {
    if (!demultiplexer_.may_return(frame)) return false;
    const FramesAtGuest at_guest(edge_, base::FrameViews(&frame, 1));
    for (const base::FrameView own : at_guest.all()) {
        const bool to_rdma = demultiplexer_.returns_to_rdma(own);
        if (!to_rdma && !demultiplexer_.return_to_ethernet(own)) continue;
        switch_.observe(frame);
        if (to_rdma) receive_own(own);
        return true;
    }
    return false;
}

void Nic::receive_own(base::FrameView frame) {
    counters_.rx_frames.add();
    counters_.rx_bytes.add(frame.size());
    rdma_.receive(frame);
}

void Nic::returned(base::FrameView frame) {
    const FramesAtGuest at_guest(edge_, base::FrameViews(&frame, 1));
    for (const base::FrameView own : at_guest.all())
        if (demultiplexer_.for_rdma(own)) receive_own(own);
}

void Nic::deliver(base::FrameViews frames) {
    if (!link()) {
        (function_.gate().away() ? counters_.stopped : counters_.link_down).add(frames.size());
        return;
    }
    while (!frames.empty()) {
        const FramesAtGuest at_guest(edge_, frames);
        counters_.rx_vlan.add(at_guest.looked_at() - at_guest.all().size());
        counters_.rx_frames.add(at_guest.all().size());
        counters_.rx_bytes.add(at_guest.bytes_in_network());
        path_.from_network(at_guest.all());
        frames = frames.subspan(at_guest.looked_at());
    }
}

void Nic::to_guest(base::FrameView frame) {
    if (!link()) {  // went down while a stage held the frame
        counters_.link_down.add();
        return;
    }
    demultiplexer_.receive(frame);
}

std::size_t Nic::to_guest_now(base::FrameViews frames) {
    return demultiplexer_.receive_now(frames);
}

std::uint64_t Nic::transmit_room() const {
    return path_.transmit_room();
}

rnic::LocalEnd Nic::local_peer(const rnic::LocalPeer&, const rnic::Ends& ends) {
    // No packet has ends of two families; a policy speaks of packets.
    if (roce::is_ipv4(ends.source) != roce::is_ipv4(ends.destination)) return {};
    if (!link() || switch_.observed() || !path_.passes_rdma(ends)) return {};
    if (!may_have(ends.source_mac)) return {};
    // What it sends without frames is sent, too.
    if (withdrawn_) [[unlikely]]
        appear();
    const auto vlan = edge_.to_network(ends.vlan);
    if (!vlan) return {};
    rnic::Ends in_network = ends;
    in_network.vlan = *vlan;
    if (ends.destination_mac == config_.mac) return rdma_for(in_network);
    Peer* const peer = switch_.peers().find(ends.destination_mac);
    return peer == nullptr ? rnic::LocalEnd() : peer->rdma_for(in_network);
}

bool Nic::claim_mac(const base::MacAddr& mac) {
    if (!path_.may_have(mac) || !give_mac(mac, MacRight::kClaimed)) return false;
    claimed_macs_.push_back(mac);
    return true;
}

void Nic::release_mac(const base::MacAddr& mac) {
    send_burst();  // while it may send from there
    std::erase(claimed_macs_, mac);
    take_mac(mac, MacRight::kClaimed);
}

bool Nic::foreign_mac(const base::MacAddr& mac) const {
    if (mac == config_.mac) return false;
    const Peer* const holder = switch_.peers().find(mac);
    return holder != nullptr && holder != this;
}

void Nic::review_macs() {
    std::vector<base::MacAddr> named = path_.named_macs();
    const auto is_in = [](const std::vector<base::MacAddr>& macs, const base::MacAddr& mac) {
        return std::ranges::find(macs, mac) != macs.end();
    };
    // What stays keeps its place among those of others.
    for (const base::MacAddr& mac : named)
        if (!is_in(named_macs_, mac)) give_mac(mac, MacRight::kNamed);
    for (const base::MacAddr& mac : named_macs_)
        if (!is_in(named, mac)) take_mac(mac, MacRight::kNamed);
    named_macs_ = std::move(named);
    // Who may have it now is not kept from it by what was.
    for (const base::MacAddr& mac : switch_.learned_at(*this))
        if (!path_.may_have(mac)) switch_.forget(*this, mac);
}

void Nic::stages_changed() {
    send_burst();  // by the rights that there were
    review_macs();
    way_changed();
}

bool Nic::claim_address(const roce::Address& address) {
    const auto vlan = edge_.to_network(address.vlan);
    if (!vlan) {
        counters_.address_vlan.add();
        return false;
    }
    if (switch_.claims().claim(*this, {address.gid, *vlan})) return true;
    tell_address_waits(address);
    return false;
}

void Nic::release_address(const roce::Address& address) {
    const auto vlan = edge_.to_network(address.vlan);
    if (!vlan) return;
    const roce::Address in_network(address.gid, *vlan);
    switch_.claims().release(*this, in_network);
    // A NIC that stands still may have any number of addresses, one after the other.
    const std::lock_guard lock(changed_mutex_);
    changed_claims_.erase(in_network);
}

bool Nic::review_address(const roce::Address& address) {
    const auto vlan = edge_.to_network(address.vlan);
    return vlan && switch_.claims().review(*this, {address.gid, *vlan});
}

Standing Nic::standing(const roce::Gid& address) const {
    const Standing policy = path_.standing(address);
    return link() ? policy : std::min(policy, Standing::kDown);
}

void Nic::claim_changed(const roce::Address& in_network) {
    {
        const std::lock_guard lock(changed_mutex_);
        changed_claims_.insert(in_network);
        if (std::exchange(review_waits_, true)) return;
    }
    executor_.post([token = std::weak_ptr<int>(alive_), this] {
        if (!token.expired()) review_changed_claims();
    });
}

/// How often each has changed since does not matter: a NIC that stands still has them wait.
void Nic::review_changed_claims() {
    std::set<roce::Address> changed;
    {
        const std::lock_guard lock(changed_mutex_);
        changed.swap(changed_claims_);
        review_waits_ = false;
    }
    base::count_work(changed.size());
    for (const roce::Address& in_network : changed) {
        const auto vlan = edge_.to_guest(in_network.vlan);
        OM_CHECK(vlan.has_value());  // or it had claimed nothing there
        const roce::Address address(in_network.gid, *vlan);
        const bool served = rdma_.owns(address);
        rdma_.review_address(address);
        if (served && !rdma_.owns(address)) tell_address_waits(address);
    }
}

/// The link or a stage is another, and with it who reaches whom and the standing of all claims.
void Nic::way_changed() {
    switch_.reach_changed();
    rdma_.review_addresses();
}

void Nic::tell_address_waits(const roce::Address& address) {
    counters_.address_waits.add();
    const base::TimePoint now = executor_.now();
    if (now < quiet_until_) return;
    quiet_until_ = now + std::chrono::minutes(1);
    OM_WARN(
        "address waits: nic={} address={} vlan={} served_by={} "
        "cure=\"take it away there, or name it in the policy of the right one (ips=)\"",
        config_.name, address_text(address.gid, roce::is_ipv4(address.gid)), address.vlan,
        switch_.claims().holder_name({address.gid, edge_.to_network(address.vlan).value_or(0)}));
}

/// During a visit or on the executor.
rnic::LocalEnd Nic::own_rdma(const roce::Address& destination) const {
    if (!rdma_.owns(destination)) return {};
    return {&rdma_.local_peer(), destination.vlan};
}

rnic::LocalEnd Nic::rdma_for(const rnic::Ends& ends) {
    const auto vlan = edge_.to_guest(ends.vlan);
    if (!vlan) return {};
    // This end answers, from the MAC address that it was found by.
    const rnic::Ends back{ends.destination, ends.source, ends.destination_mac, ends.source_mac,
                          *vlan};
    const roce::Address own(ends.destination, *vlan);
    if (!link() || !path_.passes_rdma(back) || !may_have(back.source_mac)) return {};
    if (executor_.on_thread()) return own_rdma(own);
    const base::Gate::Visit visit(function_.gate());
    return own_rdma(own);
}

}  // namespace openmana::fabric
