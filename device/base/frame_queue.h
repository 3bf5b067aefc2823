// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/frame.h"
#include "base/hold_meter.h"

namespace openmana::base {

/// Frames on their way from any thread to one that takes all that have come. They lie in chunks, so
/// that nothing moves when there are many: who adds one holds the lock for that one.
class FrameQueue {
public:
    /// `name`: of its lock. What would make it more than `max_bytes` does not fit.
    FrameQueue(const char* name, std::size_t max_bytes) : max_bytes_(max_bytes), mutex_(name) {}

    enum class Pushed : std::uint8_t {
        kFull,
        kFirst,  ///< who takes has to be called
        kMore,
    };
    /// The frame is copied.
    [[nodiscard]] Pushed push(std::span<const std::byte> frame);
    [[nodiscard]] Pushed push(Frame&& frame);
    /// From the first frame until done() says that there are no more. Any thread.
    [[nodiscard]] bool busy() const { return busy_.load(std::memory_order_acquire); }
    /// Of all that wait. Any thread; a hint.
    [[nodiscard]] std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

    // For who takes.
    using Chunks = std::vector<std::vector<Frame>>;
    /// All that have come, in their order.
    [[nodiscard]] Chunks take();
    /// The memory of some of them is used again: fresh pages cost more than what is done with
    /// frames.
    void recycle(Chunks&& chunks);
    /// True if nothing waits: the next frame is a first one again. Else take() has more.
    [[nodiscard]] bool done();

private:
    static constexpr std::size_t kChunk = 256;
    static constexpr std::size_t kMaxSpare = 2 * kChunk;
    template <typename Put>
    Pushed add(std::size_t bytes, Put&& put);

    const std::size_t max_bytes_;
    SharedMutex mutex_;  // protects all below
    Chunks chunks_;
    std::vector<Frame> spare_;  // for their capacity
    std::vector<Frame> spare_chunk_;
    std::atomic<std::size_t> bytes_{0};
    std::atomic<bool> busy_{false};
};

}  // namespace openmana::base
