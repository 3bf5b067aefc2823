// SPDX-License-Identifier: Apache-2.0
#include "eth/steering.h"

#include <mana/ext_eth.h>

#include <utility>

#include "base/hold_meter.h"

namespace openmana::eth {
namespace {

constexpr std::size_t kMaxSpreads = 64;

}  // namespace

bool Steering::add_spread(std::uint64_t handle, std::unique_ptr<Spread> spread) {
    if (spreads_.size() >= kMaxSpreads) return false;
    spreads_.emplace(handle, std::move(spread));
    return true;
}

Spread* Steering::find_spread(std::uint64_t handle) const {
    const auto found = spreads_.find(handle);
    return found != spreads_.end() ? found->second.get() : nullptr;
}

bool Steering::remove_spread(std::uint64_t handle) {
    const auto found = spreads_.find(handle);
    if (found == spreads_.end()) return false;
    base::count_work(1 + FlowTable::kMaxRules / base::kSmallSteps);
    flows_.forget(found->second.get());
    spreads_.erase(found);
    return true;
}

ReceiveQueue* Steering::choose(ReceivedFrame& frame) const {
    if (interface_.rss && frame.hash_type != 0) {
        frame.hash = interface_.toeplitz.hash(std::span(frame.hash_input).first(frame.hash_bytes));
        return interface_.table[frame.hash & (interface_.table.size() - 1)];
    }
    frame.hash_type = 0;
    return interface_.default_queue;
}

void Steering::forget(ReceiveQueue& queue) {
    base::count_work((interface_.table.size() + FlowTable::kMaxRules) / base::kSmallSteps +
                     spreads_.size() * (MANA_HW_EXT_SPREAD_ENTRIES / base::kSmallSteps));
    if (interface_.default_queue == &queue) interface_.default_queue = nullptr;
    for (auto& entry : interface_.table)
        if (entry == &queue) entry = nullptr;
    flows_.forget(&queue);
    for (auto& [handle, spread] : spreads_) spread->forget(queue);
}

void Steering::clear() {
    base::count_work(1 + spreads_.size());
    interface_ = {};
    flows_.clear();
    spreads_.clear();
}

}  // namespace openmana::eth
