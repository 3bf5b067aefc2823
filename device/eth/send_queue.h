// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/frame.h"
#include "base/state.h"
#include "eth/counters.h"
#include "eth/queue_owner.h"
#include "eth/transmit_offload.h"
#include "gdma/completion_queue.h"
#include "gdma/function.h"
#include "gdma/function_ledger.h"
#include "gdma/handle.h"
#include "gdma/ring.h"
#include "gdma/types.h"

namespace openmana::eth {

class SendQueue;

/// What the SQs of a vPort share.
class Transmitter {
public:
    virtual ~Transmitter() = default;
    /// Whether frames of the interface may have the MAC address.
    [[nodiscard]] virtual bool may_send_from(const base::MacAddr& mac) const = 0;
    /// Largest frame without a tag.
    [[nodiscard]] virtual std::size_t max_frame() const = 0;
    /// Counts the frame and hands it on, if the link is up.
    virtual void send(base::Frame frame) = 0;
    /// Calls resume() of the queue later, if it still exists then.
    virtual void resume_later(SendQueue& queue) = 0;
};

enum class SqUser {
    kInterface,
    kPackets,  ///< a packet queue: any source MAC that the host's policy allows, MANA_HW_EXT_TX_*
};

/// An SQ of the vPort. On the executor.
class SendQueue final : public gdma::DoorbellTarget {
public:
    /// Work of one turn, so that a guest with a full ring does not keep its executor from
    /// everything else.
    static constexpr std::uint32_t kWqesPerTurn = 64;
    static constexpr std::uint64_t kFramesPerTurn = 1024;

    SendQueue(std::uint64_t handle, gdma::SqIds ids, QueueOwner owner, gdma::Ring ring,
              gdma::Handle<gdma::CompletionQueue> cq, const gdma::MemoryTable& keys,
              Transmitter& transmitter, EthernetCounters& counters, SqUser user)
        : handle_(handle),
          ids_(std::move(ids)),
          id_(ids_.first()),
          owner_(std::move(owner)),
          ring_(std::move(ring)),
          cq_(std::move(cq)),
          keys_(keys),
          transmitter_(transmitter),
          counters_(counters),
          user_(user) {}

    [[nodiscard]] std::uint64_t handle() const { return handle_; }
    [[nodiscard]] gdma::Sqn id() const { return id_; }

    void ring(std::uint32_t position) override;
    void resume();

    /// From now on what is needed to complete what it has taken is written down there, if that is
    /// about the interface.
    void use_ledger(gdma::FunctionLedger& ledger);

    void save(base::StateWriter& out) const;
    /// Where it is, of one that was made of its parts (QueueParts). Goes on later if it was to.
    void load(base::StateReader& in);

private:
    void work();
    [[nodiscard]] TxStatus transmit(const gdma::Wqe& wqe, std::uint64_t& frames);
    [[nodiscard]] TxStatus transmit_whole(const TxOffload& offload, const gdma::Wqe& wqe);
    [[nodiscard]] TxStatus transmit_segments(const TxOffload& offload, const gdma::Wqe& wqe,
                                             std::uint64_t& frames);
    [[nodiscard]] bool gather(std::span<const gdma::Sge> sges);
    [[nodiscard]] bool source_allowed(std::span<const std::byte> packet) const;
    void count(TxStatus status);
    void complete(TxStatus status, std::uint32_t position);

    const std::uint64_t handle_;
    const gdma::SqIds ids_;
    const gdma::Sqn id_;
    const QueueOwner owner_;
    gdma::Ring ring_;
    const gdma::Handle<gdma::CompletionQueue> cq_;
    const gdma::MemoryTable& keys_;
    Transmitter& transmitter_;
    EthernetCounters& counters_;
    const SqUser user_;
    gdma::SendQueueLedgerClaim ledger_;  // or null
    std::uint32_t producer_ = 0;         // running byte positions
    std::uint32_t consumer_ = 0;
    bool resuming_ = false;  // a turn is posted
    bool failed_ = false;    // a WQE made no sense: where the next begins is unknown
    gdma::SpanList spans_;   // kept for its capacity
};

}  // namespace openmana::eth
