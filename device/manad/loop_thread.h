// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/event_loop.h"
#include "base/result.h"
#include "manad/errand.h"
#include "manad/loop_watch.h"

namespace openmana::manad {

/// An EventLoop with its thread. Of the main thread, unless it says otherwise.
class LoopThread {
public:
    /// How long `call` waits, for those who do not say it. Less than manactl does.
    static constexpr base::Duration kPatience = std::chrono::seconds(2);

    /// `label` names it in the log: "nic=a"; `name` for the system.
    static base::Result<std::unique_ptr<LoopThread>> create(std::string label, std::string name,
                                                            base::Duration patience = kPatience);
    ~LoopThread() { stop(); }
    LoopThread(const LoopThread&) = delete;
    LoopThread& operator=(const LoopThread&) = delete;

    [[nodiscard]] base::EventLoop& loop() { return *loop_; }
    /// From any thread.
    [[nodiscard]] LoopWatch& watch() { return watch_; }
    [[nodiscard]] const LoopWatch& watch() const { return watch_; }
    /// From any thread: it serves, or has not come to its end yet.
    [[nodiscard]] bool serves() const { return serves_.load(std::memory_order_relaxed); }

    [[nodiscard]] base::Duration patience() const { return patience_; }

    /// Runs `first` and then the loop.
    base::Result<void> start(std::function<void()> first = {});
    /// It ends soon, if it does not hang.
    void ask_to_stop();
    /// Asks it to, and waits for as long as it takes.
    void stop();

    /// Has `f` run on the thread; here and now while there is none. `f` owns what it needs, or uses
    /// what lives as long as the thread, since it may run when nobody waits any more. A thread that
    /// hangs is not asked. `what` is a static text for those who want to know what the thread does.
    template <typename F>
    Answer<std::invoke_result_t<F&>> ask(const char* what, F f) {
        using T = std::invoke_result_t<F&>;
        auto work = std::make_shared<typename Answer<T>::Work>();
        auto run = [work, what, f = std::move(f)]() mutable {
            if (!work->errand.begin()) return;
            {
                const base::Activity::Scope doing(what);
                if constexpr (std::is_void_v<T>) {
                    f();
                    work->value.emplace();
                } else {
                    work->value.emplace(f());
                }
            }
            work->errand.end();
        };
        if (!thread_.joinable()) {
            run();
        } else if (hangs()) {
            return {};
        } else {
            asked_turn_ = loop_->pulse().turn;
            loop_->post(std::move(run));
        }
        return Answer<T>(std::move(work));
    }
    /// What came of it, after a wait until then at most. The errors are those of Errand.
    template <typename T>
    base::Result<T> get(Answer<T> answer, base::TimePoint deadline) {
        const base::Activity::Wait waiting("an answer of another thread");
        base::Result<T> result = answer.get(deadline);
        if (!result) unanswered();
        return result;
    }
    /// Both.
    template <typename F>
    base::Result<std::invoke_result_t<F&>> call(const char* what, F f) {
        return get(ask(what, std::move(f)), loop_->clock().now() + patience_);
    }

private:
    LoopThread(std::unique_ptr<base::EventLoop> loop, std::string label, std::string name,
               base::Duration patience)
        : loop_(std::move(loop)),
          watch_(*loop_, std::move(label)),
          name_(std::move(name)),
          patience_(patience) {}
    /// It is still in the turn in which it got what it did not answer, or the watchdog says so.
    [[nodiscard]] bool hangs() const;
    void unanswered();

    const std::unique_ptr<base::EventLoop> loop_;
    LoopWatch watch_;
    const std::string name_;
    const base::Duration patience_;
    std::thread thread_;
    std::atomic<bool> serves_{false};  // tells of itself alone, so relaxed
    /// Of the loop, when it was last asked, and of that which it did not answer. Who goes on makes
    /// a turn, since it does not sleep between a task and the next turn.
    std::uint64_t asked_turn_ = 0;
    std::optional<std::uint64_t> silent_turn_;
};

}  // namespace openmana::manad
