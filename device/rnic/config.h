// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/frame.h"
#include "rnic/dcqcn.h"
#include "roce/aeth.h"

namespace openmana::rnic {

struct RnicConfig {
    base::MacAddr mac{};
    std::uint32_t max_qps = 16384;
    std::uint32_t max_reads = 32;  ///< per QP, both directions
    /// Error CQEs also to a driver that did not ask (6.12): without them its applications hang on
    /// an error (RNIC 3.9 rule 1).
    bool error_cqes_unasked = true;
    bool extensions = true;         ///< offers what docs/extensions.md describes
    std::uint32_t port_mtu = 4096;  ///< IB MTU of the port: payload of a datagram at most
    std::uint32_t window_packets =
        256;  ///< per QP on the wire path: packets sent and not acknowledged
    /// How long small requests on the wire path may wait for others behind them, while answers to
    /// earlier ones are under way; 0: not at all.
    base::Duration gather{};
    /// How long a message may wait for its receive, before an RNR NAK, at most (ROCE 4.8): the
    /// Local CA ACK Delay that the drivers tell, code 16, which is how late an answer may be.
    base::Duration receive_wait = roce::ack_timeout(16);
    CongestionConfig congestion;
};

}  // namespace openmana::rnic
