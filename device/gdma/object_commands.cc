// SPDX-License-Identifier: Apache-2.0
#include "gdma/commands.h"

#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include <mana/ext.h>
#include <mana/gdma.h>
#include <mana/queue.h>

#include "base/log.h"

namespace openmana::gdma {

// ---- event queues

auto Commands::test_eqe(const HwcRequest& request, HwcReply&) -> Status {
    const auto in = request.as<mana_hw_test_eqe_req>();
    auto eq = tables_.eqs.find(Eqn(in.eq_id), request.device_type());
    if (!eq) return kHwcNotFound;
    test_eq_ = std::move(*eq);
    return kHwcSuccess;
}

auto Commands::create_queue(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_create_queue_req>();
    // The other kinds are created by the commands of their devices.
    if (in.type != MANA_HW_QUEUE_EQ) return kHwcUnsupported;
    const Device* const owner = devices_.find(request.device_type(), request.device_instance());
    if (owner == nullptr || !owner->registered) return kHwcNotFound;
    if (in.pd_id != owner->pd->id.value() || in.doorbell_page != owner->page->page.value())
        return kHwcInvalidParameter;
    if (in.msix_index >= irq_.vector_count()) return kHwcInvalidParameter;
    auto region = tables_.regions.claim(RegionHandle(in.region));
    if (!region) return kHwcNotFound;
    if (!EqTable::fits(**region, in.bytes)) return kHwcInvalidParameter;
    const auto eq = tables_.eqs.create(request.device_type(), std::move(*region), in.bytes,
                                       owner->page, in.msix_index);
    if (!eq) return status_of(eq.error());
    OM_DEBUG("eq create: nic={} eqn={:#x} device={} page={} vector={}", config_.name,
             (*eq)->id().value(), request.device_type(), in.doorbell_page + 0, in.msix_index + 0);
    mana_hw_create_queue_resp out{};
    out.queue_id = (*eq)->id().value();
    reply.put_struct(out);
    return kHwcSuccess;
}

auto Commands::disable_queue(const HwcRequest& request, HwcReply&) -> Status {
    const auto in = request.as<mana_hw_disable_queue_req>();
    if (in.type != MANA_HW_QUEUE_EQ) return kHwcUnsupported;
    if (request.device_type() == kHwcDevice) return kHwcNotFound;
    const auto destroyed = tables_.eqs.destroy(Eqn(in.queue_id), request.device_type());
    if (!destroyed) return status_of(destroyed.error());
    OM_DEBUG("eq destroy: nic={} eqn={:#x}", config_.name, in.queue_id + 0);
    return kHwcSuccess;
}

// ---- doorbell pages

auto Commands::allocate_range(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_allocate_range_req>();
    if (in.type != MANA_HW_RESOURCE_DOORBELL_PAGE) return kHwcUnsupported;
    const auto first = tables_.pages.allocate_range(in.count, in.alignment, in.first_allowed);
    if (!first) return status_of(first.error());
    mana_hw_allocate_range_resp out{};
    out.first = first->value();
    reply.put_struct(out);
    return kHwcSuccess;
}

auto Commands::destroy_range(const HwcRequest& request, HwcReply&) -> Status {
    const auto in = request.as<mana_hw_destroy_range_req>();
    if (in.type != MANA_HW_RESOURCE_DOORBELL_PAGE) return kHwcUnsupported;
    const auto freed = tables_.pages.free_range(in.first, in.count);
    return freed ? kHwcSuccess : status_of(freed.error());
}

// ---- DMA regions

namespace {

/// The page addresses of a message, or nothing if it is too short for so many.
std::optional<std::vector<std::uint64_t>> page_list(const HwcRequest& request, std::size_t offset,
                                                    std::uint32_t count) {
    if (!request.has(offset, std::size_t{count} * sizeof(std::uint64_t))) return std::nullopt;
    std::vector<std::uint64_t> pages(count);
    for (std::uint32_t i = 0; i < count; ++i)
        pages[i] = request.get<std::uint64_t>(offset + std::size_t{i} * sizeof(std::uint64_t));
    return pages;
}

}  // namespace

auto Commands::create_region(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_create_region_req>();
    const bool known_size = in.page_type <= 10 || in.page_type == 18 || in.page_type == 19;
    const auto pages_here = page_list(request, sizeof in, in.pages_here);
    if (!known_size || !pages_here) return kHwcInvalidParameter;
    const RegionTable::Shape shape{in.length, in.first_offset, MANA_HW_PAGE_SHIFT + in.page_type,
                                   in.page_count};
    const auto created = tables_.regions.create(shape, *pages_here);
    if (!created) return status_of(created.error());
    OM_TRACE("region create: nic={} handle={:#x} length={}", config_.name, created->handle.value(),
             shape.length);
    mana_hw_create_region_resp out{};
    out.region = created->handle.value();
    reply.put_struct(out);
    return created->complete ? kHwcSuccess : kHwcMoreEntries;
}

auto Commands::add_pages(const HwcRequest& request, HwcReply&) -> Status {
    const auto in = request.as<mana_hw_add_pages_req>();
    const auto pages_here = page_list(request, sizeof in, in.pages_here);
    if (!pages_here) return kHwcInvalidParameter;
    const auto complete = tables_.regions.add_pages(RegionHandle(in.region), *pages_here);
    if (!complete) return status_of(complete.error());
    return *complete ? kHwcSuccess : kHwcMoreEntries;
}

auto Commands::destroy_region(const HwcRequest& request, HwcReply&) -> Status {
    const auto destroyed =
        tables_.regions.destroy(RegionHandle(request.as<mana_hw_destroy_region_req>().region));
    return destroyed ? kHwcSuccess : status_of(destroyed.error());
}

// ---- protection domains

auto Commands::create_pd(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_create_pd_req>();
    const auto pd = tables_.pds.create(
        kGuest, {.allows_gpa = (in.flags & MANA_HW_PD_ALLOW_GPA) != 0,
                 .any_source = (in.flags & MANA_HW_EXT_PD_GRANTED_SOURCES) == 0});
    if (!pd) return status_of(pd.error());
    mana_hw_create_pd_resp out{};
    out.pd = (*pd)->handle.value();
    out.pd_id = (*pd)->id.value();
    reply.put_struct(out);
    return kHwcSuccess;
}

auto Commands::destroy_pd(const HwcRequest& request, HwcReply&) -> Status {
    const auto destroyed = tables_.pds.destroy(PdHandle(request.as<mana_hw_destroy_pd_req>().pd));
    return destroyed ? kHwcSuccess : status_of(destroyed.error());
}

}  // namespace openmana::gdma
