// SPDX-License-Identifier: Apache-2.0
#include "eth/ethernet_device.h"

#include <mana/eth.h>
#include <mana/ext.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/endian.h"
#include "base/log.h"
#include "eth/flow_table.h"
#include "eth/ip.h"
#include "eth/queue_owner.h"
#include "eth/receive_parse.h"
#include "eth/receive_queue.h"
#include "eth/send_queue.h"
#include "eth/spread.h"
#include "eth/toeplitz.h"

namespace openmana::eth {
namespace {

using gdma::HwcReply;
using gdma::HwcRequest;
using gdma::RegionHandle;

constexpr std::uint64_t kVport = 1;
constexpr std::uint32_t kTableEntries = 64;
constexpr std::uint32_t kMaxTableEntries = 512;
constexpr std::uint16_t kDevConfigVersion = 3;
constexpr std::uint16_t kVportRxVersion = 2;
constexpr std::size_t kMaxSpreads = 64;
constexpr std::uint32_t kWqeUnit = 32;
constexpr std::uint32_t kCqeBytes = 64;
/// Running positions are 32 bits: a ring may be at most half of that.
constexpr std::uint32_t kMaxRingBytes = 1U << 30;

}  // namespace

struct EthernetDevice::Impl final : Transmitter {
    Impl(gdma::Client& the_client, gdma::Function& the_function, EthernetConfig the_config,
         base::FrameSink& the_network)
        : client(the_client),
          function(the_function),
          config(the_config),
          network(the_network),
          table(kTableEntries, nullptr) {}

    // Transmitter
    const base::MacAddr& mac() const override { return config.mac; }
    std::size_t max_frame() const override { return std::size_t{config.max_mtu} + kEthernetBytes; }
    void send(base::Frame frame) override;
    void resume_later(SendQueue& queue) override;

    // Commands: a status of HwcStatus.
    std::uint32_t query_dev_config(HwcReply& reply);
    std::uint32_t query_vport_config(const HwcRequest& request, HwcReply& reply);
    std::uint32_t config_vport_tx(const HwcRequest& request, HwcReply& reply);
    std::uint32_t create_wq(const HwcRequest& request, HwcReply& reply);
    std::uint32_t create_packet_wq(const HwcRequest& request, HwcReply& reply);
    std::uint32_t add_flow(const HwcRequest& request, HwcReply& reply);
    std::uint32_t remove_flow(const HwcRequest& request);
    std::uint32_t create_spread(const HwcRequest& request, HwcReply& reply);
    std::uint32_t destroy_spread(const HwcRequest& request);
    std::uint32_t destroy_wq(const HwcRequest& request);
    std::uint32_t fence_rq(const HwcRequest& request);
    std::uint32_t config_vport_rx(const HwcRequest& request, HwcReply& reply);
    std::uint32_t query_gf_stat(const HwcRequest& request, HwcReply& reply);
    std::uint32_t query_phy_stat(HwcReply& reply);
    std::uint32_t query_link_config(const HwcRequest& request, HwcReply& reply);
    std::uint32_t set_bw_clamp(const HwcRequest& request, HwcReply& reply);
    std::uint32_t dispatch(const HwcRequest& request, HwcReply& reply);
    std::uint32_t dispatch_extension(const HwcRequest& request, HwcReply& reply);

    void receive(std::span<const std::byte> frame);
    bool receive_own(std::span<const std::byte> frame);
    std::optional<ReceivedFrame> parse(std::span<const std::byte> frame);
    bool deliver_by_rule(ReceiveQueue* queue, ReceivedFrame& parsed,
                         std::span<const std::byte> frame);
    bool deliver(ReceiveQueue& queue, ReceivedFrame& parsed, std::span<const std::byte> frame);
    ReceiveQueue* steer(ReceivedFrame& frame) const;
    void count_received(Cast cast, std::uint64_t bytes);
    void forget_rq(ReceiveQueue& queue);
    void drop_all();

