// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/frame.h"
#include "roce/address.h"
#include "roce/packet.h"

namespace openmana::rnic {

/// What SET_QP_STATE sets of a connection (RNIC 2.10), as far as each request needs it. The
/// defaults, here and below, are for what the request of the 6.12 driver cannot carry.
struct QpRoute {
    roce::Gid source{};
    roce::Gid destination{};
    roce::Qpn dest_qpn{};
    std::uint16_t mtu = 1024;
    roce::Vlan vlan = roce::kNoVlan;
    std::uint32_t access = 0xffffffff;

    /// Whether a packet has come by it, from the one end to the other.
    [[nodiscard]] bool brings(const roce::Packet& packet) const {
        return packet.source == destination && packet.destination == source &&
               packet.vlan() == vlan;
    }
    /// Whether the other is its other end; `seen` is that one's VLAN as this end has it.
    [[nodiscard]] bool meets(const QpRoute& other, roce::Vlan seen) const {
        return other.source == destination && other.destination == source && vlan == seen;
    }
};

/// The rest of it.
struct QpAttributes {
    base::MacAddr source_mac{};
    base::MacAddr destination_mac{};
    std::uint32_t max_read_in = 32;
    std::uint32_t max_read_out = 32;
    std::uint32_t retry_count = 7;
    std::uint32_t rnr_retry = 7;
    std::uint32_t min_rnr_timer = 0;
    std::uint32_t timeout = 14;
    roce::QKey qkey{};
    std::uint32_t flow_label = 0;
    std::uint16_t udp_source_port = 0xc000;
    std::uint8_t hop_limit = 64;
    std::uint8_t dscp = 0;
    std::uint8_t priority = 0;  ///< of the tag, where there is a VLAN
};

}  // namespace openmana::rnic
