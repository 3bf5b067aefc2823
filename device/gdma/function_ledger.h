// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/twofold.h"
#include "gdma/channel_ledger.h"
#include "gdma/stale_rings.h"

namespace openmana::gdma {

/// What is needed of a send queue to give its driver back what it has handed over, in memory that
/// may outlive the process. Written on the executor.
struct SendQueueLedger {
    struct Queue {
        RingPlace ring;
        CqPlace cq;
        EqPlace eq;
        std::uint32_t id = 0;
        bool there = false;
    };
    base::Twofold<Queue> queue;
    /// The position behind the WQE that the CQ's last entry is about, by the number of that entry
    /// modulo two, and written before it, as in ChannelLedger.
    std::array<std::atomic<std::uint32_t>, 2> done{};
    std::atomic<std::uint32_t> posted{0};  ///< what the driver has rung for

    void set_done(std::uint64_t cq_producer, std::uint32_t position) {
        done[cq_producer % 2].store(position, std::memory_order_release);
    }
};

/// Gives it back.
struct FreeSendQueueLedger {
    void operator()(SendQueueLedger* queue) const { queue->queue.set({}); }
};
using SendQueueLedgerClaim = std::unique_ptr<SendQueueLedger, FreeSendQueueLedger>;

/// What is needed of a function to reach its driver, and to let go of it, when all else of the
/// function is gone.
struct FunctionLedger {
    /// An interface of Linux has at most 64.
    static constexpr std::size_t kMostSendQueues = 128;

    ChannelLedger channel;
    std::array<SendQueueLedger, kMostSendQueues> send_queues;

    /// Of a send queue that is done with, and was rung for, so much; `cq_producer` is the number of
    /// its CQ's next entry. Null if its rings are in several pieces, or none is free.
    [[nodiscard]] SendQueueLedgerClaim claim(SendQueueLedger::Queue made, std::uint64_t cq_producer,
                                             std::uint32_t done, std::uint32_t posted) {
        if (made.ring.bytes == 0 || made.cq.ring.bytes == 0 || made.eq.ring.bytes == 0)
            return nullptr;
        for (SendQueueLedger& free : send_queues)
            if (!free.queue.get().there) {
                free.set_done(cq_producer, done);
                free.posted.store(posted, std::memory_order_release);
                made.there = true;
                free.queue.set(made);
                return SendQueueLedgerClaim(&free);
            }
        return nullptr;
    }
    void forget_send_queues() {
        for (SendQueueLedger& queue : send_queues)
            if (queue.queue.get().there) queue.queue.set({});
    }
    /// The driver has gone, or was reset.
    void forget_driver() {
        channel.channel.set({});
        forget_send_queues();
        for (auto& word : channel.shm) word.store(0, std::memory_order_relaxed);
    }
};

}  // namespace openmana::gdma
