// SPDX-License-Identifier: Apache-2.0
#include "base/pausable_executor.h"

#include <utility>

namespace openmana::base {

PausableExecutor::PausableExecutor(Executor& executor)
    : executor_(executor), next_timer_(executor, [this] { fire(); }) {
    executor_.add_poller(own_pollers_);
}

PausableExecutor::~PausableExecutor() {
    executor_.remove_poller(own_pollers_);
    const std::lock_guard lock(tasks_->mutex);
    tasks_->waiting.clear();
}

void PausableExecutor::pause() {
    paused_ = tasks_->paused = true;
    next_timer_.cancel();
}

void PausableExecutor::resume() {
    paused_ = tasks_->paused = false;
    arm();
    bool wait = false;
    {
        const std::lock_guard lock(tasks_->mutex);
        wait = !tasks_->waiting.empty() && !std::exchange(tasks_->called, true);
    }
    if (wait) call();
}

void PausableExecutor::post(std::function<void()> task) {
    {
        const std::lock_guard lock(tasks_->mutex);
        tasks_->waiting.push_back(std::move(task));
        if (std::exchange(tasks_->called, true)) return;
    }
    call();
}

std::size_t PausableExecutor::waiting() const {
    const std::lock_guard lock(tasks_->mutex);
    return tasks_->waiting.size();
}

void PausableExecutor::call() {
    executor_.post([tasks = tasks_] { run(*tasks); });
}

/// Those that are posted meanwhile come with the next call, as everywhere.
void PausableExecutor::run(Tasks& tasks) {
    {
        const std::lock_guard lock(tasks.mutex);
        tasks.called = false;
        if (tasks.paused) return;
        tasks.running.swap(tasks.waiting);
    }
    for (auto& task : tasks.running) task();
    tasks.running.clear();
}

void PausableExecutor::timer_queue(Timer& timer) {
    timers_.queue(timer);
    if (!paused_ && (!next_timer_.armed() || *timers_.next() < next_timer_.deadline())) arm();
}

void PausableExecutor::fire() {
    timers_.fire(executor_.now());
    if (!paused_) arm();
}

void PausableExecutor::arm() {
    if (const auto next = timers_.next()) next_timer_.arm_at(*next);
}

}  // namespace openmana::base
