// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/executor.h"
#include "base/timer_heap.h"

namespace openmana::base {

/// Part of an executor that can rest while the rest of it goes on: tasks, timers and pollers of who
/// is on it wait meanwhile, in their order. What is due by then is done when it is over. Made and
/// destroyed on the executor, which outlives it, or while that does not run.
class PausableExecutor final : public Executor {
public:
    explicit PausableExecutor(Executor& executor);
    ~PausableExecutor() override;
    PausableExecutor(const PausableExecutor&) = delete;
    PausableExecutor& operator=(const PausableExecutor&) = delete;

    /// On the executor, in none of its own tasks, timers and pollers.
    void pause();
    void resume();

    [[nodiscard]] const Clock& clock() const override { return executor_.clock(); }
    void post(std::function<void()> task) override;
    [[nodiscard]] bool on_thread() const override { return executor_.on_thread(); }
    /// Tasks that were posted and have not begun.
    [[nodiscard]] std::size_t waiting() const;

private:
    class OwnPollers final : public Poller {
    public:
        explicit OwnPollers(PausableExecutor& owner) : owner_(owner) {}
        State poll() override { return owner_.paused_ ? State::kIdle : owner_.poll_all(); }

    private:
        PausableExecutor& owner_;
    };
    /// Of the executor's tasks too, which may come after the end of this.
    struct Tasks {
        std::mutex mutex;  // protects the next two
        std::vector<std::function<void()>> waiting;
        bool called = false;  // there is a task of the executor that runs them
        std::vector<std::function<void()>> running;  // this and the next on the executor
        bool paused = false;
    };
    void timer_queue(Timer& timer) override;
    void timer_forget(Timer& timer) override { timers_.forget(timer); }
    void call();
    static void run(Tasks& tasks);
    void fire();
    void arm();

    Executor& executor_;
    const std::shared_ptr<Tasks> tasks_ = std::make_shared<Tasks>();
    TimerHeap timers_;
    Timer next_timer_;
    OwnPollers own_pollers_{*this};
    bool paused_ = false;
};

}  // namespace openmana::base
