// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace openmana::base {

/// Keeps a thread that wakes for each message of another process on the CPU that process runs on.
///
/// A wake-up across CPUs costs an interrupt, which in a virtual machine takes longer than the work
/// it is for, and Linux leaves a thread that sleeps for microseconds where it was. So where no CPU
/// is idle, the two are together or apart by chance and for long. Of no effect where a CPU is idle:
/// there the next wake-up takes that one.
///
/// Used by the thread that is to follow. What the system refuses to tell is let be.
class CpuFollower {
public:
    /// `leader` is the process that sends the messages.
    explicit CpuFollower(pid_t leader) : leader_(leader) {}

    /// Called when a message is served; `sleeps` counts how often this thread has slept. Looks only
    /// where that is often; true if it did.
    bool served(std::uint64_t sleeps, const Clock& clock) {
        if (sleeps - sleeps_ < kSleeps) [[likely]]
            return false;
        const TimePoint now = clock.now();
        if (now < next_) return false;
        look(sleeps, now);
        return true;
    }
    /// The CPU that a running thread of the leader is on: this thread's own, if one is there.
    /// Nothing if none runs.
    [[nodiscard]] std::optional<int> leader_cpu() const;
    /// Puts the calling thread on `cpu`; it may leave it again. False if it must not run there.
    static bool move_to(int cpu);

private:
    static constexpr std::uint64_t kSleeps = 64;
    static constexpr Duration kShortest = std::chrono::milliseconds(10);
    static constexpr Duration kLongest = std::chrono::seconds(1);

    void look(std::uint64_t sleeps, TimePoint now);

    pid_t leader_;
    std::uint64_t sleeps_ = 0;
    TimePoint next_{};
    Duration pause_ = kShortest;
    bool apart_ = false;  ///< at the last look
};

}  // namespace openmana::base
