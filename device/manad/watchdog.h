// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "manad/loop_watch.h"

namespace openmana::manad {

/// A thread that looks at others again and again, and does nothing else: what it logs may be what
/// holds it up.
class Watchdog {
public:
    explicit Watchdog(const base::Clock& clock, base::Duration look_every = LoopWatch::kLookEvery)
        : clock_(clock), look_every_(look_every) {}
    ~Watchdog() { stop(); }
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    /// Whom to look at, asked before each look; from the watchdog's thread. Their threads run, or
    /// were just asked to end.
    using Watches = std::function<std::vector<std::shared_ptr<LoopWatch>>()>;
    base::Result<void> start(Watches watches);
    void stop();

private:
    void run(const Watches& watches);

    const base::Clock& clock_;
    const base::Duration look_every_;
    std::mutex mutex_;  // protects stop_
    std::condition_variable changed_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace openmana::manad
