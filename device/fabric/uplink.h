// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/event_loop.h"
#include "base/parcel.h"
#include "base/result.h"
#include "base/socket_address.h"
#include "base/state.h"
#include "base/unix_socket.h"
#include "fabric/source_guard.h"
#include "fabric/switch.h"
#include "fabric/uplink_encryption.h"
#include "fabric/vxlan_config.h"
#include "fabric/xdp_config.h"

namespace openmana::fabric {

using base::SocketAddress;

/// The network of what names none.
inline constexpr const char* kDefaultNetwork = "default";

struct UplinkConfig {
    enum class Kind : std::uint8_t {
        kUdp,     ///< one frame a datagram, as QEMU's `-netdev dgram` has it
        kTap,     ///< a TAP device of the host
        kStream,  ///< a Unix socket with QEMU's `-netdev stream` on the other end: length (4 bytes,
                  ///< network order), frame
        kVxlan,   ///< a VXLAN network, which an endpoint carries
        kXdp,     ///< an interface of the host, by AF_XDP
    };
    Kind kind = Kind::kUdp;
    std::string name;  ///< in log lines and counters
    std::string network = kDefaultNetwork;
    SocketAddress local, remote;
    /// So many threads for what comes in. udp: each with its pair of ports, one higher than that
    /// before; vxlan: of all networks with one local address.
    std::size_t queues = 1;
    static constexpr std::size_t kMaxQueues = 16;
    EncryptionConfig encryption;  ///< udp
    std::string interface;
    std::string path;
    bool listen = false;  ///< stream: wait for the other end instead of going to it
    VxlanConfig vxlan;
    XdpConfig xdp;
    base::SocketAccess access;  ///< to the socket that it listens on
    /// What Uplink::save() of another process has written, which this one goes on with; of a VXLAN
    /// network also what its endpoint's has. Taken once.
    std::shared_ptr<base::Parcel> inherited, inherited_endpoint;
};

#define OM_UPLINK_COUNTERS(X)                                                        \
    X(tx_frames, "fabric.uplink.tx_frames", "frames sent through an uplink")         \
    X(tx_bytes, "fabric.uplink.tx_bytes", "their bytes")                             \
    X(tx_dropped, "fabric.uplink.tx_dropped",                                        \
      "frames that the uplink could not take: other end absent or too slow")         \
    X(tx_marked, "fabric.uplink.tx_marked",                                          \
      "frames with an ECN mark because the other end is slow")                       \
    X(rx_frames, "fabric.uplink.rx_frames", "frames that came in through an uplink") \
    X(rx_bytes, "fabric.uplink.rx_bytes", "their bytes")                             \
    X(foreign_source, "fabric.uplink.foreign_source",                                \
      "of these, dropped: RoCE from an address that is a NIC's here by right")       \
    X(connects, "fabric.uplink.connects", "connections of a stream uplink")          \
    X(protocol_errors, "fabric.uplink.protocol_errors",                              \
      "connections ended because what came was no sequence of frames")

OM_COUNTERS(UplinkCounters, OM_UPLINK_COUNTERS);

/// What was handed over; nothing if that is nothing.
[[nodiscard]] base::Result<std::optional<base::StateReader>> open_inherited(
    const std::shared_ptr<base::Parcel>& parcel, base::TimePoint now);

/// A port of the switch with the world outside the process behind it. The switch learns who is
/// there. Reads on its loop, or one for each of its queues; `deliver` from any thread. Made and
/// destroyed while no loop runs, or on the only one.
class Uplink : public Port {
public:
    ~Uplink() override { network_.detach(*this); }
    static base::Result<std::unique_ptr<Uplink>> create(base::EventLoop& loop, Switch& network,
                                                        const UplinkConfig& config) {
        return create(std::array{&loop}, network, config);
    }
    /// With a loop for each queue; those behind them have the first ones again.
    static base::Result<std::unique_ptr<Uplink>> create(std::span<base::EventLoop* const> loops,
                                                        Switch& network,
                                                        const UplinkConfig& config);
    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] const UplinkCounters& counters() const { return counters_; }
    using CounterVisitor = std::function<void(const base::CounterInfo&, std::uint64_t)>;
    /// All that there are of it.
    virtual void visit_counters(const CounterVisitor& visitor) const { counters_.visit(visitor); }
    /// True if frames can go out: not if a stream has no other end, a TAP device was deleted, or
    /// none of several ends can be sent to.
    [[nodiscard]] virtual bool connected() const { return true; }
    /// Why no other process can go on in its place; null if one can.
    [[nodiscard]] virtual const char* bond() const { return nullptr; }
    /// All that it takes to go on in its place (UplinkConfig::inherited), descriptors included,
    /// while its loop and all who bring frames rest. Nothing changes. Nothing may come out of the
    /// other one before this one has ended, or is known not to go on.
    virtual void save(base::StateWriter& out) const { (void)out; }
    /// There is a NIC with this address on the network, which may not have sent anything yet. Any
    /// thread.
    virtual void expect(const base::MacAddr& mac) { (void)mac; }
    /// That NIC, or one that was there from the start, has left. Any thread.
    virtual void expect_no_more(const base::MacAddr& mac) { (void)mac; }
    /// One of several ends that cannot be sent to now, and why.
    struct FailingEnd {
        std::string end;
        int error = 0;  ///< errno
    };
    [[nodiscard]] virtual std::vector<FailingEnd> failing_ends() const { return {}; }
    /// Of what goes through a queue; null if that is not encrypted. On the queue's loop.
    [[nodiscard]] virtual UplinkEncryption* encryption(std::size_t queue = 0) {
        (void)queue;
        return nullptr;
    }

protected:
    Uplink(base::EventLoop& loop, Switch& network, std::string name, Kind kind = Kind::kPlain,
           std::size_t queues = 1)
        : Port(kind), loop_(loop), network_(network), name_(std::move(name)) {
        while (inlets_.size() < queues) inlets_.emplace_back(network);
        network_.attach(*this, nullptr);
    }
    /// Frames from outside, on the loop of that queue; the bytes are good during the call.
    void receive(std::size_t queue, base::FrameViews frames);
    void receive(base::FrameViews frames) { receive(0, frames); }
    void receive(base::FrameView frame) { receive(base::FrameViews(&frame, 1)); }

    void count_sent(std::uint64_t frames, std::uint64_t bytes) {
        counters_.tx_frames.add(frames);
        counters_.tx_bytes.add(bytes);
    }
    static constexpr std::size_t kReceiveBurst = 64;

    base::EventLoop& loop_;
    Switch& network_;
    const std::string name_;
    UplinkCounters counters_;

private:
    /// What a thread has that brings frames in.
    struct Inlet {
        explicit Inlet(Switch& network) : guard(network, nullptr, nullptr) {}
        SourceGuard guard;
        Door door;
    };
    std::deque<Inlet> inlets_;  // of each queue
};

}  // namespace openmana::fabric
