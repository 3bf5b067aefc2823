// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "eth/receive_queue.h"
#include "eth/steering.h"

namespace openmana::eth {
namespace {

ReceiveQueue* find_or_none(base::StateReader& in, const FindQueue& find) {
    const auto handle = in.get<std::uint64_t>();
    if (handle == 0) return nullptr;
    ReceiveQueue* const queue = find(handle);
    in.require(queue != nullptr, "frames go to a queue that there is not");
    return queue;
}

}  // namespace

void Steering::save(base::StateWriter& out) const {
    out(interface_.enabled, interface_.rss, interface_.packets_per_cqe,
        ReceiveQueue::handle_of(interface_.default_queue));
    out.count(interface_.table.size());
    for (const ReceiveQueue* const queue : interface_.table) out(ReceiveQueue::handle_of(queue));
    out(interface_.toeplitz.key());

    std::vector<std::pair<std::uint64_t, const Spread*>> spreads;
    for (const auto& [handle, spread] : spreads_) spreads.emplace_back(handle, spread.get());
    std::sort(spreads.begin(), spreads.end());
    out.count(spreads.size());
    for (const auto& [handle, spread] : spreads) {
        out(handle);
        spread->save(out);
    }
    flows_.save(out, [&](FlowTarget target) {
        if (const auto* const queue = std::get_if<ReceiveQueue*>(&target))
            return ReceiveQueue::handle_of(*queue);
        const auto* const spread = std::get<Spread*>(target);
        return std::ranges::find(spreads, spread, &decltype(spreads)::value_type::second)->first;
    });
}

void Steering::load_interface(base::StateReader& in, const FindQueue& find) {
    in(interface_.enabled, interface_.rss);
    const auto together = in.get<unsigned>();
    ReceiveQueue* const default_queue = find_or_none(in, find);
    const std::size_t entries = in.count(sizeof(std::uint64_t));
    in.require((together == 1 || together == 4 || together == 8) && Interface::can_have(entries),
               "steering that cannot be");
    std::vector<ReceiveQueue*> table;
    for (std::size_t i = 0; i < entries && in.ok(); ++i) table.push_back(find_or_none(in, find));
    std::array<std::byte, Toeplitz::kKeyBytes> key{};
    in(key);
    if (!in.ok()) return;
    interface_.packets_per_cqe = together;
    interface_.default_queue = default_queue;
    interface_.table = std::move(table);
    interface_.toeplitz.set_key(key);
}

void Steering::load(base::StateReader& in, const FindQueue& find,
                    const std::function<bool(std::uint64_t handle)>& is_free,
                    base::MemoryAccount& account) {
    load_interface(in, find);
    for (std::size_t n = in.count(sizeof(std::uint64_t)); n > 0 && in.ok(); --n) {
        const auto handle = in.get<std::uint64_t>();
        auto spread = Spread::load(in, find, account);
        if (!in.ok()) return;
        in.require(is_free(handle) && find_spread(handle) == nullptr &&
                       add_spread(handle, std::move(spread)),
                   "spread of no handle, or one too many");
    }
    if (!in.ok()) return;
    flows_.load(in, [&](std::uint64_t handle) -> std::optional<FlowTarget> {
        ReceiveQueue* const queue = find(handle);
        if (queue != nullptr && queue->keeps_tags()) return queue;
        if (Spread* const spread = find_spread(handle)) return spread;
        return std::nullopt;
    });
}

}  // namespace openmana::eth
