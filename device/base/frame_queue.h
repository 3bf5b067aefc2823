// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/frame.h"
#include "base/hold_meter.h"
#include "base/state.h"

namespace openmana::base {

/// Frames on their way from any thread to one that takes them in turns. They lie in chunks: who
/// adds one holds the lock for that one, and who takes them is busy with one chunk at a time.
class FrameQueue {
public:
    static constexpr std::size_t kChunkFrames = 64;
    /// Of the frames of a chunk, if it has more than one.
    static constexpr std::size_t kChunkBytes = 256U << 10;
    /// The most that is copied under the lock, if it is more than one frame.
    static constexpr std::size_t kHoldBytes = 64U << 10;
    /// What a frame counts beside its bytes: about what its memory costs beside these.
    static constexpr std::size_t kFrameCost = 64;

    /// `name`: of its lock. What would make it more than `max_bytes` does not fit.
    FrameQueue(const char* name, std::size_t max_bytes) : max_bytes_(max_bytes), mutex_(name) {}

    enum class Pushed : std::uint8_t {
        kFull,
        kFirst,  ///< who takes has to be called
        kMore,
    };
    /// The frame is copied.
    [[nodiscard]] Pushed push(FrameView frame);
    [[nodiscard]] Pushed push(Frame&& frame);
    struct PushedAll {
        bool first = false;       ///< who takes has to be called
        std::size_t refused = 0;  ///< so many did not fit
    };
    /// Several, which are copied; the lock is held for kHoldBytes of them at a time.
    [[nodiscard]] PushedAll push(FrameViews frames);
    /// From the first frame until done() says that there are no more. Any thread.
    [[nodiscard]] bool busy() const { return busy_.load(std::memory_order_acquire); }
    /// Of all that wait, with what they cost. Any thread; a hint.
    [[nodiscard]] std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

    // For who takes.
    using Chunk = std::vector<Frame>;
    /// The oldest, in their order; empty if nothing waits.
    [[nodiscard]] Chunk take();
    /// Their memory is used again: fresh pages cost more than what is done with frames.
    void recycle(Chunk&& chunk);
    /// True if nothing waits: the next frame is a first one again. Else take() has more.
    [[nodiscard]] bool done();
    /// Those that wait, in their order, which stay. Not while somebody takes.
    template <typename Visit>
    void for_each(Visit&& visit) const {
        const std::lock_guard lock(mutex_);
        for (const Waiting& waiting : chunks_)
            for (const Frame& frame : waiting.frames) visit(frame);
    }
    /// Forgets all that wait, which may be many.
    void clear();

private:
    static constexpr std::size_t kMaxSpare = 4 * kChunkFrames;
    struct Waiting {
        Chunk frames;
        std::size_t bytes = 0;
    };
    template <typename Put>
    Pushed add_locked(std::size_t bytes, Put&& put);
    Pushed copy_locked(FrameView frame);

    const std::size_t max_bytes_;
    mutable SharedMutex mutex_;  // protects all below
    std::deque<Waiting> chunks_;
    std::vector<Frame> spare_;  // for their capacity
    Chunk spare_chunk_;
    std::atomic<std::size_t> bytes_{0};
    std::atomic<bool> busy_{false};
};

/// The frames that wait in a queue, or for who takes from one, which stay, each made whole by
/// `complete`; and those of a state, one by one.
template <typename Queue, typename Complete>
void save_frames(StateWriter& out, const Queue& queue, Complete&& complete) {
    std::uint32_t count = 0;
    queue.for_each([&](const Frame&) { ++count; });
    out(count);
    queue.for_each([&](const Frame& frame) {
        Frame whole = frame;
        complete(whole);
        out.bytes(whole);
    });
}
template <typename Take>
void load_frames(StateReader& in, Take&& take) {
    for (std::size_t n = in.count(sizeof(std::uint64_t)); n > 0 && in.ok(); --n) {
        const auto bytes = in.bytes();
        if (in.ok()) take(FrameView(bytes));
    }
}

}  // namespace openmana::base
