// SPDX-License-Identifier: Apache-2.0
#include "manad/watchdog.h"

#include <pthread.h>

#include <utility>

namespace openmana::manad {

void Watchdog::start(std::vector<LoopWatch*> watches) {
    stop_ = false;
    thread_ = std::thread([this, watches = std::move(watches)] { run(watches); });
}

void Watchdog::stop() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Watchdog::run(const std::vector<LoopWatch*>& watches) {
    ::pthread_setname_np(::pthread_self(), "watchdog");
    std::unique_lock lock(mutex_);
    do {
        lock.unlock();
        for (LoopWatch* const watch : watches) watch->look(clock_.now());
        lock.lock();
    } while (!changed_.wait_for(lock, LoopWatch::kLookEvery, [this] { return stop_; }));
}

}  // namespace openmana::manad
