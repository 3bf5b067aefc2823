// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/frame.h"
#include "fabric/stream_uplink.h"
#include "fuzz.h"

namespace openmana::fuzz {

/// The largest frame that comes in through an uplink.
constexpr std::size_t kMaxFrame = fabric::StreamUplink::kMaxFrame;

/// A QP of the NIC under test, and its peer, which is no NIC but the fuzzer.
struct RoceTarget {
    test::HostQp* qp;  ///< null: one of the extension
    std::uint32_t qpn;
    roce::Gid own;
    roce::Gid peer;
    std::uint32_t expected;  ///< PSN of the next request
};

/// A NIC with connected QPs and UD QPs, stock and extended ones, and Ethernet queues, and frames
/// from the network for it.
class FrameRig {
public:
    FrameRig();
    /// A RoCE packet with right and wrong fields, up to the largest that an uplink brings.
    base::Frame roce(test::Choices& choices, RoceTarget& target);
    /// Ethernet, most often IP, up to the largest that an uplink brings.
    static base::Frame ethernet(test::Choices& choices);
    /// One of the two.
    base::Frame any(test::Choices& choices);
    /// A receive or a request of the NIC's own.
    void work(test::Choices& choices);

    test::SimWorld world;
    Time time{world};
    fabric::Switch network{world};
    FuzzNic nic{world, network, 1};
    test::HostileDriver driver;
    std::vector<RoceTarget> targets;
};

}  // namespace openmana::fuzz
