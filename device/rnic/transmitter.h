// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/frame.h"
#include "rnic/counters.h"
#include "rnic/memory.h"
#include "rnic/network.h"
#include "roce/packet.h"

namespace openmana::rnic {

class Addresses;

/// Packets to the network, as frames. Here all that an adapter sends leaves, so here is the last
/// look at whether it speaks for itself. Executor only.
class Transmitter {
public:
    Transmitter(Network& network, Addresses& addresses, RnicCounters& counters)
        : network_(network), addresses_(addresses), counters_(counters) {}

    /// `own`: of the queue pair that sends. The size of the frame; 0, and nothing sent, if its
    /// source is not served.
    std::size_t send(QpTraffic& own, const roce::Packet& packet, Spans payload);

private:
    Network& network_;
    Addresses& addresses_;
    RnicCounters& counters_;
    base::Frame frame_;  // for its capacity
};

}  // namespace openmana::rnic
