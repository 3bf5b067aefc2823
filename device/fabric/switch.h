// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/frame.h"
#include "fabric/capture.h"
#include "fabric/peers.h"

namespace openmana::fabric {

#define OM_SWITCH_COUNTERS(X)                                                             \
    X(forwarded, "fabric.switch.forwarded",                                               \
      "frames sent to the one port that owns their destination")                          \
    X(flooded, "fabric.switch.flooded",                                                   \
      "frames sent to all other ports: group or unknown destination")                     \
    X(hairpin, "fabric.switch.hairpin",                                                   \
      "frames dropped: their destination is behind the port they came from")              \
    X(malformed, "fabric.switch.malformed",                                               \
      "frames dropped: shorter than an Ethernet header, or from a group address")         \
    X(learned, "fabric.switch.learned", "addresses learned on ports without a fixed one") \
    X(table_full, "fabric.switch.table_full", "addresses not learned because the table was full")

OM_COUNTERS(SwitchCounters, OM_SWITCH_COUNTERS);

/// Where a switch hands frames to.
class Port {
public:
    virtual ~Port() = default;
    /// A frame towards this port. From any thread that transmits; the bytes are good during the
    /// call only.
    virtual void deliver(std::span<const std::byte> frame) = 0;
};

/// A learning Ethernet switch (IEEE 802.1D without spanning tree). NIC ports have fixed addresses;
/// uplinks learn. Thread-safe. Frames are delivered without the switch's lock, on the caller's
/// thread.
class Switch {
public:
    static constexpr std::size_t kMaxLearned = 8192;
    static constexpr base::Duration kAge = std::chrono::seconds(300);

    explicit Switch(const base::Clock& clock) : clock_(clock) {}
    /// The port outlives the switch or is detached; `fixed` is an address that no other port can
    /// learn, or null.
    void attach(Port& port, const base::MacAddr* fixed);
    /// After this returns no new frame is handed to the port; the caller makes sure that nobody
    /// transmits meanwhile.
    void detach(Port& port);
    /// Sends a frame that came in on `from` to where it belongs.
    void forward(Port& from, std::span<const std::byte> frame);
    /// From now on `tap` sees each frame once, as it enters the switch; it outlives the switch.
    /// Before traffic starts.
    void set_tap(FrameTap& tap) { tap_.store(&tap, std::memory_order_release); }
    /// True if there is a tap, so that everything has to be frames.
    [[nodiscard]] bool observed() const { return tap_.load(std::memory_order_acquire) != nullptr; }
    /// Shows the tap a frame that a port keeps to itself.
    void observe(std::span<const std::byte> frame) {
        if (FrameTap* const tap = tap_.load(std::memory_order_acquire)) tap->frame(frame);
    }
    /// The NICs on it, for those that do without frames.
    [[nodiscard]] Peers& peers() { return peers_; }
    [[nodiscard]] const SwitchCounters& counters() const { return counters_; }

private:
    struct Entry {
        Port* port = nullptr;
        bool fixed = false;
        base::TimePoint seen{};
    };
    static std::uint64_t key(const std::uint8_t* mac);
    Port* look_up(Port& from, std::span<const std::byte> frame, bool& flood);

    const base::Clock& clock_;
    std::atomic<FrameTap*> tap_{nullptr};
    mutable std::mutex mutex_;  // protects table_ and ports_; nothing is called under it
    std::unordered_map<std::uint64_t, Entry> table_;
    std::vector<Port*> ports_;
    std::size_t learned_ = 0;
    Peers peers_;
    SwitchCounters counters_;
};

}  // namespace openmana::fabric
