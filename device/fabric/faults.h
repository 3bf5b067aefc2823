// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/executor.h"
#include "base/frame.h"
#include "base/state.h"

namespace openmana::fabric {

/// What a bad link does to frames. Chances in parts per million.
struct FaultConfig {
    std::uint32_t loss_ppm = 0;
    std::uint32_t duplicate_ppm = 0;
    std::uint32_t reorder_ppm = 0;  ///< the frame lets one to four later ones pass
    std::uint32_t corrupt_ppm = 0;  ///< one bit behind the Ethernet header changes
    base::Duration delay{};
    base::Duration
        jitter{};  ///< up to this much on top of the delay; does not by itself change the order
    std::uint64_t seed = 1;

    [[nodiscard]] bool any() const {
        return loss_ppm != 0 || duplicate_ppm != 0 || reorder_ppm != 0 || corrupt_ppm != 0 ||
               delay.count() != 0 || jitter.count() != 0;
    }
};

#define OM_FAULT_COUNTERS(X)                                                                    \
    X(lost, "fabric.fault.lost", "frames dropped by fault injection")                           \
    X(duplicated, "fabric.fault.duplicated", "frames sent twice by fault injection")            \
    X(reordered, "fabric.fault.reordered", "frames held back so that later ones pass them")     \
    X(corrupted, "fabric.fault.corrupted", "frames of which fault injection changed a bit")     \
    X(delayed, "fabric.fault.delayed", "frames delayed by fault injection")                     \
    X(overflows, "fabric.fault.overflows", "frames dropped because too much was being delayed") \
    X(flaps, "fabric.fault.flaps", "times that fault injection took the link down")

OM_COUNTERS(FaultCounters, OM_FAULT_COUNTERS);

/// Injects faults into a stream of frames. What happens to the n-th frame depends on seed, n, and
/// the chances alone: the same frames under the same seed see the same, and one fault more or less
/// does not move the others. Lives on one executor.
class FaultInjector {
public:
    static constexpr std::size_t kMaxHeldBytes = 64U << 20;
    /// A held-back frame goes out after this at the latest, so that it arrives even if the
    /// stream pauses.
    static constexpr base::Duration kMaxHold = std::chrono::milliseconds(1);

    FaultInjector(base::Executor& executor, const FaultConfig& config, FaultCounters& counters,
                  std::function<void(base::Frame)> next);

    void push(base::Frame frame);
    /// Hands on what is delayed or held back, in its order.
    void flush();
    [[nodiscard]] const FaultConfig& config() const { return config_; }
    /// How many frames it has seen, so that those to come see what they would have here. After
    /// flush().
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
        a(self.frames_);
    }

private:
    struct Delayed {
        base::TimePoint due;
        base::Frame frame;
    };
    struct HeldBack {
        unsigned frames_to_pass;
        base::TimePoint latest;
        base::Frame frame;
    };
    void emit(base::Frame frame);
    void pass_on(base::Frame frame);
    void release_held();
    void fire();
    void arm();

    base::Executor& executor_;
    const FaultConfig config_;
    FaultCounters& counters_;
    std::function<void(base::Frame)> next_;
    std::uint64_t frames_ = 0;
    base::Duration extra_delay_{};  // jitter of the frame at hand
    std::deque<Delayed> delayed_;   // by due time, for due times never go back
    std::vector<HeldBack> held_;
    std::size_t bytes_ = 0;
    base::Timer timer_;
};

/// Carrier that comes and goes: up for `up`, then down for `down`, over and over.
struct FlapConfig {
    base::Duration up{};
    base::Duration down{};
    [[nodiscard]] bool any() const { return down.count() != 0; }
};

}  // namespace openmana::fabric
