// SPDX-License-Identifier: Apache-2.0
#include "manad/loop_threads.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>

namespace openmana::manad {

void LoopThreads::add(const Shared& thread) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(threads_, thread) == threads_.end()) threads_.push_back(thread);
}

LoopThreads::Shared LoopThreads::take(const LoopThread& thread) {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(threads_, &thread, &Shared::get);
    if (found == threads_.end()) return nullptr;
    Shared taken = std::move(*found);
    threads_.erase(found);
    return taken;
}

std::vector<LoopThreads::Shared> LoopThreads::all() const {
    const std::lock_guard lock(mutex_);
    return threads_;
}

void LoopThreads::after_all(base::EventLoop& main, std::function<void()> then) const {
    // The last of them to come to it. What each did before is seen by it: the order is that of all.
    const std::vector<Shared> threads = all();
    const auto left = std::make_shared<std::atomic<std::size_t>>(threads.size() + 1);
    const auto shared_then = std::make_shared<std::function<void()>>(std::move(then));
    const auto passed = [left, shared_then, &main] {
        if (left->fetch_sub(1) == 1) main.post([shared_then] { (*shared_then)(); });
    };
    for (const Shared& thread : threads) thread->loop().post(passed);
    passed();
}

void LoopThreads::stop() const {
    const std::vector<Shared> threads = all();
    for (const Shared& thread : threads) thread->ask_to_stop();
    for (const Shared& thread : threads) thread->stop();
}

}  // namespace openmana::manad