    /// CONFIG_VPORT_TX: what the queues created from now on belong to, if it is still there then.
    /// It need not be: nothing takes the setting back when a raw packet QP and its PD end.
    struct Binding {
        gdma::Weak<gdma::Pd> pd;
        gdma::Weak<gdma::PageGrant> page;
    };
    [[nodiscard]] std::optional<QueueOwner> find_owner(gdma::Pdn pd, gdma::DoorbellPage page) const;
    std::uint32_t make_wq(const mana_hw_eth_create_wq_req& in, QueueOwner owner, bool packets,
                          HwcReply& reply);
    /// What a work queue is made of.
    struct NewQueue {
        QueueOwner owner;
        gdma::RegionClaim wq_region;
        std::uint64_t wq_bytes = 0;
        gdma::RegionClaim cq_region;
        std::uint64_t cq_bytes = 0;
        gdma::Handle<gdma::EventQueue> eq;
        bool packets = false;
    };
    base::Result<mana_hw_eth_create_wq_resp> make_sq(NewQueue parts);
    base::Result<mana_hw_eth_create_wq_resp> make_rq(NewQueue parts);
    [[nodiscard]] bool packets_allowed() const { return packets_epoch == function.epoch(); }

    gdma::Client& client;
    gdma::Function& function;
    const EthernetConfig config;
    base::FrameSink& network;
    EthernetCounters counters;
    std::atomic<bool> link{true};  // written on the executor

    // On the executor.
    std::optional<Binding> binding;
    std::unordered_map<std::uint64_t, std::unique_ptr<SendQueue>> sqs;  // by object handle
    std::uint64_t next_handle = 0x100;  // never used again, so that a late turn finds nothing
    std::uint32_t clamp_mbps = 0;       // 0: none
    /// The function's epoch in which the extension was negotiated: a reset forgets it.
    std::optional<std::uint64_t> packets_epoch;
    /// Tasks that we posted hold it weakly: they come to nothing when the device is gone.
    std::shared_ptr<int> alive = std::make_shared<int>(0);

