// SPDX-License-Identifier: Apache-2.0
#include "eth/stale_send_queues.h"

#include <mana/eth.h>
#include <mana/queue.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "eth/transmit_offload.h"
#include "gdma/doorbell_value.h"
#include "gdma/wqe.h"

namespace openmana::eth {

StaleSendQueues::StaleSendQueues(gdma::Function& function, gdma::FunctionLedger& ledger)
    : function_(function), turn_(function.executor(), [this] { work(); }) {
    for (gdma::SendQueueLedger& queue : ledger.send_queues)
        if (queue.queue.get().there) adopt(queue);
    // The guest hears of it when the executor works, and not before.
    if (!queues_.empty()) turn_.arm({});
}

gdma::Handle<gdma::EventQueue> StaleSendQueues::eq_at(const gdma::EqPlace& place) {
    const auto found =
        std::ranges::find_if(eqs_, [&](const auto& eq) { return eq->id().value() == place.id; });
    if (found != eqs_.end()) return *found;
    return eqs_.emplace_back(gdma::stale_eq(function_.memory(), function_.irq(), place));
}

void StaleSendQueues::adopt(gdma::SendQueueLedger& ledger) {
    const gdma::SendQueueLedger::Queue& queue = ledger.queue.get();
    auto cq = gdma::stale_cq(function_.memory(), queue.cq, eq_at(queue.eq));
    const std::uint32_t done =
        ledger.done[gdma::producer_of(*cq) % 2].load(std::memory_order_acquire);
    queues_.push_back({.ledger = ledger,
                       .ring = gdma::ring_at(function_.memory(), queue.ring),
                       .cq = std::move(cq),
                       .id = queue.id,
                       .posted = ledger.posted.load(std::memory_order_acquire),
                       .done = done});
}

/// The event of an entry may not have come to its driver. One about a CQ without new entries harms
/// no driver of an interface.
void StaleSendQueues::begin() {
    begun_ = true;
    OM_INFO("send queues left: nic={} count={}", function_.config().name, queues_.size());
    for (const Queue& queue : queues_)
        queue.cq->eq()->post(gdma::EqeType::kCompletion, {queue.cq->id().value(), 0, 0});
}

void StaleSendQueues::work() {
    if (!begun_) begin();
    std::uint32_t left = kWqesPerTurn;
    for (Queue& queue : queues_)
        for (; queue.done != queue.posted; --left) {
            if (left == 0) {
                turn_.arm({});
                return;
            }
            complete_next(queue);
        }
}

/// Where a WQE makes no sense nobody knows where the next one starts.
void StaleSendQueues::complete_next(Queue& queue) {
    const auto wqe = gdma::Wqe::fetch(queue.ring, queue.done, queue.posted - queue.done,
                                      gdma::Wqe::kMaxSendBytes);
    if (!wqe) {
        queue.done = queue.posted;
        return;
    }
    queue.done += wqe->size();
    if (wants_no_completion(*wqe)) return;
    mana_hw_eth_tx_cqe cqe{};
    cqe.type = MANA_HW_ETH_CQE_TX_OK | MANA_HW_ETH_CQE_CLIENT;
    cqe.wqe_offset = static_cast<std::uint32_t>(wqe->position() % queue.ring.bytes());
    queue.ledger.set_done(gdma::producer_of(*queue.cq) + 1, queue.done);
    queue.cq->post(std::as_bytes(std::span(&cqe, 1)), queue.id, true);
}

bool StaleSendQueues::ring(std::uint64_t offset, std::uint64_t value) {
    const gdma::DoorbellValue doorbell(value);
    const std::uint64_t page = offset / MANA_HW_PAGE_BYTES;
    const auto find = [&](auto&& is) {
        const auto found = std::ranges::find_if(queues_, is);
        return found != queues_.end() ? &*found : nullptr;
    };
    switch (offset % MANA_HW_PAGE_BYTES) {
        case MANA_HW_DB_SQ: {
            Queue* const queue = find([&](const Queue& each) {
                return each.id == doorbell.id && each.cq->page().value() == page;
            });
            if (queue == nullptr) return false;
            if (doorbell.position - queue->done > queue->ring.bytes()) return true;
            queue->posted = doorbell.position;
            queue->ledger.posted.store(doorbell.position, std::memory_order_release);
            work();
            return true;
        }
        case MANA_HW_DB_CQ: {
            Queue* const queue = find([&](const Queue& each) {
                return each.cq->id().value() == doorbell.id && each.cq->page().value() == page;
            });
            if (queue != nullptr) (void)queue->cq->ring_doorbell(doorbell.index, doorbell.arm);
            return queue != nullptr;
        }
        case MANA_HW_DB_EQ: {
            const auto eq = std::ranges::find_if(eqs_, [&](const auto& each) {
                return each->id().value() == doorbell.eq_id && each->page().value() == page;
            });
            if (eq == eqs_.end()) return false;
            (*eq)->ring_doorbell(doorbell.index, doorbell.arm);
            return true;
        }
        default:
            return false;
    }
}

}  // namespace openmana::eth
