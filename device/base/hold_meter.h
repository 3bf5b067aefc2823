// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

namespace openmana::base {

/// Work that the calling thread has done: entries, windows, pages, frames. What does a number of
/// them while others may wait says so, so that a test can compare that with a bound.
inline thread_local std::uint64_t work_done = 0;
inline void count_work(std::uint64_t units) {
    work_done += units;
}

/// What something is held for.
struct HoldCause {
    const char* what = "gate";  ///< static
    std::uint64_t detail = 0;   ///< an opcode, say
};

enum class HoldKind : std::uint8_t {
    kExclusion,  ///< of a gate: visitors wait
    kVisit,      ///< of a gate: its owner waits
    kLock,       ///< that threads of several NICs take
};
inline constexpr std::size_t kHoldKinds = 3;

/// How long threads hold what others wait for, for tests: CPU time of the holder, so that a busy
/// machine does not blur it, and units of work. While there is none nothing is measured, which
/// costs nothing. Gates look for it when they are made.
class HoldMeter {
public:
    /// Becomes the one of the process. Before what it measures is made, and gone after it.
    HoldMeter();
    ~HoldMeter();
    HoldMeter(const HoldMeter&) = delete;
    HoldMeter& operator=(const HoldMeter&) = delete;
    [[nodiscard]] static HoldMeter* current() { return current_.load(std::memory_order_acquire); }

    /// Between two calls on one thread.
    class Stopwatch {
    public:
        void start();
        /// Nothing if it was not started.
        void stop(HoldKind kind, HoldCause cause);

    private:
        std::uint64_t began_ = 0;  // ns; 0: not started
        std::uint64_t work_ = 0;
    };

    struct Longest {
        HoldKind kind = HoldKind::kExclusion;
        HoldCause cause{};
        std::uint64_t nanoseconds = 0;
        std::uint64_t work = 0;
    };
    [[nodiscard]] std::uint64_t holds() const;
    /// Those that took no longer than so many microseconds, which is a limit of the histogram.
    [[nodiscard]] std::uint64_t within(std::uint64_t microseconds) const;
    [[nodiscard]] Longest longest() const;
    /// That with the most units of work.
    [[nodiscard]] Longest largest() const;
    /// Forgets what was.
    void clear();
    /// The histogram of each kind, and the longest with its cause.
    [[nodiscard]] std::string report() const;

private:
    static constexpr std::array<std::uint64_t, 12> kLimits = {1,   2,   5,   10,   20,    50,
                                                              100, 200, 500, 1000, 10000, 100000};
    void add(const Longest& hold);

    static inline std::atomic<HoldMeter*> current_{nullptr};
    /// By kind and limit, in microseconds; the last is for those beyond all.
    std::array<std::array<std::atomic<std::uint64_t>, kLimits.size() + 1>, kHoldKinds> counts_{};
    mutable std::mutex mutex_;  // protects all below
    std::array<Longest, kHoldKinds> longest_{};
    Longest largest_{};
};

/// Behind a lock of another kind: until it ends others may wait.
class MeasuredHold {
public:
    explicit MeasuredHold(HoldCause cause) : cause_(cause) {
        if (HoldMeter::current() != nullptr) [[unlikely]]
            stopwatch_.start();
    }
    ~MeasuredHold() {
        if (HoldMeter::current() != nullptr) [[unlikely]]
            stopwatch_.stop(HoldKind::kLock, cause_);
    }
    MeasuredHold(const MeasuredHold&) = delete;
    MeasuredHold& operator=(const MeasuredHold&) = delete;

private:
    const HoldCause cause_;
    HoldMeter::Stopwatch stopwatch_;
};

/// A mutex that threads of several NICs take, and that a HoldMeter sees.
class SharedMutex {
public:
    explicit SharedMutex(const char* name) : name_(name) {}
    void lock() {
        mutex_.lock();
        if (HoldMeter::current() != nullptr) [[unlikely]]
            stopwatch_.start();
    }
    void unlock() {
        if (HoldMeter::current() != nullptr) [[unlikely]]
            stopwatch_.stop(HoldKind::kLock, {name_, 0});
        mutex_.unlock();
    }

private:
    std::mutex mutex_;
    const char* const name_;
    HoldMeter::Stopwatch stopwatch_;  // of who holds it
};

}  // namespace openmana::base
