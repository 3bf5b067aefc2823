// SPDX-License-Identifier: Apache-2.0
#include "gdma/memory_table.h"

#include <algorithm>

namespace openmana::gdma {
namespace {

constexpr std::uint32_t kTagBits = 8;
constexpr std::uint32_t kTagMask = (1U << kTagBits) - 1;
constexpr std::uint32_t kWriteRights = kLocalWrite | kRemoteWrite | kRemoteAtomic;

}  // namespace

MemoryTable::MemoryTable(const base::GuestMemory& memory, std::uint32_t max_entries)
    // All-ones must not become a key, and index 0 is not used.
    : memory_(memory), max_entries_(std::min(max_entries, (1U << (32 - kTagBits)) - 2)) {}

base::Result<Key> MemoryTable::insert(MemoryRegion region) {
    if (full())
        return base::fail(base::ErrorCode::kExhausted, "memory key table is full", max_entries_);
    if (slots_.empty()) slots_.resize(1);
    std::uint32_t index = 0;
    // As long as the table may grow, a freed index rests.
    if (slots_.size() <= max_entries_) {
        index = static_cast<std::uint32_t>(slots_.size());
        slots_.emplace_back().tag = first_tag_;
    } else {
        index = free_head_;
        free_head_ = slots_[index].next_free;
        if (free_head_ == 0) free_tail_ = 0;
    }
    Slot& slot = slots_[index];
    region.key = Key(index << kTagBits | slot.tag);
    if (region.pd.value() >= per_pd_.size()) per_pd_.resize(region.pd.value() + 1);
    ++per_pd_[region.pd.value()];
    slot.region = std::make_unique<MemoryRegion>(std::move(region));
    ++used_;
    return slot.region->key;
}

base::Result<void> MemoryTable::remove(Key key) {
    if (find(key) == nullptr)
        return base::fail(base::ErrorCode::kNotFound, "no such memory key", key.value());
    const std::uint32_t index = key.value() >> kTagBits;
    Slot& slot = slots_[index];
    --per_pd_[slot.region->pd.value()];
    slot.region.reset();
    ++slot.tag;
    slot.next_free = 0;
    if (free_tail_ != 0)
        slots_[free_tail_].next_free = index;
    else
        free_head_ = index;
    free_tail_ = index;
    --used_;
    return {};
}

void MemoryTable::clear() {
    slots_ = std::vector<Slot>();
    per_pd_ = std::vector<std::uint32_t>();
    free_head_ = 0;
    free_tail_ = 0;
    used_ = 0;
    // Keys from before a reset mean nothing after it.
    ++first_tag_;
}

const MemoryRegion* MemoryTable::find(Key key) const {
    const std::uint32_t index = key.value() >> kTagBits;
    if (index >= slots_.size()) return nullptr;
    const Slot& slot = slots_[index];
    if (slot.tag != (key.value() & kTagMask)) return nullptr;
    return slot.region.get();
}

MrFault MemoryTable::resolve(Key key, Pdn pd, std::uint64_t address, std::uint64_t length,
                             std::uint32_t need, SpanList& out) const {
    if (length == 0) return MrFault::kNone;
    const MemoryRegion* region = find(key);
    if (region == nullptr || region->pd != pd) return MrFault::kKey;
    if (region->type == MrType::kWindowType1 || region->type == MrType::kWindowType2)
        return MrFault::kKey;
    if ((region->access & need) != need) return MrFault::kAccess;
    const auto access = (need & kWriteRights) != 0 ? base::Access::kWrite : base::Access::kRead;
    const std::size_t before = out.size();
    bool found = false;
    if (region->type == MrType::kGpa) {
        found = memory_.resolve(GuestAddr(address), length, access, out);
    } else if (address >= region->base && length <= region->length &&
               address - region->base <= region->length - length) {
        const std::uint64_t offset = address - region->base;
        if (region->type == MrType::kDeviceMemory) {
            out.emplace_back(region->device->data() + region->device_offset + offset, length);
            found = true;
        } else {
            found = region->region->resolve(memory_, offset, length, access, out);
        }
    }
    if (found) return MrFault::kNone;
    out.resize(before);
    return MrFault::kRange;
}

bool MemoryTable::pd_in_use(Pdn pd) const {
    return pd.value() < per_pd_.size() && per_pd_[pd.value()] != 0;
}

}  // namespace openmana::gdma
