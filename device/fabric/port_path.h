// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/executor.h"
#include "base/frame.h"
#include "base/frame_queue.h"
#include "base/wall_time.h"
#include "fabric/capture.h"
#include "fabric/claims.h"
#include "fabric/faults.h"
#include "fabric/flow_log.h"
#include "fabric/policy.h"
#include "fabric/shaper.h"

namespace openmana::fabric {

#define OM_PATH_COUNTERS(X)                                      \
    X(queue_full, "fabric.port.queue_full",                      \
      "frames dropped: too many wait for the thread of the NIC") \
    X(queue_marked, "fabric.port.queue_marked",                  \
      "frames with an ECN mark because many wait for the thread of the NIC")

OM_COUNTERS(PathCounters, OM_PATH_COUNTERS);

/// What happens to the frames of a NIC between guest and switch, in each direction: policy (access
/// rules, flow log), rate limit, faults, capture. Without any of them frames pass straight through.
/// RDMA may take the local path if nothing but a policy of addresses is set, and that allows it.
///
/// Everything is for the NIC's executor, but for `from_network`, `needs_packets`, `passes_rdma` and
/// the counters.
class PortPath {
public:
    /// Where frames come out, on the executor.
    class Exits {
    public:
        virtual ~Exits() = default;
        virtual void to_network(base::Frame frame) = 0;
        virtual void to_guest(base::FrameView frame) = 0;
        /// Of frames without a stage to pass, on the thread that they come on. How many of them it
        /// took, from the first on: not all if the guest's NIC is closed now. Nobody waits for it,
        /// and the rest comes by to_guest.
        [[nodiscard]] virtual std::size_t to_guest_now(base::FrameViews frames) = 0;
        /// Other stages than before.
        virtual void stages_changed() {}
    };
    /// Frames waiting for the executor: those that a stage needs it for, those that came while the
    /// NIC was closed, and what came behind them.
    static constexpr std::size_t kMaxWaitingBytes = 64U << 20;
    static constexpr std::size_t kMarkWaitingBytes = 1U << 20;

    /// `name` and `mac` are the NIC's.
    PortPath(base::Executor& executor, std::string name, const base::MacAddr& mac, Exits& exits);
    ~PortPath();

    void from_guest(base::Frame frame);
    /// True if from_guest() does anything but hand the frame on.
    [[nodiscard]] bool transmit_active() const { return lane(Direction::kTransmit).active; }
    void from_network(base::FrameViews frames);

    /// An RC connection of this NIC was given up: the flow log says why.
    void connection_failed(const rnic::Connection& connection, rnic::Failure failure) {
        if (flows_) flows_->connection_failed(connection, failure);
    }
    /// An RC connection of this NIC is over: the flow log closes it.
    void connection_ended(const rnic::Connection& connection) {
        if (flows_) flows_->connection_ended(connection);
    }

    /// True while RDMA of this NIC has to be frames, whomever it is with: there is a stage that
    /// looks at each.
    [[nodiscard]] bool needs_packets() const {
        return needs_packets_.load(std::memory_order_relaxed);
    }
    /// True if RDMA between these ends, of which the source is this NIC's, needs no frames: no
    /// stage looks at each, and the policy lets all of them pass. Any thread.
    [[nodiscard]] bool passes_rdma(const rnic::Ends& ends) const;
    /// Whether the policy lets the NIC have the MAC address. Any thread.
    [[nodiscard]] bool may_have(const base::MacAddr& mac) const;
    /// Those that the policy names besides the NIC's own.
    [[nodiscard]] std::vector<base::MacAddr> named_macs() const;
    /// What the policy says of a claim to an address. Any thread.
    [[nodiscard]] Standing standing(const roce::Gid& address) const;

