// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "base/memory_account.h"
#include "gdma/function.h"
#include "gdma/handle.h"
#include "gdma/ring.h"
#include "rnic/adapter_events.h"
#include "rnic/receive_ring.h"

namespace openmana::rnic {

/// A shared receive queue, which its QPs hold. Used by them, their visitors among them; its mutex
/// comes after those of responders and before those of CQs.
class SharedReceiveQueue final : public gdma::Held {
public:
    /// Its ring lies at the start of `region`, its record behind it.
    struct Layout {
        std::shared_ptr<const gdma::DmaRegion> region;
        std::uint32_t ring_bytes = 0;
        std::uint32_t stride = 0;
        std::uint32_t limit = 0;
    };
    SharedReceiveQueue(const base::GuestMemory& memory, AdapterEvents& events,
                       base::Counter& bad_records, std::uint32_t id, gdma::Handle<gdma::Pd> pd,
                       const Layout& layout, base::MemoryAccount::Charge charge);
    ~SharedReceiveQueue() { events_.forget_srq(id_); }
    [[nodiscard]] static constexpr std::uint64_t cost() {
        return base::heap_cost(sizeof(SharedReceiveQueue)) +
               AdapterEvents::kOfSrq * gdma::EventQueue::held_cost();
    }

    [[nodiscard]] std::uint32_t id() const { return id_; }
    [[nodiscard]] const gdma::Handle<gdma::Pd>& pd() const { return pd_; }
    [[nodiscard]] const gdma::Ring& ring() const { return receives_.ring(); }
    [[nodiscard]] std::uint32_t stride() const { return receives_.stride(); }
    /// Where it stands, into one that was just made of the same ring (format_state.cc).
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    ReceiveFormat::Take take(Receive& receive);
    void set_limit(std::uint32_t limit);
    [[nodiscard]] std::uint32_t limit() const;
    [[nodiscard]] std::uint32_t posted() const;
    [[nodiscard]] std::uint32_t entries() const { return receives_.entries(); }

private:
    AdapterEvents& events_;
    base::Counter& bad_records_;
    const std::uint32_t id_;
    const base::MemoryAccount::Charge charge_;
    const gdma::Handle<gdma::Pd> pd_;
    const gdma::SharedWords record_;
    mutable std::mutex mutex_;  // protects all below
    ReceiveRing receives_;
    std::uint32_t limit_;
    bool failed_ = false;
};

}  // namespace openmana::rnic
