// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/event_loop.h"
#include "manad/loop_thread.h"

namespace openmana::manad {

/// The threads of a daemon's NICs and uplinks. Of the main thread, but for `all`.
class LoopThreads {
public:
    using Shared = std::shared_ptr<LoopThread>;

    /// One that is there stays there once.
    void add(const Shared& thread);
    /// Null if it is not there.
    Shared take(const LoopThread& thread);
    /// From any thread.
    [[nodiscard]] std::vector<Shared> all() const;

    /// Has `then` run on `main` once each of those that run now has come to the end of what it is
    /// at. So what none of them could find any more when this was called, none of them touches
    /// then. One that hangs is waited for; if one ends, it is not run at all.
    void after_all(base::EventLoop& main, std::function<void()> then) const;

    /// Ends all, and waits until they have.
    void stop() const;

private:
    mutable std::mutex mutex_;  // protects threads_
    std::vector<Shared> threads_;
};

}  // namespace openmana::manad
