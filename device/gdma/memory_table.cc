// SPDX-License-Identifier: Apache-2.0
#include "gdma/memory_table.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/activity.h"

namespace openmana::gdma {
namespace {

constexpr std::size_t kFirstSlots = 64;
constexpr std::uint32_t kLocalRights = kLocalRead | kLocalWrite;
constexpr std::uint32_t kRemoteRights = kRemoteRead | kRemoteWrite | kRemoteAtomic;
constexpr std::uint32_t kWriteRights = kLocalWrite | kRemoteWrite | kRemoteAtomic;

/// Fast-register regions that a thread may be copying through.
struct UsedKeys {
    bool active = false;
    std::vector<MemoryRegion*> regions;

    /// Before the copy; false if the region is invalid by now.
    [[nodiscard]] bool use(const MemoryRegion& region) {
        auto& used = const_cast<MemoryRegion&>(region);
        if (active) {
            // Partner: invalidate() stores `valid` before it looks at `users`. One of the two sees
            // the other.
            used.users.fetch_add(1, std::memory_order_seq_cst);
            regions.push_back(&used);
        }
        return used.valid.load(std::memory_order_seq_cst);
    }
    void release() {
        for (MemoryRegion* const region : regions)
            region->users.fetch_sub(1, std::memory_order_release);
        regions.clear();
    }
};
thread_local UsedKeys used_keys;

/// Others copy for a bounded step, and wait for nothing that the caller holds (KeyUse).
void wait_for_users(const MemoryRegion& region) {
    used_keys.release();
    if (region.users.load(std::memory_order_seq_cst) == 0) return;
    const base::Activity::Wait waiting("the users of a key to leave");
    while (region.users.load(std::memory_order_seq_cst) != 0) ::sched_yield();
}

}  // namespace

KeyUse::KeyUse() : outer_(!used_keys.active) {
    used_keys.active = true;
}

KeyUse::~KeyUse() {
    if (!outer_) return;
    used_keys.release();
    used_keys.active = false;
}

MemoryTable::MemoryTable(base::Gate& gate, const base::GuestMemory& memory,
                         base::MemoryAccount& account, std::uint32_t max_entries,
                         std::uint64_t seed)
    // All-ones must not become a key, and place 0 is not used.
    : gate_(gate),
      memory_(memory),
      account_(account),
      max_entries_(std::min(max_entries, (1U << (32 - kTagBits)) - 2 - kFirstIndices)),
      chance_(seed),
      first_index_(some_first_index()) {}

std::uint32_t MemoryTable::some_first_index() {
    return static_cast<std::uint32_t>(chance_.below(kFirstIndices));
}

base::Result<void> MemoryTable::grow() {
    const std::size_t count = std::min<std::size_t>(std::max(2 * slots_.size(), kFirstSlots),
                                                    std::size_t{max_entries_} + 1);
    const std::uint64_t bytes = Slots::allocator_type::bytes(count);
    // Without a larger table places that were freed rest for less long: nothing is refused.
    if (resting() > 0 && account_.left() < bytes) return {};
    TRY(auto charge, account_.charge(bytes));
    // Visitors look at the old table while the new one is made; nobody else changes it.
    Slots slots;
    {
        const base::Gate::Recess recess(gate_);
        base::count_work(slots_.size());
        slots.resize(count);
        std::copy(slots_.begin(), slots_.end(), slots.begin());
    }
    slots.swap(slots_);
    const base::Gate::Recess recess(gate_);
    Slots().swap(slots);
    slots_charge_ = std::move(charge);
    return {};
}

std::uint32_t MemoryTable::take_place() {
    if (fresh_ < slots_.size()) {
        slots_[fresh_].tag = static_cast<std::uint8_t>(chance_.below(kTagMask + 1));
        return fresh_++;
    }
    const std::uint32_t place = free_head_;
    free_head_ = slots_[place].next_free;
    if (free_head_ == 0) free_tail_ = 0;
    return place;
}

void MemoryTable::link_scoped(MemoryRegion& window) {
    window.scoped_behind = scoped_;
    if (scoped_ != nullptr) scoped_->scoped_before = &window;
    scoped_ = &window;
}

void MemoryTable::unlink_scoped(MemoryRegion& window) {
    (window.scoped_before != nullptr ? window.scoped_before->scoped_behind : scoped_) =
        window.scoped_behind;
    if (window.scoped_behind != nullptr) window.scoped_behind->scoped_before = window.scoped_before;
}

base::Result<MemoryTable::Room> MemoryTable::make_room() {
    if (full())
        return base::fail(base::ErrorCode::kExhausted, "memory key table is full", max_entries_);
    TRY(auto charge, account_.charge(base::heap_cost(sizeof(MemoryRegion))));
    const bool may_grow = fresh_ >= slots_.size() && fresh_ <= max_entries_;
    if (may_grow && resting() < kResting) {
        // Another thread may have been faster with what was left.
        if (const auto grown = grow(); !grown && resting() == 0)
            return tl::unexpected(grown.error());
    }
    return Room(std::move(charge));
}

base::Result<Key> MemoryTable::insert(MemoryRegion region) {
    TRY(Room room, make_room());
    return insert(std::move(room), std::move(region));
}

Key MemoryTable::insert(Room room, MemoryRegion region) {
    region.charge = std::move(room.charge_);
    std::unique_ptr<MemoryRegion> made;
    {
        // The allocator may have a lot to tidy up.
        const base::Gate::Recess recess(gate_);
        made = std::make_unique<MemoryRegion>(std::move(region));
    }
    const std::uint32_t place = take_place();
    Slot& slot = slots_[place];
    made->key = made->created = Key((first_index_ + place) << kTagBits | slot.tag);
    slot.region = made.release();
    if (slot.region->type == MrType::kWindowType2) link_scoped(*slot.region);
    slot.describe();
    ++used_;
    return slot.region->key;
}

void MemoryTable::Slot::describe() {
    const bool plain = (region->type == MrType::kGva || region->type == MrType::kZeroBased) &&
                       region->region->extents().size() == 1;
    key = Key();
    if (!plain) return;
    key = region->key;
    pd = region->pd->id;
    access = region->access;
    base = region->base;
    length = std::min(region->length, region->region->length());
    memory = region->region->extents()[0].address;
}

base::Result<void> MemoryTable::remove(Key key) {
    if (find(key) == nullptr)
        return base::fail(base::ErrorCode::kNotFound, "no such memory key", key.value());
    const std::uint32_t place = place_of(key);
    Slot& slot = slots_[place];
    if (slot.region->windows.load(std::memory_order_relaxed) != 0)
        return base::fail(base::ErrorCode::kBusy, "memory region has windows", key.value());
    if (slot.region->window()) release(*slot.region);
    if (slot.region->type == MrType::kWindowType2) unlink_scoped(*slot.region);
    std::unique_ptr<MemoryRegion> gone(std::exchange(slot.region, nullptr));
    slot.key = Key();
    ++slot.tag;
    slot.next_free = 0;
    if (free_tail_ != 0)
        slots_[free_tail_].next_free = place;
    else
        free_head_ = place;
    free_tail_ = place;
    --used_;
    const base::Gate::Recess recess(gate_);
    // Nobody finds it any more, but a KeyUse may outlive the visit in which it did.
    wait_for_users(*gone);
    gone.reset();
    return {};
}

base::Result<void> MemoryTable::change(Key key, MemoryChange request) {
    if (find(key) == nullptr)
        return base::fail(base::ErrorCode::kNotFound, "no such memory key", key.value());
    MemoryRegion& region = *at(key);
    const bool has_memory = region.type == MrType::kGva || region.type == MrType::kZeroBased ||
                            (region.type == MrType::kDeviceMemory && !request.region);
    if (!has_memory)
        return base::fail(base::ErrorCode::kInvalidArgument, "memory key cannot change so",
                          key.value());
    if (region.windows.load(std::memory_order_relaxed) != 0)
        return base::fail(base::ErrorCode::kBusy, "memory region has windows", key.value());
    if (request.pd) region.pd = std::move(request.pd);
    if (request.access) region.access = *request.access;
    std::unique_ptr<DmaRegion> before;
    if (request.region) {
        region.base = request.base;
        region.length = request.region->length();
        before = std::exchange(region.region, request.region.take());
    }
    slots_[place_of(key)].describe();
    const base::Gate::Recess recess(gate_);
    before.reset();
    return {};
}

void MemoryTable::clear() {
    base::MemoryAccount::Charge charge = std::move(slots_charge_);
    Slots gone;
    gone.swap(slots_);
    scoped_ = nullptr;
    fresh_ = 1;
    free_head_ = 0;
    free_tail_ = 0;
    used_ = 0;
    // Keys from before a reset mean nothing after it.
    first_index_ = some_first_index();
    const base::Gate::Recess recess(gate_);
    base::count_work(gone.size());
    for (const Slot& slot : gone) {
        if (slot.region == nullptr) continue;
        wait_for_users(*slot.region);  // as in remove()
        delete slot.region;
    }
    // Not behind the recess: so many pages take long, too.
    Slots().swap(gone);
}

const MemoryRegion* MemoryTable::find(Key key) const {
    const std::uint32_t place = place_of(key);
    if (place >= slots_.size()) return nullptr;
    const Slot& slot = slots_[place];
    if (slot.tag != (key.value() & kTagMask)) return nullptr;
    return slot.region;
}

MemoryRegion* MemoryTable::at(Key key) const {
    const std::uint32_t place = place_of(key);
    return place < slots_.size() ? slots_[place].region : nullptr;
}

const MemoryRegion* MemoryTable::find_created(Key key) const {
    const MemoryRegion* const region = at(key);
    return region != nullptr && region->created == key ? region : nullptr;
}

MrFault MemoryTable::locate(Key key, Pdn pd, std::uint64_t address, std::uint64_t length,
                            std::uint32_t need, WindowScope scope, Place& place) const {
    const MemoryRegion* region = find(key);
    if (region == nullptr || region->pd->id != pd) return MrFault::kKey;
    if (region->dynamic()) {
        // Acquire: pairs with nothing but an exclusion; an invalidation may come at any time.
        if (!region->valid.load(std::memory_order_acquire)) return MrFault::kKey;
        const bool stranger = region->type == MrType::kWindowType2 && region->scope != scope;
        if (region->window() && ((need & kLocalRights) != 0 || stranger)) return MrFault::kKey;
    }
    if ((region->access & need) != need) return MrFault::kAccess;
    place.region = region;
    if (region->type == MrType::kGpa) {
        place.offset = address;
        return MrFault::kNone;
    }
    if (address < region->base || length > region->length ||
        address - region->base > region->length - length)
        return MrFault::kRange;
    place.offset = address - region->base;
    if (region->window()) {
        place.region = region->target;
        place.offset += region->target_offset;
    }
    return MrFault::kNone;
}

const MemoryTable::Slot* MemoryTable::plain(Key key) const {
    const std::uint32_t place = place_of(key);
    if (place == 0 || place >= slots_.size()) return nullptr;
    const Slot& slot = slots_[place];
    return slot.key == key ? &slot : nullptr;
}

void MemoryTable::prefetch(Key key) const {
    const std::uint32_t place = place_of(key);
    if (place < slots_.size()) __builtin_prefetch(&slots_[place]);
}

/// What `locate` says of a plain region.
MrFault MemoryTable::refuse(const Slot& slot, Pdn pd, std::uint64_t address, std::uint64_t length,
                            std::uint32_t need) {
    if (slot.pd != pd) return MrFault::kKey;
    if ((slot.access & need) != need) return MrFault::kAccess;
    if (address < slot.base || length > slot.length || address - slot.base > slot.length - length)
        return MrFault::kRange;
    return MrFault::kNone;
}

MrFault MemoryTable::check(Key key, Pdn pd, std::uint64_t address, std::uint64_t length,
                           std::uint32_t need, WindowScope scope) const {
    if (length == 0) return MrFault::kNone;
    if (const Slot* const slot = plain(key)) return refuse(*slot, pd, address, length, need);
    Place place;
    return locate(key, pd, address, length, need, scope, place);
}

MrFault MemoryTable::resolve(Key key, Pdn pd, std::uint64_t address, std::uint64_t length,
                             std::uint32_t need, SpanList& out, WindowScope scope) const {
    if (length == 0) return MrFault::kNone;
    const auto access = (need & kWriteRights) != 0 ? base::Access::kWrite : base::Access::kRead;
    const std::size_t before = out.size();
    if (const Slot* const slot = plain(key)) {
        const MrFault fault = refuse(*slot, pd, address, length, need);
        if (fault != MrFault::kNone) return fault;
        if (memory_.resolve(slot->memory + (address - slot->base), length, access, out))
            return MrFault::kNone;
        out.resize(before);
        return MrFault::kRange;
    }
    Place place;
    const MrFault fault = locate(key, pd, address, length, need, scope, place);
    if (fault != MrFault::kNone) return fault;
    if (place.region->type == MrType::kFastRegister && !used_keys.use(*place.region))
        return MrFault::kKey;
    bool found = true;
    switch (place.region->type) {
        case MrType::kGpa:
            found = memory_.resolve(GuestAddr(place.offset), length, access, out);
            break;
        case MrType::kDeviceMemory:
            out.emplace_back(
                place.region->device->data() + place.region->device_offset + place.offset, length);
            break;
        default:
            found = place.region->region->resolve(memory_, place.offset, length, access, out);
            break;
    }
    if (found) return MrFault::kNone;
    out.resize(before);
    return MrFault::kRange;
}

/// The window shows nothing any more; whoever gets there first says so to its region.
void MemoryTable::release(const MemoryRegion& window) {
    auto& shown = const_cast<MemoryRegion&>(window);
    if (shown.valid.exchange(false, std::memory_order_acq_rel))
        shown.target->windows.fetch_sub(1, std::memory_order_relaxed);
}

bool MemoryTable::bind(const WindowBind& request) {
    MemoryRegion* const window = at(request.window);
    if (window == nullptr || !window->window() || window->pd->id != request.pd ||
        request.new_key.value() >> kTagBits != request.window.value() >> kTagBits)
        return false;
    const bool type2 = window->type == MrType::kWindowType2;
    // Type 2 is bound once and freed by an invalidation only; type 1 shows the region's addresses.
    if (type2 && (window->valid.load(std::memory_order_relaxed) || request.length == 0))
        return false;
    if (!type2 && request.zero_based) return false;
    MemoryRegion* region = nullptr;
    if (request.length != 0) {
        region = at(request.region);
        const bool shows = region != nullptr && region->key == request.region &&
                           region->pd->id == request.pd && !region->window() &&
                           region->type != MrType::kGpa &&
                           (region->type != MrType::kFastRegister ||
                            region->valid.load(std::memory_order_relaxed));
        if (!shows || (region->access & kBindWindow) == 0 ||
            (request.access & ~kRemoteRights) != 0 ||
            ((request.access & kWriteRights) != 0 && (region->access & kLocalWrite) == 0))
            return false;
        if (request.address < region->base || request.length > region->length ||
            request.address - region->base > region->length - request.length)
            return false;
    }
    release(*window);
    window->key = request.new_key;
    slots_[place_of(request.window)].tag =
        static_cast<std::uint8_t>(request.new_key.value() & kTagMask);
    if (region == nullptr) return true;
    window->access = request.access;
    window->base = request.zero_based ? 0 : request.address;
    window->length = request.length;
    window->target = region;
    window->target_offset = request.address - region->base;
    window->scope = request.scope;
    region->windows.fetch_add(1, std::memory_order_relaxed);
    window->valid.store(true, std::memory_order_release);
    return true;
}

bool MemoryTable::registrable(Key key, Pdn pd, std::uint32_t pages) const {
    const MemoryRegion* const region = at(key);
    return region != nullptr && region->type == MrType::kFastRegister && region->pd->id == pd &&
           !region->valid.load(std::memory_order_relaxed) && pages <= region->max_pages;
}

std::unique_ptr<DmaRegion> MemoryTable::fast_register(FastRegistration request) {
    MemoryRegion& region = *at(request.key);
    region.key = request.key;
    slots_[place_of(request.key)].tag = static_cast<std::uint8_t>(request.key.value() & kTagMask);
    region.access = request.access;
    region.base = request.base;
    region.length = request.region->length();
    auto before = std::exchange(region.region, std::move(request.region));
    region.valid.store(true, std::memory_order_release);
    return before;
}

bool MemoryTable::invalidate(Key key, Pdn pd, WindowScope scope) const {
    const MemoryRegion* const region = find(key);
    if (region == nullptr || region->pd->id != pd) return false;
    if (region->type == MrType::kWindowType2) {
        if (region->scope != scope || !region->valid.load(std::memory_order_relaxed)) return false;
        release(*region);
        return true;
    }
    if (region->type != MrType::kFastRegister ||
        region->windows.load(std::memory_order_relaxed) != 0)
        return false;
    const_cast<MemoryRegion*>(region)->valid.store(false, std::memory_order_seq_cst);
    wait_for_users(*region);
    return true;
}

void MemoryTable::end_windows(std::optional<WindowScope> scope) {
    // A visitor may make any of them invalid, too. Those who still use one leave when the gate
    // closes again.
    const base::Gate::Recess recess(gate_);
    for (const MemoryRegion* window = scoped_; window != nullptr; window = window->scoped_behind) {
        base::count_work(1);
        if (!scope || window->scope == *scope) release(*window);
    }
}

}  // namespace openmana::gdma
