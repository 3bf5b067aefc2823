// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "manad/loop_threads.h"

namespace openmana::manad {

/// All threads of a daemon's NICs and uplinks between two of their tasks: while it lives none of
/// them is at anything, so what is theirs may be looked at. Of the main thread.
class AtRest {
public:
    /// Of one thread, on it.
    using Step = std::function<void(const LoopThread& thread)>;

    /// Each does `begin` and rests; when this is over it does `end` and goes on. kBusy if one has
    /// not come to rest after `patience`: all go on then.
    static base::Result<std::unique_ptr<AtRest>> create(
        const std::vector<LoopThreads::Shared>& threads, base::Duration patience, Step begin,
        Step end);
    ~AtRest();
    AtRest(const AtRest&) = delete;
    AtRest& operator=(const AtRest&) = delete;

private:
    struct Shared {
        std::mutex mutex;  // protects all below
        std::condition_variable changed;
        std::size_t resting = 0;
        bool over = false;
    };
    AtRest() = default;
    const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace openmana::manad
