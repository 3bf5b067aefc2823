// SPDX-License-Identifier: Apache-2.0
// Rings that outlive the process that served them: where they are, and how another one goes on.
#pragma once

#include <cstdint>

#include "base/guest_memory.h"
#include "gdma/completion_queue.h"
#include "gdma/event_queue.h"
#include "gdma/handle.h"
#include "gdma/ring.h"
#include "pci/function_model.h"

namespace openmana::gdma {

/// Guest memory in one piece. Without bytes there is none.
struct RingPlace {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
};

/// An EQ as its driver knows it.
struct EqPlace {
    RingPlace ring;
    std::uint32_t id = 0;
    std::uint32_t page = 0;
    std::uint32_t vector = 0;
};

/// The same of a CQ.
struct CqPlace {
    RingPlace ring;
    std::uint32_t id = 0;
    std::uint32_t page = 0;
};

/// Nothing has no bytes: of a ring in several pieces.
[[nodiscard]] RingPlace place_of(const Ring& ring);
[[nodiscard]] EqPlace place_of(const EventQueue& eq);
[[nodiscard]] CqPlace place_of(const CompletionQueue& cq);

[[nodiscard]] Ring ring_at(const base::GuestMemory& memory, const RingPlace& place);
/// Goes on behind the entries that its ring holds. Armed, as nobody knows better.
[[nodiscard]] Handle<EventQueue> stale_eq(const base::GuestMemory& memory, pci::IrqSink& irq,
                                          const EqPlace& place);
/// The same. `eq` gets its events.
[[nodiscard]] Handle<CompletionQueue> stale_cq(const base::GuestMemory& memory,
                                               const CqPlace& place, Handle<EventQueue> eq);
/// The number of a CQ's next entry, as that of one that goes on counts it; its parity is the same.
[[nodiscard]] inline std::uint64_t producer_of(const CompletionQueue& cq) {
    return cq.entries() + cq.posted();
}

}  // namespace openmana::gdma
