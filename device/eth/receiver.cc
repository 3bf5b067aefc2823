// SPDX-License-Identifier: Apache-2.0
#include "eth/receiver.h"

#include <mana/eth.h>

#include <cstdint>

#include "base/mac_at.h"
#include "eth/ip.h"
#include "eth/statistics.h"

namespace openmana::eth {

void Receiver::receive(std::span<const std::byte> frame) {
    if (!vport_.link_up() || (!steering_.interface().enabled && steering_.flows().empty())) {
        counters_.rx_disabled.add();
        return;
    }
    if (frame.size() < kEthernetBytes) {
        counters_.rx_malformed.add();
        return;
    }
    const Cast cast = cast_of(frame.data());
    if (cast == Cast::kUnicast && !takes(frame)) {
        counters_.rx_filtered.add();
        return;
    }
    auto parsed = parse(frame);
    if (!parsed) return;
    if (const auto queue = steering_.flows().find(frame)) {
        deliver_by_rule(*queue, *parsed, frame);
        return;
    }
    if (!steering_.interface().enabled) {
        counters_.rx_disabled.add();
        return;
    }
    ReceiveQueue* const queue = steering_.choose(*parsed);
    if (queue == nullptr) {
        counters_.rx_no_queue.add();
        return;
    }
    deliver(*queue, *parsed, frame);
}

bool Receiver::takes(std::span<const std::byte> frame) const {
    const base::MacAddr destination = base::mac_at(frame, base::kDestinationMac);
    return destination == vport_.config.mac || network_.may_have(destination);
}

bool Receiver::receive_own(std::span<const std::byte> frame) {
    if (steering_.flows().empty() || frame.size() < kEthernetBytes) return false;
    const auto queue = steering_.flows().find(frame);
    if (!queue) return false;
    auto parsed = parse(frame);
    if (parsed && deliver_by_rule(*queue, *parsed, frame)) counters_.rx_own.add();
    return true;
}

std::optional<ReceivedFrame> Receiver::parse(std::span<const std::byte> frame) {
    auto parsed = parse_received(frame);
    if (!parsed) {
        counters_.rx_malformed.add();
        return std::nullopt;
    }
    if (parsed->size() > vport_.max_frame()) {
        counters_.rx_too_long.add();
        return std::nullopt;
    }
    return parsed;
}

bool Receiver::deliver_by_rule(ReceiveQueue* queue, ReceivedFrame& parsed,
                               std::span<const std::byte> frame) {
    if (queue == nullptr) {
        counters_.rx_no_queue.add();
        return false;
    }
    parsed.hash_type = 0;
    if (!deliver(*queue, parsed, frame)) return false;
    counters_.rx_by_rule.add();
    return true;
}

bool Receiver::deliver(ReceiveQueue& queue, ReceivedFrame& parsed,
                       std::span<const std::byte> frame) {
    if (queue.keeps_tags()) keep_tag(parsed, frame);
    const unsigned together = queue.keeps_tags() ? 1 : steering_.interface().packets_per_cqe;
    if (!queue.deliver(parsed, together)) return false;
    constexpr std::uint32_t kBad =
        MANA_HW_ETH_RX_IP_BAD | MANA_HW_ETH_RX_TCP_BAD | MANA_HW_ETH_RX_UDP_BAD;
    if ((parsed.flags & kBad) != 0) counters_.rx_checksum_bad.add();
    count_received(counters_, cast_of(frame.data()), frame.size());
    return true;
}

}  // namespace openmana::eth
