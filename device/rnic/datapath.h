// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/executor.h"
#include "base/guest_memory.h"
#include "gdma/key_changes.h"
#include "gdma/memory_table.h"
#include "gdma/work_queues.h"
#include "rnic/adapter_events.h"
#include "rnic/addresses.h"
#include "rnic/config.h"
#include "rnic/counters.h"
#include "rnic/datagrams.h"
#include "rnic/local_peer.h"
#include "rnic/network.h"
#include "rnic/qp_states.h"
#include "rnic/qp_tasks.h"
#include "rnic/receive_wait.h"
#include "rnic/record_watch.h"
#include "rnic/request_figures.h"
#include "rnic/scheduler.h"
#include "rnic/scratch.h"
#include "rnic/transmitter.h"

namespace openmana::gdma {
class Function;
}

namespace openmana::rnic {

/// Whether CQEs tell of the errors of stock queue pairs (RNIC 3.9).
struct ErrorCqes {
    bool unasked = false;  ///< also to a driver that did not ask
    bool wanted = false;   ///< the driver has asked
    [[nodiscard]] bool on() const { return wanted || unasked; }
};

/// What the network said of the addresses of the last datagram, as long as its generation is this.
struct DatagramPath {
    Ends ends{};
    std::uint64_t generation = 0;
    LocalEnd end;
};

/// What the queue pairs of one RNIC work with, each part a thing of its own; the commands that
/// change it, and the tables of what they make, are the adapter's. It outlives the queue pairs.
/// Executor; visitors use counters, keys, events, error_cqes, tasks, datagrams and the clock.
struct Datapath {
    /// All outlive it. `qps` is not looked at before there is traffic.
    Datapath(gdma::Function& function, const RnicConfig& config, Network& network,
             const QpTable& qps);
    Datapath(const Datapath&) = delete;
    Datapath& operator=(const Datapath&) = delete;
    /// As new, when the queue pairs have gone.
    void reset();

    Network& network;
    base::Executor& executor;
    const base::GuestMemory& memory;
    const gdma::MemoryTable& keys;
    gdma::KeyChanges& key_changes;
    gdma::SendQueues& sqs;     ///< for hints to their doorbells
    gdma::ReceiveQueues& rqs;  ///< the same
    const std::string& nic;    ///< name, for logs
    const RnicConfig config;
    RnicCounters counters;
    RequestFigures figures;
    QpStates states;  ///< how many queue pairs are in each
    Scratch scratch;
    Addresses addresses;
    AdapterEvents events;
    ErrorCqes error_cqes;
    RecordWatch records;
    Transmitter transmitter;
    Scheduler scheduler;
    ReceiveWaitBudget receive_waits;
    QpTasks tasks;
    Datagrams datagrams;
    DatagramPath datagram_path;
    const LocalPeer self;             ///< what others see of it
    std::uint32_t current_rate_mbps;  ///< of the QP whose rate changed last
};

}  // namespace openmana::rnic
