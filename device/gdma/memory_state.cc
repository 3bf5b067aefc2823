// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "gdma/memory_table.h"

// The state of the keys: which places there are, which of them rest, and what the others are.

namespace openmana::gdma {
namespace {

constexpr std::uint32_t kAllRights =
    kLocalRead | kLocalWrite | kRemoteRead | kRemoteWrite | kRemoteAtomic | kBindWindow;
constexpr std::size_t kFewSlots = 64;

bool known(std::uint32_t type) {
    switch (static_cast<MrType>(type)) {
        case MrType::kGpa:
        case MrType::kGva:
        case MrType::kZeroBased:
        case MrType::kDeviceMemory:
        case MrType::kWindowType1:
        case MrType::kWindowType2:
        case MrType::kFastRegister:
            return true;
    }
    return false;
}

/// It has a list of guest memory.
bool has_list(const MemoryRegion& region, bool valid) {
    return region.type == MrType::kGva || region.type == MrType::kZeroBased ||
           (region.type == MrType::kFastRegister && valid);
}

/// Its range does not wrap, and lies in what is behind it.
bool fits(const MemoryRegion& region) {
    if (region.length != 0 && region.length - 1 > UINT64_MAX - region.base) return false;
    if (region.region) return region.length == region.region->length();
    if (!region.device) return true;
    const std::uint64_t size = region.device->size();
    return region.length <= size && region.device_offset <= size - region.length;
}

}  // namespace

void MemoryTable::save(base::StateWriter& out) const {
    out(first_index_, fresh_);
    for (std::uint32_t place = 1; place < fresh_; ++place) out(slots_[place].tag);
    out.count(resting());
    for (std::uint32_t place = free_head_; place != 0; place = slots_[place].next_free) out(place);
    for (std::uint32_t place = 1; place < fresh_; ++place) {
        if (slots_[place].region == nullptr) continue;
        const MemoryRegion& region = *slots_[place].region;
        const bool valid = region.valid.load(std::memory_order_relaxed);
        out(region.key, region.created, region.pd->id, static_cast<std::uint32_t>(region.type),
            region.access, region.base, region.length, valid, region.scope, region.max_pages);
        if (has_list(region, valid)) region.region->save(out);
        if (region.device) out(region.device_handle, region.device_offset);
        if (region.window() && valid) out(region.target->key, region.target_offset);
    }
}

void MemoryTable::load(base::StateReader& in, const PdTable& pds,
                       const DeviceMemoryTable& device_memory) {
    const std::vector<bool> rests = load_places(in);
    std::vector<Shown> shown;
    for (auto left = std::ranges::count(rests, false); left > 0; --left)
        if (!load_region(in, pds, device_memory, shown)) return;
    // As many as there are places that do not rest, and each at one of its own.
    for (std::uint32_t place = 1; place <= rests.size(); ++place)
        in.require((slots_[place].region == nullptr) == rests[place - 1], "a key that rests");
    for (const Shown& window : shown)
        if (in.ok()) show(in, window);
}

/// Places with their tags; true for those that rest, from the first that can be one.
std::vector<bool> MemoryTable::load_places(base::StateReader& in) {
    std::uint32_t fresh = 0;
    in(first_index_, fresh);
    in.require(
        used_ == 0 && first_index_ < kFirstIndices && fresh >= 1 && fresh - 1 <= max_entries_,
        "keys that cannot be");
    if (!in.ok()) return {};
    if (fresh == 1) {
        in.require(in.count() == 0, "keys that rest without a place");
        return {};
    }
    std::size_t size = kFewSlots;
    while (size < fresh) size *= 2;
    size = std::min<std::size_t>(size, std::size_t{max_entries_} + 1);
    auto charge = account_.charge(Slots::allocator_type::bytes(size));
    if (!charge) {
        in.refuse(charge.error());
        return {};
    }
    slots_charge_ = std::move(*charge);
    slots_.resize(size);
    fresh_ = fresh;
    for (std::uint32_t place = 1; place < fresh; ++place) in(slots_[place].tag);
    std::vector<bool> rests(fresh - 1);
    for (std::size_t n = in.count(sizeof(std::uint32_t)); n > 0; --n) {
        const auto place = in.get<std::uint32_t>();
        in.require(place != 0 && place < fresh && !rests[place - 1], "a key rests twice");
        if (!in.ok()) break;
        rests[place - 1] = true;
        (free_tail_ != 0 ? slots_[free_tail_].next_free : free_head_) = place;
        free_tail_ = place;
    }
    return rests;
}

bool MemoryTable::load_region(base::StateReader& in, const PdTable& pds,
                              const DeviceMemoryTable& device_memory, std::vector<Shown>& shown) {
    MemoryRegion region;
    Pdn pdn;
    std::uint32_t type = 0;
    bool valid = false;
    in(region.key, region.created, pdn, type, region.access, region.base, region.length, valid,
       region.scope, region.max_pages);
    region.pd = pds.held(pdn);
    const std::uint32_t place = place_of(region.key);
    in.require(region.pd && known(type) && (region.access & ~kAllRights) == 0 && place != 0 &&
                   place < fresh_ && slots_[place].region == nullptr &&
                   slots_[place].tag == (region.key.value() & kTagMask) &&
                   place_of(region.created) == place && region.max_pages <= kMaxFastRegisterPages,
               "key that cannot be");
    if (!in.ok()) return false;
    region.type = static_cast<MrType>(type);
    in.require(region.dynamic() || (!valid && region.created == region.key), "key that cannot be");
    if (has_list(region, valid)) region.region = DmaRegion::load(in, account_);
    if (region.type == MrType::kDeviceMemory) {
        in(region.device_handle, region.device_offset);
        auto found = device_memory.find(region.device_handle);
        if (found) region.device = std::move(*found);
        in.require(region.device != nullptr, "key to no device memory");
    }
    Shown window;
    if (region.window() && valid) in(window.target, region.target_offset);
    auto charge = account_.charge(base::heap_cost(sizeof(MemoryRegion)));
    if (!charge) in.refuse(charge.error());
    in.require(fits(region), "key to more than there is");
    if (!in.ok()) return false;
    region.charge = std::move(*charge);
    region.valid.store(valid && !region.window());
    Slot& slot = slots_[place];
    slot.region = std::make_unique<MemoryRegion>(std::move(region)).release();
    if (slot.region->type == MrType::kWindowType2) link_scoped(*slot.region);
    slot.describe();
    ++used_;
    if (slot.region->window() && valid) shown.push_back({slot.region, window.target});
    return true;
}

/// As a bind that was allowed.
void MemoryTable::show(base::StateReader& in, const Shown& shown) {
    MemoryRegion& window = *shown.window;
    MemoryRegion* const target = find(shown.target) == nullptr ? nullptr : at(shown.target);
    in.require(target != nullptr && target->pd == window.pd && !target->window() &&
                   target->type != MrType::kGpa &&
                   (target->type != MrType::kFastRegister || target->valid.load()) &&
                   window.length <= target->length &&
                   window.target_offset <= target->length - window.length,
               "window on what it cannot show");
    if (!in.ok()) return;
    window.target = target;
    target->windows.fetch_add(1, std::memory_order_relaxed);
    window.valid.store(true, std::memory_order_release);
}

}  // namespace openmana::gdma
