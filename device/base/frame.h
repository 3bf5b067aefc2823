// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace openmana::base {

/// An Ethernet frame from the destination MAC on, without FCS.
using Frame = std::vector<std::byte>;

/// A frame in somebody else's memory, and several in the order in which they go.
using FrameView = std::span<const std::byte>;
using FrameViews = std::span<const FrameView>;

/// A MAC address in transmission order.
using MacAddr = std::array<std::uint8_t, 6>;

/// Takes frames from a layer below towards the network.
class FrameSink {
public:
    virtual ~FrameSink() = default;
    /// Called on the sender's executor, outside any visit of a Gate.
    virtual void transmit(Frame frame) = 0;
};

}  // namespace openmana::base
