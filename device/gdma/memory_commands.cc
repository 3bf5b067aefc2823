// SPDX-License-Identifier: Apache-2.0
#include "gdma/commands.h"

#include <utility>

#include <mana/ext.h>
#include <mana/gdma.h>
#include <mana/queue.h>

namespace openmana::gdma {

auto Commands::create_mr(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_create_mr_req>();
    auto pd = tables_.pds.find(PdHandle(in.pd));
    if (!pd) return kHwcNotFound;
    MemoryRegion mr;
    mr.pd = std::move(*pd);
    mr.type = static_cast<MrType>(std::uint32_t{in.type});
    base::Result<RegionClaim> region;
    switch (in.type) {
        case MANA_HW_MR_GPA:
            if (!mr.pd->rights.allows_gpa) return kHwcInvalidParameter;
            // No flags are sent with it; kernel users expect these (RNIC 2.12).
            mr.access = kLocalRead | kLocalWrite;
            break;
        case MANA_HW_MR_GVA:
            region = tables_.regions.claim(RegionHandle(in.u.gva.region));
            mr.access = in.u.gva.access;
            mr.base = in.u.gva.virtual_address;
            break;
        case MANA_HW_MR_ZERO_BASED:
            region = tables_.regions.claim(RegionHandle(in.u.zero_based.region));
            mr.access = in.u.zero_based.access;
            break;
        case MANA_HW_MR_DM: {
            auto found = tables_.device_memory.find(in.u.dm.dm);
            if (!found) return kHwcNotFound;
            mr.access = in.u.dm.access;
            mr.device = std::move(*found);
            mr.device_handle = in.u.dm.dm;
            mr.device_offset = in.u.dm.offset;
            mr.length = in.dm_length;
            const std::uint64_t size = mr.device->size();
            // One of no bytes refuses every access, as programs expect of other RDMA NICs.
            if (mr.length > size || mr.device_offset > size - mr.length)
                return kHwcInvalidParameter;
            break;
        }
        case MANA_HW_MR_WINDOW_TYPE1:
        case MANA_HW_MR_WINDOW_TYPE2:
            break;
        case MANA_HW_EXT_MR_FAST_REGISTER:
            if (!tables_.key_changes.fast_registration_allowed() || in.u.gva.region == 0 ||
                in.u.gva.region > kMaxFastRegisterPages)
                return kHwcInvalidParameter;
            mr.max_pages = static_cast<std::uint32_t>(in.u.gva.region);
            break;
        default:
            return kHwcInvalidParameter;
    }
    if ((mr.access & ~MANA_HW_ACCESS_ALL) != 0) return kHwcInvalidParameter;
    const bool has_region = in.type == MANA_HW_MR_GVA || in.type == MANA_HW_MR_ZERO_BASED;
    if (has_region) {
        if (!region) return kHwcNotFound;
        mr.length = (*region)->length();
        if (mr.length - 1 > UINT64_MAX - mr.base) return kHwcInvalidParameter;
    }
    auto room = tables_.keys.make_room();
    if (!room) return status_of(room.error());
    if (has_region) mr.region = region->take();
    const Key key = tables_.keys.insert(std::move(*room), std::move(mr));
    mana_hw_create_mr_resp out{};
    out.mr = KeyChanges::handle_of(key);
    out.lkey = key.value();
    out.rkey = key.value();
    reply.put_struct(out);
    return kHwcSuccess;
}

auto Commands::destroy_mr(const HwcRequest& request, HwcReply&) -> Status {
    const MemoryRegion* const mr =
        tables_.key_changes.of_guest(request.as<mana_hw_destroy_mr_req>().mr);
    if (mr == nullptr) return kHwcNotFound;
    const auto removed = tables_.keys.remove(mr->key);
    return removed ? kHwcSuccess : status_of(removed.error());
}

auto Commands::alloc_dm(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_alloc_dm_req>();
    if (in.log2_alignment > 31) return kHwcInvalidParameter;
    const auto handle = tables_.device_memory.allocate(in.length);
    if (!handle) return status_of(handle.error());
    mana_hw_alloc_dm_resp out{};
    out.dm = *handle;
    reply.put_struct(out);
    return kHwcSuccess;
}

auto Commands::destroy_dm(const HwcRequest& request, HwcReply&) -> Status {
    const auto destroyed = tables_.device_memory.destroy(request.as<mana_hw_destroy_dm_req>().dm);
    return destroyed ? kHwcSuccess : status_of(destroyed.error());
}

}  // namespace openmana::gdma