    /// Replaces the faults of a direction; what is being delayed goes out at once. Without a value:
    /// none.
    void set_faults(Direction direction, const std::optional<FaultConfig>& config);
    [[nodiscard]] const std::optional<FaultConfig>& faults(Direction direction) const {
        return lane(direction).fault_config;
    }
    /// Replaces the policy. `flows`, kept as long as the policy, takes the flow log if it asks for
    /// one.
    void set_policy(const std::optional<PolicyConfig>& config, std::shared_ptr<FlowSink> flows,
                    base::WallTime wall);
    /// All that is delayed, or waits for the rate limit, comes out at once.
    void flush();
    /// What waits for the executor. While nobody brings anything.
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    /// What faults and flow log have seen, and the counters of all stages; for a path that has the
    /// same policy and faults. After flush().
    void save_stages(base::StateWriter& out) const;
    void load_stages(base::StateReader& in);
    /// Captures what the guest sends and gets, behind all other stages. Null ends it.
    void set_capture(std::shared_ptr<FrameTap> tap);
    /// Bytes of RDMA frames that the rate limit takes before half of its queue is full: the other
    /// half is for what cannot wait.
    [[nodiscard]] std::uint64_t transmit_room() const {
        const Lane& entry = lane(Direction::kTransmit);
        return entry.shaper ? entry.shaper->room(TrafficClass::kRdma) : UINT64_MAX;
    }
    /// Bytes that wait for the rate limit of a direction.
    [[nodiscard]] std::uint64_t queued_bytes(Direction direction) const {
        const Lane& entry = lane(direction);
        return entry.shaper ? entry.shaper->queued_bytes() : 0;
    }
    [[nodiscard]] FaultCounters& fault_counters() { return fault_counters_; }

    template <typename F>
    void visit_counters(F&& f) const {
        each_counters(*this, [&f](const auto& counters) { counters.visit(f); });
    }

private:
    struct Lane {
        std::unique_ptr<Shaper> shaper;
        std::unique_ptr<FaultInjector> faults;
        std::optional<FaultConfig> fault_config;
        bool active = false;
    };
    /// Calls `f` with the counters of each stage.
    template <typename Self, typename F>
    static void each_counters(Self& self, F&& f) {
        f(self.counters_);
        f(self.policy_counters_);
        f(self.shaper_counters_);
        f(self.fault_counters_);
        f(self.flow_counters_);
    }
    [[nodiscard]] Lane& lane(Direction direction) { return lanes_[index(direction)]; }
    [[nodiscard]] const Lane& lane(Direction direction) const { return lanes_[index(direction)]; }
    void wait_for_thread(base::FrameView frame);
    void take_waiting();
    void take_waiting_later();
    void receive(base::Frame frame);
    void enter(Direction direction, base::Frame frame);
    void after_policy(Direction direction, base::Frame frame);
    void after_shaper(Direction direction, base::Frame frame);
    void leave(Direction direction, base::Frame frame);
    void end_old_flows();
    void refresh();
    void set_filter(std::shared_ptr<const Filter> filter);
    [[nodiscard]] std::shared_ptr<const Filter> filter() const;

    base::Executor& executor_;
    const std::string name_;
    const base::MacAddr mac_;
    Exits& exits_;
    PathCounters counters_;
    PolicyCounters policy_counters_;
    ShaperCounters shaper_counters_;
    FaultCounters fault_counters_;
    FlowCounters flow_counters_;

    std::shared_ptr<const Filter> filter_;  // changes on the executor, under filter_mutex_
    std::shared_ptr<FlowSink> flow_sink_;
    std::unique_ptr<FlowLog> flows_;
    /// Of a policy that is no more, until all its connections have ended.
    struct OldFlows {
        std::shared_ptr<FlowSink> sink;
        std::unique_ptr<FlowLog> log;
    };
    std::list<OldFlows> old_flows_;
    base::Timer old_flows_timer_{executor_, [this] { end_old_flows(); }};
    std::shared_ptr<FrameTap> tap_;
    std::array<Lane, kDirections> lanes_;

    std::atomic<bool> needs_packets_{false};
    mutable std::mutex filter_mutex_;          // so that others than the executor read filter_
    std::atomic<bool> receive_active_{false};  // a hint for from_network; changes on the executor
    base::FrameQueue waiting_{"port", kMaxWaitingBytes};
    std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for posted tasks
};

}  // namespace openmana::fabric
