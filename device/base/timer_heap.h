// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "base/executor.h"

namespace openmana::base {

/// The deadlines of one executor: a binary heap whose entries know their place, so that any of them
/// can be moved or taken out in O(log n). A timer that was cancelled or put off stays where it is
/// until its old time comes.
class TimerHeap {
public:
    /// Queues the timer at its deadline, or moves it there.
    void queue(Timer& timer);
    void forget(Timer& timer);
    /// When `fire` has something to do next, at the earliest.
    [[nodiscard]] std::optional<TimePoint> next() const;
    /// Runs the callbacks of all timers that are due, in the order of their deadlines. True if any
    /// ran.
    bool fire(TimePoint now);

private:
    void place(std::size_t index, Timer* timer);
    void sift_up(std::size_t index);
    void sift_down(std::size_t index);

    std::vector<Timer*> heap_;
};

}  // namespace openmana::base
