// SPDX-License-Identifier: Apache-2.0
#include "gdma/pd_table.h"

#include <bit>
#include <utility>

#include "base/hold_meter.h"

namespace openmana::gdma {

using base::ErrorCode;
using base::fail;
using base::Result;

bool Pd::granted(const SourceAddress& address) const {
    for (std::uint32_t left = granted_; left != 0; left &= left - 1)
        if (sources_[static_cast<std::size_t>(std::countr_zero(left))] == address) return true;
    return false;
}

PdTable::PdTable(std::uint32_t max_pds, HandleNumbers& handles, base::MemoryAccount& account)
    : max_pds_(max_pds), handles_(handles), account_(account), ids_(fresh_ids(max_pds)) {}

IdPool PdTable::fresh_ids(std::uint32_t max_pds) {
    return {1, max_pds + kOwn};
}

Result<Handle<Pd>> PdTable::create(DeviceType owner, PdRights rights) {
    const bool of_guest = owner == kGuest;
    if (of_guest && of_guest_.size() >= max_pds_)
        return fail(ErrorCode::kExhausted, "no PD left", max_pds_);
    TRY(auto charge, account_.charge(kCost));
    const auto id = ids_.take();
    if (!id) return fail(ErrorCode::kExhausted, "no PD left", max_pds_);
    if (*id >= pds_.size()) pds_.resize(*id + 1);
    const PdHandle handle = of_guest ? PdHandle(handles_.take()) : PdHandle{};
    if (of_guest) of_guest_.emplace(handle.value(), Pdn(*id));
    pds_[*id] = {make_handle<Pd>(Pdn(*id), handle, owner, rights), std::move(charge)};
    return pds_[*id].pd;
}

Result<void> PdTable::destroy(PdHandle handle) {
    const auto found = of_guest_.find(handle.value());
    if (found == of_guest_.end()) return fail(ErrorCode::kNotFound, "no such PD", handle.value());
    const Pdn id = found->second;
    if (pds_[id.value()].pd->holders() > 1)
        return fail(ErrorCode::kBusy, "PD is in use", handle.value());
    of_guest_.erase(found);
    remove(id);
    return {};
}

void PdTable::destroy(Handle<Pd> pd) {
    remove(pd->id);
}

void PdTable::remove(Pdn id) {
    pds_[id.value()] = {};
    ids_.give_back(id.value());
}

Result<Handle<Pd>> PdTable::find(PdHandle handle) const {
    const auto found = of_guest_.find(handle.value());
    if (found == of_guest_.end()) return fail(ErrorCode::kNotFound, "no such PD", handle.value());
    return pds_[found->second.value()].pd;
}

Result<Handle<Pd>> PdTable::find(Pdn id, DeviceType device) const {
    if (id.value() >= pds_.size() || !pds_[id.value()].pd)
        return fail(ErrorCode::kNotFound, "no such PD", id.value());
    const Handle<Pd>& pd = pds_[id.value()].pd;
    if (pd->owner != kGuest && pd->owner != device)
        return fail(ErrorCode::kNotFound, "PD of another device", id.value(), pd->owner);
    return pd;
}

Result<void> PdTable::grant_source(PdHandle handle, const SourceAddress& address,
                                   std::uint32_t number) {
    TRY(const Handle<Pd> pd, find(handle));
    if (pd->rights.any_source || number >= MANA_HW_EXT_PD_SOURCES)
        return fail(ErrorCode::kInvalidArgument, "no such source of a PD", handle.value(), number);
    pd->sources_[number] = address;
    pd->granted_ |= 1U << number;
    return {};
}

void PdTable::revoke_source(std::uint32_t number) {
    if (number >= MANA_HW_EXT_PD_SOURCES) return;
    base::count_work(pds_.size());
    for (const Slot& slot : pds_)
        if (slot.pd) slot.pd->granted_ &= ~(1U << number);
}

void PdTable::save(base::StateWriter& out) const {
    ids_.save(out);
    out.count(used());
    for (const Slot& slot : pds_) {
        if (!slot.pd) continue;
        const Pd& pd = *slot.pd;
        out(pd.id, pd.handle, pd.owner, pd.rights.allows_gpa, pd.rights.any_source, pd.granted_);
        for (std::size_t i = 0; i < pd.sources_.size(); ++i)
            if ((pd.granted_ >> i & 1) != 0) out(pd.sources_[i].ip, pd.sources_[i].vlan);
    }
}

void PdTable::load(base::StateReader& in) {
    ids_.load(in);
    const std::size_t count = in.count();
    in.require(count == ids_.used(), "PDs without a number");
    for (std::size_t i = 0; i < count && in.ok(); ++i) load_one(in);
    in.require(ids_.all_claimed(), "number of no PD");
}

void PdTable::load_one(base::StateReader& in) {
    Pdn id;
    PdHandle handle;
    DeviceType owner = kGuest;
    PdRights rights;
    in(id, handle, owner, rights.allows_gpa, rights.any_source);
    auto charge = account_.charge(kCost);
    if (!charge) in.refuse(charge.error());
    const bool of_guest = owner == kGuest;
    in.require(ids_.claim(id.value()) &&
                   (of_guest ? handles_.given(handle.value()) && of_guest_.size() < max_pds_ &&
                                   !of_guest_.contains(handle.value())
                             : handle == PdHandle{}),
               "PD that cannot be");
    if (!in.ok()) return;
    auto pd = make_handle<Pd>(id, handle, owner, rights);
    in(pd->granted_);
    in.require(pd->granted_ == 0 || !rights.any_source, "PD with sources that it does not need");
    for (std::size_t i = 0; i < pd->sources_.size(); ++i)
        if ((pd->granted_ >> i & 1) != 0) in(pd->sources_[i].ip, pd->sources_[i].vlan);
    if (of_guest) of_guest_.emplace(handle.value(), id);
    if (id.value() >= pds_.size()) pds_.resize(id.value() + 1);
    pds_[id.value()] = {std::move(pd), std::move(*charge)};
}

void PdTable::reset() {
    std::vector<Slot>().swap(pds_);
    of_guest_ = {};
    ids_ = fresh_ids(max_pds_);
}

}  // namespace openmana::gdma
