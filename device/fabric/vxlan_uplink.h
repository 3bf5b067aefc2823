// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/once_per.h"
#include "fabric/fdb.h"
#include "fabric/fdb_file.h"
#include "fabric/flood_limit.h"
#include "fabric/uplink.h"
#include "fabric/vxlan_endpoint.h"

namespace openmana::fabric {

/// A frame that came by a tunnel; who gets it may change it.
struct Tunnelled {
    std::span<std::byte> frame{};
    roce::Gid from{};  ///< the other end's address
    std::uint8_t tos = 0;
};

#define OM_VXLAN_COUNTERS(X)                                                                     \
    X(flooded, "fabric.vxlan.flooded",                                                           \
      "frames sent to each end of the flood list: for a group, or an address without an entry")  \
    X(flood_limited, "fabric.vxlan.flood_limited",                                               \
      "frames dropped: for several ends, and there were too many copies in so short a time")     \
    X(no_end, "fabric.vxlan.no_end", "frames dropped: nobody to send them to")                   \
    X(too_large, "fabric.vxlan.too_large",                                                       \
      "frames dropped: with what is around them too large for the way to the other end")         \
    X(unknown_sender, "fabric.vxlan.unknown_sender",                                             \
      "frames dropped: from a host that the table does not name")                                \
    X(own_source, "fabric.vxlan.own_source",                                                     \
      "frames dropped: from the MAC address of a NIC here, so that there is a loop or a lie")    \
    X(ecn_marked, "fabric.vxlan.ecn_marked",                                                     \
      "frames that got the mark of congestion that their outer header had")                      \
    X(ecn_dropped, "fabric.vxlan.ecn_dropped",                                                   \
      "frames dropped: congestion on the way, of which their sender can be told by a loss only") \
    X(ecn_suspicious, "fabric.vxlan.ecn_suspicious",                                             \
      "frames whose outer ECN field no tunnel would have given them (RFC 6040)")

OM_COUNTERS(VxlanCounters, OM_VXLAN_COUNTERS);

/// A VXLAN network as a port of a switch: which ends of tunnels have which addresses its Fdb says.
/// What nobody knows goes to each end of the flood list, as a datagram of its own; nothing that
/// came by a tunnel leaves by one, so that several ends make no loop.
class VxlanUplink final : public Uplink {
public:
    /// Frames that are looked up at once.
    static constexpr std::size_t kBurst = 64;

    /// The endpoint is of the same loops and outlives it. `files`: who reads a table that another
    /// program writes.
    static base::Result<std::unique_ptr<VxlanUplink>> create(base::EventLoop& loop, Switch& network,
                                                             const UplinkConfig& config,
                                                             VxlanEndpoint& endpoint,
                                                             base::EventLoop& files);
    ~VxlanUplink() override;

    void deliver(base::FrameViews frames) override;
    /// Not more than kBurst, on the loop of that queue of the endpoint.
    void take(std::size_t queue, std::span<const Tunnelled> burst);
    [[nodiscard]] bool connected() const override;
    [[nodiscard]] std::vector<FailingEnd> failing_ends() const override;
    [[nodiscard]] Fdb& fdb() { return fdb_; }
    [[nodiscard]] const VxlanCounters& vxlan_counters() const { return vxlan_; }
    [[nodiscard]] const VxlanEndpoint& endpoint() const { return endpoint_; }
    void visit_counters(const CounterVisitor& visitor) const override;
    void save(base::StateWriter& out) const override;

private:
    VxlanUplink(base::EventLoop& loop, Switch& network, const UplinkConfig& config,
                VxlanEndpoint& endpoint);
    struct Outgoing;
    void send(Outgoing& outgoing);
    void note(const base::DatagramSocket::Sent& sent);
    void note_ends(std::span<const base::Datagram> datagrams, std::uint64_t failed, int error);
    [[nodiscard]] bool from_here(const base::MacAddr& source, const Tunnelled& packet);
    [[nodiscard]] bool leaves(const Tunnelled& packet);
    struct Sender;
    [[nodiscard]] bool known(Fdb::Access& access, const Tunnelled& packet, Sender& sender);
    void forget_failing_locked() const;
    struct Remarks;
    [[nodiscard]] bool passes(Fdb::Access& access, const Tunnelled& packet, Sender& sender,
                              Remarks& remarks);
    void log(const Remarks& remarks);

    VxlanEndpoint& endpoint_;
    const std::uint32_t vni_;
    const int dscp_;
    const bool strangers_;
    mutable Fdb fdb_;
    FloodLimit flood_limit_;  // under the lock of an Access
    std::unique_ptr<FdbFile> file_;
    VxlanCounters vxlan_;
    static constexpr base::Duration kRest = std::chrono::seconds(60);
    // Ends that the host could not send to when it last tried, by their addresses, with errno.
    struct Failing {
        std::string end;
        int error = 0;
        base::TimePoint tried{};  ///< one that nobody sends to any more is forgotten
    };
    static constexpr std::size_t kMaxFailing = 1024;
    mutable std::mutex failing_mutex_;  // protects failing_
    mutable std::map<roce::Gid, Failing> failing_;
    mutable std::atomic<bool> any_failing_{false};  // hint, of itself alone, so relaxed
    mutable base::OncePer forgetting_{kRest};
    base::OncePer failure_line_{kRest};
    base::OncePer end_line_{kRest};
    base::OncePer flood_line_{kRest};
    base::OncePer stranger_line_{kRest};
    base::OncePer loop_line_{kRest};
    base::OncePer move_line_{kRest};
    base::OncePer refusal_line_{kRest};
};

}  // namespace openmana::fabric
