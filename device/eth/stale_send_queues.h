// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/executor.h"
#include "gdma/completion_queue.h"
#include "gdma/event_queue.h"
#include "gdma/function.h"
#include "gdma/function_ledger.h"
#include "gdma/handle.h"
#include "gdma/ring.h"

namespace openmana::eth {

/// The send queues of a vPort whose process has ended. Their driver takes the interface down when
/// the NIC is reset, and waits up to 120 s for what it has handed over before (6.12 as well
/// as 7.2). So all of it is completed and goes nowhere, as with the link down. On the executor.
class StaleSendQueues {
public:
    /// WQEs of one turn.
    static constexpr std::uint32_t kWqesPerTurn = 64;

    /// Goes on behind what the ledger says, which the rings complete. Both outlive it.
    StaleSendQueues(gdma::Function& function, gdma::FunctionLedger& ledger);
    StaleSendQueues(const StaleSendQueues&) = delete;
    StaleSendQueues& operator=(const StaleSendQueues&) = delete;

    /// A doorbell of 64 bits, at an offset from page 0 on. False if it is none of theirs.
    bool ring(std::uint64_t offset, std::uint64_t value);

private:
    struct Queue {
        gdma::SendQueueLedger& ledger;
        gdma::Ring ring;
        gdma::Handle<gdma::CompletionQueue> cq;
        std::uint32_t id;
        std::uint32_t posted;
        std::uint32_t done;
    };
    [[nodiscard]] gdma::Handle<gdma::EventQueue> eq_at(const gdma::EqPlace& place);
    void adopt(gdma::SendQueueLedger& ledger);
    void begin();
    void work();
    static void complete_next(Queue& queue);

    gdma::Function& function_;
    std::vector<gdma::Handle<gdma::EventQueue>> eqs_;
    std::vector<Queue> queues_;
    base::Timer turn_;
    bool begun_ = false;
};

}  // namespace openmana::eth
