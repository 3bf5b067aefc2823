// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/result.h"
#include "base/state.h"
#include "eth/counters.h"
#include "eth/queue_owner.h"
#include "eth/receive_queue.h"
#include "eth/send_queue.h"
#include "eth/steering.h"
#include "gdma/function.h"

namespace openmana::eth {

/// What a work queue is made of.
struct NewQueue {
    QueueOwner owner;
    gdma::RegionClaim wq_region;
    std::uint64_t wq_bytes = 0;
    gdma::RegionClaim cq_region;
    std::uint64_t cq_bytes = 0;
    gdma::Handle<gdma::EventQueue> eq;  ///< of the CQ; may be empty
    bool packets = false;               ///< a packet queue of the extension, not the interface's
    gdma::CompletionQueue::Moderation moderation{};
};

/// What the guest is told of a new work queue.
struct MadeQueue {
    std::uint32_t wq_id = 0;
    std::uint32_t cq_id = 0;
    std::uint64_t handle = 0;
};

/// The send and receive queues of the vPort, by object handle. On the executor. Visitors
/// find receive queues by `steering`, which forgets one under an exclusion of the function's Gate
/// before it goes.
class WorkQueues {
public:
    WorkQueues(gdma::Function& function, Transmitter& transmitter, Steering& steering,
               EthernetCounters& counters)
        : function_(function),
          transmitter_(transmitter),
          steering_(steering),
          counters_(counters),
          completions_(function.executor(), [this](std::uint64_t handle) {
              if (ReceiveQueue* const queue = find_receive(handle)) queue->flush();
          }) {}

    base::Result<MadeQueue> make_send(NewQueue parts);
    base::Result<MadeQueue> make_receive(NewQueue parts);
    [[nodiscard]] std::size_t send_queues() const { return sqs_.size(); }
    [[nodiscard]] std::size_t receive_queues() const { return rqs_.size(); }
    /// nullptr if there is none.
    [[nodiscard]] SendQueue* find_send(std::uint64_t handle) const;
    [[nodiscard]] ReceiveQueue* find_receive(std::uint64_t handle) const;
    /// False if there is none.
    bool destroy_send(std::uint64_t handle);
    bool destroy_receive(std::uint64_t handle);
    /// Steering has forgotten all.
    void clear();

    /// Never used again, so that a late turn finds nothing.
    [[nodiscard]] std::uint64_t new_handle() { return next_handle_++; }

    void save(base::StateWriter& out) const;
    /// Into an empty one. `device`: of whose PDs they may be. `most`: of each kind. `packets`:
    /// there may be packet queues.
    void load(base::StateReader& in, gdma::DeviceType device, std::size_t most, bool packets);
    /// Whether an object may have the handle that a state says: it was given, and is nobody's.
    [[nodiscard]] bool is_free(std::uint64_t handle) const;

private:
    void load_send(base::StateReader& in, gdma::DeviceType device, bool packets);
    void load_receive(base::StateReader& in, gdma::DeviceType device, bool packets);
    base::Result<gdma::Handle<gdma::CompletionQueue>> make_cq(NewQueue& parts);

    gdma::Function& function_;
    Transmitter& transmitter_;
    Steering& steering_;
    EthernetCounters& counters_;
    std::unordered_map<std::uint64_t, std::unique_ptr<SendQueue>> sqs_;
    std::unordered_map<std::uint64_t, std::unique_ptr<ReceiveQueue>> rqs_;
    static constexpr std::uint64_t kFirstHandle = 0x100;
    std::uint64_t next_handle_ = kFirstHandle;
    gdma::Postponed completions_;  // of receive queues
};

}  // namespace openmana::eth
