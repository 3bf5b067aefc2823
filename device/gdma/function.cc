// SPDX-License-Identifier: Apache-2.0
#include "gdma/function.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <mana/queue.h>

#include "base/log.h"
#include "gdma/function_impl.h"

namespace openmana::gdma {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

constexpr std::uint32_t kMaxDoorbellPages = 65536;

/// Empties a container and gives its memory back.
template <typename Container>
void drop(Container& container) {
    container = Container();
}

FunctionConfig sane(FunctionConfig config) {
    config.doorbell_pages = std::clamp(config.doorbell_pages, 4U, kMaxDoorbellPages);
    config.max_cqs = std::clamp(config.max_cqs, 2U, 1U << 24);
    config.max_eqs = std::clamp(config.max_eqs, 1U, 65535U);
    config.max_pds = std::clamp(config.max_pds, 1U, 1U << 23);
    return config;
}

}  // namespace

Function::Impl::Impl(base::Executor& executor_in, base::GuestMemory& memory_in,
                     pci::IrqSink& irq_in, FunctionConfig config_in)
    : executor(executor_in),
      memory(memory_in),
      irq(irq_in),
      config(sane(std::move(config_in))),
      pds(config.max_pds, handles),
      pages(config.doorbell_pages),
      keys(memory_in, config.max_mrs),
      eqs(memory_in, irq_in, config.max_eqs),
      cqs(memory_in, config.max_cqs) {
    reset_objects();
}

Function::Function(base::Executor& executor, base::GuestMemory& memory, pci::IrqSink& irq,
                   FunctionConfig config)
    : impl_(std::make_unique<Impl>(executor, memory, irq, std::move(config))) {}

Function::~Function() {
    impl_->hwc.reset();
}

void Function::attach(Client& client) {
    Impl::Device device;
    device.client = &client;
    impl_->devices.push_back(std::move(device));
    std::sort(impl_->devices.begin(), impl_->devices.end(), [](const auto& a, const auto& b) {
        return a.client->device_type() < b.client->device_type();
    });
}

std::uint64_t Function::bar0_size() const {
    return std::bit_ceil(kDoorbellOffset + kDoorbellPageBytes * impl_->config.doorbell_pages);
}

void Function::reset() {
    impl_->reset(true);
}

base::Executor& Function::executor() const {
    return impl_->executor;
}
base::GuestMemory& Function::memory() const {
    return impl_->memory;
}
base::Gate& Function::gate() {
    return impl_->gate;
}
const FunctionConfig& Function::config() const {
    return impl_->config;
}
FunctionCounters& Function::counters() {
    return impl_->counters;
}
const MemoryTable& Function::keys() const {
    return impl_->keys;
}
std::uint64_t Function::epoch() const {
    return impl_->epoch;
}

ObjectCounts Function::object_counts() const {
    ObjectCounts counts;
    counts.eqs = impl_->eqs.used();
    counts.cqs = impl_->cqs.used();
    counts.sqs = impl_->sq_ids->used();
    counts.rqs = impl_->rq_ids->used() + (impl_->gsi_rq_taken ? 1 : 0);
    counts.pds = impl_->pds.used();
    counts.keys = impl_->keys.size();
    counts.regions = impl_->regions.size();
    counts.region_pages = impl_->region_pages;
    counts.extents = impl_->extents->load(std::memory_order_relaxed);
    counts.device_memories = impl_->device_memory.size();
    counts.device_memory_bytes = impl_->device_memory_bytes;
    counts.doorbell_pages = impl_->pages.used();
    return counts;
}

// ---- reset

void Function::Impl::reset_objects() {
    hwc.reset();
    for (Device& device : devices) {
        device.registered = false;
        device.pd = nullptr;
        device.page = nullptr;
    }
    cqs.reset();
    eqs.reset();
    drop(sqs);
    drop(rqs);
    keys.clear();
    drop(regions);
    region_pages = 0;
    drop(device_memory);
    device_memory_bytes = 0;
    pds.reset();
    pages.reset();
    gsi_rq_taken = false;
    fast_registration = false;
    packets = false;
    sq_ids.emplace(config.max_sqs);
    rq_ids.emplace(config.max_rqs);
}

void Function::Impl::reset(bool clear_shm) {
    const base::Gate::Exclusion exclusion(gate);
    ++epoch;
    counters.resets.add();
    // With memory of its own (share=off) QEMU gives us the file, but not what the guest writes.
    if (hwc && !hwc->seen_by_driver()) tell_unshared();
    for (const Device& device : devices) device.client->reset();
    reset_objects();
    if (clear_shm) shm.fill(0);
    OM_DEBUG("function reset: nic={} epoch={}", config.name, epoch);
}

