// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "base/gate.h"
#include "base/guest_memory.h"
#include "base/result.h"
#include "gdma/channel_ledger.h"
#include "gdma/command.h"
#include "gdma/config.h"
#include "gdma/doorbell_target.h"
#include "gdma/handle.h"
#include "gdma/ring.h"
#include "gdma/tables.h"
#include "gdma/wqe.h"

namespace openmana::gdma {

/// Who executes the requests that come through a HWC.
class CommandHandler {
public:
    virtual ~CommandHandler() = default;
    /// On the executor, under an exclusion.
    virtual void command(const HwcRequest& request, HwcReply& reply) = 0;
    /// The EQ that wants a test event after the response to the last command, or null.
    [[nodiscard]] virtual Handle<EventQueue> take_test_eq() = 0;
};

/// The hardware channel (GDMA 4): takes requests from its SQ as the doorbell comes in, and answers
/// in its RQ. On the executor.
class Hwc final {
public:
    struct Rings {
        GuestAddr eq, cq, rq, sq;
        unsigned vector = 0;
    };
    /// What it works with; all outlive it.
    struct Parts {
        Tables& tables;
        CommandHandler& handler;
        base::Gate& gate;
        const base::GuestMemory& memory;
        const FunctionConfig& config;
        FunctionCounters& counters;
        ChannelLedger* ledger;  ///< or null
    };
    /// Creates the queues and writes the init events. On failure the caller drops all objects of
    /// the function: there are no others yet.
    static base::Result<std::unique_ptr<Hwc>> create(const Parts& parts, const Rings& rings);
    ~Hwc();
    Hwc(const Hwc&) = delete;
    Hwc& operator=(const Hwc&) = delete;

    /// One that is as a state says; its objects are in the tables by then. Null if it is refused.
    /// `version`: of the function's part.
    static std::unique_ptr<Hwc> load(const Parts& parts, base::StateReader& in,
                                     std::uint16_t version);
    void save(base::StateWriter& out) const;
    [[nodiscard]] EventQueue& eq() { return *eq_; }
    /// The driver has seen the init events: it posts receives after them.
    [[nodiscard]] bool seen_by_driver() const { return rq_posted_ != 0; }

private:
    struct SendTarget final : DoorbellTarget {
        explicit SendTarget(Hwc& hwc_in) : hwc(hwc_in) {}
        void ring(std::uint32_t position) override { hwc.requests_posted(position); }
        Hwc& hwc;
    };
    struct ReceiveTarget final : DoorbellTarget {
        explicit ReceiveTarget(Hwc& hwc_in) : hwc(hwc_in) {}
        void ring(std::uint32_t position) override { hwc.receives_posted(position); }
        Hwc& hwc;
    };

    Hwc(const Parts& parts, Ring sq, Ring rq);
    void connect();
    void announce();
    void requests_posted(std::uint32_t position);
    void receives_posted(std::uint32_t position);
    void note_channel();
    void note_done(std::uint64_t completions);
    void note_driver(std::uint64_t caps);
    [[nodiscard]] bool handle_request(const Wqe& wqe);
    void answer(const HwcRequest& request, HwcReply& reply, const Wqe& receive,
                const SpanList& buffer);
    [[nodiscard]] bool gather(const Wqe& wqe, std::uint32_t need, std::uint64_t limit,
                              SpanList& out) const;

    const Parts parts_;
    Ring sq_;
    Ring rq_;
    SendTarget send_target_{*this};
    ReceiveTarget receive_target_{*this};
    Handle<PageGrant> page_;
    Handle<Pd> pd_;
    Handle<EventQueue> eq_;
    Handle<CompletionQueue> cq_;
    Key key_{};
    SqIds sq_id_;
    RqIds rq_id_;
    std::uint32_t sq_done_ = 0;
    std::uint32_t rq_posted_ = 0;
    std::uint32_t rq_done_ = 0;
    std::uint64_t driver_caps_ = 0;  // flags 1
};

}  // namespace openmana::gdma
