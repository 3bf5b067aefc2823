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

ExtQueues::ExtQueues(Qp& qp, Layout made_of)
    : record(qp.datapath.memory, made_of.region,
             std::uint64_t{made_of.sq_bytes} + made_of.rq_bytes),
      sends(qp, record, gdma::Ring(qp.datapath.memory, made_of.region, made_of.sq_bytes),
            made_of.privileged),
      receives(qp, record, made_of.srq, make_receive_ring(qp.datapath, made_of), made_of.fresh),
      errors(qp, sends, receives),
      layout(std::move(made_of)) {}

}  // namespace openmana::rnic
