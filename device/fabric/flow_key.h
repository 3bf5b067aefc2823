// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/state.h"
#include "fabric/frame_headers.h"
#include "roce/packet.h"

namespace openmana::fabric {

enum class FlowKind : std::uint8_t { kTcp, kUdp, kRc, kUc, kUd };

/// A connection as the guest sees it. `local` and `remote` are ports or QP numbers; of RC and UC a
/// frame tells only one.
struct FlowKey {
    static constexpr std::uint32_t kUnknown = 0xffffffff;

    FlowKind kind = FlowKind::kTcp;
    roce::Gid local_address{}, remote_address{};
    std::uint32_t local = 0, remote = 0;
    roce::Vlan vlan = roce::kNoVlan;

    /// Of a frame that is no later fragment. None if it belongs to no connection.
    [[nodiscard]] static std::optional<FlowKey> of(Direction direction, const FrameHeaders& headers,
                                                   std::span<const std::byte> frame);
    [[nodiscard]] bool rdma() const { return kind != FlowKind::kTcp && kind != FlowKind::kUdp; }
    /// Kind and addresses, and which numbers are known, but not which they are.
    [[nodiscard]] FlowKey numberless() const;
    friend bool operator==(const FlowKey&, const FlowKey&) = default;
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
        a.choice(self.kind, FlowKind::kUd);
        a(self.local_address, self.remote_address, self.local, self.remote, self.vlan);
    }
};

struct FlowKeyHash {
    std::size_t operator()(const FlowKey& key) const;
};

/// Whether the frame is a congestion notification packet (CNP).
[[nodiscard]] bool is_notification(const FrameHeaders& headers, std::span<const std::byte> frame);

}  // namespace openmana::fabric
