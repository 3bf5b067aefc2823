// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/memory_account.h"
#include "base/state.h"
#include "eth/flow_fields.h"
#include "eth/toeplitz.h"

namespace openmana::eth {

class ReceiveQueue;

/// Finds a receive queue by its handle; null if there is none.
using FindQueue = std::function<ReceiveQueue*(std::uint64_t handle)>;

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
    void save(base::StateWriter& out) const;
    /// Null if it is refused, or `account` does not pay for it.
    [[nodiscard]] static std::unique_ptr<Spread> load(base::StateReader& in, const FindQueue& find,
                                                      base::MemoryAccount& account);
    /// Whether a spread may be over these fields and have so many entries.
    [[nodiscard]] static bool can_be(std::uint32_t fields, std::uint64_t entries);

private:
    const std::uint32_t fields_;
    Toeplitz toeplitz_;
    std::vector<ReceiveQueue*> table_;
    base::MemoryAccount::Charge charge_;
};

}  // namespace openmana::eth
