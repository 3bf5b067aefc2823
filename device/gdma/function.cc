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

/// A consumer index and the eight laps of the owner bits fit the doorbell's 31 bits.
constexpr std::uint64_t kMaxCqEntries = 1ULL << 28;
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
      keys(memory_in, config.max_mrs) {
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
    impl_->devices.push_back(device);
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
    counts.eqs = impl_->eq_ids->used();
    counts.cqs = impl_->cq_ids->used();
    counts.sqs = impl_->sq_ids->used();
    counts.rqs = impl_->rq_ids->used() + (impl_->gsi_rq_taken ? 1 : 0);
    counts.pds = impl_->pd_ids->used();
    counts.keys = impl_->keys.size();
    counts.regions = impl_->regions.size();
    counts.region_pages = impl_->region_pages;
    counts.extents = impl_->extents->load(std::memory_order_relaxed);
    counts.device_memories = impl_->device_memory.size();
    counts.device_memory_bytes = impl_->device_memory_bytes;
    counts.doorbell_pages = static_cast<std::uint64_t>(
        std::count_if(impl_->pages.begin(), impl_->pages.end(),
                      [](Impl::PageUse use) { return use != Impl::PageUse::kFree; }));
    return counts;
}

// ---- reset

void Function::Impl::reset_objects() {
    hwc.reset();
    for (Device& device : devices) device.registered = false;
    // CQs point to EQs.
    drop(cqs);
    drop(eqs);
    drop(sqs);
    drop(rqs);
    keys.clear();
    drop(regions);
    region_pages = 0;
    drop(device_memory);
    device_memory_bytes = 0;
    drop(pd_handles);
    drop(pds);
    guest_pds = 0;
    gsi_rq_taken = false;
    fast_registration = false;
    packets = false;
    pages.assign(config.doorbell_pages, PageUse::kFree);
    next_page = 0;
    eq_ids.emplace(1, config.max_eqs);
    cq_ids.emplace(1, config.max_cqs - 1);
    // The HWC and the devices have PDs of their own, beside those that the guest creates.
    pd_ids.emplace(1, config.max_pds + 8);
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

// ---- EQs and CQs

Result<EventQueue*> Function::Impl::create_eq(std::uint16_t device_type,
                                              std::unique_ptr<DmaRegion>&& region,
                                              std::uint64_t bytes, DoorbellPage page,
                                              unsigned vector) {
    const auto id = eq_ids->take();
    if (!id) return fail(ErrorCode::kExhausted, "no EQ left", config.max_eqs);
    if (*id >= eqs.size()) eqs.resize(*id + 1);
    EqSlot& slot = eqs[*id];
    slot = {};
    slot.eq = std::make_unique<EventQueue>(Eqn(*id), page, Ring(memory, std::move(region), bytes),
                                           irq, vector);
    slot.device_type = device_type;
    slot.last_index = static_cast<std::uint32_t>(bytes / sizeof(mana_hw_eqe));
    OM_DEBUG("eq create: nic={} eqn={:#x} device={} page={} vector={}", config.name, *id,
             device_type, page.value(), vector);
    return slot.eq.get();
}

void Function::Impl::destroy_eq(Eqn id) {
    eqs[id.value()] = {};
    eq_ids->give_back(id.value());
    OM_DEBUG("eq destroy: nic={} eqn={:#x}", config.name, id.value());
}

Result<EventQueue*> Function::find_eq(Eqn id) const {
    if (id.value() >= impl_->eqs.size() || !impl_->eqs[id.value()].eq)
        return fail(ErrorCode::kNotFound, "no such EQ", id.value());
    return impl_->eqs[id.value()].eq.get();
}

Result<CompletionQueue*> Function::Impl::create_cq(std::unique_ptr<DmaRegion>&& region,
                                                   std::uint64_t bytes, EventQueue* eq,
                                                   DoorbellPage page, bool armed,
                                                   bool with_record) {
    const std::uint64_t behind = with_record ? SharedWords::kBytes : 0;
    if (bytes == 0 || region->length() < behind || bytes % sizeof(mana_hw_cqe) != 0 ||
        bytes / sizeof(mana_hw_cqe) > kMaxCqEntries || bytes > region->length() - behind ||
        region->first_offset() % sizeof(mana_hw_cqe) != 0)
        return fail(ErrorCode::kInvalidArgument, "region cannot hold the CQ", bytes,
                    region->length());
    const auto id = cq_ids->take();
    if (!id) return fail(ErrorCode::kExhausted, "no CQ left", config.max_cqs);
    if (*id >= cqs.size()) cqs.resize(*id + 1);
    CqSlot& slot = cqs[*id];
    const std::shared_ptr<const DmaRegion> shared = std::move(region);
    slot.cq =
        std::make_unique<CompletionQueue>(Cqn(*id), page, Ring(memory, shared, bytes), eq, armed);
    if (with_record) slot.cq->use_record(std::make_unique<SharedWords>(memory, shared, bytes));
    slot.last_index = slot.cq->entries();
    if (eq != nullptr) ++eqs[eq->id().value()].cqs;
    OM_DEBUG("cq create: nic={} cqn={:#x} entries={} page={}", config.name, *id, slot.cq->entries(),
             page.value());
    return slot.cq.get();
}

Result<CompletionQueue*> Function::create_cq(std::unique_ptr<DmaRegion>&& region,
                                             std::uint64_t bytes, EventQueue* eq, DoorbellPage page,
                                             bool with_record) {
    return impl_->create_cq(std::move(region), bytes, eq, page, false, with_record);
}

Result<std::uint32_t> Function::resize_cq(Cqn id, std::unique_ptr<DmaRegion>&& region,
                                          std::uint64_t bytes) {
    CompletionQueue* const cq = find_cq(id);
    if (cq == nullptr || !cq->has_record())
        return fail(ErrorCode::kNotFound, "no such CQ with a record", id.value());
    if (bytes == 0 || bytes % sizeof(mana_hw_cqe) != 0 || region->length() < SharedWords::kBytes ||
        bytes > region->length() - SharedWords::kBytes ||
        region->first_offset() % sizeof(mana_hw_cqe) != 0)
        return fail(ErrorCode::kInvalidArgument, "region cannot hold the CQ", bytes);
    const base::Gate::Exclusion exclusion(impl_->gate);
    if (!cq->can_resize(static_cast<std::uint32_t>(bytes / sizeof(mana_hw_cqe))))
        return fail(ErrorCode::kBusy, "the CQ holds more than the new ring", id.value());
    const std::shared_ptr<DmaRegion> shared = std::move(region);
    impl_->cqs[id.value()].last_index = 0;
    return cq->resize(Ring(impl_->memory, shared, bytes),
                      std::make_unique<SharedWords>(impl_->memory, shared, bytes));
}

void Function::destroy_cq(Cqn id) {
    CompletionQueue* const cq = find_cq(id);
    if (cq == nullptr) return;
    if (EventQueue* const eq = cq->eq(); eq != nullptr) {
        eq->forget_cq(id);
        --impl_->eqs[eq->id().value()].cqs;
    }
    impl_->cqs[id.value()] = {};
    impl_->cq_ids->give_back(id.value());
    OM_DEBUG("cq destroy: nic={} cqn={:#x}", impl_->config.name, id.value());
}

CompletionQueue* Function::find_cq(Cqn id) const {
    return id.value() < impl_->cqs.size() ? impl_->cqs[id.value()].cq.get() : nullptr;
}

// ---- PDs

Result<Pd*> Function::Impl::create_pd(bool allows_gpa, bool with_handle) {
    if (with_handle && guest_pds >= config.max_pds)
        return fail(ErrorCode::kExhausted, "no PD left", config.max_pds);
    const auto id = pd_ids->take();
    if (!id) return fail(ErrorCode::kExhausted, "no PD left", config.max_pds);
    if (*id >= pds.size()) pds.resize(*id + 1);
    pds[*id] = std::make_unique<Pd>();
    Pd& pd = *pds[*id];
    pd.id = Pdn(*id);
    pd.allows_gpa = allows_gpa;
    if (with_handle) {
        pd.handle = PdHandle(next_handle++);
        pd_handles.emplace(pd.handle.value(), &pd);
        ++guest_pds;
    }
    return &pd;
}

void Function::Impl::destroy_pd(Pdn id) {
    auto& pd = pds[id.value()];
    if (pd_handles.erase(pd->handle.value()) != 0) --guest_pds;
    pd.reset();
    pd_ids->give_back(id.value());
}

Result<Pd*> Function::find_pd(PdHandle handle) const {
    const auto found = impl_->pd_handles.find(handle.value());
    if (found == impl_->pd_handles.end())
        return fail(ErrorCode::kNotFound, "no such PD", handle.value());
    return found->second;
}

Result<Pd*> Function::find_pd(Pdn id) const {
    if (id.value() >= impl_->pds.size() || !impl_->pds[id.value()])
        return fail(ErrorCode::kNotFound, "no such PD", id.value());
    return impl_->pds[id.value()].get();
}

// ---- doorbell pages

Result<std::uint32_t> Function::Impl::allocate_pages(std::uint32_t count, std::uint32_t align,
                                                     std::uint32_t from, PageUse use) {
    const auto total = static_cast<std::uint32_t>(pages.size());
    if (count == 0 || align == 0 || count > total || from >= total)
        return fail(ErrorCode::kInvalidArgument, "no such range of doorbell pages", count, align);
    // Round robin, so that a page comes back late; the few pages make a search cheap.
    const std::uint32_t start = std::max(from, next_page);
    for (std::uint32_t pass = 0; pass < 2; ++pass) {
        const std::uint32_t begin = pass == 0 ? start : from;
        // Alignments up to the number of pages: the sum cannot wrap.
        for (std::uint64_t first = (std::uint64_t{begin} + align - 1) / align * align;
             first <= total - count; first += align) {
            const auto at = pages.begin() + static_cast<std::ptrdiff_t>(first);
            if (!std::all_of(at, at + count, [](PageUse page) { return page == PageUse::kFree; }))
                continue;
            std::fill(at, at + count, use == PageUse::kRangeFirst ? PageUse::kRangeNext : use);
            *at = use;
            next_page = static_cast<std::uint32_t>((first + count) % total);
            return static_cast<std::uint32_t>(first);
        }
    }
    return fail(ErrorCode::kExhausted, "no doorbell page left", total);
}

void Function::Impl::free_pages(std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) pages[first + i] = PageUse::kFree;
}

bool Function::doorbell_page_valid(DoorbellPage page) const {
    // Page 0 is the HWC's as long as there is one, and nobody's else.
    if (impl_->hwc && impl_->hwc->eq().page() == page) return false;
    return page.value() < impl_->pages.size() && impl_->pages[page.value()] != Impl::PageUse::kFree;
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
