// SPDX-License-Identifier: Apache-2.0
#include "rnic/transmitter.h"

#include "base/hold_meter.h"
#include "rnic/addresses.h"

namespace openmana::rnic {

std::size_t Transmitter::send(QpTraffic& own, const roce::Packet& packet, Spans payload) {
    if (!addresses_.sends_from({packet.source, packet.vlan()})) {
        counters_.drop_source.add();
        return 0;
    }
    roce::encode_without_icrc(packet, payload, frame_);
    const std::size_t bytes = frame_.size();
    counters_.tx_frames.add();
    base::count_work(1);
    tally(counters_.tx_packets, own.tx_packets);
    network_.transmit_lent(frame_);
    return bytes;
}

}  // namespace openmana::rnic
