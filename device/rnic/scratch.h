// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mana/ext.h>

#include <array>
#include <cstddef>
#include <vector>

#include "gdma/types.h"
#include "rnic/send_queue.h"

namespace openmana::rnic {

/// Reused buffers of one thread's work, so that no message allocates.
struct Scratch {
    explicit Scratch(base::MemoryAccount& account) : slots(account) {}
    gdma::SpanList from;
    gdma::SpanList to;
    gdma::SpanList cut;
    std::vector<std::byte> datagram;  ///< a copy, for our own queue pairs
    SendWqe failed;                   ///< see Requester::take_failed
    SendSlots slots;
    std::array<std::byte, MANA_HW_EXT_WQE_MAX_BYTES> wqe{};  ///< the one being taken
};

}  // namespace openmana::rnic
