// SPDX-License-Identifier: Apache-2.0
#include "base/timer_heap.h"

namespace openmana::base {

void TimerHeap::place(std::size_t index, Timer* timer) {
    heap_[index] = timer;
    timer->heap_index_ = index;
}

void TimerHeap::sift_up(std::size_t index) {
    Timer* timer = heap_[index];
    while (index > 0) {
        const std::size_t parent = (index - 1) / 2;
        if (heap_[parent]->queued_at_ <= timer->queued_at_) break;
        place(index, heap_[parent]);
        index = parent;
    }
    place(index, timer);
}

void TimerHeap::sift_down(std::size_t index) {
    Timer* timer = heap_[index];
    for (;;) {
        std::size_t child = 2 * index + 1;
        if (child >= heap_.size()) break;
        if (child + 1 < heap_.size() && heap_[child + 1]->queued_at_ < heap_[child]->queued_at_)
            ++child;
        if (timer->queued_at_ <= heap_[child]->queued_at_) break;
        place(index, heap_[child]);
        index = child;
    }
    place(index, timer);
}

void TimerHeap::queue(Timer& timer) {
    const bool queued = timer.heap_index_ != Timer::kNotQueued;
    timer.queued_at_ = timer.deadline_;
    if (!queued) {
        heap_.push_back(&timer);
        timer.heap_index_ = heap_.size() - 1;
    }
    sift_up(timer.heap_index_);
    sift_down(timer.heap_index_);
}

void TimerHeap::forget(Timer& timer) {
    const std::size_t index = timer.heap_index_;
    if (index == Timer::kNotQueued) return;
    timer.heap_index_ = Timer::kNotQueued;
    Timer* last = heap_.back();
    heap_.pop_back();
    if (last == &timer) return;
    place(index, last);
    sift_up(index);
    sift_down(last->heap_index_);
}

std::optional<TimePoint> TimerHeap::next() const {
    if (heap_.empty()) return std::nullopt;
    return heap_.front()->queued_at_;
}

bool TimerHeap::fire(TimePoint now) {
    bool fired = false;
    while (!heap_.empty() && heap_.front()->queued_at_ <= now) {
        Timer& timer = *heap_.front();
        forget(timer);
        if (!timer.armed_) continue;
        if (timer.deadline_ > now) {
            queue(timer);
            continue;
        }
        timer.armed_ = false;
        fired = true;
        timer.callback_();
    }
    return fired;
}

}  // namespace openmana::base
