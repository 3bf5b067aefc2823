// SPDX-License-Identifier: Apache-2.0
#include "fabric/port_path.h"

#include <algorithm>
#include <utility>

#include "roce/packet.h"

namespace openmana::fabric {
namespace {

constexpr const char* kPolicyChanged = "policy changed";

}  // namespace

PortPath::PortPath(base::Executor& executor, std::string name, const base::MacAddr& mac,
                   Exits& exits)
    : executor_(executor), name_(std::move(name)), mac_(mac), exits_(exits) {}

PortPath::~PortPath() = default;

void PortPath::refresh() {
    const bool watched = flows_ != nullptr || tap_ != nullptr;
    bool any = watched;
    for (Lane& entry : lanes_) {
        const bool changed = entry.shaper || entry.faults;
        entry.active = changed || watched || filter_ != nullptr;
        any = any || changed;
    }
    receive_active_.store(lane(Direction::kReceive).active, std::memory_order_relaxed);
    needs_packets_.store(any, std::memory_order_relaxed);
    exits_.stages_changed();
}

void PortPath::set_filter(std::shared_ptr<const Filter> filter) {
    const std::lock_guard lock(filter_mutex_);
    filter_ = std::move(filter);
}

std::shared_ptr<const Filter> PortPath::filter() const {
    const std::lock_guard lock(filter_mutex_);
    return filter_;
}

bool PortPath::passes_rdma(const rnic::Ends& ends) const {
    if (needs_packets()) return false;
    const auto policy = filter();
    return !policy || policy->passes_rdma(ends);
}

bool PortPath::may_have(const base::MacAddr& mac) const {
    const auto policy = filter();
    return policy ? policy->may_have(mac) : mac == mac_;
}

std::vector<base::MacAddr> PortPath::named_macs() const {
    const auto policy = filter();
    return policy ? policy->macs() : std::vector<base::MacAddr>();
}

Standing PortPath::standing(const roce::Gid& address) const {
    if (address == own_link_local(mac_)) return Standing::kOwn;
    const auto policy = filter();
    if (!policy || !policy->names_addresses()) return Standing::kFree;
    return policy->grants(address) ? Standing::kGranted : Standing::kForbidden;
}

void PortPath::set_faults(Direction direction, const std::optional<FaultConfig>& config) {
    Lane& entry = lane(direction);
    if (const auto old = std::move(entry.faults)) old->flush();
    entry.fault_config = config;
    if (config && config->any()) {
        FaultConfig own = *config;
        // The two directions of a NIC see different faults under one seed.
        own.seed = own.seed * kDirections + index(direction);
        entry.faults = std::make_unique<FaultInjector>(
            executor_, own, fault_counters_,
            [this, direction](base::Frame frame) { leave(direction, std::move(frame)); });
    }
    refresh();
}

void PortPath::set_policy(const std::optional<PolicyConfig>& config,
                          std::shared_ptr<FlowSink> flows, base::WallTime wall) {
    for (Lane& entry : lanes_)
        if (const auto old = std::move(entry.shaper)) old->flush();
    if (flows_) old_flows_.push_back({flow_sink_, std::move(flows_)});
    end_old_flows();
    // At once: whoever asks meanwhile finds the old one or the new one.
    set_filter(config && config->filters()
                   ? std::make_shared<const Filter>(mac_, *config, policy_counters_)
                   : nullptr);
    flow_sink_ = std::move(flows);
    if (config) {
        if (flow_sink_)
            flows_ = std::make_unique<FlowLog>(executor_, name_, config->flow_idle, wall,
                                               *flow_sink_, flow_counters_);
        for (const Direction direction : {Direction::kTransmit, Direction::kReceive}) {
            if (!config->shapes() || !config->shape[index(direction)]) continue;
            lane(direction).shaper = std::make_unique<Shaper>(
                executor_, config->shaper, shaper_counters_,
                [this, direction](base::Frame frame) { after_shaper(direction, std::move(frame)); },
                [this, direction](const FrameHeaders& headers, std::span<const std::byte> frame) {
                    if (flows_) flows_->dropped(direction, headers, frame);
                });
        }
    }
    refresh();
}

/// So many a turn.
void PortPath::end_old_flows() {
    if (old_flows_.empty()) return;
    if (!old_flows_.front().log->end_some(kPolicyChanged)) old_flows_.pop_front();
    if (!old_flows_.empty()) old_flows_timer_.arm(base::Duration(1));
}

void PortPath::set_capture(std::shared_ptr<FrameTap> tap) {
    tap_ = std::move(tap);
    refresh();
}

void PortPath::from_guest(base::Frame frame) {
    if (!lane(Direction::kTransmit).active) {
        exits_.to_network(std::move(frame));
        return;
    }
    enter(Direction::kTransmit, std::move(frame));
}

void PortPath::from_network(base::FrameViews frames) {
    // Not past those that wait.
    if (!receive_active_.load(std::memory_order_relaxed) && !waiting_.busy())
        frames = frames.subspan(exits_.to_guest_now(frames));
    for (const base::FrameView frame : frames) wait_for_thread(frame);
}

void PortPath::wait_for_thread(base::FrameView frame) {
    base::Frame copy(frame);
    const bool marked =
        waiting_.bytes() > kMarkWaitingBytes && mark_congestion(copy, read_headers(copy));
    switch (waiting_.push(std::move(copy))) {
        case base::FrameQueue::Pushed::kFull:
            counters_.queue_full.add();
            return;
        case base::FrameQueue::Pushed::kFirst:
            take_waiting_later();
            break;
        case base::FrameQueue::Pushed::kMore:
            break;
    }
    if (marked) counters_.queue_marked.add();
}

void PortPath::take_waiting_later() {
    executor_.post([token = std::weak_ptr<int>(alive_), this] {
        if (!token.expired()) take_waiting();
    });
}

void PortPath::take_waiting() {
    for (base::Frame& frame : waiting_.take()) receive(std::move(frame));
    // The rest has its turn when the executor has looked after everything else: who floods a NIC
    // keeps it from its doorbells and commands for one chunk at a time.
    if (!waiting_.done()) take_waiting_later();
}

void PortPath::save(base::StateWriter& out) const {
    base::save_frames(out, waiting_, [](base::Frame& frame) { roce::put_icrc(frame); });
}

void PortPath::load(base::StateReader& in) {
    base::load_frames(in, [this](base::FrameView frame) { wait_for_thread(frame); });
}

void PortPath::save_stages(base::StateWriter& out) const {
    out.begin("STGS", 1);
    each_counters(*this, [&out](const auto& counters) { base::save_counters(out, counters); });
    for (const Lane& entry : lanes_) {
        out(entry.faults != nullptr);
        if (entry.faults) out(*entry.faults);
    }
    out(flows_ != nullptr);
    if (flows_) flows_->save(out);
    out.end();
}

void PortPath::load_stages(base::StateReader& in) {
    in.begin("STGS", 1);
    each_counters(*this, [&in](auto& counters) { base::load_counters(in, counters); });
    for (Lane& entry : lanes_) {
        const auto has_faults = in.get<bool>();
        in.require(has_faults == (entry.faults != nullptr), "other faults than there are");
        if (in.ok() && entry.faults) in(*entry.faults);
    }
    const auto has_flows = in.get<bool>();
    in.require(has_flows == (flows_ != nullptr), "another flow log than there is");
    if (in.ok() && flows_) flows_->load(in);
    in.end();
}

void PortPath::flush() {
    for (const OldFlows& old : old_flows_) old.log->end_all(kPolicyChanged);
    old_flows_.clear();
    for (const Lane& entry : lanes_) {
        if (entry.shaper) entry.shaper->flush();
        if (entry.faults) entry.faults->flush();
    }
}

void PortPath::receive(base::Frame frame) {
    if (lane(Direction::kReceive).active)
        enter(Direction::kReceive, std::move(frame));
    else
        exits_.to_guest(frame);
}

void PortPath::enter(Direction direction, base::Frame frame) {
    if (filter_ || flows_) {
        const FrameHeaders headers = read_headers(frame);
        const bool passes = !filter_ || filter_->passes(direction, headers, frame);
        if (flows_) flows_->frame(direction, headers, frame, !passes);
        if (!passes) return;
    }
    after_policy(direction, std::move(frame));
}

void PortPath::after_policy(Direction direction, base::Frame frame) {
    if (const auto& shaper = lane(direction).shaper)
        shaper->push(std::move(frame));
    else
        after_shaper(direction, std::move(frame));
}

void PortPath::after_shaper(Direction direction, base::Frame frame) {
    if (const auto& faults = lane(direction).faults)
        faults->push(std::move(frame));
    else
        leave(direction, std::move(frame));
}

void PortPath::leave(Direction direction, base::Frame frame) {
    if (tap_) {
        roce::put_icrc(frame);
        tap_->frame(frame);
    }
    if (direction == Direction::kTransmit)
        exits_.to_network(std::move(frame));
    else
        exits_.to_guest(frame);
}

}  // namespace openmana::fabric
