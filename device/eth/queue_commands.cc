// SPDX-License-Identifier: Apache-2.0
#include "eth/queue_commands.h"

#include <mana/ext_eth.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "eth/queue_parts.h"
#include "eth/vport.h"

namespace openmana::eth {
namespace {

using gdma::HwcReply;
using gdma::HwcRequest;
using gdma::RegionHandle;

/// What the moderation doorbell can carry (GDMA 3.9).
constexpr std::uint32_t kMaxModerationUsec = 1023;

}  // namespace

std::uint32_t QueueCommands::config_vport_tx(const HwcRequest& request, HwcReply& reply) {
    const auto in = request.as<mana_hw_eth_vport_tx_req>();
    const auto owner = find_owner(gdma::Pdn(in.pd_id), gdma::DoorbellPage(in.doorbell_page));
    if (in.vport != Vport::kHandle || !owner) return gdma::kHwcInvalidParameter;
    bind(*owner);
    mana_hw_eth_vport_tx_resp out{};
    out.short_oob_allowed = 1;
    reply.put_struct(out);
    OM_DEBUG("vport config tx: nic={} pdn={:#x} page={:#x}", function_.config().name, in.pd_id,
             in.doorbell_page);
    return gdma::kHwcSuccess;
}

std::uint32_t QueueCommands::create_wq(const HwcRequest& request, HwcReply& reply) {
    auto owner = bound();
    if (!owner) return gdma::kHwcInvalidParameter;
    auto in = request.as<mana_hw_eth_create_wq_req>();
    if (request.version() < 3) in.moderated = 0;
    return make(in, std::move(*owner), false, reply);
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
    if (!ring_fits(in.wq_bytes, kWqeUnit) || !ring_fits(in.cq_bytes, kCqeUnit))
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

void QueueCommands::bind(const QueueOwner& owner) {
    binding_ = Binding{gdma::Weak(owner.pd), gdma::Weak(owner.page)};
}

std::optional<QueueOwner> QueueCommands::bound() const {
    if (!binding_) return std::nullopt;
    QueueOwner owner{binding_->pd.lock(), binding_->page.lock()};
    if (!owner.pd || !owner.page) return std::nullopt;
    return owner;
}

/// A setting of what has ended is none.
void QueueCommands::save(base::StateWriter& out) const {
    const auto owner = bound();
    out(owner.has_value());
    if (owner) out(owner->pd->id, owner->page->page);
}

void QueueCommands::load(base::StateReader& in) {
    if (!in.get<bool>()) return;
    const auto pd = in.get<gdma::Pdn>();
    const auto page = in.get<gdma::DoorbellPage>();
    const auto owner = find_owner(pd, page);
    in.require(owner.has_value(), "vPort of no PD or no page");
    if (in.ok()) bind(*owner);
}

}  // namespace openmana::eth
