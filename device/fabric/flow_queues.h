// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/frame.h"
#include "fabric/inner_packet.h"

namespace openmana::fabric {

/// How many frames are shared out at once, and among how many queues at most.
inline constexpr std::size_t kFlowBurst = 64;
inline constexpr std::size_t kMaxFlowQueues = 64;

/// Calls send(queue, frames) for each queue that gets some of these frames, with all that it gets:
/// those of a flow have one queue, and keep their order.
template <typename Send>
void each_flow_queue(base::FrameViews frames, std::size_t queues,
                     const std::array<std::uint64_t, 2>& key, Send&& send) {
    std::array<std::uint8_t, kFlowBurst> queue_of;
    std::array<base::FrameView, kFlowBurst> together;
    while (!frames.empty()) {
        const base::FrameViews burst = frames.first(std::min(frames.size(), kFlowBurst));
        frames = frames.subspan(burst.size());
        std::uint64_t used = 0;
        for (std::size_t i = 0; i < burst.size(); ++i) {
            const std::size_t queue = flow_hash(burst[i], InnerPacket::of(burst[i]), key) % queues;
            queue_of[i] = static_cast<std::uint8_t>(queue);
            used |= std::uint64_t{1} << queue;
        }
        for (std::size_t queue = 0; queue < queues; ++queue) {
            if ((used >> queue & 1) == 0) continue;
            std::size_t count = 0;
            for (std::size_t i = 0; i < burst.size(); ++i)
                if (queue_of[i] == queue) together[count++] = burst[i];
            send(queue, base::FrameViews(together).first(count));
        }
    }
}

}  // namespace openmana::fabric
