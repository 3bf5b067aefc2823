// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "base/activity.h"
#include "base/event_loop.h"

namespace openmana::manad {

/// Holds the thread of a loop up, from the constructor's return until release. What `first` does on
/// that thread is the last that it has done.
class HeldLoop {
public:
    explicit HeldLoop(base::EventLoop& loop, std::function<void()> first = {}) {
        loop.post([&loop, state = state_, first = std::move(first)] {
            if (first) first();
            // When that turn of the loop is over.
            loop.post([state] {
                const base::Activity::Scope doing("held", 0x25);
                const base::Activity::Wait waiting("the test");
                state->held.set_value();
                state->released.get_future().wait();
            });
        });
        state_->held.get_future().wait();
    }
    ~HeldLoop() { release(); }
    HeldLoop(const HeldLoop&) = delete;
    HeldLoop& operator=(const HeldLoop&) = delete;

    void release() {
        if (!released_) state_->released.set_value();
        released_ = true;
    }
    static constexpr const char* kDoing = "held 0x25, waits for the test";

private:
    struct State {
        std::promise<void> held;
        std::promise<void> released;
    };
    const std::shared_ptr<State> state_ = std::make_shared<State>();
    bool released_ = false;
};

}  // namespace openmana::manad
