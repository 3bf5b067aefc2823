// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/frame.h"
#include "eth/ip.h"

namespace openmana::eth {

struct EthernetConfig {
    base::MacAddr mac{};
    std::uint16_t max_mtu = 9000;   ///< adapter L2 MTU less the 14-byte header
    std::uint32_t max_queues = 64;  ///< queue pairs of the vPort
    std::uint32_t link_speed_mbps = 100000;
    bool extensions = true;  ///< packet queues and flow rules can be negotiated
};

/// The one vPort of the device: what its parts share.
struct Vport {
    static constexpr std::uint64_t kHandle = 1;

    const EthernetConfig config;
    std::atomic<bool> link{true};  ///< written on the executor

    /// Without a VLAN tag.
    [[nodiscard]] std::size_t max_frame() const {
        return std::size_t{config.max_mtu} + kEthernetBytes;
    }
    [[nodiscard]] bool link_up() const { return link.load(std::memory_order_relaxed); }
};

}  // namespace openmana::eth
