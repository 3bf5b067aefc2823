// SPDX-License-Identifier: Apache-2.0
#include "eth/ethernet_device.h"

#include <mana/eth.h>
#include <mana/ext_eth.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/log.h"
#include "eth/queue_commands.h"
#include "eth/receiver.h"
#include "eth/send_queue.h"
#include "eth/stale_send_queues.h"
#include "eth/statistics.h"
#include "eth/steering.h"
#include "eth/steering_commands.h"
#include "eth/work_queues.h"

namespace openmana::eth {
namespace {

using gdma::HwcReply;
using gdma::HwcRequest;

constexpr std::uint16_t kDevConfigVersion = 3;
constexpr std::uint16_t kGfStatVersion = 2;

}  // namespace

struct EthernetDevice::Impl final : Transmitter {
    Impl(std::uint16_t device_type, gdma::Function& the_function, const EthernetConfig& config,
         Network& the_network)
        : function(the_function),
          network(the_network),
          vport{config},
          queues(function, *this, steering, counters),
          queue_commands(function, device_type, config.max_queues, queues),
          steering_commands(function, queues, steering),
          receiver(vport, network, steering, counters) {}

    // Transmitter
    bool may_send_from(const base::MacAddr& mac) const override {
        return mac == vport.config.mac || network.may_have(mac);
    }
    std::size_t max_frame() const override { return vport.max_frame(); }
    void send(base::Frame frame) override;
    void resume_later(SendQueue& queue) override;

    // Commands: a status of HwcStatus.
    std::uint32_t query_dev_config(HwcReply& reply);
    std::uint32_t query_vport_config(const HwcRequest& request, HwcReply& reply);
    std::uint32_t query_gf_stat(const HwcRequest& request, HwcReply& reply);
    std::uint32_t query_phy_stat(HwcReply& reply);
    std::uint32_t query_link_config(const HwcRequest& request, HwcReply& reply);
    std::uint32_t set_bw_clamp(const HwcRequest& request, HwcReply& reply);
    std::uint32_t dispatch(const HwcRequest& request, HwcReply& reply);
    std::uint32_t dispatch_extension(const HwcRequest& request, HwcReply& reply);

    void drop_all();
    [[nodiscard]] bool packets_allowed() const { return packets_epoch == function.epoch(); }

