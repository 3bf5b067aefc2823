// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>

#include "base/handover_mutex.h"
#include "base/memory_account.h"
#include "gdma/doorbell_pages.h"
#include "gdma/handle.h"
#include "gdma/ring.h"
#include "gdma/types.h"
#include "pci/function_model.h"

namespace openmana::gdma {

enum class EqeType : std::uint8_t {
    kCompletion = 3,
    kTest = 64,
    kHwcInitEqDb = 129,
    kHwcInitData = 130,
    kHwcInitDone = 131,
    kReconfigData = 133,
    kSocService = 134,
    kHwcResetRequest = 135,
    kQpFatal = 176,
};

/// An event queue (GDMA 3.6, 3.10): born armed, one MSI-X message per arming. `post` from any
/// thread that is on the executor or visits the function; the lock orders last of all (QP < CQ <
/// EQ).
class EventQueue final : public Held {
public:
    EventQueue(Eqn id, Handle<PageGrant> page, Ring ring, pci::IrqSink& irq, unsigned vector);

    [[nodiscard]] Eqn id() const { return id_; }
    [[nodiscard]] DoorbellPage page() const { return page_; }
    [[nodiscard]] unsigned vector() const { return vector_; }
    [[nodiscard]] std::uint32_t entries() const { return entries_; }
    /// Appends an EQE, or holds it back while the consumer has left no free slot; then interrupts
    /// if armed.
    void post(EqeType type, std::array<std::uint32_t, 3> data);
    /// Before anything is posted: the next EQE goes there, armed, and nothing waits to be read.
    void go_on_at(std::uint64_t producer);
    /// Running numbers of the next entry, and of the first that its consumer has not taken.
    [[nodiscard]] std::uint64_t producer() const;
    [[nodiscard]] std::uint64_t consumer() const;
    /// EQ doorbell: consumer index mod 8N and the arm bit; interrupts at once if entries are
    /// pending.
    void ring_doorbell(std::uint32_t index, bool arm);
    /// Drops an event that is held back, if there is one, since its object is going away.
    /// `number`: the second word, as it was posted.
    void forget(EqeType type, std::uint32_t object, std::uint32_t number = 0);
    /// All but id, page, vector and ring, which it was made with.
    void save(base::StateWriter& out) const;
    /// With so many events that are held back at most.
    void load(base::StateReader& in, std::uint64_t most);
    /// Events that are held back.
    [[nodiscard]] std::uint64_t held() const;
    [[nodiscard]] const Ring& ring() const { return ring_; }
    /// What one that is held back takes: who may have it posted pays for that beforehand.
    [[nodiscard]] static constexpr std::uint64_t held_cost() {
        return base::node_cost(sizeof(Event)) + base::node_cost(sizeof(Names::value_type));
    }
    /// What an EQ takes, with events that are its own: tests, and links that go up and down.
    [[nodiscard]] static constexpr std::uint64_t cost() {
        return base::heap_cost(sizeof(EventQueue)) + 3 * held_cost();
    }

private:
    struct Event {
        EqeType type;
        std::array<std::uint32_t, 3> data;
    };
    static std::uint64_t name_of(const Event& event) {
        // The second word tells the events of one object apart (docs/extensions.md).
        return std::uint64_t{static_cast<std::uint8_t>(event.type)} << 32 |
               std::uint64_t{event.data[1] & 0xffff} << 40 | event.data[0];
    }
    using Events = std::list<Event>;
    using Names = std::map<std::uint64_t, Events::iterator>;
    [[nodiscard]] bool full_locked() const { return producer_ - consumer_ >= entries_; }
    void append_locked(const Event& event);
    void hold_locked(const Event& event);
    [[nodiscard]] bool flush_locked();
    [[nodiscard]] bool ring_locked(std::uint32_t index, bool arm);

    const Eqn id_;
    const DoorbellPage page_;
    const Handle<PageGrant> grant_;
    pci::IrqSink& irq_;
    const unsigned vector_;
    mutable base::HandoverMutex mutex_;  // protects all below
    Ring ring_;
    std::uint32_t entries_;
    std::uint64_t producer_;
    std::uint64_t consumer_;
    bool armed_ = true;
    // One event per type and object: bounded by objects, which forget theirs. Each step is a small
    // one, however many there are.
    Events held_;  // in order
    Names names_;  // of those
};

}  // namespace openmana::gdma
