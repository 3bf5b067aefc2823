// SPDX-License-Identifier: Apache-2.0
#include "eth/queue_parts.h"

#include <memory>
#include <utility>

namespace openmana::eth {

void QueueParts::save(base::StateWriter& out, std::uint64_t handle, std::uint32_t id,
                      const QueueOwner& owner, const gdma::Ring& ring,
                      const gdma::CompletionQueue& cq, bool packets) {
    out(handle, id, owner.pd->id, owner.page->page, cq.id(), packets, ring.bytes());
    ring.region().save(out);
}

std::optional<QueueParts> QueueParts::load(base::StateReader& in, gdma::Function& function,
                                           gdma::DeviceType device) {
    const auto handle = in.get<std::uint64_t>();
    const auto id = in.get<std::uint32_t>();
    const auto pd = in.get<gdma::Pdn>();
    const auto page = in.get<gdma::DoorbellPage>();
    const auto cqn = in.get<gdma::Cqn>();
    const bool packets = in.get<bool>();
    const auto bytes = in.get<std::uint64_t>();
    std::shared_ptr<const gdma::DmaRegion> region = gdma::DmaRegion::load(in, function.account());
    auto owner = QueueOwner::find(function, device, pd, page);
    auto cq = function.cqs().restored(cqn);
    // Nobody else may have it: of those who read a state, and this.
    constexpr std::uint32_t kHolders = 2;
    in.require(owner && cq && !cq->has_record() && cq->page() == page &&
                   cq->holders() == kHolders && region != nullptr && ring_fits(bytes, kWqeUnit) &&
                   bytes <= region->length(),
               "work queue that cannot be");
    if (!in.ok()) return std::nullopt;
    return QueueParts{handle,
                      id,
                      std::move(*owner),
                      gdma::Ring(function.memory(), std::move(region), bytes),
                      std::move(cq),
                      packets};
}

}  // namespace openmana::eth
