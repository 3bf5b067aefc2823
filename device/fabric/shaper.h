// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/counters.h"
#include "base/executor.h"
#include "base/frame.h"
#include "fabric/frame_headers.h"

namespace openmana::fabric {

/// The two kinds of traffic that a shaper knows: RoCEv2, and everything else.
enum class TrafficClass : std::uint8_t { kRdma, kEthernet };
constexpr std::size_t kTrafficClasses = 2;

/// Rates are in bit/s of frames as a capture shows them (from the MAC addresses on, no FCS); 0:
/// none.
struct ShaperConfig {
    struct Class {
        std::uint64_t limit = 0;
        std::uint64_t guarantee = 0;
    };
    std::uint64_t limit = 0;  ///< of both classes together
    std::array<Class, kTrafficClasses> classes{};
    std::uint64_t queue_bytes = 0;  ///< per class; 0: 20 ms at the rate that bounds it, at least 4
                                    ///< MiB for RDMA and 512 KiB for Ethernet, at most 64 MiB
    /// Kmin, Kmax and Pmax of ECN marking (ROCE 8.1): no mark up to the first fill of the queue,
    /// all above the second, between them with a chance that grows to `ecn_ppm`. Kmax 0: as Kmin.
    /// Kmin 0: RDMA 100 us of its rate to 400 us, 20 %; Ethernet all above an eighth of the queue.
    std::uint64_t ecn_bytes = 0;
    std::uint64_t ecn_max_bytes = 0;
    std::uint32_t ecn_ppm = 1000000;
    std::uint64_t seed = 1;  ///< of what chance decides
};

#define OM_SHAPER_COUNTERS(X)                                                                   \
    X(delayed, "fabric.shaper.delayed", "frames that waited for their turn under a rate limit") \
    X(dropped, "fabric.shaper.dropped", "frames dropped: the queue of the rate limit was full") \
    X(marked, "fabric.shaper.marked", "frames with an ECN mark for the fill of the queue")

OM_COUNTERS(ShaperCounters, OM_SHAPER_COUNTERS);

/// Limits the rates of a direction of a port, and shares the total between RDMA and Ethernet: each
/// class first gets what it is guaranteed, the rest goes in equal parts to those that want more.
/// Lives on one executor.
class Shaper {
public:
    /// What a rate saves in a rest.
    static constexpr base::Duration kBurst = std::chrono::milliseconds(2);
    /// What frames that wait may lag behind, because the host was late, and catch up with.
    static constexpr base::Duration kCatchUp = std::chrono::milliseconds(50);

    /// Sees what finds no room in its queue.
    using Dropped = std::function<void(const FrameHeaders&, std::span<const std::byte>)>;
    Shaper(base::Executor& executor, const ShaperConfig& config, ShaperCounters& counters,
           std::function<void(base::Frame)> next, Dropped dropped = {});

    void push(base::Frame frame);
    /// Hands all frames on, in order, whatever the rates say.
    void flush();
    /// Bytes before half of the queue of a class is full.
    [[nodiscard]] std::uint64_t room(TrafficClass of) const {
        const Class& entry = classes_[static_cast<std::size_t>(of)];
        return entry.max_queued / 2 - std::min(entry.queued, entry.max_queued / 2);
    }
    [[nodiscard]] std::uint64_t queued_bytes() const {
        return classes_[0].queued + classes_[1].queued;
    }

private:
    /// A token bucket that goes into debt: open at a moment, and each frame pushes that moment away
    /// by its own time. What is saved is bounded by kBurst before the frame came, and by kCatchUp.
    class Meter {
    public:
        explicit Meter(std::uint64_t rate = 0) : rate_(rate) {}
        [[nodiscard]] bool limited() const { return rate_ != 0; }
        [[nodiscard]] base::TimePoint open_at() const { return open_at_; }
        [[nodiscard]] bool open(base::TimePoint now) const { return rate_ == 0 || open_at_ <= now; }
        /// For a frame that came at `arrival` and goes on now.
        void charge(std::size_t bytes, base::TimePoint arrival, base::TimePoint now);

    private:
        std::uint64_t rate_ = 0;
        std::uint64_t remainder_ = 0;  // of the division to nanoseconds
        base::TimePoint open_at_{};
    };
    struct Waiting {
        base::Frame frame;
        base::TimePoint arrival;
    };
    struct Class {
        Meter limit;
        Meter guarantee;
        std::deque<Waiting> frames;
        std::uint64_t queued = 0;
        std::uint64_t max_queued = 0;
        std::uint64_t mark_min = 0;
        std::uint64_t mark_max = 0;
        std::uint32_t mark_ppm = 0;
        std::uint64_t borrowed = 0;  // bytes sent beyond the guarantee, for equal shares
    };
    void set_marking(Class& entry, const ShaperConfig& config, bool rdma, std::uint64_t rate);
    [[nodiscard]] bool should_mark(const Class& entry, std::uint64_t fill);
    [[nodiscard]] Class* choose(base::TimePoint now);
    [[nodiscard]] std::optional<base::TimePoint> next_turn() const;
    void serve();

    base::Executor& executor_;
    ShaperCounters& counters_;
    std::function<void(base::Frame)> next_;
    Dropped dropped_;
    Meter total_;
    std::array<Class, kTrafficClasses> classes_;
    base::Random random_;
    bool serving_ = false;
    base::Timer timer_;
};

}  // namespace openmana::fabric
