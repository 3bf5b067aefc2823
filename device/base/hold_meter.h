// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace openmana::base {

/// Work that the calling thread has done: entries, windows, pages, frames. What does a number of
/// them while others may wait says so, so that a test can compare that with a bound. A unit is what
/// may take a microsecond; of what is just compared or moved kSmallSteps are one.
inline constexpr std::uint64_t kSmallSteps = 64;
inline thread_local std::uint64_t work_done = 0;
inline void count_work(std::uint64_t units) {
    work_done += units;
}

/// What something is held for.
struct HoldCause {
    const char* what = "gate";  ///< static
    std::uint64_t detail = 0;   ///< an opcode, say
    bool apart = false;         ///< each detail is a cause of its own
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

    struct Hold {
        HoldKind kind = HoldKind::kExclusion;
        HoldCause cause{};
        std::uint64_t nanoseconds = 0;
        std::uint64_t work = 0;
    };
    /// Nobody should wait for longer, in microseconds.
    static constexpr std::uint64_t kSlow = 200;
    /// All holds for one cause.
    struct Cause {
        std::uint64_t holds = 0;
        std::uint64_t slow = 0;  ///< took longer than kSlow
        Hold longest;
        Hold largest;
    };
    [[nodiscard]] std::uint64_t holds() const;
    /// Those that took no longer than so many microseconds, which is a limit of the histogram.
    [[nodiscard]] std::uint64_t within(std::uint64_t microseconds) const;
    /// That with the most units of work, of all or of a kind.
    [[nodiscard]] Hold largest(std::optional<HoldKind> kind = std::nullopt) const;
    /// The one with the longest hold first.
    [[nodiscard]] std::vector<Cause> causes() const;
    /// Forgets what was.
    void clear();
    /// The histogram of each kind, and each cause with its longest and largest hold.
    [[nodiscard]] std::string report() const;

private:
    static constexpr std::array<std::uint64_t, 12> kLimits = {1,   2,     5,   10,   20,    50,
                                                              100, kSlow, 500, 1000, 10000, 100000};
    void add(const Hold& hold);

    static inline std::atomic<HoldMeter*> current_{nullptr};
    /// By kind and limit, in microseconds; the last is for those beyond all.
    std::array<std::array<std::atomic<std::uint64_t>, kLimits.size() + 1>, kHoldKinds> counts_{};
    mutable std::mutex mutex_;  // protects all below
    std::map<std::tuple<HoldKind, std::string_view, std::uint64_t>, Cause> causes_;
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
