// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "manad/loop_watch.h"

namespace openmana::manad {

/// A thread that looks at others every second, and does nothing else: what it logs may be what
/// holds it up.
class Watchdog {
public:
    explicit Watchdog(const base::Clock& clock) : clock_(clock) {}
    ~Watchdog() { stop(); }
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    /// The threads run until it is stopped.
    void start(std::vector<LoopWatch*> watches);
    void stop();

private:
    void run(const std::vector<LoopWatch*>& watches);

    const base::Clock& clock_;
    std::mutex mutex_;  // protects stop_
    std::condition_variable changed_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace openmana::manad
