// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "base/executor.h"
#include "base/guest_memory.h"
#include "base/result.h"
#include "gdma/channel_ledger.h"
#include "gdma/completion_queue.h"
#include "gdma/config.h"
#include "gdma/event_queue.h"
#include "gdma/ring.h"
#include "gdma/wqe.h"
#include "pci/function_model.h"

namespace openmana::gdma {

/// The hardware channel of a function whose process has ended with all that the driver had made:
/// asks the driver for a reset (GDMA 4.8), and refuses what it commands until the reset has come.
/// On the executor.
///
/// A driver that hears of the reset does not wait for answers any more, and gives the next command
/// at once; what it then has no more use for could be written into memory that it uses for
/// something else. So a command is answered only when no other has come for a while: then there is
/// somebody who waits.
class StaleHwc {
public:
    static constexpr base::Duration kQuiet = std::chrono::milliseconds(20);

    /// All outlive it.
    struct Parts {
        base::Executor& executor;
        const base::GuestMemory& memory;
        pci::IrqSink& irq;
        const FunctionConfig& config;
        FunctionCounters& counters;
    };
    /// Goes on behind what `ledger` says, which its rings complete.
    StaleHwc(const Parts& parts, const ChannelLedger& ledger);
    void request_reset();
    /// A doorbell of 64 bits. False if it is none of the channel's.
    bool ring(std::uint64_t offset, std::uint64_t value);

private:
    void answer_all();
    [[nodiscard]] bool refuse(const Wqe& wqe);
    [[nodiscard]] bool is_readable(const Wqe& wqe) const;

    const Parts parts_;
    const ChannelLedger::Channel channel_;
    const Ring sq_;
    const Ring rq_;
    const Handle<EventQueue> eq_;
    const Handle<CompletionQueue> cq_;
    std::uint32_t sq_posted_ = 0;
    std::uint32_t sq_done_ = 0;
    std::uint32_t rq_posted_ = 0;
    std::uint32_t rq_done_ = 0;
    base::Timer quiet_;
};

}  // namespace openmana::gdma
