// SPDX-License-Identifier: Apache-2.0
#include "eth/steering_commands.h"

#include <mana/eth.h>
#include <mana/ext_eth.h>

#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/hold_meter.h"
#include "base/log.h"
#include "eth/vport.h"

namespace openmana::eth {
namespace {

using gdma::HwcReply;
using gdma::HwcRequest;

constexpr std::uint16_t kVportRxVersion = 2;

/// RSS QPs of the stock driver ask for coalescing, too, in an older version: what reads their CQs
/// may not know it (GDMA 6.8).
unsigned packets_per_cqe(const HwcRequest& request, const mana_hw_eth_vport_rx_req& in) {
    if (request.version() < 5 || in.coalescing == 0) return 1;
    return in.eight_packets != 0 ? 8 : 4;
}

}  // namespace

std::uint32_t SteeringCommands::config_vport_rx(const HwcRequest& request, HwcReply& reply) {
    const auto in = request.as<mana_hw_eth_vport_rx_req>();
    if (in.vport != Vport::kHandle || in.rx_enable > 1 || in.rss_enable > 1)
        return gdma::kHwcInvalidParameter;

    // Everything is checked before anything is changed.
    Steering::Interface& interface = steering_.interface();
    ReceiveQueue* new_default = interface.default_queue;
    if (in.update_default != 0) {
        new_default = queues_.find_receive(in.default_rq);
        if (new_default == nullptr) return gdma::kHwcNotFound;
    }
    std::vector<ReceiveQueue*> new_table;
    if (in.update_table != 0) {
        const std::uint32_t entries = in.table_entries;
        if (!Steering::Interface::can_have(entries) || in.table_offset < sizeof in ||
            !request.has(in.table_offset, std::size_t{entries} * 8))
            return gdma::kHwcInvalidParameter;
        base::count_work(1 + entries / base::kSmallSteps);
        new_table.reserve(entries);
        for (std::uint32_t i = 0; i < entries; ++i) {
            auto* const queue = queues_.find_receive(
                request.get<std::uint64_t>(in.table_offset + std::size_t{i} * 8));
            if (queue == nullptr) return gdma::kHwcNotFound;
            new_table.push_back(queue);
        }
    }
    interface.enabled = in.rx_enable != 0;
    interface.rss = in.rss_enable != 0;
    interface.packets_per_cqe = packets_per_cqe(request, in);
    interface.default_queue = new_default;
    if (in.update_table != 0) interface.table = std::move(new_table);
    if (in.update_key != 0)
        interface.toeplitz.set_key(
            std::as_bytes(std::span<const std::uint8_t, MANA_HW_ETH_KEY_BYTES>(in.key)));
    mana_hw_eth_vport_rx_resp out{};
    if (interface.packets_per_cqe > 1) out.coalescing_ns = ReceiveQueue::kTogether.count();
    reply.put_struct(out);  // 6.12 asks for 32 bytes and gets no more
    reply.set_version(kVportRxVersion);
    OM_DEBUG("vport config rx: nic={} rx={} rss={}", function_.config().name, interface.enabled,
             interface.rss);
    return gdma::kHwcSuccess;
}

std::uint32_t SteeringCommands::add_flow(const HwcRequest& request, HwcReply& reply) {
    const auto in = request.as<mana_hw_ext_add_flow_req>();
    const std::uint64_t handle = in.rq;
    ReceiveQueue* const queue = queues_.find_receive(handle);
    Spread* const spread = steering_.find_spread(handle);
    if (queue == nullptr && spread == nullptr) return gdma::kHwcNotFound;
    FlowFields value{};
    FlowFields mask{};
    std::memcpy(value.data(), &in.value, sizeof value);
    std::memcpy(mask.data(), &in.mask, sizeof mask);
    // Queues of the interface have their own steering.
    if (!can_match(value, mask) || (queue != nullptr && !queue->keeps_tags()) || in.reserved != 0)
        return gdma::kHwcInvalidParameter;
    const FlowTarget target = queue != nullptr ? FlowTarget(queue) : FlowTarget(spread);
    const auto flow = steering_.flows().add(in.priority, value, mask, target);
    if (!flow) return gdma::kHwcNoResources;
    mana_hw_ext_add_flow_resp out{};
    out.flow = *flow;
    reply.put_struct(out);
    OM_DEBUG("flow add: nic={} flow={:#x} object={:#x} priority={}", function_.config().name, *flow,
             handle, in.priority);
    return gdma::kHwcSuccess;
}

std::uint32_t SteeringCommands::remove_flow(const HwcRequest& request) {
    const auto in = request.as<mana_hw_ext_remove_flow_req>();
    return steering_.flows().remove(in.flow) ? gdma::kHwcSuccess : gdma::kHwcNotFound;
}

std::uint32_t SteeringCommands::create_spread(const HwcRequest& request, HwcReply& reply) {
    const auto in = request.as<mana_hw_ext_create_spread_req>();
    const std::uint32_t entries = in.entries;
    if (!Spread::can_be(in.fields, entries)) return gdma::kHwcInvalidParameter;
    auto charge = function_.account().charge(Spread::cost(entries));
    if (!charge) return gdma::kHwcNoResources;
    std::vector<ReceiveQueue*> queues;
    queues.reserve(entries);
    for (std::uint32_t i = 0; i < MANA_HW_EXT_SPREAD_ENTRIES; ++i) {
        if (i >= entries) {
            if (in.rq[i] != 0) return gdma::kHwcInvalidParameter;
            continue;
        }
        ReceiveQueue* const queue = queues_.find_receive(in.rq[i]);
        if (queue == nullptr) return gdma::kHwcNotFound;
        if (!queue->keeps_tags()) return gdma::kHwcInvalidParameter;
        queues.push_back(queue);
    }
    const std::uint64_t handle = queues_.new_handle();
    auto spread = std::make_unique<Spread>(
        in.fields,
        std::as_bytes(std::span<const std::uint8_t, MANA_HW_EXT_SPREAD_KEY_BYTES>(in.key)),
        std::move(queues), std::move(*charge));
    if (!steering_.add_spread(handle, std::move(spread))) return gdma::kHwcNoResources;
    mana_hw_ext_create_spread_resp out{};
    out.spread = handle;
    reply.put_struct(out);
    OM_DEBUG("spread create: nic={} object={:#x} entries={} fields={:#x}", function_.config().name,
             handle, entries, in.fields);
    return gdma::kHwcSuccess;
}

std::uint32_t SteeringCommands::destroy_spread(const HwcRequest& request) {
    const auto in = request.as<mana_hw_ext_destroy_spread_req>();
    return steering_.remove_spread(in.spread) ? gdma::kHwcSuccess : gdma::kHwcNotFound;
}

}  // namespace openmana::eth
