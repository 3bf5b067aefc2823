// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

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
/// A driver that resets itself waits for no answer any more from when it has heard of that, and
/// gives one command after the other in buffers of its stack: an answer that comes late is written
/// to where a buffer was. So such a driver is answered what it has commanded before it heard, and
/// nothing then. Others wait for each answer.
class StaleHwc {
public:
    /// All outlive it.
    struct Parts {
        const base::GuestMemory& memory;
        pci::IrqSink& irq;
        const FunctionConfig& config;
        FunctionCounters& counters;
    };
    /// Goes on behind what `ledger` says, which its rings complete.
    StaleHwc(const Parts& parts, ChannelLedger& ledger);
    void request_reset();
    /// A doorbell of 64 bits. False if it is none of the channel's.
    bool ring(std::uint64_t offset, std::uint64_t value);

private:
    void requests_posted(std::uint32_t position);
    void eq_rung(std::uint32_t index, bool arm);
    void answer_all();
    void note_done(std::uint64_t more);
    [[nodiscard]] bool refuse(const Wqe& wqe);
    [[nodiscard]] bool is_readable(const Wqe& wqe) const;

    const Parts parts_;
    ChannelLedger& ledger_;
    const ChannelLedger::Channel channel_;
    const bool resets_itself_;
    const Ring sq_;
    const Ring rq_;
    const Handle<EventQueue> eq_;
    const Handle<CompletionQueue> cq_;
    std::uint32_t sq_posted_ = 0;
    std::uint32_t sq_done_ = 0;
    std::uint32_t rq_posted_ = 0;
    std::uint32_t rq_done_ = 0;
    std::uint64_t asked_at_ = 0;  // the number of the entry behind the request; 0: there is none
    bool heard_ = false;          // the driver has taken the request
};

}  // namespace openmana::gdma