void Function::Impl::tell_unshared() {
    counters.shm_unshared.add();
    if (!std::exchange(unshared_told, true))
        OM_WARN(
            "guest memory seems not to be shared: nic={} cure=\"QEMU with -object "
            "memory-backend-memfd,...,share=on\"",
            config.name);
}

// ---- regions

Result<const DmaRegion*> Function::region(RegionHandle handle) const {
    const auto found = impl_->regions.find(handle.value());
    if (found == impl_->regions.end() || !found->second.region)
        return fail(ErrorCode::kNotFound, "no such complete DMA region", handle.value());
    return found->second.region.get();
}

Result<std::unique_ptr<DmaRegion>> Function::take_region(RegionHandle handle) {
    TRY_VOID(region(handle));
    const auto found = impl_->regions.find(handle.value());
    auto region = std::move(found->second.region);
    impl_->drop_region(found);
    return region;
}

void Function::restore_region(RegionHandle handle, std::unique_ptr<DmaRegion> region) {
    Impl::RegionEntry entry;
    entry.length = region->length();
    entry.first_offset = region->first_offset();
    entry.page_count = region->extents().size();
    entry.region = std::move(region);
    impl_->region_pages += entry.page_count;
    impl_->regions.insert_or_assign(handle.value(), std::move(entry));
}

void Function::Impl::drop_region(std::unordered_map<std::uint64_t, RegionEntry>::iterator entry) {
    region_pages -= entry->second.page_count;
    regions.erase(entry);
}

// ---- objects that others hold

Result<Handle<EventQueue>> Function::find_eq(Eqn id) const {
    return impl_->eqs.find(id);
}

Result<Handle<CompletionQueue>> Function::create_cq(std::unique_ptr<DmaRegion>&& region,
                                                    std::uint64_t bytes, Handle<EventQueue> eq,
                                                    Handle<PageGrant> page, bool with_record) {
    auto cq = impl_->cqs.create(std::move(region), bytes, std::move(eq), std::move(page),
                                {.with_record = with_record});
    if (cq)
        OM_DEBUG("cq create: nic={} cqn={:#x} entries={} page={}", impl_->config.name,
                 (*cq)->id().value(), (*cq)->entries(), (*cq)->page().value());
    return cq;
}

Result<std::uint32_t> Function::resize_cq(CompletionQueue& cq, std::unique_ptr<DmaRegion>&& region,
                                          std::uint64_t bytes) {
    const base::Gate::Exclusion exclusion(impl_->gate);
    return impl_->cqs.resize(cq, std::move(region), bytes);
}

CompletionQueue* Function::find_cq(Cqn id) const {
    return impl_->cqs.find(id);
}

Result<Handle<Pd>> Function::find_pd(PdHandle handle) const {
    return impl_->pds.find(handle);
}

Result<Handle<Pd>> Function::find_pd(const Client& client, Pdn id) const {
    TRY(Handle<Pd> pd, impl_->pds.find(id));
    if (pd->owner != kGuest && pd->owner != client.device_type())
        return fail(ErrorCode::kNotFound, "PD of another device", id.value(), pd->owner);
    return pd;
}

Result<Handle<PageGrant>> Function::find_page(DoorbellPage page) const {
    return impl_->pages.find(page);
}

Function::Impl::Device* Function::Impl::device(std::uint16_t type, std::uint16_t instance) {
    if (instance != 0) return nullptr;
    for (Device& device : devices)
        if (device.client->device_type() == type) return &device;
    return nullptr;
}

// ---- work queue ids

namespace {

bool align_ok(std::uint32_t count, std::uint32_t align) {
    return count != 0 && count <= QueueIdPool::kBlock && (align == 1 || align == 2 || align == 4);
}

}  // namespace

Result<Sqn> Function::allocate_sqs(std::uint32_t count, std::uint32_t align) {
    if (!align_ok(count, align))
        return fail(ErrorCode::kInvalidArgument, "no such range of SQ ids", count, align);
    const auto id = impl_->sq_ids->take(count, align);
    if (!id) return fail(ErrorCode::kExhausted, "no SQ left", impl_->config.max_sqs);
    return Sqn(*id);
}

Result<Rqn> Function::allocate_rqs(std::uint32_t count, std::uint32_t align) {
    if (!align_ok(count, align))
        return fail(ErrorCode::kInvalidArgument, "no such range of RQ ids", count, align);
    const auto id = impl_->rq_ids->take(count, align);
    if (!id) return fail(ErrorCode::kExhausted, "no RQ left", impl_->config.max_rqs);
    return Rqn(*id);
}

