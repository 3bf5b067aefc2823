// SPDX-License-Identifier: Apache-2.0
#include "gdma/cq_table.h"

#include <utility>

#include <mana/queue.h>

namespace openmana::gdma {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

/// A consumer index and the eight laps of the owner bits fit the doorbell's 31 bits.
constexpr std::uint64_t kMaxCqEntries = 1ULL << 28;

/// With an event that its EQ holds back, one that the adapter's does, and one that waits.
constexpr std::uint64_t kCost = base::heap_cost(sizeof(CompletionQueue)) +
                                base::heap_cost(sizeof(SharedWords)) + 2 * EventQueue::held_cost() +
                                Postponed::kCost;

bool holds(const DmaRegion& region, std::uint64_t bytes, bool with_record) {
    const std::uint64_t behind = with_record ? SharedWords::kBytes : 0;
    return bytes != 0 && bytes % sizeof(mana_hw_cqe) == 0 && region.length() >= behind &&
           bytes / sizeof(mana_hw_cqe) <= kMaxCqEntries && bytes <= region.length() - behind &&
           region.first_offset() % sizeof(mana_hw_cqe) == 0;
}

}  // namespace

Result<Handle<CompletionQueue>> CqTable::create(RegionClaim region, std::uint64_t bytes,
                                                Handle<EventQueue> eq, Handle<PageGrant> page,
                                                Options options) {
    if (!holds(*region, bytes, options.with_record))
        return fail(ErrorCode::kInvalidArgument, "region cannot hold the CQ", bytes,
                    region->length());
    TRY(auto charge, account_.charge(kCost));
    const auto id = ids_.take();
    if (!id) return fail(ErrorCode::kExhausted, "no CQ left", max_cqs_);
    if (const auto room = make_slot(Cqn(*id)); !room) {
        ids_.give_back(*id);
        return tl::unexpected(room.error());
    }
    const std::shared_ptr<const DmaRegion> shared = region.take();
    auto cq = make_handle<CompletionQueue>(Cqn(*id), std::move(page), Ring(memory_, shared, bytes),
                                           std::move(eq), options.armed, this);
    if (options.with_record) cq->use_record(std::make_unique<SharedWords>(memory_, shared, bytes));
    slots_[*id] = {cq.get(), cq->entries(), std::move(charge)};
    return cq;
}

Result<void> CqTable::make_slot(Cqn id) {
    TRY_VOID(base::reserve(slots_, id.value() + 1, account_, slots_charge_));
    if (id.value() >= slots_.size()) slots_.resize(id.value() + 1);
    return {};
}

Result<std::uint32_t> CqTable::resize(CompletionQueue& cq, RegionClaim region,
                                      std::uint64_t bytes) {
    if (!cq.has_record() || find(cq.id()) != &cq)
        return fail(ErrorCode::kNotFound, "no such CQ with a record", cq.id().value());
    if (!holds(*region, bytes, true))
        return fail(ErrorCode::kInvalidArgument, "region cannot hold the CQ", bytes);
    // The region is the claim's until nothing can fail any more.
    const auto keeper = std::make_shared<std::unique_ptr<DmaRegion>>();
    const std::shared_ptr<const DmaRegion> shared(keeper, &*region);
    auto move = cq.begin_move(Ring(memory_, shared, bytes),
                              std::make_unique<SharedWords>(memory_, shared, bytes));
    CompletionQueue::Moved moved = CompletionQueue::Moved::kTooMany;
    while (move) {
        {
            const base::Gate::Exclusion exclusion(gate_, {"step of a resize", cq.id().value()});
            moved = cq.move_step(*move);
        }
        if (moved != CompletionQueue::Moved::kPart) break;
        const base::Gate::Recess recess(gate_);
    }
    if (moved != CompletionQueue::Moved::kAll)
        return fail(ErrorCode::kBusy, "the CQ holds more than the new ring", cq.id().value());
    *keeper = region.take();
    slots_[cq.id().value()].last_index = 0;
    const base::Gate::Recess recess(gate_);
    move.reset();
    return cq.entries();
}

CompletionQueue* CqTable::find(Cqn id) const {
    return id.value() < slots_.size() ? slots_[id.value()].cq : nullptr;
}

