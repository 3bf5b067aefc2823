// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gdma/memory_table.h"
#include "rnic/send_queue.h"
#include "roce/packet.h"

namespace openmana::rnic {

/// A datagram about to leave.
struct Datagram {
    roce::Packet packet;
    gdma::SpanList* payload = nullptr;
    std::uint64_t length = 0;
};

/// The send queue of a QP as its host knows it: where send work requests and datagrams come from,
/// who counts the PSNs, and how requests complete. Owner's executor only. Two exist: StockSends
/// and ExtSends; the transport does not know which of them a QP has.
class SendFormat {
public:
    enum class Next : std::uint8_t {
        kNone,    ///< nothing is posted
        kSend,    ///< a datagram, to be completed
        kDrop,    ///< the same, but nothing goes out
        kFailed,  ///< what is posted cannot be executed: ErrorReport::datagram_failed
    };

    virtual ~SendFormat() = default;

    /// SQ doorbell. False if its position is impossible.
    [[nodiscard]] virtual bool ring_doorbell(std::uint32_t position) = 0;
    /// A work request waits.
    [[nodiscard]] virtual bool posted() = 0;
    /// Takes the next one into a slot that is as new; it gets PSNs from `next` on, and what is
    /// wrong with it is in its `error`.
    virtual void fetch(SendWqe& wqe, Psn next) = 0;
    /// A hint: the SQ doorbell will ring for what is posted up to there.
    virtual void prefetch(std::uint32_t position) const = 0;
    /// A hint: the keys of what is posted will be looked up soon, here and at the peer.
    virtual void prefetch_keys(const gdma::MemoryTable& own, const gdma::MemoryTable& peer) = 0;
    /// Executes a local operation; the vendor error if it is refused. Not during a visit.
    [[nodiscard]] virtual std::uint16_t execute_local(const SendWqe& wqe) = 0;
    /// The oldest one is done.
    virtual void complete(const SendWqe& wqe) = 0;
    /// A batch of work has ended.
    virtual void settle() = 0;
    /// The PSN of the first send after this.
    virtual void start(Psn first) = 0;

    /// Takes the next datagram.
    [[nodiscard]] virtual Next next_datagram(Datagram& datagram) = 0;
    /// The one taken last is done.
    virtual void complete_datagram() = 0;

    /// Forgets all work.
    virtual void reset() = 0;

    /// How far the host has posted and how far that is taken, each in the measure of the format.
    [[nodiscard]] std::uint32_t producer() const { return producer_; }
    [[nodiscard]] std::uint32_t consumer() const { return consumer_; }

protected:
    std::uint32_t producer_ = 0;  ///< as the host said last
    std::uint32_t consumer_ = 0;
};

}  // namespace openmana::rnic
