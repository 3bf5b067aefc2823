// SPDX-License-Identifier: Apache-2.0
#include "base/frame_queue.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace openmana::base {

template <typename Put>
auto FrameQueue::add_locked(std::size_t bytes, Put&& put) -> Pushed {
    const std::size_t cost = bytes + kFrameCost;
    const std::size_t waiting = bytes_.load(std::memory_order_relaxed);
    if (cost > max_bytes_ - std::min(waiting, max_bytes_)) return Pushed::kFull;
    if (chunks_.empty() || chunks_.back().frames.size() == kChunkFrames ||
        chunks_.back().bytes + bytes > kChunkBytes) {
        chunks_.push_back({std::exchange(spare_chunk_, {}), 0});
        chunks_.back().frames.reserve(kChunkFrames);
    }
    put(chunks_.back().frames);
    chunks_.back().bytes += bytes;
    count_work(1);
    bytes_.store(waiting + cost, std::memory_order_relaxed);
    return busy_.exchange(true, std::memory_order_relaxed) ? Pushed::kMore : Pushed::kFirst;
}

auto FrameQueue::copy_locked(FrameView frame) -> Pushed {
    return add_locked(frame.size(), [&](Chunk& chunk) {
        if (spare_.empty()) {
            chunk.emplace_back(frame);
            return;
        }
        chunk.push_back(std::move(spare_.back()));
        spare_.pop_back();
        chunk.back().assign(frame);
    });
}

auto FrameQueue::push(FrameView frame) -> Pushed {
    const std::lock_guard lock(mutex_);
    return copy_locked(frame);
}

auto FrameQueue::push(Frame&& frame) -> Pushed {
    const std::size_t bytes = frame.size();
    const std::lock_guard lock(mutex_);
    return add_locked(bytes, [&](Chunk& chunk) { chunk.push_back(std::move(frame)); });
}

auto FrameQueue::push(FrameViews frames) -> PushedAll {
    PushedAll all;
    while (!frames.empty()) {
        const std::lock_guard lock(mutex_);
        std::size_t bytes = 0;
        do {
            bytes += frames.front().size();
            const Pushed pushed = copy_locked(frames.front());
            all.first = all.first || pushed == Pushed::kFirst;
            all.refused += pushed == Pushed::kFull ? 1 : 0;
            frames = frames.subspan(1);
        } while (!frames.empty() && bytes + frames.front().size() <= kHoldBytes);
    }
    return all;
}

auto FrameQueue::take() -> Chunk {
    const std::lock_guard lock(mutex_);
    if (chunks_.empty()) return {};
    Waiting oldest = std::move(chunks_.front());
    chunks_.pop_front();
    bytes_.store(
        bytes_.load(std::memory_order_relaxed) - oldest.bytes - oldest.frames.size() * kFrameCost,
        std::memory_order_relaxed);
    return std::move(oldest.frames);
}

void FrameQueue::recycle(Chunk&& chunk) {
    // The rest goes when the lock is open again.
    Chunk rest = std::move(chunk);
    if (rest.empty()) return;
    const std::lock_guard lock(mutex_);
    while (!rest.empty() && spare_.size() < kMaxSpare) {
        spare_.push_back(std::move(rest.back()));
        rest.pop_back();
        count_work(1);
    }
    if (rest.empty()) spare_chunk_.swap(rest);
}

bool FrameQueue::done() {
    const std::lock_guard lock(mutex_);
    if (!chunks_.empty()) return false;
    busy_.store(false, std::memory_order_release);
    return true;
}

void FrameQueue::clear() {
    std::deque<Waiting> gone;
    {
        const std::lock_guard lock(mutex_);
        chunks_.swap(gone);
        bytes_.store(0, std::memory_order_relaxed);
    }
    for (const Waiting& chunk : gone) count_work(chunk.frames.size());
}

}  // namespace openmana::base
