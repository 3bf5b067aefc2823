// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "gdma/function.h"
#include "rnic/segment.h"
#include "rnic/send_queue.h"

namespace openmana::rnic {

/// A receive work request that a message has taken.
struct Receive {
    std::uint32_t name = 0;  ///< of the work request, as its completion carries it
    bool named = false;      ///< a malformed one: its completion can be told
    gdma::Pdn pd{};          ///< to which its memory belongs
    std::uint64_t total = 0;
    std::vector<gdma::Sge> sges;
};

/// What a message became, for its receive completion.
struct Received {
    SegmentKind kind = SegmentKind::kSend;  ///< kSend, or kWrite with immediate
    bool immediate = false;
    bool invalidate = false;
    bool solicited = false;
    std::uint32_t length = 0;
    std::uint32_t value = 0;
    Psn psn{};  ///< of its last packet
};

/// A datagram about to leave.
struct Datagram {
    roce::Packet packet;
    gdma::SpanList* payload = nullptr;
    std::uint64_t length = 0;
};

/// How the host's queues of a QP look: where work requests come from, who counts the PSNs, and how
/// their ends are told. The transport knows nothing of it. Two exist: that of the stock ABI
/// (StockQueues) and that of the extension (ExtQueues).
///
/// "Owner" is the QP's own executor; "held" means with the responder's mutex, on any thread that
/// may hold it.
class QueueFormat {
public:
    enum class Take : std::uint8_t { kOk, kEmpty, kMalformed };
    enum class Next : std::uint8_t {
        kNone,  ///< nothing is posted, or the QP has failed
        kSend,
        kDrop,  ///< done, but nothing goes out
    };

    virtual ~QueueFormat() = default;

    /// SQ doorbell. False if the QP cannot go on with what it says; then it has failed. Owner.
    [[nodiscard]] virtual bool ring_sends(std::uint32_t position) = 0;
    /// RQ doorbell. False if its position is impossible. Owner.
    [[nodiscard]] virtual bool ring_receives(std::uint32_t position) = 0;
    /// Any doorbell of a QP that is in ERR, or that of the SQ in SQE. Owner.
    virtual void posted_in_error() = 0;

    /// The doorbell of the READ scatter queue, if there is one.
    [[nodiscard]] virtual gdma::DoorbellTarget* read_doorbell() { return nullptr; }

    /// A send work request waits. Owner.
    [[nodiscard]] virtual bool sends_posted() = 0;
    /// Takes the next one into a slot that is as new; it gets PSNs from `next` on, and what is
    /// wrong with it is in its `error`. Owner.
    virtual void fetch(SendWqe& wqe, Psn next) = 0;
    /// A hint: the SQ doorbell will ring for what is posted up to there. Owner.
    virtual void prefetch_sends(std::uint32_t position) const = 0;
    /// A hint: the keys of what is posted will be looked up soon, here and at the peer. Owner.
    virtual void prefetch_keys(const gdma::MemoryTable& own, const gdma::MemoryTable& peer) = 0;
    /// Executes a local operation; the vendor error if it is refused. Owner, not during a visit.
    [[nodiscard]] virtual std::uint16_t execute_local(const SendWqe& wqe) {
        (void)wqe;
        return 0;
    }
    /// The oldest one is done. Owner.
    virtual void finished(const SendWqe& wqe) = 0;
    /// A batch of work has ended. Owner.
    virtual void settle() = 0;
    /// The PSN of the first send after this. Owner.
    virtual void start_sends(Psn first) = 0;

    /// Takes the next datagram. Owner.
    [[nodiscard]] virtual Next next_datagram(Datagram& datagram) = 0;
    /// The one taken last is done. Owner.
    virtual void datagram_done() = 0;

    /// The next receive. Held.
    [[nodiscard]] virtual Take take(Receive& receive) = 0;
    virtual void received(const Receive& receive, const Received& message) = 0;
    /// UC: the message that had taken it will not be whole. False if the next one may have it.
    /// Held.
    [[nodiscard]] virtual bool abandoned(const Receive& receive) {
        (void)receive;
        return false;
    }
    /// A datagram with `length` bytes, GRH area included.
    virtual void received_datagram(const Receive& receive, const roce::Packet& packet,
                                   std::uint32_t length) = 0;

    /// Whether this failure of a send leaves the receive side as it is: the QP goes to SQE.
    [[nodiscard]] virtual bool stops_sends_only(std::uint16_t vendor) const {
        (void)vendor;
        return false;
    }
    /// The requester failed; the QP is in ERR or SQE since. Owner.
    virtual void send_failed(std::uint16_t vendor, bool on_read_queue) = 0;
    /// The responder failed; the QP is in ERR since. `vendor` 0: no receive is to blame. Held.
    virtual void receive_failed(roce::NakCode code, std::uint16_t vendor) = 0;
    /// What `receive_failed` could not do. Owner.
    virtual void responder_failed() = 0;
    /// The host asked for ERR. Owner.
    virtual void enter_error() = 0;
    /// Forgets all work. Owner, held.
    virtual void reset() = 0;
    /// The state has changed, or a send has finished: for what the host wants to know of it. Owner.
    virtual void state_changed() {}
    /// The first packet came in RTR. Held.
    virtual void established() {}
};

}  // namespace openmana::rnic