Result<Rqn> Function::allocate_gsi_rq() {
    if (impl_->gsi_rq_taken) return fail(ErrorCode::kBusy, "the GSI RQ is in use");
    impl_->gsi_rq_taken = true;
    return Rqn(1);
}

void Function::free_sqs(Sqn first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i)
        connect_sq(Sqn(first.value() + i), DoorbellPage(0), nullptr);
    impl_->sq_ids->give_back(first.value(), count);
}

void Function::free_rqs(Rqn first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i)
        connect_rq(Rqn(first.value() + i), DoorbellPage(0), nullptr);
    if (first.value() == 1)
        impl_->gsi_rq_taken = false;
    else
        impl_->rq_ids->give_back(first.value(), count);
}

void Function::connect_sq(Sqn id, DoorbellPage page, DoorbellTarget* target, std::uint16_t bytes) {
    impl_->sqs.connect(id.value(), page, target, bytes);
}

void Function::connect_rq(Rqn id, DoorbellPage page, DoorbellTarget* target) {
    impl_->rqs.connect(id.value(), page, target, sizeof *target);
}

void Function::set_beyond(Sqn id, const void* memory, std::uint16_t bytes) {
    impl_->sqs.set_beyond(id.value(), memory, bytes);
}

void Function::prefetch(Rqn id) const {
    impl_->rqs.prefetch(id.value());
}

// ---- memory by work requests

void Function::allow_fast_registration(bool allowed) {
    impl_->fast_registration = allowed;
}

void Function::allow_packets(bool allowed) {
    impl_->packets = allowed;
}

bool Function::packets_allowed() const {
    return impl_->packets;
}

bool Function::bind_window(const WindowBind& request) {
    const base::Gate::Exclusion exclusion(impl_->gate);
    return impl_->keys.bind(request);
}

bool Function::invalidate(Key key, Pdn pd, std::uint32_t qpn) {
    const base::Gate::Exclusion exclusion(impl_->gate);
    return impl_->keys.invalidate(key, pd, qpn);
}

void Function::end_windows(std::optional<std::uint32_t> qpn) {
    const base::Gate::Exclusion exclusion(impl_->gate);
    impl_->keys.end_windows(qpn);
}

bool Function::fast_register(const FastRegisterRequest& request) {
    constexpr std::uint32_t kWrites = kRemoteWrite | kRemoteAtomic;
    if (request.page_shift < MANA_HW_PAGE_SHIFT || request.page_shift > 31 || request.pages == 0 ||
        request.length == 0 || !impl_->keys.registrable(request.key, request.pd, request.pages) ||
        (request.access & ~MANA_HW_ACCESS_ALL) != 0 ||
        ((request.access & kWrites) != 0 && (request.access & kLocalWrite) == 0))
        return false;
    const std::uint64_t mask = (std::uint64_t{1} << request.page_shift) - 1;
    const std::uint64_t base = request.zero_based ? 0 : request.iova;
    const auto first_offset = static_cast<std::uint32_t>(request.iova & mask);
    const std::uint64_t room = (std::uint64_t{request.pages} << request.page_shift) - first_offset;
    if (request.length > room || request.length - 1 > UINT64_MAX - base) return false;
    std::vector<std::uint64_t> pages(request.pages);
    if (!impl_->memory.read(request.page_list, std::as_writable_bytes(std::span(pages))))
        return false;
    for (const std::uint64_t page : pages)
        if ((page & mask) != 0 || page > UINT64_MAX - mask) return false;
    auto region =
        std::make_unique<DmaRegion>(request.length, first_offset, request.page_shift, pages);
    const std::uint64_t in_use = impl_->extents->load(std::memory_order_relaxed);
    if (in_use > impl_->config.max_extents ||
        region->extents().size() > impl_->config.max_extents - in_use)
        return false;
    region->charge(impl_->extents);
    const base::Gate::Exclusion exclusion(impl_->gate);
    impl_->keys.fast_register({request.key, request.pd, request.access, base, std::move(region)});
    return true;
}

void Function::notify_link(bool up) {
    if (!impl_->hwc) return;
    const std::uint32_t kind = up ? MANA_HW_RECONFIG_LINK_UP : MANA_HW_RECONFIG_LINK_DOWN;
    impl_->hwc->eq().post(EqeType::kReconfigData, {kind << MANA_HW_RECONFIG_SHIFT, 0, 0});
}

}  // namespace openmana::gdma
