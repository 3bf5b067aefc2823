// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace openmana::base {

class Timer;

/// Work that is seen only by looking: memory that a guest writes to without telling.
class Poller {
public:
    enum class State : std::uint8_t {
        kIdle,      ///< nothing to look at: the executor may sleep
        kWatching,  ///< nothing found; look again soon
        kWorked,
    };
    virtual ~Poller() = default;
    /// On the executor, between everything else.
    virtual State poll() = 0;
};

/// The one thread (real or simulated) on which a NIC's own state is touched. `post` may be called
/// from any thread; everything else only on the executor itself.
class Executor {
public:
    virtual ~Executor() = default;
    [[nodiscard]] virtual const Clock& clock() const = 0;
    /// Runs `task` later on this executor, in the order posted. Wakes it if it sleeps.
    virtual void post(std::function<void()> task) = 0;
    /// True on the executor's own thread.
    [[nodiscard]] virtual bool on_thread() const = 0;
    [[nodiscard]] TimePoint now() const { return clock().now(); }
    /// Pollers come and go on the executor, or while it does not run.
    void add_poller(Poller& poller) { pollers_.push_back(&poller); }
    void remove_poller(Poller& poller) { std::erase(pollers_, &poller); }

protected:
    friend class Timer;
    /// Looks at all; the busiest answer.
    Poller::State poll_all() {
        Poller::State state = Poller::State::kIdle;
        for (std::size_t i = 0; i < pollers_.size(); ++i)
            state = std::max(state, pollers_[i]->poll());
        return state;
    }
    /// Puts the timer into the heap, or moves it to an earlier place.
    virtual void timer_queue(Timer& timer) = 0;
    virtual void timer_forget(Timer& timer) = 0;

private:
    std::vector<Poller*> pollers_;
};

/// One deadline on an executor. Owned by the object that waits; destruction cancels, but not from
/// its own callback. Not thread-safe: used on its executor only. Cancelling, and arming later than
/// before, cost no heap operation.
class Timer {
public:
    Timer(Executor& executor, std::function<void()> callback)
        : executor_(executor), callback_(std::move(callback)) {}
    ~Timer() {
        if (heap_index_ != kNotQueued) executor_.timer_forget(*this);
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    void arm_at(TimePoint deadline) {
        deadline_ = deadline;
        armed_ = true;
        if (heap_index_ == kNotQueued || deadline < queued_at_) executor_.timer_queue(*this);
    }
    void arm(Duration delay) { arm_at(executor_.now() + delay); }
    void cancel() { armed_ = false; }
    [[nodiscard]] bool armed() const { return armed_; }
    [[nodiscard]] TimePoint deadline() const { return deadline_; }
    /// Its deadline, if it is armed.
    [[nodiscard]] std::optional<TimePoint> left() const {
        return armed_ ? std::optional(deadline_) : std::nullopt;
    }

private:
    friend class TimerHeap;
    static constexpr std::size_t kNotQueued = static_cast<std::size_t>(-1);
    bool armed_ = false;  // first: all that is asked of most timers
    Executor& executor_;
    std::function<void()> callback_;
    TimePoint deadline_{};
    TimePoint queued_at_{};  // key in the heap; <= deadline_ while queued and armed
    std::size_t heap_index_ = kNotQueued;
};

}  // namespace openmana::base
