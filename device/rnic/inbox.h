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
    /// Gets some of what has come, on the executor.
    using Handler = std::function<void(std::span<const base::Frame> frames)>;

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
    void clear() { frames_.clear(); }

private:
    /// Waiting frames beyond this are dropped, as a NIC without buffers would.
    static constexpr std::size_t kMaxBytes = 16U << 20;
    void serve_later();

    base::Executor& executor_;
    base::Counter& overflow_;
    const Handler handler_;
    base::FrameQueue frames_{"inbox", kMaxBytes};
    std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for posted tasks
};

}  // namespace openmana::rnic
