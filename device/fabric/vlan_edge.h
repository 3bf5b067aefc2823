// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/frame.h"
#include "roce/address.h"

namespace openmana::fabric {

/// In which VLANs of its network a NIC is (802.1Q).
struct VlanConfig {
    bool all = true;  ///< in each, and in none: the guest's tags are the network's
    /// Else: that of frames which the guest sends and gets without a tag. None: there are no such
    /// frames.
    roce::Vlan native = roce::kNoVlan;
    /// Else: those whose tags the guest uses. `native` is not one of them, so that no two VLANs of
    /// the guest are one of the network.
    std::bitset<roce::kVlanMask + 1> tagged;

    [[nodiscard]] static VlanConfig access(roce::Vlan vlan) {
        VlanConfig config;
        config.all = false;
        config.native = vlan;
        return config;
    }
    [[nodiscard]] bool is_access() const { return !all && tagged.none(); }
};

/// Where the VLANs of a guest and those of its network meet, for frames and for whoever does
/// without: nothing passes that the NIC is not in. A tag that says a priority alone (VLAN 0) is
/// that of a frame without a tag, whose priority stays with it in the network.
///
/// Frames that the guest gets without their tag have none behind it either, and those that it sends
/// so have none behind a priority: else whoever is in two VLANs could choose the second for
/// somebody who is in the first.
///
/// No state. Any thread.
class VlanEdge {
public:
    explicit VlanEdge(const VlanConfig& config) : config_(config) {}

    /// The network's VLAN for one of the guest; nothing if the NIC is not in it.
    [[nodiscard]] std::optional<roce::Vlan> to_network(roce::Vlan vlan) const;
    /// The guest's for one of the network.
    [[nodiscard]] std::optional<roce::Vlan> to_guest(roce::Vlan vlan) const;

    /// Makes a frame of the guest the network's. False if it may not pass.
    [[nodiscard]] bool to_network(base::Frame& frame) const;
    /// What happens to a frame of the network before the guest has it.
    enum class Passage : std::uint8_t { kDropped, kAsItIs, kWithoutTag };
    [[nodiscard]] Passage to_guest(base::FrameView frame) const;
    /// True if each frame is the same on both sides.
    [[nodiscard]] bool open() const { return config_.all; }

private:
    const VlanConfig config_;
};

/// Frames of the network as the guest has them, without those that may not pass. Good as long as
/// those are.
class FramesAtGuest {
public:
    /// Looks at some of the frames at once, or at all that there are if the edge is open.
    FramesAtGuest(const VlanEdge& edge, base::FrameViews frames);
    FramesAtGuest(const FramesAtGuest&) = delete;
    FramesAtGuest& operator=(const FramesAtGuest&) = delete;
    [[nodiscard]] std::size_t looked_at() const { return looked_at_; }
    [[nodiscard]] base::FrameViews all() const { return all_; }
    /// What these have in the network.
    [[nodiscard]] std::size_t bytes_in_network() const { return bytes_; }

private:
    static constexpr std::size_t kMost = 64;
    std::size_t looked_at_;
    base::FrameViews all_;
    std::size_t bytes_ = 0;
    std::vector<base::FrameView> views_;
    base::Frame room_;  // for those that are others now
};

}  // namespace openmana::fabric
