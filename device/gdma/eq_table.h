// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/guest_memory.h"
#include "base/memory_account.h"
#include "base/result.h"
#include "gdma/event_queue.h"
#include "gdma/handle.h"
#include "gdma/id_pool.h"
#include "gdma/region_table.h"
#include "gdma/types.h"

namespace openmana::gdma {

/// The event queues of a function. A CQ holds its EQ, an adapter the one for its own events: such
/// an EQ does not go. On the executor; visitors use EQs that others hold.
class EqTable {
public:
    /// All outlive it; `account` pays.
    EqTable(const base::GuestMemory& memory, pci::IrqSink& irq, base::MemoryAccount& account,
            std::uint32_t max_eqs)
        : memory_(memory), irq_(irq), account_(account), max_eqs_(max_eqs), ids_(1, max_eqs) {}

    [[nodiscard]] base::Result<Handle<EventQueue>> create(DeviceType owner, RegionClaim region,
                                                          std::uint64_t bytes,
                                                          Handle<PageGrant> page, unsigned vector);
    /// Whether a region can hold an EQ of so many bytes.
    [[nodiscard]] static bool fits(const DmaRegion& region, std::uint64_t bytes);
    /// kBusy while anybody holds it.
    base::Result<void> destroy(Eqn id, DeviceType owner);
    /// Those of a device that nobody holds. False if some are left.
    bool destroy_unused(DeviceType owner);
    [[nodiscard]] base::Result<Handle<EventQueue>> find(Eqn id) const;
    [[nodiscard]] base::Result<Handle<EventQueue>> find(Eqn id, DeviceType owner) const;
    /// A doorbell; `relative`: the index counts on from the last one. False if it is none of this
    /// page.
    [[nodiscard]] bool ring(std::uint32_t id, DoorbellPage page, std::uint32_t index, bool arm,
                            bool relative);
    [[nodiscard]] std::uint32_t used() const { return ids_.used(); }
    void reset();
    void save(base::StateWriter& out) const;
    /// `pages` are there by then.
    void load(base::StateReader& in, const DoorbellPages& pages);
    /// All objects are there by then: they pay for what is held back of theirs.
    void finish_load(base::StateReader& in);

private:
    struct Slot {
        Handle<EventQueue> eq;
        DeviceType owner = kGuest;
        std::uint32_t last_index = 0;  // of the last doorbell, for short ones
        base::MemoryAccount::Charge charge;
    };
    void load_one(base::StateReader& in, const DoorbellPages& pages);

    const base::GuestMemory& memory_;
    pci::IrqSink& irq_;
    base::MemoryAccount& account_;
    const std::uint32_t max_eqs_;
    IdPool ids_;
    std::vector<Slot> slots_;          // by id
    std::uint64_t loaded_events_ = 0;  // that are held back, of a state
};

}  // namespace openmana::gdma
