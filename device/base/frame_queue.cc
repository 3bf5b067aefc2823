// SPDX-License-Identifier: Apache-2.0
#include "base/frame_queue.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace openmana::base {

template <typename Put>
auto FrameQueue::add(std::size_t bytes, Put&& put) -> Pushed {
    const std::lock_guard lock(mutex_);
    const std::size_t waiting = bytes_.load(std::memory_order_relaxed);
    if (bytes > max_bytes_ - std::min(waiting, max_bytes_)) return Pushed::kFull;
    if (chunks_.empty() || chunks_.back().size() == kChunk) {
        chunks_.push_back(std::exchange(spare_chunk_, {}));
        chunks_.back().reserve(kChunk);
    }
    put(chunks_.back());
    count_work(1);
    bytes_.store(waiting + bytes, std::memory_order_relaxed);
    return busy_.exchange(true, std::memory_order_relaxed) ? Pushed::kMore : Pushed::kFirst;
}

auto FrameQueue::push(std::span<const std::byte> frame) -> Pushed {
    return add(frame.size(), [&](std::vector<Frame>& chunk) {
        if (spare_.empty()) {
            chunk.emplace_back(frame.begin(), frame.end());
            return;
        }
        chunk.push_back(std::move(spare_.back()));
        spare_.pop_back();
        chunk.back().assign(frame.begin(), frame.end());
    });
}

auto FrameQueue::push(Frame&& frame) -> Pushed {
    const std::size_t bytes = frame.size();
    return add(bytes, [&](std::vector<Frame>& chunk) { chunk.push_back(std::move(frame)); });
}

auto FrameQueue::take() -> Chunks {
    const std::lock_guard lock(mutex_);
    bytes_.store(0, std::memory_order_relaxed);
    return std::exchange(chunks_, {});
}

void FrameQueue::recycle(Chunks&& chunks) {
    // The rest goes when the lock is open again.
    Chunks rest = std::move(chunks);
    if (rest.empty()) return;
    std::vector<Frame>& kept = rest.front();
    const std::lock_guard lock(mutex_);
    while (!kept.empty() && spare_.size() < kMaxSpare) {
        spare_.push_back(std::move(kept.back()));
        kept.pop_back();
        count_work(1);
    }
    if (kept.empty()) spare_chunk_ = std::move(kept);
}

bool FrameQueue::done() {
    const std::lock_guard lock(mutex_);
    if (!chunks_.empty()) return false;
    busy_.store(false, std::memory_order_release);
    return true;
}

}  // namespace openmana::base
