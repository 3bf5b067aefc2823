// SPDX-License-Identifier: Apache-2.0
#include "eth/work_queues.h"

#include <utility>

namespace openmana::eth {

base::Result<gdma::Handle<gdma::CompletionQueue>> WorkQueues::make_cq(NewQueue& parts) {
    TRY(auto cq, function_.cqs().create(std::move(parts.cq_region), parts.cq_bytes,
                                        std::move(parts.eq), parts.owner.page, {}));
    cq->moderate(parts.moderation);
    return cq;
}

base::Result<MadeQueue> WorkQueues::make_send(NewQueue parts) {
    const gdma::DoorbellPage page = parts.owner.page->page;
    TRY(gdma::SqIds ids, function_.sqs().allocate(1, 1));
    TRY(auto cq, make_cq(parts));
    const MadeQueue made{ids.first().value(), cq->id().value(), new_handle()};
    auto queue = std::make_unique<SendQueue>(
        made.handle, std::move(ids), std::move(parts.owner),
        gdma::Ring(function_.memory(), parts.wq_region.take(), parts.wq_bytes), std::move(cq),
        function_.keys(), transmitter_, counters_,
        parts.packets ? SqUser::kPackets : SqUser::kInterface);
    if (gdma::FunctionLedger* const ledger = function_.ledger()) queue->use_ledger(*ledger);
    function_.sqs().connect(queue->id(), page, queue.get());
    sqs_.emplace(made.handle, std::move(queue));
    return made;
}

base::Result<MadeQueue> WorkQueues::make_receive(NewQueue parts) {
    const gdma::DoorbellPage page = parts.owner.page->page;
    TRY(gdma::RqIds ids, function_.rqs().allocate(1, 1));
    TRY(auto cq, make_cq(parts));
    const MadeQueue made{ids.first().value(), cq->id().value(), new_handle()};
    auto queue = std::make_unique<ReceiveQueue>(
        made.handle, completions_, std::move(ids), std::move(parts.owner),
        gdma::Ring(function_.memory(), parts.wq_region.take(), parts.wq_bytes), std::move(cq),
        function_.keys(), counters_, parts.packets);
    function_.rqs().connect(queue->id(), page, queue.get());
    rqs_.emplace(made.handle, std::move(queue));
    return made;
}

SendQueue* WorkQueues::find_send(std::uint64_t handle) const {
    const auto found = sqs_.find(handle);
    return found != sqs_.end() ? found->second.get() : nullptr;
}

ReceiveQueue* WorkQueues::find_receive(std::uint64_t handle) const {
    const auto found = rqs_.find(handle);
    return found != rqs_.end() ? found->second.get() : nullptr;
}

bool WorkQueues::destroy_send(std::uint64_t handle) {
    const base::Gate::Recess recess(function_.gate());
    return sqs_.erase(handle) != 0;
}

bool WorkQueues::destroy_receive(std::uint64_t handle) {
    const auto found = rqs_.find(handle);
    if (found == rqs_.end()) return false;
    steering_.forget(*found->second);
    const base::Gate::Recess recess(function_.gate());
    rqs_.erase(found);
    return true;
}

void WorkQueues::clear() {
    completions_.clear();
    const base::Gate::Recess recess(function_.gate());
    sqs_.clear();
    rqs_.clear();
}

}  // namespace openmana::eth
