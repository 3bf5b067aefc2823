// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "gdma/event_queue.h"
#include "gdma/handle.h"
#include "rnic/counters.h"
#include "roce/packet.h"

namespace openmana::rnic {

/// What an adapter tells its host by events.
class AdapterEvents {
public:
    explicit AdapterEvents(RnicCounters& counters) : counters_(counters) {}
    /// The EQ for them, which the adapter holds from now on; null: none.
    void use(gdma::Handle<gdma::EventQueue> eq) { eq_ = std::move(eq); }
    [[nodiscard]] const gdma::EventQueue* eq() const { return eq_.get(); }
    /// A QP is in ERR.
    void qp_fatal(roce::Qpn qpn);
    /// An event of the extension: `number` is that of IB, `id` that of the object.
    void extension(std::uint32_t id, std::uint32_t number);
    void extension(roce::Qpn qpn, std::uint32_t number) { extension(qpn.value(), number); }

    // An object is going away, and with it what is held back of its events.
    void forget_qp(roce::Qpn qpn);
    void forget_cq(std::uint32_t id);
    void forget_srq(std::uint32_t id);
    /// Kinds of events that may be held back of one.
    static constexpr std::uint64_t kOfQp = 7;
    static constexpr std::uint64_t kOfSrq = 2;

private:
    void forget(std::uint32_t id, std::span<const std::uint32_t> numbers);

    RnicCounters& counters_;
    gdma::Handle<gdma::EventQueue> eq_;
};

}  // namespace openmana::rnic
