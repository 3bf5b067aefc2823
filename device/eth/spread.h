// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory_account.h"
#include "eth/flow_fields.h"
#include "eth/toeplitz.h"

namespace openmana::eth {

class ReceiveQueue;

/// Packet queues that the frames of a rule are spread over (docs/extensions.md). Changed under an
/// exclusion of the function's Gate, read during visits.
class Spread {
public:
    /// `fields`: MANA_HW_EXT_SPREAD_*. The table has a power of two of entries.
    Spread(std::uint32_t fields, std::span<const std::byte, Toeplitz::kKeyBytes> key,
           std::vector<ReceiveQueue*> table, base::MemoryAccount::Charge charge);
    /// What `charge` pays for.
    [[nodiscard]] static std::uint64_t cost(std::size_t entries);

    /// Who gets a frame with these fields; nullptr if that queue has ended.
    [[nodiscard]] ReceiveQueue* choose(const FlowFields& words) const;
    void forget(const ReceiveQueue& queue);

private:
    const std::uint32_t fields_;
    Toeplitz toeplitz_;
    std::vector<ReceiveQueue*> table_;
    base::MemoryAccount::Charge charge_;
};

}  // namespace openmana::eth
