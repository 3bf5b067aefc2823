// SPDX-License-Identifier: Apache-2.0
#include "rnic/stock_queues.h"

#include <bit>
#include <optional>
#include <utility>

#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

namespace {

gdma::Ring make_ring(Datapath& datapath, std::unique_ptr<gdma::DmaRegion> region) {
    // What the region has beyond a power of two is not part of the ring (RNIC 3.3).
    const std::uint64_t bytes = std::bit_floor(region->length());
    return {datapath.memory, std::move(region), bytes};
}

std::optional<gdma::Ring> make_read_ring(Datapath& datapath,
                                         std::unique_ptr<gdma::DmaRegion> region) {
    if (!region) return std::nullopt;
    return make_ring(datapath, std::move(region));
}

}  // namespace

StockQueues::StockQueues(Qp& qp, Regions regions)
    : sends(qp, make_ring(qp.datapath, std::move(regions.send)),
            make_read_ring(qp.datapath, std::move(regions.read_scatter))),
      receives(qp, make_ring(qp.datapath, std::move(regions.receive))),
      errors(qp, sends, receives),
      held_(std::move(regions.held)) {}

}  // namespace openmana::rnic
