// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include <mana/ext.h>
#include <mana/queue.h>

#include "base/log.h"
#include "gdma/function_impl.h"

namespace openmana::gdma {

using base::ErrorCode;

namespace {

static_assert(kHwcSuccess == MANA_HW_STATUS_SUCCESS &&
              kHwcMoreEntries == MANA_HW_STATUS_MORE_ENTRIES &&
              kHwcUnsupported == MANA_HW_STATUS_UNSUPPORTED);
static_assert(kLocalRead == MANA_HW_ACCESS_LOCAL_READ &&
              kLocalWrite == MANA_HW_ACCESS_LOCAL_WRITE &&
              kRemoteRead == MANA_HW_ACCESS_REMOTE_READ &&
              kRemoteWrite == MANA_HW_ACCESS_REMOTE_WRITE &&
              kRemoteAtomic == MANA_HW_ACCESS_REMOTE_ATOMIC &&
              kBindWindow == MANA_HW_ACCESS_BIND_WINDOW);

/// Opcodes of a device, by their upper half (GDMA 6.1, RNIC 2.1). Others above are for the device
/// that the request names.
constexpr std::uint32_t kEthernetFamily = 2;
constexpr std::uint32_t kRdmaFamily = 3;
constexpr std::uint32_t kQueryDevConfig = 0x20001;
/// The most that the driver's own default allows for (GDMA 4.7).
constexpr std::uint32_t kHwcTimeoutMs = 30000;
/// An MR handle is its key with a mark, so that a key alone or another handle is none.
constexpr std::uint64_t kMrHandleMark = 1ULL << 32;
/// What even one byte of device memory counts.
constexpr std::uint64_t kDeviceMemoryUnit = 64;

}  // namespace

void Function::Impl::command(const HwcRequest& request, HwcReply& reply) {
    if (request.opcode() >= MANA_HW_FIRST_DEVICE_OPCODE) {
        device_command(request, reply);
        return;
    }
    struct Entry {
        std::uint32_t opcode;
        std::size_t least;  // bytes of the request
        Status (Impl::*handler)(const HwcRequest&, HwcReply&);
    };
    // CREATE_MR: the fields of device memory alone may be missing.
    static constexpr std::array<Entry, 20> kTable{{
        {MANA_HW_VERIFY_DRIVER_VERSION, offsetof(mana_hw_verify_version_req, driver_version),
         &Impl::verify_version},
        {MANA_HW_QUERY_MAX_RESOURCES, sizeof(mana_hw_request), &Impl::query_max_resources},
        {MANA_HW_LIST_DEVICES, sizeof(mana_hw_request), &Impl::list_devices},
        {MANA_HW_REGISTER_DEVICE, sizeof(mana_hw_request), &Impl::register_device},
        {MANA_HW_DEREGISTER_DEVICE, sizeof(mana_hw_request), &Impl::deregister_device},
        {MANA_HW_GENERATE_TEST_EQE, sizeof(mana_hw_test_eqe_req), &Impl::test_eqe},
        {MANA_HW_CREATE_QUEUE, offsetof(mana_hw_create_queue_req, moderation_context),
         &Impl::create_queue},
        {MANA_HW_DISABLE_QUEUE, offsetof(mana_hw_disable_queue_req, id_allocated_on_creation),
         &Impl::disable_queue},
        {MANA_HW_ALLOCATE_RESOURCE_RANGE, sizeof(mana_hw_allocate_range_req),
         &Impl::allocate_range},
        {MANA_HW_DESTROY_RESOURCE_RANGE, sizeof(mana_hw_destroy_range_req), &Impl::destroy_range},
        {MANA_HW_CREATE_DMA_REGION, sizeof(mana_hw_create_region_req), &Impl::create_region},
        {MANA_HW_DMA_REGION_ADD_PAGES, sizeof(mana_hw_add_pages_req), &Impl::add_pages},
        {MANA_HW_DESTROY_DMA_REGION, sizeof(mana_hw_destroy_region_req), &Impl::destroy_region},
        {MANA_HW_CREATE_PD, offsetof(mana_hw_create_pd_req, reserved), &Impl::create_pd},
        {MANA_HW_DESTROY_PD, sizeof(mana_hw_destroy_pd_req), &Impl::destroy_pd},
        {MANA_HW_CREATE_MR, offsetof(mana_hw_create_mr_req, reserved1), &Impl::create_mr},
        {MANA_HW_DESTROY_MR, sizeof(mana_hw_destroy_mr_req), &Impl::destroy_mr},
        {MANA_HW_QUERY_HWC_TIMEOUT, offsetof(mana_hw_hwc_timeout_req, reserved),
         &Impl::query_hwc_timeout},
        {MANA_HW_ALLOC_DM, sizeof(mana_hw_alloc_dm_req), &Impl::alloc_dm},
        {MANA_HW_DESTROY_DM, sizeof(mana_hw_destroy_dm_req), &Impl::destroy_dm},
    }};
    reply.set_version(1);
    const auto entry = std::find_if(kTable.begin(), kTable.end(), [&](const Entry& other) {
        return other.opcode == request.opcode();
    });
    if (entry == kTable.end())
        reply.set_status(kHwcUnsupported);
    else if (request.size() < entry->least)
        reply.set_status(kHwcInvalidParameter);
    else
        reply.set_status((this->*entry->handler)(request, reply));
}

void Function::Impl::device_command(const HwcRequest& request, HwcReply& reply) {
    const std::uint32_t family = request.opcode() >> 16;
    const std::uint16_t type = request.device_type();
    // The Ethernet half of the 7.2 RDMA driver sends 0x300xx for device type 2 (RNIC 1.6).
    const bool foreign = (family == kEthernetFamily && type != MANA_HW_DEVICE_ETHERNET) ||
                         (family == kRdmaFamily && type != MANA_HW_DEVICE_RDMA);
    Device* const target = device(type, request.device_instance());
    if (target == nullptr || foreign) {
        reply.set_status(kHwcInvalidParameter);
        return;
    }
    // 7.2 asks for the Ethernet configuration before it registers the device (GDMA 5.4).
    if (!target->registered && request.opcode() != kQueryDevConfig) {
        reply.set_status(kHwcNotFound);
        return;
    }
    target->client->command(request, reply);
}

// ---- the function as a whole

auto Function::Impl::verify_version(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_verify_version_req>();
    if (in.protocol_min > MANA_HW_PROTOCOL_VERSION || in.protocol_max < MANA_HW_PROTOCOL_VERSION)
        return kHwcInvalidParameter;
    mana_hw_verify_version_resp out{};
    out.protocol = MANA_HW_PROTOCOL_VERSION;
    out.device_caps[0] = MANA_HW_CAP_HWC_TIMEOUT | MANA_HW_CAP_BIG_PAGES;
    reply.put_struct(out);
    OM_DEBUG("driver version: nic={} caps={:#x} os={:#x} release={}.{}.{}", config.name,
             in.driver_caps[0] + 0, in.os_type + 0, in.os_major + 0, in.os_build + 0,
             in.os_minor + 0);
    return kHwcSuccess;
}

auto Function::Impl::query_max_resources(const HwcRequest&, HwcReply& reply) -> Status {
    mana_hw_max_resources_resp out{};
    out.max_sqs = config.max_sqs;
    out.max_rqs = config.max_rqs;
    out.max_cqs = config.max_cqs;
    out.max_eqs = config.max_eqs;
    out.max_doorbell_pages = config.doorbell_pages;
    out.max_keys = config.max_mrs;
    out.max_msix = irq.vector_count();
    reply.put_struct(out);
    return kHwcSuccess;
}

auto Function::Impl::list_devices(const HwcRequest&, HwcReply& reply) -> Status {
    mana_hw_list_devices_resp out{};
    for (const Device& device : devices) {
        if (out.count == MANA_HW_MAX_DEVICES) break;
        out.devices[out.count].type = device.client->device_type();
        out.count = out.count + 1;
    }
    reply.put_struct(out);
    return kHwcSuccess;
}

auto Function::Impl::register_device(const HwcRequest& request, HwcReply& reply) -> Status {
    Device* const target = device(request.device_type(), request.device_instance());
    if (target == nullptr) return kHwcNotFound;
    if (target->registered) return kHwcBusy;
    if (keys.full()) return kHwcNoResources;
    const DeviceType type = request.device_type();
    auto pd = pds.create(type, true);
    if (!pd) return status_of(pd.error());
    auto page = pages.allocate(type);
    if (!page) {
        pds.destroy(std::move(*pd));
        return status_of(page.error());
    }
    MemoryRegion everything;
    everything.pd = *pd;
    everything.type = MrType::kGpa;
    everything.access = kLocalRead | kLocalWrite;
    const auto key = keys.insert(std::move(everything));
    OM_CHECK(key.has_value());
    target->registered = true;
    target->pd = std::move(*pd);
    target->gpa_key = *key;
    target->page = std::move(*page);
    mana_hw_register_device_resp out{};
    out.pd_id = target->pd->id.value();
    out.gpa_key = key->value();
    out.doorbell_page = target->page->page.value();
    reply.put_struct(out);
    OM_DEBUG("device register: nic={} type={} pdn={:#x} key={:#x} page={}", config.name, type,
             out.pd_id + 0, key->value(), out.doorbell_page + 0);
    return kHwcSuccess;
}

auto Function::Impl::deregister_device(const HwcRequest& request, HwcReply&) -> Status {
    Device* const target = device(request.device_type(), request.device_instance());
    if (target == nullptr || !target->registered) return kHwcNotFound;
    // A driver that leaves something behind cannot name it any more.
    target->client->reset();
    // What is left are queues of another device: with them this one stays registered. Of the PD the
    // table, the key and the registration are holders, of the page the table and the registration.
    if (!eqs.destroy_unused(request.device_type()) || target->pd->holders() > 3 ||
        target->page->holders() > 2)
        return kHwcBusy;
    OM_CHECK(keys.remove(target->gpa_key).has_value());
    pds.destroy(std::move(target->pd));
    pages.free(std::move(target->page));
    target->registered = false;
    OM_DEBUG("device deregister: nic={} type={}", config.name, request.device_type());
    return kHwcSuccess;
}

auto Function::Impl::query_hwc_timeout(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_hwc_timeout_req>();
    mana_hw_hwc_timeout_resp out{};
    // Zero would make every later command time out at once (GDMA 4.7).
    out.timeout_ms = in.timeout_ms != 0 ? in.timeout_ms : kHwcTimeoutMs;
    reply.put_struct(out);
    return kHwcSuccess;
}

// ---- event queues

auto Function::Impl::test_eqe(const HwcRequest& request, HwcReply&) -> Status {
    const auto in = request.as<mana_hw_test_eqe_req>();
    auto eq = eqs.find(Eqn(in.eq_id), request.device_type());
    if (!eq) return kHwcNotFound;
    hwc->test_eq_after_response(std::move(*eq));
    return kHwcSuccess;
}

auto Function::Impl::create_queue(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_create_queue_req>();
    // The other kinds are created by the commands of their devices.
    if (in.type != MANA_HW_QUEUE_EQ) return kHwcUnsupported;
    const Device* const owner = device(request.device_type(), request.device_instance());
    if (owner == nullptr || !owner->registered) return kHwcNotFound;
    if (in.pd_id != owner->pd->id.value() || in.doorbell_page != owner->page->page.value())
        return kHwcInvalidParameter;
    if (in.msix_index >= irq.vector_count()) return kHwcInvalidParameter;
    const auto found = regions.find(in.region);
    if (found == regions.end() || !found->second.region) return kHwcNotFound;
    std::unique_ptr<DmaRegion>& region = found->second.region;
    if (in.bytes < MANA_HW_PAGE_BYTES || !std::has_single_bit(std::uint32_t{in.bytes}) ||
        in.bytes > region->length() || region->first_offset() % sizeof(mana_hw_eqe) != 0)
        return kHwcInvalidParameter;
    const auto eq =
        eqs.create(request.device_type(), std::move(region), in.bytes, owner->page, in.msix_index);
    if (!eq) return status_of(eq.error());
    OM_DEBUG("eq create: nic={} eqn={:#x} device={} page={} vector={}", config.name,
             (*eq)->id().value(), request.device_type(), in.doorbell_page + 0, in.msix_index + 0);
    drop_region(found);
    mana_hw_create_queue_resp out{};
    out.queue_id = (*eq)->id().value();
    reply.put_struct(out);
    return kHwcSuccess;
}

auto Function::Impl::disable_queue(const HwcRequest& request, HwcReply&) -> Status {
    const auto in = request.as<mana_hw_disable_queue_req>();
    if (in.type != MANA_HW_QUEUE_EQ) return kHwcUnsupported;
    if (request.device_type() == kHwcDevice) return kHwcNotFound;
    const auto destroyed = eqs.destroy(Eqn(in.queue_id), request.device_type());
    if (!destroyed) return status_of(destroyed.error());
    OM_DEBUG("eq destroy: nic={} eqn={:#x}", config.name, in.queue_id + 0);
    return kHwcSuccess;
}

// ---- doorbell pages

auto Function::Impl::allocate_range(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_allocate_range_req>();
    if (in.type != MANA_HW_RESOURCE_DOORBELL_PAGE) return kHwcUnsupported;
    const auto first = pages.allocate_range(in.count, in.alignment, in.first_allowed);
    if (!first) return status_of(first.error());
    mana_hw_allocate_range_resp out{};
    out.first = first->value();
    reply.put_struct(out);
    return kHwcSuccess;
}

auto Function::Impl::destroy_range(const HwcRequest& request, HwcReply&) -> Status {
    const auto in = request.as<mana_hw_destroy_range_req>();
    if (in.type != MANA_HW_RESOURCE_DOORBELL_PAGE) return kHwcUnsupported;
    const auto freed = pages.free_range(in.first, in.count);
    return freed ? kHwcSuccess : status_of(freed.error());
}

// ---- DMA regions

auto Function::Impl::create_region(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_create_region_req>();
    const bool known_size = in.page_type <= 10 || in.page_type == 18 || in.page_type == 19;
    if (!known_size || in.length == 0) return kHwcInvalidParameter;
    RegionEntry entry;
    entry.length = in.length;
    entry.first_offset = in.first_offset;
    entry.page_shift = MANA_HW_PAGE_SHIFT + in.page_type;
    entry.page_count = in.page_count;
    const std::uint64_t last_byte = in.length - 1;
    if (in.first_offset >> entry.page_shift != 0 || last_byte > UINT64_MAX - in.first_offset)
        return kHwcInvalidParameter;
    const std::uint64_t last_page = (in.first_offset + last_byte) >> entry.page_shift;
    if (last_page >= in.page_count || in.pages_here > in.page_count) return kHwcInvalidParameter;
    if (regions.size() >= config.max_regions ||
        in.page_count > config.max_region_pages - region_pages)
        return kHwcNoResources;
    const std::uint64_t handle = handles.take();
    const Status status = append_pages(handle, entry, request, sizeof in, in.pages_here);
    if (status != kHwcSuccess && status != kHwcMoreEntries) return status;
    region_pages += entry.page_count;
    regions.emplace(handle, std::move(entry));
    mana_hw_create_region_resp out{};
    out.region = handle;
    reply.put_struct(out);
    return status;
}

auto Function::Impl::add_pages(const HwcRequest& request, HwcReply&) -> Status {
    const auto in = request.as<mana_hw_add_pages_req>();
    const auto found = regions.find(in.region);
    if (found == regions.end()) return kHwcNotFound;
    if (found->second.region) return kHwcInvalidParameter;
    return append_pages(in.region, found->second, request, sizeof in, in.pages_here);
}

/// Leaves the entry as it was, or adds all pages; builds the region with the last one.
auto Function::Impl::append_pages(std::uint64_t handle, RegionEntry& entry,
                                  const HwcRequest& request, std::size_t offset,
                                  std::uint32_t count) -> Status {
    if (count > entry.page_count - entry.pages.size()) return kHwcInvalidParameter;
    if (!request.has(offset, std::size_t{count} * sizeof(std::uint64_t)))
        return kHwcInvalidParameter;
    const std::size_t before = entry.pages.size();
    const std::uint64_t mask = (std::uint64_t{1} << entry.page_shift) - 1;
    for (std::uint32_t i = 0; i < count; ++i) {
        const auto page =
            request.get<std::uint64_t>(offset + std::size_t{i} * sizeof(std::uint64_t));
        if ((page & mask) != 0) {
            entry.pages.resize(before);
            return kHwcInvalidParameter;
        }
        entry.pages.push_back(page);
    }
    if (entry.pages.size() < entry.page_count) return kHwcMoreEntries;
    auto region = std::make_unique<DmaRegion>(entry.length, entry.first_offset, entry.page_shift,
                                              entry.pages);
    const std::uint64_t in_use = extents->load(std::memory_order_relaxed);
    if (in_use > config.max_extents || region->extents().size() > config.max_extents - in_use) {
        entry.pages.resize(before);
        return kHwcNoResources;
    }
    region->charge(extents);
    OM_TRACE("region complete: nic={} handle={:#x} length={} extents={}", config.name, handle,
             entry.length, region->extents().size());
    entry.region = std::move(region);
    entry.pages = {};
    return kHwcSuccess;
}

auto Function::Impl::destroy_region(const HwcRequest& request, HwcReply&) -> Status {
    const auto found = regions.find(request.as<mana_hw_destroy_region_req>().region);
    if (found == regions.end()) return kHwcNotFound;
    drop_region(found);
    return kHwcSuccess;
}

// ---- protection domains

auto Function::Impl::create_pd(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_create_pd_req>();
    const auto pd = pds.create(kGuest, (in.flags & MANA_HW_PD_ALLOW_GPA) != 0);
    if (!pd) return status_of(pd.error());
    mana_hw_create_pd_resp out{};
    out.pd = (*pd)->handle.value();
    out.pd_id = (*pd)->id.value();
    reply.put_struct(out);
    return kHwcSuccess;
}

auto Function::Impl::destroy_pd(const HwcRequest& request, HwcReply&) -> Status {
    const auto destroyed = pds.destroy(PdHandle(request.as<mana_hw_destroy_pd_req>().pd));
    return destroyed ? kHwcSuccess : status_of(destroyed.error());
}

// ---- memory regions

auto Function::Impl::create_mr(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_create_mr_req>();
    auto pd = pds.find(PdHandle(in.pd));
    if (!pd) return kHwcNotFound;
    if (keys.full()) return kHwcNoResources;
    MemoryRegion mr;
    mr.pd = std::move(*pd);
    mr.type = static_cast<MrType>(std::uint32_t{in.type});
    auto region = regions.end();
    switch (in.type) {
        case MANA_HW_MR_GPA:
            if (!mr.pd->allows_gpa) return kHwcInvalidParameter;
            // No flags are sent with it; kernel users expect these (RNIC 2.12).
            mr.access = kLocalRead | kLocalWrite;
            break;
        case MANA_HW_MR_GVA:
            region = regions.find(in.u.gva.region);
            mr.access = in.u.gva.access;
            mr.base = in.u.gva.virtual_address;
            break;
        case MANA_HW_MR_ZERO_BASED:
            region = regions.find(in.u.zero_based.region);
            mr.access = in.u.zero_based.access;
            break;
        case MANA_HW_MR_DM: {
            const auto memory_found = device_memory.find(in.u.dm.dm);
            if (memory_found == device_memory.end()) return kHwcNotFound;
            mr.access = in.u.dm.access;
            mr.device = memory_found->second;
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
            if (!fast_registration || in.u.gva.region == 0 ||
                in.u.gva.region > kMaxFastRegisterPages)
                return kHwcInvalidParameter;
            mr.max_pages = static_cast<std::uint32_t>(in.u.gva.region);
            break;
        default:
            return kHwcInvalidParameter;
    }
    if ((mr.access & ~MANA_HW_ACCESS_ALL) != 0) return kHwcInvalidParameter;
    if (in.type == MANA_HW_MR_GVA || in.type == MANA_HW_MR_ZERO_BASED) {
        if (region == regions.end() || !region->second.region) return kHwcNotFound;
        mr.length = region->second.region->length();
        if (mr.length - 1 > UINT64_MAX - mr.base) return kHwcInvalidParameter;
        mr.region = std::move(region->second.region);
        drop_region(region);
    }
    const auto key = keys.insert(std::move(mr));
    OM_CHECK(key.has_value());
    mana_hw_create_mr_resp out{};
    out.mr = kMrHandleMark | key->value();
    out.lkey = key->value();
    out.rkey = key->value();
    reply.put_struct(out);
    return kHwcSuccess;
}

const MemoryRegion* Function::Impl::mr_of(std::uint64_t handle) const {
    if ((handle & ~std::uint64_t{UINT32_MAX}) != kMrHandleMark) return nullptr;
    const MemoryRegion* const mr = keys.find_created(Key(static_cast<std::uint32_t>(handle)));
    // The keys of the HWC and of the devices are not the guest's.
    return mr != nullptr && mr->pd->owner == kGuest ? mr : nullptr;
}

auto Function::Impl::destroy_mr(const HwcRequest& request, HwcReply&) -> Status {
    const MemoryRegion* const mr = mr_of(request.as<mana_hw_destroy_mr_req>().mr);
    if (mr == nullptr) return kHwcNotFound;
    const auto removed = keys.remove(mr->key);
    return removed ? kHwcSuccess : status_of(removed.error());
}

base::Result<void> Function::change_mr(const MrChange& request) {
    const base::Gate::Exclusion exclusion(impl_->gate);
    const MemoryRegion* const mr = impl_->mr_of(request.mr);
    if (mr == nullptr) return base::fail(ErrorCode::kNotFound, "no such MR", request.mr);
    MemoryChange change;
    if (request.pd) {
        TRY(change.pd, find_pd(*request.pd));
    }
    if (request.access) {
        if ((*request.access & ~MANA_HW_ACCESS_ALL) != 0)
            return base::fail(ErrorCode::kInvalidArgument, "unknown rights", *request.access);
        change.access = request.access;
    }
    if (request.region) {
        TRY(const DmaRegion* const memory, region(*request.region));
        if (memory->length() - 1 > UINT64_MAX - request.address)
            return base::fail(ErrorCode::kInvalidArgument, "MR wraps", request.address);
        TRY(change.region, take_region(*request.region));
        change.base = request.address;
    }
    if (auto changed = impl_->keys.change(mr->key, std::move(change)); !changed) {
        if (change.region) restore_region(*request.region, std::move(change.region));
        return changed;
    }
    return {};
}

// ---- device memory

auto Function::Impl::alloc_dm(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_alloc_dm_req>();
    if (in.length == 0 || in.log2_alignment > 31) return kHwcInvalidParameter;
    const std::uint64_t left = config.max_device_memory - device_memory_bytes;
    const std::uint64_t counted = std::max<std::uint64_t>(in.length, kDeviceMemoryUnit);
    if (counted > left) return kHwcNoResources;
    const std::uint64_t handle = handles.take();
    device_memory.emplace(handle, std::make_shared<DeviceMemory>(in.length));
    device_memory_bytes += counted;
    mana_hw_alloc_dm_resp out{};
    out.dm = handle;
    reply.put_struct(out);
    return kHwcSuccess;
}

auto Function::Impl::destroy_dm(const HwcRequest& request, HwcReply&) -> Status {
    const auto found = device_memory.find(request.as<mana_hw_destroy_dm_req>().dm);
    if (found == device_memory.end()) return kHwcNotFound;
    // Every other owner is an MR.
    if (found->second.use_count() > 1) return kHwcBusy;
    device_memory_bytes -= std::max<std::uint64_t>(found->second->size(), kDeviceMemoryUnit);
    device_memory.erase(found);
    return kHwcSuccess;
}

base::Result<void> Function::copy_dm(const DmCopy& request) {
    // Work requests of others reach device memory during a visit.
    const base::Gate::Exclusion exclusion(impl_->gate);
    const auto found = impl_->device_memory.find(request.dm);
    if (found == impl_->device_memory.end())
        return base::fail(ErrorCode::kNotFound, "no such device memory", request.dm);
    DeviceMemory& memory = *found->second;
    if (request.length == 0 || request.length > MANA_HW_EXT_COPY_DM_BYTES)
        return base::fail(ErrorCode::kInvalidArgument, "bytes of a copy", request.length);
    if (request.length > memory.size() || request.offset > memory.size() - request.length)
        return base::fail(ErrorCode::kInvalidArgument, "copy beyond device memory", request.offset,
                          request.length);
    const std::span<std::byte> bytes(memory.data() + request.offset, request.length);
    const bool copied = request.to_dm ? impl_->memory.read(request.address, bytes)
                                      : impl_->memory.write(request.address, bytes);
    if (!copied)
        return base::fail(ErrorCode::kInvalidArgument, "no such guest memory",
                          request.address.value(), request.length);
    return {};
}

}  // namespace openmana::gdma
