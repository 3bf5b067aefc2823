// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include <mana/gdma.h>

#include "base/twofold.h"
#include "gdma/stale_rings.h"

namespace openmana::gdma {

/// What is needed of a function's hardware channel to answer its driver when all else of the
/// function is gone, in memory that may outlive the process. Written on the executor.
struct ChannelLedger {
    /// Where its rings are, and by which numbers its driver knows it.
    struct Channel {
        EqPlace eq;
        CqPlace cq;
        RingPlace rq, sq;
        std::uint32_t rqn = 0, sqn = 0;
        std::uint32_t key = 0;
        bool there = false;
    };
    base::Twofold<Channel> channel;
    /// Positions behind the request that the CQ's last entry is about: of the SQ in the low half,
    /// of the RQ in the high one. By the number of that entry modulo two, and written before it: so
    /// whether a request was answered is asked of the CQ itself.
    std::array<std::atomic<std::uint64_t>, 2> done{};
    std::atomic<std::uint32_t> rq_posted{0};
    std::atomic<std::uint64_t> driver_caps{0};  ///< flags 1 that the driver has told (GDMA 5.2)
    std::array<std::atomic<std::uint32_t>, MANA_HW_SHM_WORDS> shm{};

    void set_done(std::uint64_t cq_producer, std::uint32_t sq, std::uint32_t rq) {
        done[cq_producer % 2].store(std::uint64_t{rq} << 32 | sq, std::memory_order_release);
    }
};

}  // namespace openmana::gdma
