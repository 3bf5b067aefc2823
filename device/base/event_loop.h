// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/activity.h"
#include "base/busy_poll.h"
#include "base/executor.h"
#include "base/fd.h"
#include "base/result.h"
#include "base/timer_heap.h"

namespace openmana::base {

/// The real executor: file descriptors (epoll, level triggered), tasks and timers on the thread
/// that calls run().
///
/// After work it looks for more for some microseconds before it sleeps, as long as that pays
/// (BusyPoll): a doorbell that follows soon then needs no wake-up. Longer polling starves the
/// guests' own threads on small hosts, and idle loops use no CPU.
class EventLoop final : public Executor {
public:
    using Handler = std::function<void(std::uint32_t events)>;

    static Result<std::unique_ptr<EventLoop>> create();
    ~EventLoop() override;

    /// On the loop's thread, or before run(). A handler may remove any descriptor, its own
    /// included.
    Result<void> add(int fd, std::uint32_t epoll_events, Handler handler);
    Result<void> modify(int fd, std::uint32_t epoll_events);
    void remove(int fd);

    /// Serves until stop(). Tasks posted before run() are served first. `first` is done before
    /// them, whether there was a stop or not.
    void run(const std::function<void()>& first = {});
    /// From any thread or a signal-handling thread. A stop before run() is kept.
    void stop();

    [[nodiscard]] const Clock& clock() const override { return clock_; }
    void post(std::function<void()> task) override;
    [[nodiscard]] bool on_thread() const override;
    /// How often run() has gone to sleep so far. On the loop's thread.
    [[nodiscard]] std::uint64_t sleeps() const { return sleeps_; }

    /// A sign of life: how many turns run() has made, and whether it sleeps with no task to do.
    struct Pulse {
        std::uint64_t turn;
        bool idle;
    };
    /// From any thread; what is read is of about now.
    [[nodiscard]] Pulse pulse() const {
        return {turn_.load(std::memory_order_relaxed), sleeping_.load(std::memory_order_relaxed)};
    }
    /// What the thread in run() is at.
    [[nodiscard]] const Activity& activity() const { return activity_; }

private:
    EventLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
    void timer_queue(Timer& timer) override { timers_.queue(timer); }
    void timer_forget(Timer& timer) override { timers_.forget(timer); }
    bool run_tasks();
    bool poll(bool may_sleep);
    void wake();

    UniqueFd epoll_;
    UniqueFd wake_;
    SystemClock clock_;
    TimerHeap timers_;
    std::uint64_t sleeps_ = 0;
    std::atomic<std::uint64_t> turn_{0};  // written by the thread in run() alone
    Activity activity_;
    BusyPoll busy_poll_{std::chrono::microseconds(5)};
    std::unordered_map<int, std::shared_ptr<Handler>> handlers_;
    std::mutex mutex_;  // protects tasks_
    std::vector<std::function<void()>> tasks_;
    std::vector<std::function<void()>> running_tasks_;
    std::atomic<bool> has_tasks_{false};  // hint; set under mutex_
    /// Set before the loop looks for tasks a last time and sleeps; a poster that sees it writes the
    /// eventfd. Both sides use sequentially consistent order, so one of them always sees the other.
    std::atomic<bool> sleeping_{false};
    std::atomic<bool> stop_{false};
    std::atomic<std::thread::id> thread_{};
};

}  // namespace openmana::base
