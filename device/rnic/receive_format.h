// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "gdma/types.h"
#include "gdma/wqe.h"
#include "rnic/memory.h"
#include "rnic/segment.h"
#include "roce/packet.h"

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

/// What a responder asks of receives, and what it does with those that are no use.
struct ReceiveRules {
    SgeCheck check;  ///< how their memory is checked
    /// One that a datagram cannot use is an error of the QP. Else nothing could tell of it, and
    /// the datagram alone is lost.
    bool fails_datagrams;
};

/// The receive queue of a QP as its host knows it: receives, their completions, and how strictly
/// they are checked. All but the doorbell is called with the responder's mutex held, on any thread
/// that may hold it. Two exist: StockReceives and ExtReceives.
class ReceiveFormat {
public:
    enum class Take : std::uint8_t { kOk, kEmpty, kMalformed };

    explicit ReceiveFormat(ReceiveRules rules_in) : rules(rules_in) {}
    virtual ~ReceiveFormat() = default;
    ReceiveFormat(const ReceiveFormat&) = delete;
    ReceiveFormat& operator=(const ReceiveFormat&) = delete;

    /// RQ doorbell. False if its position is impossible. On the owner's executor, without the
    /// mutex.
    [[nodiscard]] virtual bool ring_doorbell(std::uint32_t position) = 0;
    /// The next receive, into a slot whose memory is used again.
    [[nodiscard]] virtual Take take(Receive& receive) = 0;
    virtual void complete(const Receive& receive, const Received& message) = 0;
    /// A datagram with `length` bytes, GRH area included.
    virtual void complete_datagram(const Receive& receive, const roce::Packet& packet,
                                   std::uint32_t length) = 0;
    /// UC: the message that had taken it will not be whole. True if it completes with that; else
    /// the next message may have it.
    [[nodiscard]] virtual bool complete_aborted(const Receive& receive) = 0;
    /// Forgets all work. The owner's executor.
    virtual void reset() = 0;

    const ReceiveRules rules;
};

}  // namespace openmana::rnic
