// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "base/state.h"
#include "eth/flow_fields.h"

namespace openmana::eth {

class ReceiveQueue;
class Spread;

/// Who gets the frames of a rule.
using FlowTarget = std::variant<ReceiveQueue*, Spread*>;

/// The flow rules of a vPort (docs/extensions.md). Changed under an exclusion of the function's
/// Gate, read during visits. Looking up takes time in proportion to the number of rules, which is
/// why that is small.
class FlowTable {
public:
    static constexpr std::size_t kMaxRules = 64;

    [[nodiscard]] bool empty() const { return rules_.empty(); }
    /// Its handle, or nothing if there are too many.
    std::optional<std::uint64_t> add(std::uint32_t priority, const FlowFields& value,
                                     const FlowFields& mask, FlowTarget target);
    /// False if there is no such rule.
    bool remove(std::uint64_t handle);
    /// All rules of a queue or a spread.
    void forget(FlowTarget target);
    void clear() { rules_.clear(); }
    /// Who gets the frame by a rule: nullptr if that queue of a spread has ended. Nothing if no
    /// rule matches.
    [[nodiscard]] std::optional<ReceiveQueue*> find(std::span<const std::byte> frame) const;

    /// Which numbers stand for queues and spreads in a state.
    using HandleOf = std::function<std::uint64_t(FlowTarget target)>;
    using FindTarget = std::function<std::optional<FlowTarget>(std::uint64_t handle)>;
    void save(base::StateWriter& out, const HandleOf& handle_of) const;
    void load(base::StateReader& in, const FindTarget& find);

private:
    struct Rule {
        std::uint32_t priority = 0;
        std::uint64_t handle = 0;  // grows: of equal priority the oldest comes first
        FlowFields value{};
        FlowFields mask{};
        FlowTarget target;
    };
    [[nodiscard]] static bool comes_before(const Rule& a, const Rule& b) {
        return a.priority < b.priority || (a.priority == b.priority && a.handle < b.handle);
    }
    std::vector<Rule> rules_;  // as they are looked at
    std::uint64_t next_handle_ = 1;
};

}  // namespace openmana::eth
