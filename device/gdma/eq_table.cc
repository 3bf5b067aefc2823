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

void EqTable::reset() {
    std::vector<Slot>().swap(slots_);
    ids_ = IdPool(1, max_eqs_);
}

}  // namespace openmana::gdma
