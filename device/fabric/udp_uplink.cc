// SPDX-License-Identifier: Apache-2.0
#include "fabric/udp_uplink.h"

#include <algorithm>
#include <utility>

#include "base/random_seed.h"
#include "fabric/flow_queues.h"

namespace openmana::fabric {

static_assert(UplinkConfig::kMaxQueues <= kMaxFlowQueues);

base::Result<std::unique_ptr<UdpUplink>> UdpUplink::create(std::span<base::EventLoop* const> loops,
                                                           Switch& network,
                                                           const UplinkConfig& config) {
    base::EventLoop& loop = *loops.front();
    TRY(auto state, open_inherited(config.inherited, loop.clock().now()));
    std::vector<base::UniqueFd> inherited;
    if (state) {
        const auto version = state->begin("UDP ", 2);
        const std::size_t sockets = version < 2 ? 1 : state->count(1);
        state->require(sockets <= UplinkConfig::kMaxQueues, "more queues than there can be");
        while (state->ok() && inherited.size() < sockets) inherited.push_back(state->descriptor());
        TRY_VOID(state->result());
    }
    const std::size_t before = inherited.size();
    inherited.resize(std::max(before, config.queues));
    FlowKey key;
    for (std::uint64_t& word : key) {
        TRY(word, base::random_seed());
    }
    std::unique_ptr<UdpUplink> uplink(new UdpUplink(loop, network, config, key));
    for (std::size_t i = 0; i < config.queues; ++i)
        TRY_VOID(uplink->add_queue(*loops[i % loops.size()], config, std::move(inherited[i])));
    if (!state) {
        for (const auto& queue : uplink->queues_) queue->send_notice();
        return uplink;
    }
    uplink->load(*state, before);
    state->end();
    TRY_VOID(state->result());
    return uplink;
}

base::Result<void> UdpUplink::add_queue(base::EventLoop& loop, const UplinkConfig& config,
                                        base::UniqueFd inherited) {
    const std::size_t number = queues_.size();
    TRY(auto queue,
        UdpQueue::create(loop, config, number, std::move(inherited),
                         [this, number](base::FrameViews frames) { receive(number, frames); }));
    queues_.push_back(std::move(queue));
    return {};
}

UdpUplink::~UdpUplink() {
    network_.detach(*this);
}

void UdpUplink::save(base::StateWriter& out) const {
    out.begin("UDP ", 2);
    out.count(queues_.size());
    for (const auto& queue : queues_) out.descriptor(queue->socket());
    base::save_counters(out, counters_);
    for (const auto& queue : queues_) queue->save_encryption(out);
    out.end();
}

/// Of as many queues as the other process had.
void UdpUplink::load(base::StateReader& in, std::size_t queues) {
    base::load_counters(in, counters_);
    for (std::size_t i = 0; i < queues; ++i) {
        if (i < queues_.size()) {
            queues_[i]->load_encryption(in);
        } else {
            (void)in.get<bool>();
            (void)in.bytes();
        }
    }
}

/// What the queues have counted goes together.
void UdpUplink::visit_counters(const CounterVisitor& visitor) const {
    Uplink::visit_counters(visitor);
    std::vector<std::pair<base::CounterInfo, std::uint64_t>> sums;
    for (const auto& queue : queues_) {
        if (queue->encryption() == nullptr) continue;
        std::size_t at = 0;
        queue->encryption()->counters().visit(
            [&](const base::CounterInfo& info, std::uint64_t value) {
                if (at == sums.size()) sums.emplace_back(info, 0);
                sums[at++].second += value;
            });
    }
    for (const auto& [info, value] : sums) visitor(info, value);
}

void UdpUplink::send(UdpQueue& queue, base::FrameViews frames) {
    const auto sent = queue.send(frames);
    count_sent(sent.datagrams, sent.bytes);
    if (const auto lost = sent.dropped + sent.too_large; lost > 0) counters_.tx_dropped.add(lost);
}

void UdpUplink::deliver(base::FrameViews frames) {
    if (queues_.size() == 1) {
        send(*queues_.front(), frames);
        return;
    }
    each_flow_queue(
        frames, queues_.size(), flow_key_,
        [this](std::size_t queue, base::FrameViews its) { send(*queues_[queue], its); });
}

}  // namespace openmana::fabric
