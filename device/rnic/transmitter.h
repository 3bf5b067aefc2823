// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/frame.h"
#include "rnic/counters.h"
#include "rnic/memory.h"
#include "rnic/network.h"
#include "roce/packet.h"

namespace openmana::rnic {

/// Packets to the network, as frames. Executor only.
class Transmitter {
public:
    Transmitter(Network& network, RnicCounters& counters)
        : network_(network), counters_(counters) {}

    /// `own`: of the queue pair that sends. The size of the frame.
    std::size_t send(QpTraffic& own, const roce::Packet& packet, Spans payload);

private:
    Network& network_;
    RnicCounters& counters_;
    base::Frame frame_;  // for its capacity
};

}  // namespace openmana::rnic
