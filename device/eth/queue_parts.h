// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/state.h"
#include "eth/queue_owner.h"
#include "gdma/completion_queue.h"
#include "gdma/function.h"
#include "gdma/handle.h"
#include "gdma/ring.h"

namespace openmana::eth {

constexpr std::uint32_t kWqeUnit = 32;
constexpr std::uint32_t kCqeUnit = 64;

/// Whether a queue's ring may have so many bytes, of entries of `unit`. Running positions are 32
/// bits: a ring may be at most half of that.
[[nodiscard]] constexpr bool ring_fits(std::uint64_t bytes, std::uint32_t unit) {
    constexpr std::uint64_t kMostBytes = 1U << 30;
    return bytes != 0 && bytes <= kMostBytes && bytes % unit == 0;
}

/// What a work queue of a state is made of again.
struct QueueParts {
    std::uint64_t handle = 0;
    std::uint32_t id = 0;
    QueueOwner owner;
    gdma::Ring ring;
    gdma::Handle<gdma::CompletionQueue> cq;
    bool packets = false;  ///< a packet queue of the extension

    static void save(base::StateWriter& out, std::uint64_t handle, std::uint32_t id,
                     const QueueOwner& owner, const gdma::Ring& ring,
                     const gdma::CompletionQueue& cq, bool packets);
    /// Nothing if it is refused. PDs, pages and CQs are there; the id and the handle are not
    /// looked at.
    [[nodiscard]] static std::optional<QueueParts> load(base::StateReader& in,
                                                        gdma::Function& function,
                                                        gdma::DeviceType device);
};

}  // namespace openmana::eth
