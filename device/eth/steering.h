// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/memory_account.h"
#include "base/state.h"
#include "eth/flow_fields.h"
#include "eth/flow_table.h"
#include "eth/receive_parse.h"
#include "eth/spread.h"
#include "eth/toeplitz.h"

namespace openmana::eth {

class ReceiveQueue;

/// Which receive queue gets a frame: flow rules first, then the interface's default queue and its
/// indirection table (GDMA 6.8). Changed under an exclusion of the function's Gate, read during
/// visits. The queues outlive it or are forgotten.
class Steering {
public:
    static constexpr std::uint32_t kTableEntries = 64;

    /// What CONFIG_VPORT_RX changes.
    struct Interface {
        bool enabled = false;
        bool rss = false;
        unsigned packets_per_cqe = 1;  ///< at most; also 4 and 8
        ReceiveQueue* default_queue = nullptr;
        std::vector<ReceiveQueue*> table =
            std::vector<ReceiveQueue*>(kTableEntries);  ///< a power of two of entries
        Toeplitz toeplitz;
        [[nodiscard]] static bool can_have(std::uint64_t entries) {
            return std::has_single_bit(entries) && entries <= 512;
        }
    };

    [[nodiscard]] Interface& interface() { return interface_; }
    [[nodiscard]] const Interface& interface() const { return interface_; }
    [[nodiscard]] FlowTable& flows() { return flows_; }
    [[nodiscard]] const FlowTable& flows() const { return flows_; }

    /// False if there are too many.
    bool add_spread(std::uint64_t handle, std::unique_ptr<Spread> spread);
    [[nodiscard]] Spread* find_spread(std::uint64_t handle) const;
    [[nodiscard]] bool has_spreads() const { return !spreads_.empty(); }
    /// With the rules that lead to it. False if there is no such spread.
    bool remove_spread(std::uint64_t handle);

    /// The interface's queue for the frame, if there is one; notes the hash that has led to it.
    [[nodiscard]] ReceiveQueue* choose(ReceivedFrame& frame) const;
    /// Nobody finds the queue any more.
    void forget(ReceiveQueue& queue);
    void clear();

    void save(base::StateWriter& out) const;
    /// The queues are there. `is_free`: whether a spread may have a handle.
    void load(base::StateReader& in, const FindQueue& find,
              const std::function<bool(std::uint64_t handle)>& is_free,
              base::MemoryAccount& account);

private:
    void load_interface(base::StateReader& in, const FindQueue& find);
    Interface interface_;
    FlowTable flows_;
    std::unordered_map<std::uint64_t, std::unique_ptr<Spread>> spreads_;
};

}  // namespace openmana::eth