    gdma::Function& function;
    Network& network;
    EthernetCounters counters;
    Vport vport;
    Steering steering;
    WorkQueues queues;
    QueueCommands queue_commands;
    SteeringCommands steering_commands;
    Receiver receiver;
    std::unique_ptr<StaleSendQueues> stale;  // of before a crash, until the driver resets
    std::uint32_t clamp_mbps = 0;            // 0: none
    /// The function's epoch in which the extension was negotiated: a reset forgets it.
    std::optional<std::uint64_t> packets_epoch;
    /// Tasks that we posted hold it weakly: they come to nothing when the device is gone.
    std::shared_ptr<int> alive = std::make_shared<int>(0);
};

void EthernetDevice::Impl::send(base::Frame frame) {
    if (!vport.link_up()) {
        counters.tx_link_down.add();
        return;
    }
    count_sent(counters, cast_of(frame.data()), frame.size());
    network.transmit(std::move(frame));
}

void EthernetDevice::Impl::resume_later(SendQueue& queue) {
    function.executor().post([this, weak = std::weak_ptr<int>(alive), handle = queue.handle()] {
        if (weak.expired()) return;
        if (auto* const found = queues.find_send(handle)) found->resume();
    });
}

std::uint32_t EthernetDevice::Impl::query_dev_config(HwcReply& reply) {
    mana_hw_eth_dev_config_resp out{};
    out.device_flags[0] = MANA_HW_ETH_DEV_EIGHT_PACKETS;
    out.vports = 1;
    out.max_eqs = function.config().max_eqs;
    out.mtu = static_cast<std::uint16_t>(max_frame());
    reply.put_struct(out);
    // Echoed up to 3: 6.12 looks for exactly 2 (GDMA 6.3).
    reply.set_version(kDevConfigVersion);
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::query_vport_config(const HwcRequest& request, HwcReply& reply) {
    if (request.as<mana_hw_eth_vport_config_req>().port != 0) return gdma::kHwcNotFound;
    mana_hw_eth_vport_config_resp out{};
    out.max_sqs = vport.config.max_queues;
    out.max_rqs = vport.config.max_queues;
    out.table_entries = Steering::kTableEntries;
    std::memcpy(out.mac, vport.config.mac.data(), sizeof out.mac);
    out.vport = Vport::kHandle;
    reply.put_struct(out);
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::query_gf_stat(const HwcRequest& request, HwcReply& reply) {
    reply.put_struct(gf_statistics(counters, request.as<mana_hw_eth_stat_req>().wanted));
    reply.set_version(kGfStatVersion);
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::query_phy_stat(HwcReply& reply) {
    reply.put_struct(phy_statistics(counters));
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::query_link_config(const HwcRequest& request, HwcReply& reply) {
    if (request.as<mana_hw_eth_link_config_req>().vport != Vport::kHandle)
        return gdma::kHwcInvalidParameter;
    mana_hw_eth_link_config_resp out{};
    out.max_speed = vport.config.link_speed_mbps;
    out.current_speed = clamp_mbps != 0 ? clamp_mbps : vport.config.link_speed_mbps;
    reply.put_struct(out);
    reply.set_version(2);
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::set_bw_clamp(const HwcRequest& request, HwcReply& reply) {
    const auto in = request.as<mana_hw_eth_bw_clamp_req>();
    if (in.vport != Vport::kHandle || in.clamp > 1) return gdma::kHwcInvalidParameter;
    if (in.clamp == 1 && (in.speed == 0 || in.speed > vport.config.link_speed_mbps))
        return gdma::kHwcInvalidParameter;
    clamp_mbps = in.clamp == 1 ? in.speed : 0;
    reply.put_struct(mana_hw_eth_bw_clamp_resp{});
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::dispatch(const HwcRequest& request, HwcReply& reply) {
    const auto sized = [&](std::size_t need) { return request.size() >= need; };
    switch (request.opcode()) {
        case MANA_HW_ETH_QUERY_DEV_CONFIG:
            return query_dev_config(reply);
        case MANA_HW_ETH_QUERY_GF_STAT:
            return query_gf_stat(request, reply);
        case MANA_HW_ETH_QUERY_PHY_STAT:
            return query_phy_stat(reply);
        case MANA_HW_ETH_QUERY_VPORT_CONFIG:
            if (sized(sizeof(mana_hw_eth_vport_config_req)))
                return query_vport_config(request, reply);
            break;
        case MANA_HW_ETH_CONFIG_VPORT_TX:
            if (sized(sizeof(mana_hw_eth_vport_tx_req)))
                return queue_commands.config_vport_tx(request, reply);
            break;
        case MANA_HW_ETH_CREATE_WQ_OBJ:
            if (sized(MANA_HW_ETH_CREATE_WQ_V1_SIZE))
                return queue_commands.create_wq(request, reply);
            break;
        case MANA_HW_ETH_DESTROY_WQ_OBJ:
            if (sized(sizeof(mana_hw_eth_destroy_wq_req)))
                return queue_commands.destroy_wq(request);
            break;
        case MANA_HW_ETH_FENCE_RQ:
            if (sized(sizeof(mana_hw_eth_fence_rq_req))) return queue_commands.fence_rq(request);
            break;
        case MANA_HW_ETH_CONFIG_VPORT_RX:
            if (sized(sizeof(mana_hw_eth_vport_rx_req)))
                return steering_commands.config_vport_rx(request, reply);
            break;
        case MANA_HW_ETH_QUERY_LINK_CONFIG:
            if (sized(sizeof(mana_hw_eth_link_config_req)))
                return query_link_config(request, reply);
            break;
        case MANA_HW_ETH_SET_BW_CLAMP:
            if (sized(sizeof(mana_hw_eth_bw_clamp_req))) return set_bw_clamp(request, reply);
            break;
        default:
            return dispatch_extension(request, reply);
    }
    return gdma::kHwcInvalidParameter;
}

std::uint32_t EthernetDevice::Impl::dispatch_extension(const HwcRequest& request, HwcReply& reply) {
    if (!packets_allowed()) return gdma::kHwcUnsupported;
    const auto sized = [&](std::size_t need) { return request.size() >= need; };
    switch (request.opcode()) {
        case MANA_HW_EXT_CREATE_PACKET_WQ:
            if (sized(sizeof(mana_hw_ext_create_packet_wq_req)))
                return queue_commands.create_packet_wq(request, reply);
            break;
        case MANA_HW_EXT_ADD_FLOW:
            if (sized(sizeof(mana_hw_ext_add_flow_req)))
                return steering_commands.add_flow(request, reply);
            break;
        case MANA_HW_EXT_REMOVE_FLOW:
            if (sized(sizeof(mana_hw_ext_remove_flow_req)))
                return steering_commands.remove_flow(request);
            break;
        case MANA_HW_EXT_CREATE_SPREAD:
            if (sized(sizeof(mana_hw_ext_create_spread_req)))
                return steering_commands.create_spread(request, reply);
            break;
        case MANA_HW_EXT_DESTROY_SPREAD:
            if (sized(sizeof(mana_hw_ext_destroy_spread_req)))
                return steering_commands.destroy_spread(request);
            break;
        default:
            return gdma::kHwcUnsupported;
    }
    return gdma::kHwcInvalidParameter;
}

void EthernetDevice::Impl::drop_all() {
    steering.clear();
    queues.clear();
    queue_commands.reset();
    stale.reset();
    clamp_mbps = 0;
}

EthernetDevice::EthernetDevice(gdma::Function& function, EthernetConfig config, Network& network)
    : impl_(std::make_unique<Impl>(device_type(), function, config, network)) {
    function.attach(*this);
}

EthernetDevice::~EthernetDevice() {
    const base::Gate::Exclusion exclusion(impl_->function.gate(), {"end of the vPort"});
    impl_->drop_all();
}

void EthernetDevice::command(const gdma::HwcRequest& request, gdma::HwcReply& reply) {
    const std::uint32_t status = impl_->dispatch(request, reply);
    if (status != gdma::kHwcSuccess) {
        impl_->counters.commands_failed.add();
        OM_DEBUG("eth command failed: nic={} opcode={:#x} status={:#x}",
                 impl_->function.config().name, request.opcode(), status);
    }
    reply.set_status(status);
}

void EthernetDevice::reset() {
    impl_->drop_all();
}

void EthernetDevice::save(base::StateWriter& out) const {
    const Impl& device = *impl_;
    out.begin("ETH ", 1);
    out(device.vport.config.mac, device.vport.config.max_mtu);
    device.queues.save(out);
    device.queue_commands.save(out);
    device.steering.save(out);
    out(device.clamp_mbps, device.packets_allowed());
    base::save_counters(out, device.counters);
    out.end();
}

/// The driver has been told of the MAC address and the MTU.
void EthernetDevice::load(base::StateReader& in) {
    Impl& device = *impl_;
    const EthernetConfig& config = device.vport.config;
    in.begin("ETH ", 1);
    const auto mac = in.get<base::MacAddr>();
    const auto max_mtu = in.get<std::uint16_t>();
    in.require(mac == config.mac && max_mtu <= config.max_mtu, "vPort of another NIC");
    device.queues.load(in, device_type(), config.max_queues, config.extensions);
    device.queue_commands.load(in);
    device.steering.load(
        in, [&](std::uint64_t handle) { return device.queues.find_receive(handle); },
        [&](std::uint64_t handle) { return device.queues.is_free(handle); },
        device.function.account());
    in(device.clamp_mbps);
    in.require(device.clamp_mbps <= config.link_speed_mbps, "faster than the link");
    const auto packets = in.get<bool>();
    // Without packet queues and spreads no rule has a target.
    in.require(config.extensions || (!packets && !device.steering.has_spreads()),
               "extensions that this NIC does not have");
    allow_packets(packets && in.ok());
    base::load_counters(in, device.counters);
    in.end();
}

void EthernetDevice::recover(gdma::FunctionLedger& ledger) {
    impl_->stale = std::make_unique<StaleSendQueues>(impl_->function, ledger);
}

bool EthernetDevice::stale_doorbell(std::uint64_t offset, std::uint64_t value) {
    return impl_->stale && impl_->stale->ring(offset, value);
}

void EthernetDevice::allow_packets(bool allowed) {
    impl_->packets_epoch =
        allowed ? std::optional(impl_->function.epoch()) : std::optional<std::uint64_t>();
}

bool EthernetDevice::packets_allowed() const {
    return impl_->packets_allowed();
}

void EthernetDevice::receive(std::span<const std::byte> frame) {
    impl_->receiver.receive(frame);
}

bool EthernetDevice::receive_own(std::span<const std::byte> frame) {
    return impl_->receiver.receive_own(frame);
}

const base::MacAddr& EthernetDevice::mac() const {
    return impl_->vport.config.mac;
}

const EthernetCounters& EthernetDevice::counters() const {
    return impl_->counters;
}

void EthernetDevice::set_link(bool up) {
    if (impl_->vport.link.exchange(up, std::memory_order_relaxed) == up) return;
    impl_->function.notify_link(up);
}

void EthernetDevice::restore_link(bool up) {
    impl_->vport.link.store(up, std::memory_order_relaxed);
}

bool EthernetDevice::link() const {
    return impl_->vport.link_up();
}

}  // namespace openmana::eth
