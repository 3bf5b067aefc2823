// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mana/rnic.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace openmana::rnic {

/// How many queue pairs of a NIC are in each state. Those who change the state of one tell it; any
/// thread reads. Relaxed, without a partner: each is a count by itself.
class QpStates {
public:
    static constexpr std::array<const char*, 7> kNames{"RESET", "INIT", "RTR", "RTS",
                                                       "SQD",   "SQE",  "ERR"};
    static_assert(MANA_HW_RNIC_QP_ERR + 1 == kNames.size());

    void enter(std::uint32_t state) { counts_[state].fetch_add(1, std::memory_order_relaxed); }
    void leave(std::uint32_t state) { counts_[state].fetch_sub(1, std::memory_order_relaxed); }
    /// Calls f(name of the state, count) for each.
    template <typename F>
    void visit(F&& f) const {
        for (std::size_t i = 0; i < kNames.size(); ++i)
            f(kNames[i], counts_[i].load(std::memory_order_relaxed));
    }

private:
    std::array<std::atomic<std::uint64_t>, kNames.size()> counts_{};
};

}  // namespace openmana::rnic
