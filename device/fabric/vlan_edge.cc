// SPDX-License-Identifier: Apache-2.0
#include "fabric/vlan_edge.h"

#include <algorithm>

#include "base/endian.h"

namespace openmana::fabric {
namespace {

constexpr std::size_t kMacs = 12;
constexpr std::size_t kTag = 4;
constexpr std::size_t kType = 2;
constexpr std::uint16_t kCustomerTag = 0x8100;
constexpr std::uint16_t kServiceTag = 0x88a8;

std::uint16_t word_at(base::FrameView frame, std::size_t at) {
    return base::load_be<std::uint16_t>(frame.data() + at);
}

/// What a frame says of its VLAN at its beginning.
struct Tagging {
    bool readable = false;  ///< not cut, and no tag of a kind that a network here does not have
    bool tag = false;
    bool more = false;  ///< another behind it
    std::uint16_t tci = 0;

    explicit Tagging(base::FrameView frame) {
        const auto is_tag = [&](std::size_t at) {
            const std::uint16_t type = word_at(frame, at);
            return type == kCustomerTag || type == kServiceTag;
        };
        if (frame.size() < kMacs + kType || word_at(frame, kMacs) == kServiceTag) return;
        tag = is_tag(kMacs);
        readable = !tag || frame.size() >= kMacs + kTag + kType;
        if (!tag || !readable) return;
        tci = word_at(frame, kMacs + kType);
        more = is_tag(kMacs + kTag);
    }
    [[nodiscard]] roce::Vlan vlan() const { return roce::vlan_of(tci); }
};

}  // namespace

std::optional<roce::Vlan> VlanEdge::to_network(roce::Vlan vlan) const {
    if (config_.all) return vlan;
    if (vlan == roce::kNoVlan) {
        if (config_.native == roce::kNoVlan) return std::nullopt;
        return config_.native;
    }
    if (vlan > roce::kVlanMask || !config_.tagged[vlan]) return std::nullopt;
    return vlan;
}

std::optional<roce::Vlan> VlanEdge::to_guest(roce::Vlan vlan) const {
    if (config_.all) return vlan;
    if (vlan == roce::kNoVlan) return std::nullopt;
    if (vlan == config_.native) return roce::kNoVlan;
    if (vlan > roce::kVlanMask || !config_.tagged[vlan]) return std::nullopt;
    return vlan;
}

bool VlanEdge::to_network(base::Frame& frame) const {
    if (config_.all) return true;
    const Tagging tagging(frame);
    if (!tagging.readable) return false;
    const auto vlan = to_network(tagging.vlan());
    if (!vlan) return false;
    if (tagging.vlan() != roce::kNoVlan) return true;
    if (tagging.more) return false;
    if (!tagging.tag) {
        frame.insert(frame.begin() + kMacs, kTag, std::byte{0});
        base::store_be<std::uint16_t>(frame.data() + kMacs, kCustomerTag);
    }
    const int priority = tagging.tci & ~roce::kVlanMask;
    base::store_be(frame.data() + kMacs + kType, static_cast<std::uint16_t>(priority | *vlan));
    return true;
}

VlanEdge::Passage VlanEdge::to_guest(base::FrameView frame) const {
    if (config_.all) return Passage::kAsItIs;
    const Tagging tagging(frame);
    if (!tagging.readable) return Passage::kDropped;
    const auto vlan = to_guest(tagging.vlan());
    if (!vlan) return Passage::kDropped;
    if (*vlan != roce::kNoVlan) return Passage::kAsItIs;
    return tagging.more ? Passage::kDropped : Passage::kWithoutTag;
}

FramesAtGuest::FramesAtGuest(const VlanEdge& edge, base::FrameViews frames)
    : looked_at_(edge.open() ? frames.size() : std::min(frames.size(), kMost)), all_(frames) {
    std::size_t bytes = 0;
    for (const base::FrameView frame : frames.first(looked_at_)) bytes += frame.size();
    if (edge.open()) {
        bytes_ = bytes;
        return;
    }
    room_.reserve(bytes);  // so that what is in it stays where it is
    views_.reserve(looked_at_);
    for (const base::FrameView frame : frames.first(looked_at_)) {
        const VlanEdge::Passage passage = edge.to_guest(frame);
        if (passage == VlanEdge::Passage::kDropped) continue;
        bytes_ += frame.size();
        if (passage == VlanEdge::Passage::kAsItIs) {
            views_.push_back(frame);
            continue;
        }
        const auto begin = room_.size();
        const auto macs = frame.first(kMacs), rest = frame.subspan(kMacs + kTag);
        room_.insert(room_.end(), macs.begin(), macs.end());
        room_.insert(room_.end(), rest.begin(), rest.end());
        views_.emplace_back(std::span<const std::byte>(room_).subspan(begin));
        views_.back().set_lacks_icrc(frame.lacks_icrc());
    }
    all_ = views_;
}

}  // namespace openmana::fabric
