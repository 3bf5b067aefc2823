// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/counters.h"
#include "base/executor.h"
#include "base/fd.h"
#include "base/result.h"
#include "base/wall_time.h"
#include "fabric/frame_headers.h"
#include "rnic/network.h"
#include "roce/packet.h"
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

/// Takes the lines of a flow log, without newline. From any thread.
class FlowSink {
public:
    virtual ~FlowSink() = default;
    virtual void line(std::string_view json) = 0;
};

/// A file of JSON lines, appended to. After an error it says so once in the log and drops the rest.
class FlowFile final : public FlowSink {
public:
    static base::Result<std::unique_ptr<FlowFile>> create(const std::string& path);
    void line(std::string_view json) override;
    [[nodiscard]] const std::string& path() const { return path_; }
    /// True while lines can be written and the path still leads to the file: not once it was
    /// renamed or removed (log rotation).
    [[nodiscard]] bool current() const;
    /// errno of the error that ended the log, or 0; and how many lines were lost by it.
    [[nodiscard]] int error() const { return error_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

private:
    FlowFile(std::string path, base::UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
    const std::string path_;
    mutable std::mutex mutex_;  // protects fd_, and keeps lines whole
    base::UniqueFd fd_;
    std::atomic<int> error_{0};
    std::atomic<std::uint64_t> lost_{0};
};

/// The connections of a NIC, found from its frames: TCP and UDP by addresses and ports, RDMA by
/// queue pair numbers. Writes a line when one starts and one when it ends (docs/network.md). Lives
/// on one executor.
///
/// An RC packet names only the receiver's QP. Each direction is therefore followed on its own until
/// an answer with the PSN of a request shows which two belong together.
class FlowTable {
public:
    static constexpr std::size_t kMaxFlows = 65536;
    /// After both ends have closed, for the last acknowledgements.
    static constexpr base::Duration kLinger = std::chrono::seconds(2);
    /// Packets of which later fragments are expected, and for how long: as a host waits for them.
    static constexpr std::size_t kMaxFragmented = 4096;
    static constexpr base::Duration kFragmentsWait = std::chrono::seconds(30);

    FlowTable(base::Executor& executor, std::string nic, base::Duration idle, base::WallTime wall,
              FlowSink& sink, FlowCounters& counters);
    ~FlowTable();
    FlowTable(const FlowTable&) = delete;
    FlowTable& operator=(const FlowTable&) = delete;

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
    [[nodiscard]] std::size_t size() const { return flows_.size(); }

private:
    enum class Kind : std::uint8_t { kTcp, kUdp, kRc, kUc, kUd };
    /// Seen from the guest. `local` and `remote` are ports or QP numbers; of RC and UC a frame
    /// tells only one.
    static constexpr std::uint32_t kUnknown = 0xffffffff;
    struct Key {
        Kind kind = Kind::kTcp;
        roce::Gid local_address{}, remote_address{};
        std::uint32_t local = 0, remote = 0;
        friend bool operator==(const Key&, const Key&) = default;
    };
    struct KeyHash {
        std::size_t operator()(const Key& key) const;
    };
    /// The PSNs that one direction has shown: tells a repetition from something new, also when the
    /// network lost it before it came here, and it comes behind later ones.
    class PsnRecord {
    public:
        /// Packets of `count` PSNs from `psn` on; `certain` if the count is known. False if they
        /// were here before.
        bool add(roce::Psn psn, std::uint32_t count = 1, bool certain = true);
        /// The count of what was added last, now that it is known.
        void settle(std::uint32_t count);
        [[nodiscard]] std::optional<roce::Psn> first() const { return first_; }
        [[nodiscard]] std::optional<roce::Psn> last() const { return last_; }

    private:
        struct Gap {
            roce::Psn begin, end;
        };
        static constexpr std::size_t kMaxGaps = 64;
        std::optional<roce::Psn> first_, last_;
        roce::Psn next_;
        bool next_certain_ = false;
        std::vector<Gap> gaps_;  // oldest first
    };
    /// One direction's sums.
    struct Half {
        std::uint64_t frames = 0, bytes = 0, payload = 0, operations = 0;
        PsnRecord requests, responses;
        std::uint32_t unsettled_read = 0;  // length of the last READ, if its PSNs are unknown
        bool finished = false;             // FIN seen
    };
    struct Flow {
        Key key;
        bool ipv4 = true;
        base::TimePoint start{}, last{};
        Half halves[kDirections];
        std::uint64_t errors = 0, rnr = 0, retransmits = 0, marked = 0, denied = 0, dropped = 0;
        std::uint32_t path_mtu = 0;     // of RDMA, 0 until a packet has shown it
        const char* failure = nullptr;  // of RC: why the NIC gave it up
        bool closing = false;
        Direction opened = Direction::kTransmit;
        unsigned pairing_attempts = 0;
        [[nodiscard]] bool paired() const {
            return key.local != kUnknown && key.remote != kUnknown;
        }
    };
    /// What all fragments of a packet have in common (RFC 791 3.2, RFC 8200 4.5).
    struct FragmentKey {
        Direction direction = Direction::kTransmit;
        std::uint8_t protocol = 0;  // IPv4; of IPv6 the first fragment may say more than the others
        std::uint32_t id = 0;
        roce::Gid source{}, destination{};
        friend bool operator==(const FragmentKey&, const FragmentKey&) = default;
    };
    struct FragmentKeyHash {
        std::size_t operator()(const FragmentKey& key) const;
    };
    /// A packet whose first fragment was seen. Whole, it is kept for what the rate limit says of
    /// its last fragment, but its number may belong to another packet now.
    struct Fragmented {
        FragmentKey key;
        Key flow;
        base::TimePoint start{};
        std::size_t bytes = 0, total = 0;  // seen; of the packet, 0 until its end was seen
        [[nodiscard]] bool whole() const { return total != 0 && bytes >= total; }
    };
    using List = std::list<Flow>;
    using Place = List::iterator;

    [[nodiscard]] static std::optional<Key> key_of(Direction direction, const FrameHeaders& headers,
                                                   std::span<const std::byte> frame);
    /// The connection that a CNP with this key (of RC) is for, as far as that can be told; if it is
    /// none that is known, the key tells its likely kind.
    std::optional<Place> notified(Key& key, Direction direction) const;
    [[nodiscard]] static FragmentKey fragment_key(Direction direction, const FrameHeaders& headers);
    static void count_fragment(Fragmented& packet, const FrameHeaders& headers);
    void expect_fragments(Direction direction, const FrameHeaders& headers, const Key& flow);
    /// The packet whose first fragment came before this one.
    Fragmented* fragmented(Direction direction, const FrameHeaders& headers);
    Place find(const Key& key, Direction direction, bool ipv4);
    void touch(Place flow);
    void count_tcp(Place flow, Direction direction, const FrameHeaders& headers,
                   std::span<const std::byte> frame);
    void count_rdma(Place flow, Direction direction, const FrameHeaders& headers,
                    std::span<const std::byte> frame);
    void count_request(Flow& flow, Half& half, std::span<const std::byte> bth);
    static void learn_path_mtu(Flow& flow, const roce::OpcodeInfo& info, std::size_t payload);
    /// The flow that the answer `psn` belongs to, after it was joined with its other direction.
    Place pair(Place flow, Direction direction, roce::Psn psn);
    Place join(Place flow, Place other);
    /// What was seen of a connection, as one flow.
    std::optional<Place> flow_of(const rnic::Connection& connection);
    [[nodiscard]] static Key addresses_of(const Key& key);
    void remember(Place flow);
    void forget(Place flow);
    void end(Place flow, const char* reason);
    void write(const Flow& flow, bool start, const char* reason);
    void expire();
    void arm();

    base::Executor& executor_;
    const std::string nic_;
    const base::Duration idle_;
    const base::WallTime wall_;
    FlowSink& sink_;
    FlowCounters& counters_;
    List flows_;                                     // least recently used first
    List closing_;                                   // in the order in which they close
    std::unordered_map<Key, Place, KeyHash> index_;  // an RC flow with both numbers has two entries
    /// By kind and addresses alone: of RC those with one number; of UC and UD the first
    /// kMaxCandidates.
    std::unordered_map<Key, std::vector<Place>, KeyHash> candidates_;
    std::list<Fragmented> fragmented_;  // oldest first
    std::unordered_map<FragmentKey, std::list<Fragmented>::iterator, FragmentKeyHash>
        fragment_index_;
    base::Timer timer_;
};

}  // namespace openmana::fabric
