// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
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
    /// A QP is in ERR.
    void qp_fatal(roce::Qpn qpn);
    /// An event of the extension: `number` is that of IB, `id` that of the object.
    void extension(std::uint32_t id, std::uint32_t number);
    void extension(roce::Qpn qpn, std::uint32_t number) { extension(qpn.value(), number); }

private:
    RnicCounters& counters_;
    gdma::Handle<gdma::EventQueue> eq_;
};

}  // namespace openmana::rnic
