// SPDX-License-Identifier: Apache-2.0
#include "rnic/ext_queues.h"

#include <optional>
#include <utility>

#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

namespace {

std::optional<ReceiveRing> make_receive_ring(Datapath& datapath, const ExtQueues::Layout& layout) {
    if (layout.rq_bytes == 0) return std::nullopt;
    return ReceiveRing(gdma::Ring(datapath.memory, layout.region, layout.rq_bytes, layout.sq_bytes),
                       layout.rq_stride);
}

}  // namespace

ExtQueues::ExtQueues(Qp& qp, Layout layout)
    : record(qp.datapath.memory, layout.region, std::uint64_t{layout.sq_bytes} + layout.rq_bytes),
      sends(qp, record, gdma::Ring(qp.datapath.memory, layout.region, layout.sq_bytes),
            layout.privileged),
      receives(qp, record, std::move(layout.srq), make_receive_ring(qp.datapath, layout)),
      errors(qp, sends, receives) {}

}  // namespace openmana::rnic
