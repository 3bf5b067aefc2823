// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "base/counters.h"
#include "base/executor.h"
#include "base/frame_queue.h"

namespace openmana::rnic {

/// Frames on their way in: from any thread to the executor, a burst at a time.
class Inbox {
public:
    /// Gets some of what has come, on the executor, and says how many it has handled: the others
    /// come again.
    using Handler = std::function<std::size_t(std::span<const base::Frame> frames)>;

    /// `overflow` counts what does not fit.
    Inbox(base::Executor& executor, base::Counter& overflow, Handler handler)
        : executor_(executor), overflow_(overflow), handler_(std::move(handler)) {}

    /// From any thread: the frames are copied.
    void receive(base::FrameViews frames);
    /// Hands out a chunk of what has come. On the executor.
    void serve();
    /// What waits. On the executor, while nobody brings anything.
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    /// Forgets what waits, which may take long. On the executor.
    void clear() {
        chunk_.clear();
        handled_ = 0;
        frames_.clear();
    }
    /// Those that wait, in their order.
    template <typename Visit>
    void for_each(Visit&& visit) const {
        for (std::size_t i = handled_; i < chunk_.size(); ++i) visit(chunk_[i]);
        frames_.for_each(visit);
    }

private:
    /// Waiting frames beyond this are dropped, as a NIC without buffers would.
    static constexpr std::size_t kMaxBytes = 16U << 20;
    void serve_later();

    base::Executor& executor_;
    base::Counter& overflow_;
    const Handler handler_;
    base::FrameQueue frames_{"inbox", kMaxBytes};
    base::FrameQueue::Chunk chunk_;                          // the oldest, taken from the queue
    std::size_t handled_ = 0;                                // of that
    std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for posted tasks
};

}  // namespace openmana::rnic
