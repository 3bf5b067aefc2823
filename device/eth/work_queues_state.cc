// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "eth/queue_parts.h"
#include "eth/work_queues.h"

namespace openmana::eth {
namespace {

/// With the positions of their last doorbells; in the order of their handles, so that a state is
/// always written alike.
template <typename Queues, typename Table>
void save_all(base::StateWriter& out, const Queues& queues, Table& table) {
    std::vector<std::uint64_t> handles;
    for (const auto& [handle, queue] : queues) handles.push_back(handle);
    std::sort(handles.begin(), handles.end());
    out.count(handles.size());
    for (const std::uint64_t handle : handles) {
        const auto& queue = *queues.at(handle);
        out(table.position(queue.id()));
        queue.save(out);
    }
}

/// Not one of those that others see, or that are kept back.
template <typename Id>
bool is_own(const gdma::WorkQueues<Id>& table, std::uint32_t id) {
    return id >= gdma::QueueIdPool::kBlock && id < table.first_public().value();
}

}  // namespace

void WorkQueues::save(base::StateWriter& out) const {
    out(next_handle_);
    save_all(out, sqs_, function_.sqs());
    save_all(out, rqs_, function_.rqs());
}

bool WorkQueues::is_free(std::uint64_t handle) const {
    return handle >= kFirstHandle && handle < next_handle_ && find_send(handle) == nullptr &&
           find_receive(handle) == nullptr;
}

void WorkQueues::load(base::StateReader& in, gdma::DeviceType device, std::size_t most,
                      bool packets) {
    in(next_handle_);
    in.require(next_handle_ >= kFirstHandle && next_handle_ <= INT64_MAX,
               "handles begin elsewhere");
    const std::size_t sends = in.count();
    in.require(sends <= most, "more SQs than there may be");
    for (std::size_t i = 0; i < sends && in.ok(); ++i) load_send(in, device, packets);
    const std::size_t receives = in.count();
    in.require(receives <= most, "more RQs than there may be");
    for (std::size_t i = 0; i < receives && in.ok(); ++i) load_receive(in, device, packets);
}

void WorkQueues::load_send(base::StateReader& in, gdma::DeviceType device, bool packets) {
    const auto position = in.get<std::uint32_t>();
    auto parts = QueueParts::load(in, function_, device);
    in.require(parts && is_free(parts->handle) && is_own(function_.sqs(), parts->id),
               "SQ that cannot be");
    if (!in.ok()) return;
    in.require(packets || !parts->packets, "extensions that this NIC does not have");
    if (!in.ok()) return;
    auto ids = function_.sqs().adopt(in, gdma::Sqn(parts->id), 1);
    if (!in.ok()) return;
    const gdma::DoorbellPage page = parts->owner.page->page;
    auto queue = std::make_unique<SendQueue>(
        parts->handle, std::move(ids), std::move(parts->owner), std::move(parts->ring),
        std::move(parts->cq), function_.keys(), transmitter_, counters_,
        parts->packets ? SqUser::kPackets : SqUser::kInterface);
    function_.sqs().connect(queue->id(), page, queue.get());
    function_.sqs().position(queue->id()) = position;
    queue->load(in);
    if (gdma::FunctionLedger* const ledger = function_.ledger()) queue->use_ledger(*ledger);
    sqs_.emplace(parts->handle, std::move(queue));
}

void WorkQueues::load_receive(base::StateReader& in, gdma::DeviceType device, bool packets) {
    const auto position = in.get<std::uint32_t>();
    auto parts = QueueParts::load(in, function_, device);
    in.require(parts && is_free(parts->handle) && is_own(function_.rqs(), parts->id),
               "RQ that cannot be");
    if (!in.ok()) return;
    in.require(packets || !parts->packets, "extensions that this NIC does not have");
    if (!in.ok()) return;
    auto ids = function_.rqs().adopt(in, gdma::Rqn(parts->id), 1);
    if (!in.ok()) return;
    const gdma::DoorbellPage page = parts->owner.page->page;
    auto queue = std::make_unique<ReceiveQueue>(
        parts->handle, completions_, std::move(ids), std::move(parts->owner),
        std::move(parts->ring), std::move(parts->cq), function_.keys(), counters_, parts->packets);
    function_.rqs().connect(queue->id(), page, queue.get());
    function_.rqs().position(queue->id()) = position;
    queue->load(in);
    rqs_.emplace(parts->handle, std::move(queue));
}

}  // namespace openmana::eth
