// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/frame.h"
#include "base/hold_meter.h"
#include "base/keyed_hash.h"
#include "fabric/capture.h"
#include "fabric/claims.h"
#include "fabric/peers.h"
#include "fabric/port.h"
#include "fabric/reach.h"
#include "roce/packet.h"

namespace openmana::fabric {

#define OM_SWITCH_COUNTERS(X)                                                               \
    X(forwarded, "fabric.switch.forwarded",                                                 \
      "frames sent to the one port that owns their destination")                            \
    X(flooded, "fabric.switch.flooded",                                                     \
      "frames sent to all other ports, or all other uplinks: group or unknown destination") \
    X(hairpin, "fabric.switch.hairpin",                                                     \
      "frames not sent: their destination is behind the port they came from")               \
    X(split_horizon, "fabric.switch.split_horizon",                                         \
      "frames not sent: they came by a tunnel, and would leave by another")                 \
    X(malformed, "fabric.switch.malformed",                                                 \
      "frames dropped: shorter than an Ethernet header, or from a group address")           \
    X(learned, "fabric.switch.learned", "addresses learned on ports without a fixed one")   \
    X(forgotten, "fabric.switch.forgotten",                                                 \
      "learned addresses dropped for newer ones of the same port")

OM_COUNTERS(SwitchCounters, OM_SWITCH_COUNTERS);

/// A learning Ethernet switch (IEEE 802.1D without spanning tree). NIC ports have fixed addresses;
/// uplinks learn, and so do NIC ports whose guest has more. What Peers says is a NIC's is learned
/// at no other port. What is for an address that nobody has goes to all uplinks, and to no NIC: one
/// gets what is for it, or for an address that it sent from. Thread-safe. Frames are delivered
/// without the switch's lock, on the caller's thread.
///
/// Each port has so many learned addresses; a new one takes the place of that which was not seen
/// for longest. So who makes addresses up makes the switch forget its own only, and no frame costs
/// more than another: nobody can tell which addresses share a bucket.
class Switch {
public:
    static constexpr std::size_t kMaxLearned = 8192;   ///< of an uplink
    static constexpr std::size_t kMaxBehindNic = 256;  ///< of a port with a fixed address
    static constexpr base::Duration kAge = std::chrono::seconds(300);
    /// How long an address that was seen need not be seen again, unless its port learns many.
    static constexpr base::Duration kSeenAgain = std::chrono::seconds(1);

