// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/executor.h"
#include "base/timer_heap.h"

namespace openmana::test {

class SimExecutor;

/// Virtual time shared by any number of executors. Everything runs on the thread that calls; time
/// moves only in `advance` and `run_until`.
class SimWorld final : public base::Clock {
public:
    [[nodiscard]] base::TimePoint now() const override { return now_; }
    /// Runs posted tasks and due timers, the executors in turn, until nothing is left to do at the
    /// present time.
    void run_until_idle();
    /// Goes on by `delay`, stopping at each timer on the way.
    void advance(base::Duration delay);
    /// Goes from timer to timer until `done` or for at most `limit`; true if done.
    bool run_until(const std::function<bool()>& done, base::Duration limit);
    /// The earliest deadline of all executors.
    [[nodiscard]] std::optional<base::TimePoint> next_timer() const;

private:
    friend class SimExecutor;
    base::TimePoint now_{base::Duration(1'000'000'000)};
    std::vector<SimExecutor*> executors_;
};

/// An executor on the virtual time of its world. `post` from any thread; the rest on the world's.
class SimExecutor final : public base::Executor {
public:
    explicit SimExecutor(SimWorld& world) : world_(world) { world_.executors_.push_back(this); }
    ~SimExecutor() override { std::erase(world_.executors_, this); }

    [[nodiscard]] const base::Clock& clock() const override { return world_; }
    void post(std::function<void()> task) override {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
    }
    [[nodiscard]] bool on_thread() const override { return std::this_thread::get_id() == thread_; }
    [[nodiscard]] SimWorld& world() { return world_; }
    /// Makes the calling thread this executor's.
    void adopt() { thread_ = std::this_thread::get_id(); }
    /// Runs what was posted before the call and the due timers; true if there was anything.
    bool run_once();

protected:
    void timer_queue(base::Timer& timer) override { timers_.queue(timer); }
    void timer_forget(base::Timer& timer) override { timers_.forget(timer); }

private:
    friend class SimWorld;
    SimWorld& world_;
    std::thread::id thread_ = std::this_thread::get_id();
    std::mutex mutex_;  // protects tasks_
    std::vector<std::function<void()>> tasks_;
    std::vector<std::function<void()>> batch_;  // swapped with tasks_, so that both keep their room
    base::TimerHeap timers_;
};

inline bool SimExecutor::run_once() {
    {
        const std::lock_guard lock(mutex_);
        batch_.swap(tasks_);
    }
    const bool worked = !batch_.empty();
    for (auto& task : batch_) task();
    batch_.clear();
    const bool fired = timers_.fire(world_.now());
    const bool polled = poll_all() == base::Poller::State::kWorked;
    return fired || polled || worked;
}

inline void SimWorld::run_until_idle() {
    for (bool worked = true; worked;) {
        worked = false;
        for (std::size_t i = 0; i < executors_.size(); ++i) worked |= executors_[i]->run_once();
    }
}

inline std::optional<base::TimePoint> SimWorld::next_timer() const {
    std::optional<base::TimePoint> first;
    for (const SimExecutor* executor : executors_) {
        const auto next = executor->timers_.next();
        if (next && (!first || *next < *first)) first = next;
    }
    return first;
}

inline bool SimWorld::run_until(const std::function<bool()>& done, base::Duration limit) {
    const base::TimePoint end = now_ + limit;
    for (;;) {
        run_until_idle();
        if (done()) return true;
        const auto next = next_timer();
        if (!next || *next > end) {
            now_ = std::max(now_, end);
            return false;
        }
        now_ = std::max(now_, *next);
    }
}

inline void SimWorld::advance(base::Duration delay) {
    (void)run_until([] { return false; }, delay);
    run_until_idle();
}

}  // namespace openmana::test
