// SPDX-License-Identifier: Apache-2.0
#include "gdma/eq_table.h"

#include <utility>

#include <mana/queue.h>

namespace openmana::gdma {

using base::ErrorCode;
using base::fail;
using base::Result;

Result<Handle<EventQueue>> EqTable::create(DeviceType owner, RegionClaim region,
                                           std::uint64_t bytes, Handle<PageGrant> page,
                                           unsigned vector) {
    TRY(auto charge, account_.charge(EventQueue::cost()));
    const auto id = ids_.take();
    if (!id) return fail(ErrorCode::kExhausted, "no EQ left", max_eqs_);
    if (*id >= slots_.size()) slots_.resize(*id + 1);
    Slot& slot = slots_[*id];
    slot.eq = make_handle<EventQueue>(Eqn(*id), std::move(page),
                                      Ring(memory_, region.take(), bytes), irq_, vector);
    slot.owner = owner;
    slot.charge = std::move(charge);
    slot.last_index = static_cast<std::uint32_t>(bytes / sizeof(mana_hw_eqe));
    return slot.eq;
}

Result<void> EqTable::destroy(Eqn id, DeviceType owner) {
    TRY_VOID(find(id, owner));
    Slot& slot = slots_[id.value()];
    if (slot.eq->holders() > 1) return fail(ErrorCode::kBusy, "EQ is in use", id.value());
    slot = {};
    ids_.give_back(id.value());
    return {};
}

bool EqTable::destroy_unused(DeviceType owner) {
    bool all = true;
    for (std::size_t id = 0; id < slots_.size(); ++id)
        if (slots_[id].eq && slots_[id].owner == owner)
            all = destroy(Eqn(static_cast<std::uint32_t>(id)), owner).has_value() && all;
    return all;
}

Result<Handle<EventQueue>> EqTable::find(Eqn id) const {
    if (id.value() >= slots_.size() || !slots_[id.value()].eq)
        return fail(ErrorCode::kNotFound, "no such EQ", id.value());
    return slots_[id.value()].eq;
}

Result<Handle<EventQueue>> EqTable::find(Eqn id, DeviceType owner) const {
    if (id.value() >= slots_.size() || !slots_[id.value()].eq || slots_[id.value()].owner != owner)
        return fail(ErrorCode::kNotFound, "no such EQ of this device", id.value(), owner);
    return slots_[id.value()].eq;
}

bool EqTable::ring(std::uint32_t id, DoorbellPage page, std::uint32_t index, bool arm,
                   bool relative) {
    if (id >= slots_.size()) return false;
    Slot& slot = slots_[id];
    if (!slot.eq || slot.eq->page() != page) return false;
    const std::uint64_t wrap = std::uint64_t{8} * slot.eq->entries();
    slot.last_index =
        static_cast<std::uint32_t>(((relative ? slot.last_index : 0ULL) + index) % wrap);
    slot.eq->ring_doorbell(slot.last_index, arm);
    return true;
}

void EqTable::save(base::StateWriter& out) const {
    ids_.save(out);
    out.count(used());
    for (const Slot& slot : slots_) {
        if (!slot.eq) continue;
        const EventQueue& eq = *slot.eq;
        out(eq.id(), slot.owner, eq.page(), static_cast<std::uint32_t>(eq.vector()),
            eq.ring().bytes(), slot.last_index);
        eq.ring().region().save(out);
        eq.save(out);
    }
}

void EqTable::load(base::StateReader& in, const DoorbellPages& pages) {
    ids_.load(in);
    loaded_events_ = 0;
    const std::size_t count = in.count();
    in.require(count == ids_.used(), "EQs without a number");
    for (std::size_t i = 0; i < count && in.ok(); ++i) load_one(in, pages);
    in.require(ids_.all_claimed(), "number of no EQ");
}

void EqTable::load_one(base::StateReader& in, const DoorbellPages& pages) {
    Eqn id;
    DoorbellPage number;
    std::uint32_t vector = 0;
    std::uint64_t bytes = 0;
    Slot slot;
    in(id, slot.owner, number, vector, bytes, slot.last_index);
    auto region = DmaRegion::load(in, account_);
    auto charge = account_.charge(EventQueue::cost());
    if (!charge) in.refuse(charge.error());
    auto page = pages.held(number);
    in.require(ids_.claim(id.value()) && page && vector < irq_.vector_count() &&
                   region != nullptr && fits(*region, bytes),
               "EQ that cannot be");
    if (!in.ok()) return;
    slot.charge = std::move(*charge);
    slot.eq = make_handle<EventQueue>(id, std::move(page), Ring(memory_, std::move(region), bytes),
                                      irq_, vector);
    // What there may be of them at all: who they are of comes later.
    slot.eq->load(in, account_.limit() / EventQueue::held_cost() - loaded_events_);
    loaded_events_ += slot.eq->held();
    if (id.value() >= slots_.size()) slots_.resize(id.value() + 1);
    slots_[id.value()] = std::move(slot);
}

void EqTable::finish_load(base::StateReader& in) {
    in.require(loaded_events_ <= account_.used() / EventQueue::held_cost(),
               "more events than there are objects for");
}

bool EqTable::fits(const DmaRegion& region, std::uint64_t bytes) {
    return bytes >= MANA_HW_PAGE_BYTES && bytes <= 1ULL << 31 && std::has_single_bit(bytes) &&
           bytes <= region.length() && region.first_offset() % sizeof(mana_hw_eqe) == 0;
}

void EqTable::reset() {
    std::vector<Slot>().swap(slots_);
    ids_ = IdPool(1, max_eqs_);
}

}  // namespace openmana::gdma
