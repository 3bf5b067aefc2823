// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/result.h"

namespace openmana::manad {

/// Work that one thread gives to another and waits for, but not for ever. Who gives up before it is
/// begun takes it back; once it is begun it goes on to its end. Both threads own it.
class Errand {
public:
    /// On the thread that does it. False: it was taken back.
    [[nodiscard]] bool begin();
    void end();
    /// On the other one. The errors are the next two.
    [[nodiscard]] base::Result<void> wait_until(base::TimePoint deadline);

    /// It was not begun, and will not be.
    static tl::unexpected<base::Error> not_done() {
        return base::fail(base::ErrorCode::kClosed, "nothing was done");
    }
    /// It is done as soon as the thread that does it goes on.
    static tl::unexpected<base::Error> under_way() {
        return base::fail(base::ErrorCode::kBusy, "the request is under way");
    }

private:
    enum class State : std::uint8_t { kGiven, kBegun, kDone, kTakenBack };
    std::mutex mutex_;  // protects state_
    std::condition_variable changed_;
    State state_ = State::kGiven;
};

/// What an Errand is to bring.
template <typename T>
class Answer {
public:
    using Value = std::conditional_t<std::is_void_v<T>, std::monostate, T>;
    struct Work {
        Errand errand;
        std::optional<Value> value;  // the doer's until the errand is done
    };

    /// Nobody will do it.
    Answer() = default;
    explicit Answer(std::shared_ptr<Work> work) : work_(std::move(work)) {}
    /// Once. The errors are those of Errand.
    [[nodiscard]] base::Result<T> get(base::TimePoint deadline) {
        if (!work_) return Errand::not_done();
        TRY_VOID(work_->errand.wait_until(deadline));
        if constexpr (std::is_void_v<T>)
            return {};
        else
            return std::move(*work_->value);
    }

private:
    std::shared_ptr<Work> work_;
};

}  // namespace openmana::manad
