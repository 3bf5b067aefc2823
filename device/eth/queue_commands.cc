// SPDX-License-Identifier: Apache-2.0
#include "eth/queue_commands.h"

#include <mana/ext_eth.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "eth/vport.h"

namespace openmana::eth {
namespace {

using gdma::HwcReply;
using gdma::HwcRequest;
using gdma::RegionHandle;

constexpr std::uint32_t kWqeUnit = 32;
constexpr std::uint32_t kCqeBytes = 64;
/// What the moderation doorbell can carry (GDMA 3.9).
constexpr std::uint32_t kMaxModerationUsec = 1023;
/// Running positions are 32 bits: a ring may be at most half of that.
constexpr std::uint32_t kMaxRingBytes = 1U << 30;

bool ring_fits(std::uint32_t bytes, std::uint32_t unit) {
    return bytes != 0 && bytes <= kMaxRingBytes && bytes % unit == 0;
}

}  // namespace

std::uint32_t QueueCommands::config_vport_tx(const HwcRequest& request, HwcReply& reply) {
    const auto in = request.as<mana_hw_eth_vport_tx_req>();
    const auto owner = find_owner(gdma::Pdn(in.pd_id), gdma::DoorbellPage(in.doorbell_page));
    if (in.vport != Vport::kHandle || !owner) return gdma::kHwcInvalidParameter;
    binding_ = Binding{gdma::Weak(owner->pd), gdma::Weak(owner->page)};
    mana_hw_eth_vport_tx_resp out{};
    out.short_oob_allowed = 1;
    reply.put_struct(out);
    OM_DEBUG("vport config tx: nic={} pdn={:#x} page={:#x}", function_.config().name, in.pd_id,
             in.doorbell_page);
    return gdma::kHwcSuccess;
}

std::optional<QueueOwner> QueueCommands::find_owner(gdma::Pdn pd, gdma::DoorbellPage page) const {
    auto found_pd = function_.pds().find(pd, device_type_);
    auto found_page = function_.pages().find(page);
    if (!found_pd || !found_page) return std::nullopt;
    return QueueOwner{std::move(*found_pd), std::move(*found_page)};
}

std::uint32_t QueueCommands::create_wq(const HwcRequest& request, HwcReply& reply) {
    if (!binding_) return gdma::kHwcInvalidParameter;
    QueueOwner owner{binding_->pd.lock(), binding_->page.lock()};
    if (!owner.pd || !owner.page) return gdma::kHwcInvalidParameter;
    auto in = request.as<mana_hw_eth_create_wq_req>();
    if (request.version() < 3) in.moderated = 0;
    return make(in, std::move(owner), false, reply);
}

std::uint32_t QueueCommands::create_packet_wq(const HwcRequest& request, HwcReply& reply) {
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
    return make(plain, std::move(*owner), true, reply);
}

std::uint32_t QueueCommands::make(const mana_hw_eth_create_wq_req& in, QueueOwner owner,
                                  bool packets, HwcReply& reply) {
    const bool is_sq = in.wq_type == MANA_HW_ETH_SQ;
    if (in.vport != Vport::kHandle || (!is_sq && in.wq_type != MANA_HW_ETH_RQ))
        return gdma::kHwcInvalidParameter;
    if (!ring_fits(in.wq_bytes, kWqeUnit) || !ring_fits(in.cq_bytes, kCqeBytes))
        return gdma::kHwcInvalidParameter;
    if ((is_sq ? queues_.send_queues() : queues_.receive_queues()) >= max_queues_)
        return gdma::kHwcNoResources;
    gdma::Handle<gdma::EventQueue> eq;
    if (in.eq_id != MANA_HW_ETH_NO_EQ) {
        auto found = function_.eqs().find(gdma::Eqn(in.eq_id));
        if (!found) return gdma::kHwcNotFound;
        eq = std::move(*found);
    }
    const RegionHandle wq_handle(in.wq_region);
    const RegionHandle cq_handle(in.cq_region);
    if (wq_handle == cq_handle) return gdma::kHwcInvalidParameter;
    auto wq_region = function_.regions().claim(wq_handle);
    auto cq_region = function_.regions().claim(cq_handle);
    if (!wq_region || !cq_region) return gdma::kHwcNotFound;
    if ((*wq_region)->length() < in.wq_bytes || (*cq_region)->length() < in.cq_bytes)
        return gdma::kHwcInvalidParameter;

    NewQueue parts{std::move(owner), std::move(*wq_region), in.wq_bytes, std::move(*cq_region),
                   in.cq_bytes,      std::move(eq),         packets};
    if (in.moderated != 0) {
        parts.moderation.usec =
            static_cast<std::uint16_t>(std::min(in.moderation_usec + 0U, kMaxModerationUsec));
        parts.moderation.completions =
            static_cast<std::uint8_t>(std::min(in.moderation_count + 0U, 255U));
    }
    const gdma::CompletionQueue::Moderation moderation = parts.moderation;
    const auto made =
        is_sq ? queues_.make_send(std::move(parts)) : queues_.make_receive(std::move(parts));
    if (!made) return gdma::status_of(made.error());
    mana_hw_eth_create_wq_resp out{};
    out.wq_id = made->wq_id;
    out.cq_id = made->cq_id;
    out.wq_object = made->handle;
    out.moderation_count = moderation.completions;
    out.moderation_usec = moderation.usec;
    out.moderated = in.moderated != 0 ? 1 : 0;
    reply.put_struct(out);
    OM_DEBUG("wq create: nic={} type={} id={:#x} cqn={:#x} object={:#x}", function_.config().name,
             is_sq ? "sq" : "rq", made->wq_id, made->cq_id, made->handle);
    return gdma::kHwcSuccess;
}

std::uint32_t QueueCommands::destroy_wq(const HwcRequest& request) {
    const auto in = request.as<mana_hw_eth_destroy_wq_req>();
    bool found = false;
    if (in.wq_type == MANA_HW_ETH_SQ)
        found = queues_.destroy_send(in.wq_object);
    else if (in.wq_type == MANA_HW_ETH_RQ)
        found = queues_.destroy_receive(in.wq_object);
    else
        return gdma::kHwcInvalidParameter;
    return found ? gdma::kHwcSuccess : gdma::kHwcNotFound;
}

std::uint32_t QueueCommands::fence_rq(const HwcRequest& request) {
    auto* const queue = queues_.find_receive(request.as<mana_hw_eth_fence_rq_req>().wq_object);
    if (queue == nullptr) return gdma::kHwcNotFound;
    return queue->fence() ? gdma::kHwcSuccess : gdma::kHwcNoResources;
}

}  // namespace openmana::eth
