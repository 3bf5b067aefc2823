// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "gdma/handle.h"
#include "gdma/ring.h"
#include "rnic/ext_errors.h"
#include "rnic/ext_receives.h"
#include "rnic/ext_sends.h"
#include "rnic/send_queue.h"
#include "rnic/shared_receive_queue.h"

namespace openmana::rnic {

/// The queues of a QP of the extension.
struct ExtQueues {
    /// Rings and record lie in `region` one behind the other.
    struct Layout {
        std::shared_ptr<const gdma::DmaRegion> region;
        std::uint32_t sq_bytes = 0;
        std::uint32_t rq_bytes = 0;  ///< 0: `srq`
        std::uint32_t rq_stride = 0;
        gdma::Handle<SharedReceiveQueue> srq;
        bool privileged = false;
        bool fresh = true;  ///< else they are as a state says, and so is the record
    };
    ExtQueues(Qp& qp, Layout layout);
    static constexpr std::uint16_t kSendBytes = 192;  ///< see Qp::requester_memory

    // The state (format_state.cc): first what queues are made of, which the adapter reads, then
    // where they stand.
    void save_layout(base::StateWriter& out) const;
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);

    // What sends need first: see Qp.
    const gdma::SharedWords record;
    ExtSends sends;
    ExtReceives receives;
    ExtErrors errors;
    const Layout layout;
};
static_assert(sizeof(gdma::SharedWords) + sizeof(ExtSends) - sizeof(SendWqe) <=
              ExtQueues::kSendBytes);

}  // namespace openmana::rnic
