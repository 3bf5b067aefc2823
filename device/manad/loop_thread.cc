// SPDX-License-Identifier: Apache-2.0
#include "manad/loop_thread.h"

#include <utility>

#include "manad/thread.h"

namespace openmana::manad {

base::Result<std::unique_ptr<LoopThread>> LoopThread::create(std::string label, std::string name,
                                                             base::Duration patience) {
    TRY(auto loop, base::EventLoop::create());
    return std::unique_ptr<LoopThread>(
        new LoopThread(std::move(loop), std::move(label), std::move(name), patience));
}

base::Result<void> LoopThread::start(std::function<void()> first) {
    serves_.store(true, std::memory_order_relaxed);
    auto started = start_thread(name_, [this, first = std::move(first)] {
        loop_->run(first);
        serves_.store(false, std::memory_order_relaxed);
    });
    if (!started) {
        serves_.store(false, std::memory_order_relaxed);
        return tl::unexpected(started.error());
    }
    thread_ = std::move(*started);
    return {};
}

void LoopThread::ask_to_stop() {
    if (thread_.joinable()) loop_->stop();
}

void LoopThread::stop() {
    if (!thread_.joinable()) return;
    loop_->stop();
    thread_.join();
}

bool LoopThread::hangs() const {
    return watch_.hangs() || silent_turn_ == loop_->pulse().turn;
}

void LoopThread::unanswered() {
    watch_.counters().unanswered.add();
    silent_turn_ = asked_turn_;
}

}  // namespace openmana::manad
