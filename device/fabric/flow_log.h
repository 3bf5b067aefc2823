// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "base/counters.h"
#include "base/executor.h"
#include "base/state.h"
#include "base/wall_time.h"
#include "fabric/flow_file.h"
#include "fabric/flow_fragments.h"
#include "fabric/flow_key.h"
#include "fabric/flow_record.h"
#include "fabric/frame_headers.h"
#include "rnic/network.h"
#include "roce/psn.h"

namespace openmana::fabric {

#define OM_FLOW_COUNTERS(X)                                                                   \
    X(started, "fabric.flow.started", "connections that the flow log took up")                \
    X(ended, "fabric.flow.ended", "connections that the flow log closed")                     \
    X(evicted, "fabric.flow.evicted", "connections closed in the flow log to make room")      \
    X(untracked, "fabric.flow.untracked",                                                     \
      "frames that belong to no connection: neither RoCEv2, TCP nor UDP, or fragments whose " \
      "first one is not known")

OM_COUNTERS(FlowCounters, OM_FLOW_COUNTERS);

/// The connections of a NIC, found from its frames: TCP and UDP by addresses and ports, RDMA by
/// queue pair numbers. Writes a line when one starts and one when it ends (docs/network.md). Lives
/// on one executor.
///
/// An RC packet names only the receiver's QP. Each direction is therefore followed on its own until
/// an answer with the PSN of a request shows which two belong together.
class FlowLog {
public:
    static constexpr std::size_t kMaxFlows = 65536;
    /// After both ends have closed, for the last acknowledgements.
    static constexpr base::Duration kLinger = std::chrono::seconds(2);
    /// Connections that end in one turn of the executor.
    static constexpr std::size_t kEndsATurn = 64;

    FlowLog(base::Executor& executor, std::string nic, base::Duration idle, base::WallTime wall,
            FlowSink& sink, FlowCounters& counters);
    ~FlowLog();
    FlowLog(const FlowLog&) = delete;
    FlowLog& operator=(const FlowLog&) = delete;

    /// A frame that passes; `denied` if the policy has just refused it.
    void frame(Direction direction, const FrameHeaders& headers, std::span<const std::byte> frame,
               bool denied);
    /// A frame that was told of by frame() did not get through the rate limit.
    void dropped(Direction direction, const FrameHeaders& headers,
                 std::span<const std::byte> frame);
    /// The NIC has given up an RC connection: an error, and the reason of its end.
    void connection_failed(const rnic::Connection& connection, rnic::Failure failure);
    /// The NIC says that an RC connection is over, and which two numbers it had: what was seen of
    /// it ends as one flow.
    void connection_ended(const rnic::Connection& connection);
    /// Ends all, as the destructor does.
    void end_all(const char* reason);
    /// Ends kEndsATurn of them; true if there are more.
    bool end_some(const char* reason);
    /// All connections, for another process to go on with.
    void save(base::StateWriter& out) const;
    /// Into one that has seen nothing. The other process has written the lines of their starts.
    void load(base::StateReader& in);
    [[nodiscard]] std::size_t size() const { return flows_.size(); }

private:
    using List = std::list<FlowRecord>;
    using Place = List::iterator;
    using Candidates = std::map<std::uint64_t, Place>;  // by their order

    /// The connection that a CNP with this key (of RC) is for, as far as that can be told; if it is
    /// none that is known, the key tells its likely kind.
    std::optional<Place> notified(FlowKey& key, Direction direction) const;
    Place find(const FlowKey& key, Direction direction, bool ipv4);
    void touch(Place flow);
    void close(Place flow);
    void count_rdma(Place flow, Direction direction, std::span<const std::byte> bth);
    /// The flow that the answer `psn` belongs to, after it was joined with its other direction.
    Place pair(Place flow, Direction direction, roce::Psn psn);
    /// The only flow that may be the other direction of this one.
    std::optional<Place> partner(Place flow, Direction direction, roce::Psn psn) const;
    Place join(Place flow, Place other);
    /// What was seen of a connection, as one flow.
    std::optional<Place> flow_of(const rnic::Connection& connection);
    [[nodiscard]] const Candidates& candidates(const FlowKey& numberless) const;
    void remember(Place flow);
    void forget(Place flow);
    void end(Place flow, const char* reason);
    void load_flow(base::StateReader& in);
    void expire();
    /// At what is due first, but not before `earliest`.
    void arm(base::TimePoint earliest = base::TimePoint::min());

    base::Executor& executor_;
    const std::string nic_;
    const base::Duration idle_;
    const base::WallTime wall_;
    FlowSink& sink_;
    FlowCounters& counters_;
    List flows_;    // least recently used first
    List closing_;  // in the order in which they close
    /// An RC flow with both numbers has two entries.
    std::unordered_map<FlowKey, Place, FlowKeyHash> index_;
    std::uint64_t next_order_ = 0;
    /// By FlowKey::numberless(): of RC those with one number; of UC and UD the first
    /// kMaxCandidates. None is empty.
    std::unordered_map<FlowKey, Candidates, FlowKeyHash> candidates_;
    FlowFragments fragments_;
    base::Timer timer_;
};

}  // namespace openmana::fabric
