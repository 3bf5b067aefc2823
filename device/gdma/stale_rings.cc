// SPDX-License-Identifier: Apache-2.0
#include "gdma/stale_rings.h"

#include <memory>
#include <utility>

#include <mana/queue.h>

namespace openmana::gdma {
namespace {

Handle<PageGrant> page_of(std::uint32_t page) {
    return make_handle<PageGrant>(DoorbellPage(page), kGuest, false);
}

/// Where the next entry of a ring goes, modulo its eight laps: the owner bits of a lap end where
/// those of the lap before begin (GDMA 3.7). The last word of an entry has them in its highest
/// bits. A ring of zeros is as good as behind its eighth lap: it is where the first one begins.
std::uint64_t next_entry(const Ring& ring, std::size_t entry) {
    const std::uint64_t entries = ring.bytes() / entry;
    const auto owner_of = [&](std::uint64_t index) {
        std::uint32_t word = 0;
        (void)ring.read((index + 1) * entry - sizeof word,
                        std::as_writable_bytes(std::span(&word, 1)));
        return word >> MANA_HW_OWNER_SHIFT;
    };
    const std::uint32_t first = owner_of(0);
    std::uint64_t same = 0;  // as the first one
    std::uint64_t other = entries;
    while (other - same > 1) {
        const std::uint64_t middle = same + (other - same) / 2;
        (owner_of(middle) == first ? same : other) = middle;
    }
    return (first == 0 ? 8U : first) * entries + other;
}

}  // namespace

RingPlace place_of(const Ring& ring) {
    if (!ring.start()) return {};
    return {ring.start()->value(), ring.bytes()};
}

EqPlace place_of(const EventQueue& eq) {
    return {place_of(eq.ring()), eq.id().value(), eq.page().value(), eq.vector()};
}

CqPlace place_of(const CompletionQueue& cq) {
    return {place_of(cq.ring()), cq.id().value(), cq.page().value()};
}

Ring ring_at(const base::GuestMemory& memory, const RingPlace& place) {
    constexpr unsigned kOnePage = 63;
    auto region =
        std::make_unique<DmaRegion>(place.bytes, 0, kOnePage, std::span(&place.address, 1));
    return {memory, std::move(region), place.bytes};
}

Handle<EventQueue> stale_eq(const base::GuestMemory& memory, pci::IrqSink& irq,
                            const EqPlace& place) {
    Ring ring = ring_at(memory, place.ring);
    const std::uint64_t producer = next_entry(ring, sizeof(mana_hw_eqe));
    auto eq = make_handle<EventQueue>(Eqn(place.id), page_of(place.page), std::move(ring), irq,
                                      place.vector);
    eq->go_on_at(producer);
    return eq;
}

Handle<CompletionQueue> stale_cq(const base::GuestMemory& memory, const CqPlace& place,
                                 Handle<EventQueue> eq) {
    Ring ring = ring_at(memory, place.ring);
    const std::uint64_t producer = next_entry(ring, sizeof(mana_hw_cqe));
    auto cq = make_handle<CompletionQueue>(Cqn(place.id), page_of(place.page), std::move(ring),
                                           std::move(eq), true);
    cq->go_on_at(producer);
    return cq;
}

}  // namespace openmana::gdma