    explicit Switch(const base::Clock& clock) : clock_(clock) {}
    /// The port outlives the switch or is detached; `fixed` is an address that no other port can
    /// learn, or null.
    void attach(Port& port, const base::MacAddr* fixed);
    /// After this returns no new frame is handed to the port; the caller makes sure that nobody
    /// transmits meanwhile.
    void detach(Port& port);
    /// A peer claims an address, or has it by right, and may not have sent anything from it yet.
    /// True if it is the peer's from now on: frames for it go there. A claim fails if somebody was
    /// seen with the address at another port within kAge, unless the peer has `moved` here with it,
    /// or another peer has it.
    bool give(Peer& peer, const base::MacAddr& mac, MacRight right, bool moved = false);
    /// The end of that. Frames for the address go to whose it is now.
    void take_away(Peer& peer, const base::MacAddr& mac, MacRight right);
    /// What the port was seen with, but for a fixed address.
    [[nodiscard]] std::vector<base::MacAddr> learned_at(Port& port) const;
    /// Nobody is behind the port with that address any more.
    void forget(const Port& port, const base::MacAddr& mac);
    /// Sends frames that came in on `from`, by a door of its own or by the one that it has, to
    /// where they belong, each port's together. Those from one address to another keep their order.
    void forward(Port& from, Port::Door& door, base::FrameViews frames);
    void forward(Port& from, base::FrameViews frames) { forward(from, from.door_, frames); }
    void forward(Port& from, base::FrameView frame) { forward(from, base::FrameViews(&frame, 1)); }
    /// From now on `tap` sees each frame once, as it enters the switch; it outlives the switch.
    /// Before traffic starts.
    void set_tap(FrameTap& tap) {
        tap_.store(&tap, std::memory_order_release);
        reach_changed();
    }
    /// True if there is a tap, so that everything has to be frames.
    [[nodiscard]] bool observed() const { return tap_.load(std::memory_order_acquire) != nullptr; }
    /// Shows the tap a frame that a port keeps to itself.
    void observe(base::FrameView frame) {
        FrameTap* const tap = tap_.load(std::memory_order_acquire);
        if (tap == nullptr) return;
        roce::put_icrc(frame);
        tap->frame(frame);
    }
    /// The NICs on it, for those that do without frames.
    [[nodiscard]] Peers& peers() { return peers_; }
    /// Their addresses.
    [[nodiscard]] Claims& claims() { return claims_; }
    /// See Reach.
    [[nodiscard]] std::uint64_t reach() const { return reach_.count(); }
    void reach_changed() { reach_.changed(); }
    [[nodiscard]] const SwitchCounters& counters() const { return counters_; }
    /// The most addresses that a look-up may compare. For tests: it looks at the whole table.
    [[nodiscard]] std::size_t longest_bucket() const;

private:
    /// A port with what it has learned, that seen last in front.
    struct Attached {
        explicit Attached(std::optional<std::uint64_t> its_own)
            : fixed(its_own), most_learned(its_own ? kMaxBehindNic : kMaxLearned) {}
        const std::optional<std::uint64_t> fixed;
        const std::size_t most_learned;
        std::list<std::uint64_t> learned;
        std::atomic<std::uint64_t> ever_learned{0};  ///< under the lock
    };
    friend struct KnownAddress;
    using Known = std::shared_ptr<KnownAddress>;
    using Table = std::unordered_map<std::uint64_t, Known, base::KeyedHash>;
    [[nodiscard]] static std::uint64_t key(const base::MacAddr& mac);
    /// Where a frame goes: to these, which are not the one that it came from.
    struct Target {
        enum class Kind : std::uint8_t { kNone, kOne, kSame, kAll, kUnknown } kind = Kind::kNone;
        Port* one = nullptr;  ///< of kUnknown: who had the address long ago, or null
        [[nodiscard]] bool floods() const { return kind == Kind::kAll || kind == Kind::kUnknown; }
        friend bool operator==(const Target&, const Target&) = default;
    };
    /// How many frames are looked up before the first of them is handed on.
    static constexpr std::size_t kBurst = 64;
    struct FloodPort {
        Port* port;
        bool fixed;
    };
    using FloodPorts = std::vector<FloodPort>;
    void forward_burst(Port& from, Port::Door& door, base::FrameViews frames, base::TimePoint now);
    Target target_of(Port& from, Port::Door& door, base::FrameView frame, base::TimePoint now);
    void saw(Port& from, Port::Door& door, const base::MacAddr& source, base::TimePoint now);
    Target look_up(Port& from, Port::Door& door, const base::MacAddr& destination,
                   base::TimePoint now);
    void flood(const Port& from, const Target& target, base::FrameView frame);
    void forget_locked(Table::iterator entry);
    Known saw_locked(Port& from, const base::MacAddr& source, base::TimePoint now);
    [[nodiscard]] bool elsewhere_locked(const Port& port, const base::MacAddr& mac) const;
    void forget_locked(const Port& port, const base::MacAddr& mac);
    Known learn_locked(Port& from, std::uint64_t source, base::TimePoint now);
    void forget_oldest_locked(Attached& port);
    [[nodiscard]] bool forget_step(Port& port);
    void reserve_locked();

    const base::Clock& clock_;
    std::atomic<FrameTap*> tap_{nullptr};
    // Protects the next four. Under it peers_ alone is asked.
    mutable base::SharedMutex mutex_{"switch"};
    Table table_;               // rehashed by attach() alone, for more ports than there ever were
    std::size_t reserved_ = 0;  // entries that it holds without that
    std::map<Port*, Attached> attached_;
    std::shared_ptr<const FloodPorts> ports_ = std::make_shared<FloodPorts>();  // in their order
    Peers peers_;
    Reach reach_;
    Claims claims_{reach_};
    SwitchCounters counters_;
};

}  // namespace openmana::fabric
