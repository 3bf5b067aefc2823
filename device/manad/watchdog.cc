// SPDX-License-Identifier: Apache-2.0
#include "manad/watchdog.h"

#include <utility>

#include "manad/thread.h"

namespace openmana::manad {

base::Result<void> Watchdog::start(Watches watches) {
    stop_ = false;
    TRY(thread_, start_thread("watchdog", [this, watches = std::move(watches)] { run(watches); }));
    return {};
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

void Watchdog::run(const Watches& watches) {
    std::unique_lock lock(mutex_);
    do {
        lock.unlock();
        for (const auto& watch : watches()) watch->look(clock_.now());
        lock.lock();
    } while (!changed_.wait_for(lock, look_every_, [this] { return stop_; }));
}

}  // namespace openmana::manad