auto CqTable::ring(std::uint32_t id, DoorbellPage page, std::uint32_t index, bool arm,
                   bool relative) -> Rung {
    if (id >= slots_.size()) return Rung::kNoSuchCq;
    Slot& slot = slots_[id];
    if (slot.cq == nullptr || slot.cq->page() != page) return Rung::kNoSuchCq;
    const std::uint64_t wrap = std::uint64_t{8} * slot.cq->entries();
    slot.last_index =
        static_cast<std::uint32_t>(((relative ? slot.last_index : 0ULL) + index) % wrap);
    return slot.cq->ring_doorbell(slot.last_index, arm) ? Rung::kDone : Rung::kOverrun;
}

bool CqTable::moderate(std::uint32_t id, DoorbellPage page, std::uint64_t value) {
    CompletionQueue* const cq = find(Cqn(id));
    if (cq == nullptr || cq->page() != page) return false;
    CompletionQueue::Moderation moderation = cq->moderation();
    if ((value & MANA_HW_DB_MODERATION_USEC_VALID) != 0)
        moderation.usec = static_cast<std::uint16_t>((value & MANA_HW_DB_MODERATION_USEC) >>
                                                     MANA_HW_DB_MODERATION_USEC_SHIFT);
    if ((value & MANA_HW_DB_MODERATION_COUNT_VALID) != 0)
        moderation.completions = static_cast<std::uint8_t>((value & MANA_HW_DB_MODERATION_COUNT) >>
                                                           MANA_HW_DB_MODERATION_COUNT_SHIFT);
    cq->moderate(moderation);
    return true;
}

void CqTable::remove(const CompletionQueue& cq) {
    // One from before a reset is not here any more.
    if (find(cq.id()) != &cq) return;
    slots_[cq.id().value()] = {};
    ids_.give_back(cq.id().value());
}

void CqTable::save(base::StateWriter& out) const {
    ids_.save(out);
    out.count(used());
    for (const Slot& slot : slots_) {
        if (slot.cq == nullptr) continue;
        const CompletionQueue& cq = *slot.cq;
        out(cq.id(), cq.page(), cq.eq() != nullptr ? cq.eq()->id() : Eqn(0), cq.ring().bytes(),
            cq.has_record(), slot.last_index);
        cq.ring().region().save(out);
        cq.save(out);
    }
}

void CqTable::load(base::StateReader& in, const DoorbellPages& pages, const EqTable& eqs) {
    ids_.load(in);
    const std::size_t count = in.count();
    in.require(count == ids_.used(), "CQs without a number");
    for (std::size_t i = 0; i < count && in.ok(); ++i) load_one(in, pages, eqs);
    in.require(ids_.all_claimed(), "number of no CQ");
}

void CqTable::load_one(base::StateReader& in, const DoorbellPages& pages, const EqTable& eqs) {
    Cqn id;
    DoorbellPage number;
    Eqn eqn;
    std::uint64_t bytes = 0;
    bool with_record = false;
    std::uint32_t last_index = 0;
    in(id, number, eqn, bytes, with_record, last_index);
    auto region = DmaRegion::load(in, account_);
    auto charge = account_.charge(kCost);
    if (!charge) in.refuse(charge.error());
    auto page = pages.held(number);
    const auto eq = eqs.find(eqn);
    in.require(ids_.claim(id.value()) && page && (eq || eqn == Eqn(0)) && region != nullptr &&
                   holds(*region, bytes, with_record),
               "CQ that cannot be");
    if (!in.ok()) return;
    if (const auto room = make_slot(id); !room) {
        in.refuse(room.error());
        return;
    }
    const std::shared_ptr<const DmaRegion> shared = std::move(region);
    auto cq = make_handle<CompletionQueue>(id, std::move(page), Ring(memory_, shared, bytes),
                                           eq ? *eq : nullptr, false, this);
    if (with_record) cq->restore_record(std::make_unique<SharedWords>(memory_, shared, bytes));
    slots_[id.value()] = {cq.get(), last_index, std::move(*charge)};
    cq->load(in);
    if (id.value() >= restored_.size()) restored_.resize(id.value() + 1);
    restored_[id.value()] = std::move(cq);
}

void CqTable::reset() {
    drop_restored();
    events_.clear();
    std::vector<Slot>().swap(slots_);
    slots_charge_ = {};
    ids_ = IdPool(1, max_cqs_ - 1);
}

}  // namespace openmana::gdma
