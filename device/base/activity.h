// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace openmana::base {

/// What a thread is at, for those who look from outside at one that gives no sign of life any more.
/// Each EventLoop has one, which is that of its thread while it runs.
///
/// Written by its thread alone, with plain stores; read from any thread. The order is relaxed and
/// has no partner: a reader may see parts of two moments, but none of a thread that stands still.
class Activity {
public:
    struct Note {
        const char* what = "nothing yet";  ///< static text
        std::uint64_t detail = 0;          ///< an opcode, a number; 0: none
        const char* waits_for = nullptr;   ///< static text; null: it does not wait for a thread
    };

    [[nodiscard]] Note note() const {
        return {what_.load(std::memory_order_relaxed), detail_.load(std::memory_order_relaxed),
                waits_for_.load(std::memory_order_relaxed)};
    }
    void set(const char* what, std::uint64_t detail = 0) {
        what_.store(what, std::memory_order_relaxed);
        detail_.store(detail, std::memory_order_relaxed);
    }
    /// This is the activity of the calling thread from now on; null: nobody looks.
    static void attach(Activity* activity) { current_ = activity; }

    /// The calling thread does this until the scope ends, and then again what it did before.
    class Scope {
    public:
        explicit Scope(const char* what, std::uint64_t detail = 0) : activity_(current_) {
            if (activity_ == nullptr) return;
            before_ = activity_->note();
            activity_->set(what, detail);
        }
        ~Scope() {
            if (activity_ != nullptr) activity_->set(before_.what, before_.detail);
        }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

    private:
        Activity* const activity_;
        Note before_;
    };

    /// The calling thread waits for another until the scope ends. Waits do not nest.
    class Wait {
    public:
        explicit Wait(const char* what) : activity_(current_) {
            if (activity_ != nullptr) activity_->waits_for_.store(what, std::memory_order_relaxed);
        }
        ~Wait() {
            if (activity_ != nullptr)
                activity_->waits_for_.store(nullptr, std::memory_order_relaxed);
        }
        Wait(const Wait&) = delete;
        Wait& operator=(const Wait&) = delete;

    private:
        Activity* const activity_;
    };

private:
    static inline constinit thread_local Activity* current_ = nullptr;

    std::atomic<const char*> what_{"nothing yet"};
    std::atomic<std::uint64_t> detail_{0};
    std::atomic<const char*> waits_for_{nullptr};
};

}  // namespace openmana::base
