// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"

namespace openmana::gdma {

/// What objects of a function put off, each until a time. Said by who is on the executor or visits
/// the function; done on the executor, for up to kServed objects in a turn.
class Postponed {
    struct Entry {
        base::TimePoint until;
        std::uint64_t object;
        bool operator>(const Entry& other) const { return until > other.until; }
    };

public:
    using Do = std::function<void(std::uint64_t object)>;
    static constexpr std::size_t kServed = 64;
    /// What an object may cost here: the heap's vector may be twice as long as it need be.
    static constexpr std::uint64_t kCost = 2 * sizeof(Entry);

    /// `action` gets each object when its time is over; it may put the next thing off.
    Postponed(base::Executor& executor, Do action)
        : executor_(executor), do_(std::move(action)), timer_(executor, [this] { serve(); }) {}

    [[nodiscard]] base::TimePoint now() const { return executor_.now(); }
    /// For an object that is not here. Its number may name another one when the time is over.
    void put(std::uint64_t object, base::TimePoint until);
    /// Forgets all. On the executor.
    void clear();

private:
    void serve();
    void set_timer_locked();

    base::Executor& executor_;
    const Do do_;
    base::Timer timer_;
    std::mutex mutex_;  // protects all below; after those of the objects
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> entries_;  // the earliest on top
    bool called_ = false;  // the executor was asked to set the timer
    std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for posted tasks
};

}  // namespace openmana::gdma
