// SPDX-License-Identifier: Apache-2.0
// For uplinks with several queues: their threads, and who gets what these bring.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "base/event_loop.h"
#include "fabric/port.h"
#include "unit/fabric/frames.h"

namespace openmana::fabric::test {

inline constexpr std::size_t kQueues = 4;
inline constexpr std::uint32_t kFlows = 32;

/// Numbers of what came, by whoever brought it.
class SharedPort final : public Port {
public:
    void deliver(base::FrameViews frames) override {
        const std::lock_guard lock(mutex_);
        threads_.insert(std::this_thread::get_id());
        for (const base::FrameView frame : frames) seen_.push_back(number_of(frame));
    }
    [[nodiscard]] std::vector<std::uint32_t> seen() const {
        const std::lock_guard lock(mutex_);
        return seen_;
    }
    [[nodiscard]] std::size_t threads() const {
        const std::lock_guard lock(mutex_);
        return threads_.size();
    }

private:
    mutable std::mutex mutex_;  // protects the rest
    std::vector<std::uint32_t> seen_;
    std::set<std::thread::id> threads_;
};

/// A loop for each queue, which run on threads of their own from start() to stop().
class QueueLoops {
public:
    QueueLoops() {
        for (std::size_t i = 0; i < kQueues; ++i) {
            loops_.push_back(std::move(*base::EventLoop::create()));
            all_.push_back(loops_.back().get());
        }
    }
    ~QueueLoops() { stop(); }
    [[nodiscard]] std::span<base::EventLoop* const> all() const { return all_; }
    void start() {
        for (base::EventLoop* const loop : all_) threads_.emplace_back([loop] { loop->run(); });
    }
    void stop() {
        if (threads_.empty()) return;
        for (base::EventLoop* const loop : all_) loop->stop();
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
    }

private:
    std::vector<std::unique_ptr<base::EventLoop>> loops_;
    std::vector<base::EventLoop*> all_;
    std::vector<std::thread> threads_;
};

/// The number of a frame says which flow it is of.
inline void expect_flows_in_order(const std::vector<std::uint32_t>& seen) {
    std::map<std::uint32_t, std::uint32_t> last;
    for (const std::uint32_t number : seen) {
        const auto [entry, first] = last.emplace(number % kFlows, number);
        EXPECT_TRUE(first || entry->second < number) << "flow " << number % kFlows;
        entry->second = number;
    }
    EXPECT_EQ(last.size(), kFlows);
}

}  // namespace openmana::fabric::test
