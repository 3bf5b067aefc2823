// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace openmana::eth {

class ReceiveQueue;

/// The bytes of mana_hw_ext_flow_fields, in words that are compared at once.
using FlowFields = std::array<std::uint64_t, 7>;

/// What flow rules see of a frame; a header that is cut short counts as absent.
[[nodiscard]] FlowFields flow_fields(std::span<const std::byte> frame);

/// The flow rules of a vPort (docs/extensions.md). Changed under an exclusion of the function's
/// Gate, read during visits. Looking up takes time in proportion to the number of rules, which is
/// why that is small.
class FlowTable {
public:
    static constexpr std::size_t kMaxRules = 64;

    [[nodiscard]] bool empty() const { return rules_.empty(); }
    /// Its handle, or nothing if there are too many.
    std::optional<std::uint64_t> add(std::uint32_t priority, const FlowFields& value,
                                     const FlowFields& mask, ReceiveQueue& queue);
    /// False if there is no such rule.
    bool remove(std::uint64_t handle);
    /// All rules of a queue.
    void forget(const ReceiveQueue& queue);
    void clear() { rules_.clear(); }
    /// Who gets the frame by a rule, or nullptr.
    [[nodiscard]] ReceiveQueue* find(std::span<const std::byte> frame) const;

private:
    struct Rule {
        std::uint32_t priority = 0;
        std::uint64_t handle = 0;  // grows: of equal priority the oldest comes first
        FlowFields value{};
        FlowFields mask{};
        ReceiveQueue* queue = nullptr;
    };
    std::vector<Rule> rules_;  // as they are looked at
    std::uint64_t next_handle_ = 1;
};

}  // namespace openmana::eth