    // Changed under an exclusion, read during visits.
    std::unordered_map<std::uint64_t, std::unique_ptr<ReceiveQueue>> rqs;
    bool rx_enabled = false;
    bool rss = false;
    ReceiveQueue* default_rq = nullptr;
    std::vector<ReceiveQueue*> table;  // a power of two of entries
    Toeplitz toeplitz;
    FlowTable flows;
    std::unordered_map<std::uint64_t, std::unique_ptr<Spread>> spreads;
};

void EthernetDevice::Impl::send(base::Frame frame) {
    if (!link.load(std::memory_order_relaxed)) {
        counters.tx_link_down.add();
        return;
    }
    const std::uint64_t bytes = frame.size();
    counters.tx_bytes.add(bytes);
    switch (cast_of(frame.data())) {
        case Cast::kUnicast:
            counters.tx_unicast_packets.add();
            counters.tx_unicast_bytes.add(bytes);
            break;
        case Cast::kMulticast:
            counters.tx_multicast_packets.add();
            counters.tx_multicast_bytes.add(bytes);
            break;
        case Cast::kBroadcast:
            counters.tx_broadcast_packets.add();
            counters.tx_broadcast_bytes.add(bytes);
            break;
    }
    network.transmit(std::move(frame));
}

void EthernetDevice::Impl::resume_later(SendQueue& queue) {
    function.executor().post([this, weak = std::weak_ptr<int>(alive), handle = queue.handle()] {
        if (weak.expired()) return;
        const auto found = sqs.find(handle);
        if (found != sqs.end()) found->second->resume();
    });
}

std::uint32_t EthernetDevice::Impl::query_dev_config(HwcReply& reply) {
    mana_hw_eth_dev_config_resp out{};
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
    out.max_sqs = config.max_queues;
    out.max_rqs = config.max_queues;
    out.table_entries = kTableEntries;
    std::memcpy(out.mac, config.mac.data(), sizeof out.mac);
    out.vport = kVport;
    reply.put_struct(out);
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::config_vport_tx(const HwcRequest& request, HwcReply& reply) {
    const auto in = request.as<mana_hw_eth_vport_tx_req>();
    const auto owner = find_owner(gdma::Pdn(in.pd_id), gdma::DoorbellPage(in.doorbell_page));
    if (in.vport != kVport || !owner) return gdma::kHwcInvalidParameter;
    binding = Binding{gdma::Weak(owner->pd), gdma::Weak(owner->page)};
    mana_hw_eth_vport_tx_resp out{};
    out.short_oob_allowed = 1;
    reply.put_struct(out);
    OM_DEBUG("vport config tx: nic={} pdn={:#x} page={:#x}", function.config().name, in.pd_id,
             in.doorbell_page);
    return gdma::kHwcSuccess;
}

std::optional<QueueOwner> EthernetDevice::Impl::find_owner(gdma::Pdn pd,
                                                           gdma::DoorbellPage page) const {
    auto found_pd = function.pds().find(pd, client.device_type());
    auto found_page = function.pages().find(page);
    if (!found_pd || !found_page) return std::nullopt;
    return QueueOwner{std::move(*found_pd), std::move(*found_page)};
}

std::uint32_t EthernetDevice::Impl::create_wq(const HwcRequest& request, HwcReply& reply) {
    if (!binding) return gdma::kHwcInvalidParameter;
    QueueOwner owner{binding->pd.lock(), binding->page.lock()};
    if (!owner.pd || !owner.page) return gdma::kHwcInvalidParameter;
    return make_wq(request.as<mana_hw_eth_create_wq_req>(), std::move(owner), false, reply);
}

std::uint32_t EthernetDevice::Impl::create_packet_wq(const HwcRequest& request, HwcReply& reply) {
    const auto in = request.as<mana_hw_ext_create_packet_wq_req>();
    mana_hw_eth_create_wq_req plain{};
    plain.vport = in.vport;
    plain.wq_type = in.wq_type;
    plain.wq_region = in.wq_region;
    plain.cq_region = in.cq_region;
    plain.wq_bytes = in.wq_bytes;
    plain.cq_bytes = in.cq_bytes;
    plain.eq_id = in.eq_id;
    auto owner = find_owner(gdma::Pdn(in.pd_id), gdma::DoorbellPage(in.doorbell_page));
    if (!owner) return gdma::kHwcInvalidParameter;
    return make_wq(plain, std::move(*owner), true, reply);
}

std::uint32_t EthernetDevice::Impl::make_wq(const mana_hw_eth_create_wq_req& in, QueueOwner owner,
                                            bool packets, HwcReply& reply) {
    const bool is_sq = in.wq_type == MANA_HW_ETH_SQ;
    if (in.vport != kVport || (!is_sq && in.wq_type != MANA_HW_ETH_RQ))
        return gdma::kHwcInvalidParameter;
    if (in.wq_bytes == 0 || in.wq_bytes > kMaxRingBytes || in.wq_bytes % kWqeUnit != 0 ||
        in.cq_bytes < kCqeBytes || in.cq_bytes > kMaxRingBytes || in.cq_bytes % kCqeBytes != 0)
        return gdma::kHwcInvalidParameter;
    if ((is_sq ? sqs.size() : rqs.size()) >= config.max_queues) return gdma::kHwcNoResources;
    gdma::Handle<gdma::EventQueue> eq;
    if (in.eq_id != MANA_HW_ETH_NO_EQ) {
        auto found = function.eqs().find(gdma::Eqn(in.eq_id));
        if (!found) return gdma::kHwcNotFound;
        eq = std::move(*found);
    }
    const RegionHandle wq_handle(in.wq_region);
    const RegionHandle cq_handle(in.cq_region);
    if (wq_handle == cq_handle) return gdma::kHwcInvalidParameter;
    auto wq_region = function.regions().claim(wq_handle);
    auto cq_region = function.regions().claim(cq_handle);
    if (!wq_region || !cq_region) return gdma::kHwcNotFound;
    if ((*wq_region)->length() < in.wq_bytes || (*cq_region)->length() < in.cq_bytes)
        return gdma::kHwcInvalidParameter;

    NewQueue parts{std::move(owner), std::move(*wq_region), in.wq_bytes, std::move(*cq_region),
                   in.cq_bytes,      std::move(eq),         packets};
    const auto made = is_sq ? make_sq(std::move(parts)) : make_rq(std::move(parts));
    if (!made) return gdma::status_of(made.error());
    reply.put_struct(*made);
    OM_DEBUG("wq create: nic={} type={} id={:#x} cqn={:#x} object={:#x}", function.config().name,
             is_sq ? "sq" : "rq", made->wq_id + 0, made->cq_id + 0, made->wq_object + 0);
    return gdma::kHwcSuccess;
}

base::Result<mana_hw_eth_create_wq_resp> EthernetDevice::Impl::make_sq(NewQueue parts) {
    const gdma::DoorbellPage page = parts.owner.page->page;
    TRY(gdma::SqIds ids, function.sqs().allocate(1, 1));
    TRY(auto cq, function.cqs().create(std::move(parts.cq_region), parts.cq_bytes,
                                       std::move(parts.eq), parts.owner.page, {}));
    mana_hw_eth_create_wq_resp made{};
    made.wq_id = ids.first().value();
    made.cq_id = cq->id().value();
    const std::uint64_t handle = next_handle++;
    made.wq_object = handle;
    auto queue = std::make_unique<SendQueue>(
        handle, std::move(ids), std::move(parts.owner),
        gdma::Ring(function.memory(), parts.wq_region.take(), parts.wq_bytes), std::move(cq),
        function.keys(), *this, counters, parts.packets ? SqUser::kPackets : SqUser::kInterface);
    function.sqs().connect(queue->id(), page, queue.get());
    sqs.emplace(handle, std::move(queue));
    return made;
}

base::Result<mana_hw_eth_create_wq_resp> EthernetDevice::Impl::make_rq(NewQueue parts) {
    const gdma::DoorbellPage page = parts.owner.page->page;
    TRY(gdma::RqIds ids, function.rqs().allocate(1, 1));
    TRY(auto cq, function.cqs().create(std::move(parts.cq_region), parts.cq_bytes,
                                       std::move(parts.eq), parts.owner.page, {}));
    mana_hw_eth_create_wq_resp made{};
    made.wq_id = ids.first().value();
    made.cq_id = cq->id().value();
    const std::uint64_t handle = next_handle++;
    made.wq_object = handle;
    auto queue = std::make_unique<ReceiveQueue>(
        std::move(ids), std::move(parts.owner),
        gdma::Ring(function.memory(), parts.wq_region.take(), parts.wq_bytes), std::move(cq),
        function.keys(), counters, parts.packets);
    function.rqs().connect(queue->id(), page, queue.get());
    rqs.emplace(handle, std::move(queue));
    return made;
}

/// Nobody finds the RQ any more.
void EthernetDevice::Impl::forget_rq(ReceiveQueue& queue) {
    if (default_rq == &queue) default_rq = nullptr;
    for (auto& entry : table)
        if (entry == &queue) entry = nullptr;
    flows.forget(&queue);
    for (auto& [handle, spread] : spreads) spread->forget(queue);
}

std::uint32_t EthernetDevice::Impl::destroy_wq(const HwcRequest& request) {
    const auto in = request.as<mana_hw_eth_destroy_wq_req>();
    const std::uint64_t handle = in.wq_object;
    if (in.wq_type == MANA_HW_ETH_SQ) {
        return sqs.erase(handle) != 0 ? gdma::kHwcSuccess : gdma::kHwcNotFound;
    }
    if (in.wq_type != MANA_HW_ETH_RQ) return gdma::kHwcInvalidParameter;
    const auto found = rqs.find(handle);
    if (found == rqs.end()) return gdma::kHwcNotFound;
    forget_rq(*found->second);
    rqs.erase(found);
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::add_flow(const HwcRequest& request, HwcReply& reply) {
    const auto in = request.as<mana_hw_ext_add_flow_req>();
    const std::uint64_t handle = in.rq;
    const auto found = rqs.find(handle);
    const auto spread = spreads.find(handle);
    if (found == rqs.end() && spread == spreads.end()) return gdma::kHwcNotFound;
    FlowFields value{};
    FlowFields mask{};
    std::memcpy(value.data(), &in.value, sizeof value);
    std::memcpy(mask.data(), &in.mask, sizeof mask);
    for (std::size_t i = 0; i < value.size(); ++i)
        if ((value[i] & ~mask[i]) != 0) return gdma::kHwcInvalidParameter;
    // Queues of the interface have their own steering.
    if ((found != rqs.end() && !found->second->keeps_tags()) || in.reserved != 0 ||
        in.mask.reserved != 0)
        return gdma::kHwcInvalidParameter;
    const FlowTarget target =
        found != rqs.end() ? FlowTarget(found->second.get()) : FlowTarget(spread->second.get());
    const auto flow = flows.add(in.priority, value, mask, target);
    if (!flow) return gdma::kHwcNoResources;
    mana_hw_ext_add_flow_resp out{};
    out.flow = *flow;
    reply.put_struct(out);
    OM_DEBUG("flow add: nic={} flow={:#x} object={:#x} priority={}", function.config().name, *flow,
             handle, in.priority);
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::remove_flow(const HwcRequest& request) {
    return flows.remove(request.as<mana_hw_ext_remove_flow_req>().flow) ? gdma::kHwcSuccess
                                                                        : gdma::kHwcNotFound;
}

std::uint32_t EthernetDevice::Impl::create_spread(const HwcRequest& request, HwcReply& reply) {
    const auto in = request.as<mana_hw_ext_create_spread_req>();
    const std::uint32_t entries = in.entries;
    if ((in.fields & ~MANA_HW_EXT_SPREAD_FIELDS) != 0 || entries == 0 ||
        entries > MANA_HW_EXT_SPREAD_ENTRIES || (entries & (entries - 1)) != 0)
        return gdma::kHwcInvalidParameter;
    std::vector<ReceiveQueue*> queues;
    for (std::uint32_t i = 0; i < MANA_HW_EXT_SPREAD_ENTRIES; ++i) {
        const std::uint64_t handle = in.rq[i];
        if (i >= entries) {
            if (handle != 0) return gdma::kHwcInvalidParameter;
            continue;
        }
        const auto found = rqs.find(handle);
        if (found == rqs.end()) return gdma::kHwcNotFound;
        if (!found->second->keeps_tags()) return gdma::kHwcInvalidParameter;
        queues.push_back(found->second.get());
    }
    if (spreads.size() >= kMaxSpreads) return gdma::kHwcNoResources;
    const std::uint64_t handle = next_handle++;
    spreads.emplace(
        handle,
        std::make_unique<Spread>(
            in.fields,
            std::as_bytes(std::span<const std::uint8_t, MANA_HW_EXT_SPREAD_KEY_BYTES>(in.key)),
            std::move(queues)));
    mana_hw_ext_create_spread_resp out{};
    out.spread = handle;
    reply.put_struct(out);
    OM_DEBUG("spread create: nic={} object={:#x} entries={} fields={:#x}", function.config().name,
             handle, entries, in.fields);
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::destroy_spread(const HwcRequest& request) {
    const auto found = spreads.find(request.as<mana_hw_ext_destroy_spread_req>().spread);
    if (found == spreads.end()) return gdma::kHwcNotFound;
    flows.forget(found->second.get());
    spreads.erase(found);
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::fence_rq(const HwcRequest& request) {
    const std::uint64_t handle = request.as<mana_hw_eth_fence_rq_req>().wq_object;
    const auto found = rqs.find(handle);
    if (found == rqs.end()) return gdma::kHwcNotFound;
    found->second->fence();
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::config_vport_rx(const HwcRequest& request, HwcReply& reply) {
    const auto in = request.as<mana_hw_eth_vport_rx_req>();
    if (in.vport != kVport || in.rx_enable > 1 || in.rss_enable > 1)
        return gdma::kHwcInvalidParameter;

    // Everything is checked before anything is changed.
    ReceiveQueue* new_default = default_rq;
    if (in.update_default != 0) {
        const std::uint64_t handle = in.default_rq;
        const auto found = rqs.find(handle);
        if (found == rqs.end()) return gdma::kHwcNotFound;
        new_default = found->second.get();
    }
    std::vector<ReceiveQueue*> new_table;
    if (in.update_table != 0) {
        const std::uint32_t entries = in.table_entries;
        if (entries == 0 || entries > kMaxTableEntries || (entries & (entries - 1)) != 0 ||
            in.table_offset < sizeof in || !request.has(in.table_offset, std::size_t{entries} * 8))
            return gdma::kHwcInvalidParameter;
        new_table.reserve(entries);
        for (std::uint32_t i = 0; i < entries; ++i) {
            const auto found =
                rqs.find(request.get<std::uint64_t>(in.table_offset + std::size_t{i} * 8));
            if (found == rqs.end()) return gdma::kHwcNotFound;
            new_table.push_back(found->second.get());
        }
    }
    rx_enabled = in.rx_enable != 0;
    rss = in.rss_enable != 0;
    default_rq = new_default;
    if (in.update_table != 0) table = std::move(new_table);
    if (in.update_key != 0)
        toeplitz.set_key(
            std::as_bytes(std::span<const std::uint8_t, MANA_HW_ETH_KEY_BYTES>(in.key)));
    // Completions are never coalesced: the time-out stays 0. 6.12 asks for 32 bytes and gets no
    // more.
    reply.put_struct(mana_hw_eth_vport_rx_resp{});
    reply.set_version(kVportRxVersion);
    OM_DEBUG("vport config rx: nic={} rx={} rss={}", function.config().name, rx_enabled, rss);
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::query_gf_stat(const HwcRequest& request, HwcReply& reply) {
    mana_hw_eth_gf_stat_resp out{};
    out.reported = request.as<mana_hw_eth_stat_req>().wanted & MANA_HW_ETH_GF_STAT_ALL;
    out.rx_no_wqe = counters.rx_no_wqe.value();
    out.rx_vport_disabled = counters.rx_disabled.value() + counters.rx_no_queue.value();
    out.rx_bytes = counters.rx_bytes.value();
    out.rx_unicast_packets = counters.rx_unicast_packets.value();
    out.rx_unicast_bytes = counters.rx_unicast_bytes.value();
    out.rx_broadcast_packets = counters.rx_broadcast_packets.value();
    out.rx_broadcast_bytes = counters.rx_broadcast_bytes.value();
    out.rx_multicast_packets = counters.rx_multicast_packets.value();
    out.rx_multicast_bytes = counters.rx_multicast_bytes.value();
    out.tx_vport_disabled = counters.tx_link_down.value();
    out.tx_vport_offset = counters.tx_vport_offset.value();
    out.tx_ethertype = counters.tx_ethertype.value();
    out.tx_source = counters.tx_source.value();
    out.tx_mtu = counters.tx_mtu.value();
    out.tx_oob = counters.tx_oob.value() + counters.tx_headers.value();
    out.tx_bytes = counters.tx_bytes.value();
    out.tx_unicast_packets = counters.tx_unicast_packets.value();
    out.tx_unicast_bytes = counters.tx_unicast_bytes.value();
    out.tx_broadcast_packets = counters.tx_broadcast_packets.value();
    out.tx_broadcast_bytes = counters.tx_broadcast_bytes.value();
    out.tx_multicast_packets = counters.tx_multicast_packets.value();
    out.tx_multicast_bytes = counters.tx_multicast_bytes.value();
    out.tx_gdma = counters.tx_gdma.value();
    reply.put_struct(out);
    reply.set_version(2);
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::query_phy_stat(HwcReply& reply) {
    mana_hw_eth_phy_stat_resp out{};
    out.rx_drops = counters.rx_no_wqe.value() + counters.rx_disabled.value() +
                   counters.rx_no_queue.value() + counters.rx_malformed.value() +
                   counters.rx_too_long.value() + counters.rx_bad_wqe.value();
    out.tx_drops = counters.tx_link_down.value();
    // All traffic is of class 0: [0] receive, [1] transmit.
    out.packets[0] = counters.rx_unicast_packets.value() + counters.rx_broadcast_packets.value() +
                     counters.rx_multicast_packets.value();
    out.packets[1] = counters.tx_unicast_packets.value() + counters.tx_broadcast_packets.value() +
                     counters.tx_multicast_packets.value();
    out.bytes[0] = counters.rx_bytes.value();
    out.bytes[1] = counters.tx_bytes.value();
    reply.put_struct(out);
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::query_link_config(const HwcRequest& request, HwcReply& reply) {
    if (request.as<mana_hw_eth_link_config_req>().vport != kVport)
        return gdma::kHwcInvalidParameter;
    mana_hw_eth_link_config_resp out{};
    out.max_speed = config.link_speed_mbps;
    out.current_speed = clamp_mbps != 0 ? clamp_mbps : config.link_speed_mbps;
    reply.put_struct(out);
    reply.set_version(2);
    return gdma::kHwcSuccess;
}

std::uint32_t EthernetDevice::Impl::set_bw_clamp(const HwcRequest& request, HwcReply& reply) {
    const auto in = request.as<mana_hw_eth_bw_clamp_req>();
    if (in.vport != kVport || in.clamp > 1) return gdma::kHwcInvalidParameter;
    if (in.clamp == 1 && (in.speed == 0 || in.speed > config.link_speed_mbps))
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
            if (sized(sizeof(mana_hw_eth_vport_tx_req))) return config_vport_tx(request, reply);
            break;
        case MANA_HW_ETH_CREATE_WQ_OBJ:
            if (sized(sizeof(mana_hw_eth_create_wq_req))) return create_wq(request, reply);
            break;
        case MANA_HW_ETH_DESTROY_WQ_OBJ:
            if (sized(sizeof(mana_hw_eth_destroy_wq_req))) return destroy_wq(request);
            break;
        case MANA_HW_ETH_FENCE_RQ:
            if (sized(sizeof(mana_hw_eth_fence_rq_req))) return fence_rq(request);
            break;
        case MANA_HW_ETH_CONFIG_VPORT_RX:
            if (sized(sizeof(mana_hw_eth_vport_rx_req))) return config_vport_rx(request, reply);
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
                return create_packet_wq(request, reply);
            break;
        case MANA_HW_EXT_ADD_FLOW:
            if (sized(sizeof(mana_hw_ext_add_flow_req))) return add_flow(request, reply);
            break;
        case MANA_HW_EXT_REMOVE_FLOW:
            if (sized(sizeof(mana_hw_ext_remove_flow_req))) return remove_flow(request);
            break;
        case MANA_HW_EXT_CREATE_SPREAD:
            if (sized(sizeof(mana_hw_ext_create_spread_req))) return create_spread(request, reply);
            break;
        case MANA_HW_EXT_DESTROY_SPREAD:
            if (sized(sizeof(mana_hw_ext_destroy_spread_req))) return destroy_spread(request);
            break;
        default:
            return gdma::kHwcUnsupported;
    }
    return gdma::kHwcInvalidParameter;
}

ReceiveQueue* EthernetDevice::Impl::steer(ReceivedFrame& frame) const {
    if (rss && frame.hash_type != 0) {
        frame.hash = toeplitz.hash(std::span(frame.hash_input).first(frame.hash_bytes));
        return table[frame.hash & (table.size() - 1)];
    }
    frame.hash_type = 0;
    return default_rq;
}

void EthernetDevice::Impl::count_received(Cast cast, std::uint64_t bytes) {
    counters.rx_bytes.add(bytes);
    switch (cast) {
        case Cast::kUnicast:
            counters.rx_unicast_packets.add();
            counters.rx_unicast_bytes.add(bytes);
            break;
        case Cast::kMulticast:
            counters.rx_multicast_packets.add();
            counters.rx_multicast_bytes.add(bytes);
            break;
        case Cast::kBroadcast:
            counters.rx_broadcast_packets.add();
            counters.rx_broadcast_bytes.add(bytes);
            break;
    }
}

void EthernetDevice::Impl::receive(std::span<const std::byte> frame) {
    if (!link.load(std::memory_order_relaxed) || (!rx_enabled && flows.empty())) {
        counters.rx_disabled.add();
        return;
    }
    if (frame.size() < kEthernetBytes) {
        counters.rx_malformed.add();
        return;
    }
    const Cast cast = cast_of(frame.data());
    if (cast == Cast::kUnicast &&
        std::memcmp(frame.data(), config.mac.data(), config.mac.size()) != 0) {
        counters.rx_filtered.add();
        return;
    }
    auto parsed = parse(frame);
    if (!parsed) return;
    if (const auto queue = flows.find(frame)) {
        deliver_by_rule(*queue, *parsed, frame);
        return;
    }
    if (!rx_enabled) {
        counters.rx_disabled.add();
        return;
    }
    ReceiveQueue* const queue = steer(*parsed);
    if (queue == nullptr) {
        counters.rx_no_queue.add();
        return;
    }
    deliver(*queue, *parsed, frame);
}

bool EthernetDevice::Impl::receive_own(std::span<const std::byte> frame) {
    if (flows.empty() || frame.size() < kEthernetBytes) return false;
    const auto queue = flows.find(frame);
    if (!queue) return false;
    auto parsed = parse(frame);
    if (parsed && deliver_by_rule(*queue, *parsed, frame)) counters.rx_own.add();
    return true;
}

std::optional<ReceivedFrame> EthernetDevice::Impl::parse(std::span<const std::byte> frame) {
    auto parsed = parse_received(frame);
    if (!parsed) {
        counters.rx_malformed.add();
        return std::nullopt;
    }
    if (parsed->size() > max_frame()) {
        counters.rx_too_long.add();
        return std::nullopt;
    }
    return parsed;
}

bool EthernetDevice::Impl::deliver_by_rule(ReceiveQueue* queue, ReceivedFrame& parsed,
                                           std::span<const std::byte> frame) {
    if (queue == nullptr) {
        counters.rx_no_queue.add();
        return false;
    }
    parsed.hash_type = 0;
    if (!deliver(*queue, parsed, frame)) return false;
    counters.rx_by_rule.add();
    return true;
}

bool EthernetDevice::Impl::deliver(ReceiveQueue& queue, ReceivedFrame& parsed,
                                   std::span<const std::byte> frame) {
    if (queue.keeps_tags()) keep_tag(parsed, frame);
    if (!queue.deliver(parsed)) return false;
    constexpr std::uint32_t kBad =
        MANA_HW_ETH_RX_IP_BAD | MANA_HW_ETH_RX_TCP_BAD | MANA_HW_ETH_RX_UDP_BAD;
    if ((parsed.flags & kBad) != 0) counters.rx_checksum_bad.add();
    count_received(cast_of(frame.data()), frame.size());
    return true;
}

void EthernetDevice::Impl::drop_all() {
    sqs.clear();
    for (auto& [handle, queue] : rqs) forget_rq(*queue);
    rqs.clear();
    binding.reset();
    clamp_mbps = 0;
    flows.clear();
    spreads.clear();
    rx_enabled = false;
    rss = false;
    default_rq = nullptr;
    table.assign(kTableEntries, nullptr);
    toeplitz = {};
}

EthernetDevice::EthernetDevice(gdma::Function& function, EthernetConfig config,
                               base::FrameSink& network)
    : impl_(std::make_unique<Impl>(*this, function, config, network)) {
    function.attach(*this);
}

EthernetDevice::~EthernetDevice() {
    const base::Gate::Exclusion exclusion(impl_->function.gate());
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

void EthernetDevice::allow_packets(bool allowed) {
    impl_->packets_epoch =
        allowed ? std::optional(impl_->function.epoch()) : std::optional<std::uint64_t>();
}

bool EthernetDevice::packets_allowed() const {
    return impl_->packets_allowed();
}

void EthernetDevice::receive(std::span<const std::byte> frame) {
    impl_->receive(frame);
}

bool EthernetDevice::receive_own(std::span<const std::byte> frame) {
    return impl_->receive_own(frame);
}

const base::MacAddr& EthernetDevice::mac() const {
    return impl_->config.mac;
}

const EthernetCounters& EthernetDevice::counters() const {
    return impl_->counters;
}

void EthernetDevice::set_link(bool up) {
    if (impl_->link.exchange(up, std::memory_order_relaxed) == up) return;
    impl_->function.notify_link(up);
}

bool EthernetDevice::link() const {
    return impl_->link.load(std::memory_order_relaxed);
}

}  // namespace openmana::eth
