// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>

#include "base/state.h"
#include "eth/counters.h"
#include "eth/queue_owner.h"
#include "eth/receive_parse.h"
#include "gdma/completion_queue.h"
#include "gdma/function.h"
#include "gdma/handle.h"
#include "gdma/postponed.h"
#include "gdma/ring.h"
#include "gdma/types.h"

namespace openmana::eth {

/// An RQ of the vPort. Rung on the executor, fed by any thread that visits. Visitors find it by the
/// steering, which changes under an exclusion of the function's Gate; it is created before they do
/// and destroyed when they do not any more.
class ReceiveQueue final : public gdma::DoorbellTarget {
public:
    /// `handle` is its number in `later`, which calls flush().
    ReceiveQueue(std::uint64_t handle, gdma::Postponed& later, gdma::RqIds ids, QueueOwner owner,
                 gdma::Ring ring, gdma::Handle<gdma::CompletionQueue> cq,
                 const gdma::MemoryTable& keys, EthernetCounters& counters, bool keeps_tags = false)
        : handle_(handle),
          later_(later),
          ids_(std::move(ids)),
          id_(ids_.first()),
          owner_(std::move(owner)),
          cq_(std::move(cq)),
          keys_(keys),
          counters_(counters),
          keeps_tags_(keeps_tags),
          ring_(std::move(ring)) {}

    [[nodiscard]] gdma::Rqn id() const { return id_; }
    /// 0 for none.
    [[nodiscard]] static std::uint64_t handle_of(const ReceiveQueue* queue) {
        return queue != nullptr ? queue->handle_ : 0;
    }
    /// Frames with their VLAN tag: packet queues of the extension.
    [[nodiscard]] bool keeps_tags() const { return keeps_tags_; }

    void ring(std::uint32_t position) override;
    /// How long a completion waits for more packets that it may tell of.
    static constexpr std::chrono::nanoseconds kTogether{2048};
    /// Takes the next WQE for the frame and completes it, in a CQE that tells of up to `together`
    /// packets (1, 4 or 8; GDMA 6.15). False, and counted, if the frame was dropped.
    bool deliver(const ReceivedFrame& frame, unsigned together);
    /// What waits for more packets waits no more. On the executor.
    void flush();
    /// Writes a fence CQE, now or as soon as a receive WQE is posted: before that the CQ of
    /// the 6.12 driver may have no room (GDMA 3.12). False if too many wait for one.
    [[nodiscard]] bool fence();

    void save(base::StateWriter& out) const;
    /// Where it is, of one that was made of its parts (QueueParts).
    void load(base::StateReader& in);

private:
    [[nodiscard]] std::uint64_t most_fences() const;
    [[nodiscard]] std::uint32_t available_locked() const { return producer_ - consumer_; }
    void received_locked(const ReceivedFrame& frame, std::uint32_t position, unsigned together);
    void truncated_locked(const ReceivedFrame& frame, std::uint32_t position);
    void complete_locked();
    void flush_fences_locked();

    /// Packets that no CQE has told of, in consecutive WQEs.
    struct Received {
        struct Packet {
            std::uint16_t length;
            std::uint32_t hash;
            template <typename Archive, typename Self>
            static void fields(Archive& a, Self& self) {
                a(self.length, self.hash);
            }
        };
        std::uint32_t flags = 0;     // of all
        std::uint32_t position = 0;  // of the first one's WQE
        unsigned together = 1;
        unsigned count = 0;
        std::array<Packet, 8> packets{};
    };

    const std::uint64_t handle_;
    gdma::Postponed& later_;
    const gdma::RqIds ids_;
    const gdma::Rqn id_;
    const QueueOwner owner_;
    const gdma::Handle<gdma::CompletionQueue> cq_;
    const gdma::MemoryTable& keys_;
    EthernetCounters& counters_;
    const bool keeps_tags_;
    mutable std::mutex mutex_;  // protects all below; before CompletionQueue's
    gdma::Ring ring_;
    std::uint32_t producer_ = 0;  // running byte positions
    std::uint32_t consumer_ = 0;
    std::uint32_t fences_ = 0;  // not yet written
    bool failed_ = false;       // a WQE made no sense: where the next begins is unknown
    Received received_;
    bool later_knows_ = false;  // flush() will be called
    gdma::SpanList spans_;      // kept for its capacity
};

}  // namespace openmana::eth
