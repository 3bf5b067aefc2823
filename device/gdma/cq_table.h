// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/gate.h"
#include "base/guest_memory.h"
#include "base/memory_account.h"
#include "base/result.h"
#include "gdma/completion_queue.h"
#include "gdma/doorbell_pages.h"
#include "gdma/eq_table.h"
#include "gdma/handle.h"
#include "gdma/id_pool.h"
#include "gdma/postponed.h"
#include "gdma/region_table.h"
#include "gdma/types.h"

namespace openmana::gdma {

/// The completion queues of a function by their ids, for doorbells. The queues that complete to a
/// CQ hold it, and so does its device; when the last of them lets go of it, its id is free (ids
/// come back late). The executor's alone: visitors use CQs that queues hold.
class CqTable {
public:
    /// All outlive it; `account` pays.
    CqTable(base::Executor& executor, base::Gate& gate, const base::GuestMemory& memory,
            base::MemoryAccount& account, std::uint32_t max_cqs)
        : gate_(gate),
          memory_(memory),
          account_(account),
          max_cqs_(max_cqs),
          ids_(1, max_cqs - 1),
          events_(executor, [this](std::uint64_t id) {
              CompletionQueue* const cq = find(Cqn(static_cast<std::uint32_t>(id)));
              if (cq != nullptr) cq->waited();
          }) {}

    struct Options {
        bool armed = false;
        bool with_record = false;  ///< behind the ring (docs/extensions.md)
    };
    /// The ring is the first `bytes` of the region. `eq` may be null.
    [[nodiscard]] base::Result<Handle<CompletionQueue>> create(RegionClaim region,
                                                               std::uint64_t bytes,
                                                               Handle<EventQueue> eq,
                                                               Handle<PageGrant> page,
                                                               Options options);
    /// Moves a CQ that has a record to the first `bytes` of another region, with the record behind
    /// them. Gives the consumer's new index. Visitors get in between its steps.
    base::Result<std::uint32_t> resize(CompletionQueue& cq, RegionClaim region,
                                       std::uint64_t bytes);
    [[nodiscard]] CompletionQueue* find(Cqn id) const;

    enum class Rung : std::uint8_t { kNoSuchCq, kDone, kOverrun };
    /// A doorbell; `relative`: the index counts on from the last one.
    [[nodiscard]] Rung ring(std::uint32_t id, DoorbellPage page, std::uint32_t index, bool arm,
                            bool relative);
    /// The moderation doorbell (GDMA 3.9), with its whole value. False if there is no such CQ on
    /// the page.
    [[nodiscard]] bool moderate(std::uint32_t id, DoorbellPage page, std::uint64_t value);
    /// Events of its CQs that wait, by Cqn. Also for visitors.
    [[nodiscard]] Postponed& events() { return events_; }
    /// The CQ ends.
    void remove(const CompletionQueue& cq);
    [[nodiscard]] std::uint32_t used() const { return ids_.used(); }
    void reset();
    void save(base::StateWriter& out) const;
    /// Pages and EQs are there by then. Until drop_restored() all are held; who held one takes it.
    void load(base::StateReader& in, const DoorbellPages& pages, const EqTable& eqs);
    /// Null if there is none.
    [[nodiscard]] Handle<CompletionQueue> restored(Cqn id) const {
        return id.value() < restored_.size() ? restored_[id.value()] : nullptr;
    }
    void drop_restored() { std::vector<Handle<CompletionQueue>>().swap(restored_); }

private:
    struct Slot {
        CompletionQueue* cq = nullptr;
        std::uint32_t last_index = 0;
        base::MemoryAccount::Charge charge;
    };
    [[nodiscard]] base::Result<void> make_slot(Cqn id);
    void load_one(base::StateReader& in, const DoorbellPages& pages, const EqTable& eqs);

    base::Gate& gate_;
    const base::GuestMemory& memory_;
    base::MemoryAccount& account_;
    const std::uint32_t max_cqs_;
    IdPool ids_;
    std::vector<Slot> slots_;  // by id
    base::MemoryAccount::Charge slots_charge_;
    std::vector<Handle<CompletionQueue>> restored_;  // by id, while a state is read
    Postponed events_;
};

}  // namespace openmana::gdma
