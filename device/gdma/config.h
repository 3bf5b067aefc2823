// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/counters.h"

namespace openmana::gdma {

/// What one function offers. The defaults serve the drivers of Linux 6.12 and 7.2.
struct FunctionConfig {
    std::string name = "nic";             ///< in log lines
    std::uint32_t doorbell_pages = 1024;  ///< 4 KiB each in BAR0
    std::uint32_t max_sqs = 65536;        ///< quotas, per kind
    std::uint32_t max_rqs = 65536;
    std::uint32_t max_cqs = 32768;
    std::uint32_t max_eqs = 1024;
    std::uint32_t max_pds = 16384;
    std::uint32_t max_mrs = 1048576;
    std::uint32_t max_regions = 65536;  ///< DMA regions not yet consumed
    std::uint64_t max_region_pages =
        1ULL << 22;  ///< pages of all incomplete or unconsumed regions together
    std::uint64_t max_device_memory = 16ULL << 20;
    std::uint64_t max_memory = 1ULL << 30;  ///< that all of these take (base::MemoryAccount)
    /// Decides about keys and QP numbers, so that nobody can know them: from the system's source of
    /// randomness, or from a test.
    std::uint64_t seed = 0;
};

#define OM_GDMA_COUNTERS(X)                                                          \
    X(hwc_requests, "gdma.hwc.requests", "HWC requests handled")                     \
    X(hwc_failed, "gdma.hwc.failed", "HWC requests answered with an error status")   \
    X(hwc_malformed, "gdma.hwc.malformed",                                           \
      "HWC requests dropped: no valid message or no room for the answer")            \
    X(shm_failed, "gdma.shm.failed", "SHM requests answered with an error")          \
    X(shm_unshared, "gdma.shm.unshared",                                             \
      "HWC set-ups in guest memory that seems not to be shared with the device")     \
    X(doorbell_ignored, "gdma.doorbell.ignored",                                     \
      "doorbells for an unknown queue, or on a page that is not its own")            \
    X(doorbell_strange, "gdma.doorbell.strange",                                     \
      "of these, doorbells before any queue was made: the driver knows another NIC") \
    X(cq_overruns, "gdma.cq.overruns",                                               \
      "arms of a CQ with more unread entries than it holds: some are lost")          \
    X(bar_ignored, "gdma.bar.ignored", "BAR0 writes that mean nothing")              \
    X(resets, "gdma.function.resets", "resets of the function")

OM_COUNTERS(FunctionCounters, OM_GDMA_COUNTERS);

/// How many objects of each kind live, those of the HWC and of registered devices among them.
struct ObjectCounts {
    std::uint64_t eqs = 0, cqs = 0, sqs = 0, rqs = 0, pds = 0, keys = 0;
    std::uint64_t regions = 0, region_pages = 0;  ///< not consumed
    std::uint64_t device_memories = 0, device_memory_bytes = 0;
    std::uint64_t doorbell_pages = 0;
    friend bool operator==(const ObjectCounts&, const ObjectCounts&) = default;
};

}  // namespace openmana::gdma
