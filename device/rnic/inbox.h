// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/counters.h"
#include "base/executor.h"
#include "base/frame.h"

namespace openmana::rnic {

/// Frames on their way in: from any thread to the executor, a burst at a time.
class Inbox {
public:
    /// Gets what came meanwhile, on the executor.
    using Handler = std::function<void(std::span<const base::Frame> frames)>;

    /// `overflow` counts what does not fit.
    Inbox(base::Executor& executor, base::Counter& overflow, Handler handler)
        : executor_(executor), overflow_(overflow), handler_(std::move(handler)) {}

    /// From any thread: the frame is copied.
    void receive(std::span<const std::byte> frame);
    /// Hands out what has come. On the executor.
    void serve();
    /// Forgets what waits. On the executor.
    void clear();

private:
    base::Executor& executor_;
    base::Counter& overflow_;
    const Handler handler_;
    std::mutex mutex_;  // protects frames_, bytes_ and spare_
    std::vector<base::Frame> frames_;
    std::size_t bytes_ = 0;
    std::vector<base::Frame> spare_;    // for their capacity
    std::vector<base::Frame> handled_;  // swapped with frames_, so that both keep their capacity
    std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for posted tasks
};

}  // namespace openmana::rnic
