// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "eth/counters.h"
#include "eth/network.h"
#include "eth/receive_parse.h"
#include "eth/receive_queue.h"
#include "eth/steering.h"
#include "eth/vport.h"

namespace openmana::eth {

/// The way of a frame from the network to a receive queue. During a visit of the function's Gate,
/// or on its executor.
class Receiver {
public:
    Receiver(const Vport& vport, const Network& network, const Steering& steering,
             EthernetCounters& counters)
        : vport_(vport), network_(network), steering_(steering), counters_(counters) {}

    void receive(std::span<const std::byte> frame);
    /// A frame that the port itself sent: for packet queues alone. False if no rule matches.
    bool receive_own(std::span<const std::byte> frame);

private:
    [[nodiscard]] bool takes(std::span<const std::byte> frame) const;
    [[nodiscard]] std::optional<ReceivedFrame> parse(std::span<const std::byte> frame);
    bool deliver_by_rule(ReceiveQueue* queue, ReceivedFrame& parsed,
                         std::span<const std::byte> frame);
    bool deliver(ReceiveQueue& queue, ReceivedFrame& parsed, std::span<const std::byte> frame);

    const Vport& vport_;
    const Network& network_;
    const Steering& steering_;
    EthernetCounters& counters_;
};

}  // namespace openmana::eth
