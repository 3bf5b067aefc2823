// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/hold_meter.h"

namespace openmana::base {

/// Lets other threads into a NIC's objects, and keeps them out while its own thread changes them.
///
/// A thread that works on a *foreign* NIC (local path, frame delivery) holds `Visit` for one
/// bounded step and takes no other gate meanwhile. The NIC's own thread needs no visit; it holds
/// `Exclusion` while it changes what a visitor may look at, and while it maps or unmaps guest
/// memory, and holds no visit then. So no cycle of waits can form, and when an `Exclusion` was
/// obtained nobody else holds a pointer into the NIC.
///
/// Who waits, waits for one hold: an exclusion lets those in first whom the one before kept out.
/// So what is done under an exclusion is bounded, and what would take long is done in a `Recess`.
class Gate {
public:
    Gate() : state_(HoldMeter::current() != nullptr ? kMeasured : 0) {}

    class Visit {
    public:
        explicit Visit(Gate& gate) : gate_(gate) { gate_.enter(); }
        ~Visit() { gate_.leave(); }
        Visit(const Visit&) = delete;
        Visit& operator=(const Visit&) = delete;

    private:
        Gate& gate_;
    };

    /// A visit if the gate is open and somebody is in, and nothing if not: for who has something
    /// else to do.
    class TryVisit {
    public:
        explicit TryVisit(Gate& gate) : gate_(gate.try_enter() ? &gate : nullptr) {}
        ~TryVisit() {
            if (gate_ != nullptr) gate_->leave();
        }
        TryVisit(const TryVisit&) = delete;
        TryVisit& operator=(const TryVisit&) = delete;
        explicit operator bool() const { return gate_ != nullptr; }

    private:
        Gate* const gate_;
    };

    /// Nests on the owning thread: the outermost has the cause.
    class Exclusion {
    public:
        explicit Exclusion(Gate& gate, HoldCause cause = {}) : gate_(gate) { gate_.close(cause); }
        ~Exclusion() { gate_.open(); }
        Exclusion(const Exclusion&) = delete;
        Exclusion& operator=(const Exclusion&) = delete;

    private:
        Gate& gate_;
    };

    /// Opens the gate within an exclusion, however deep that is, and closes it again when it ends.
    /// For long work on what visitors cannot reach, such as freeing what they found no more when it
    /// began, and between the steps of work that they may see half done. Without an exclusion it
    /// does nothing.
    class Recess {
    public:
        explicit Recess(Gate& gate);
        ~Recess();
        Recess(const Recess&) = delete;
        Recess& operator=(const Recess&) = delete;

    private:
        Gate& gate_;
        const std::uint32_t depth_;
        const HoldCause cause_;
    };

    /// Whether the NIC is at a standstill: who visits it finds nobody in, touches nothing and
    /// leaves. During a visit, or on the NIC's own thread.
    [[nodiscard]] bool away() const { return away_.load(std::memory_order_relaxed); }
    /// The owner, within an exclusion: that gives the order.
    void set_away(bool away) { away_.store(away, std::memory_order_relaxed); }

    /// Threads that want to get in. Any thread; a hint.
    [[nodiscard]] std::uint32_t waiting() const {
        return (state_.load(std::memory_order_relaxed) & kWaiters) / kWaiter;
    }

private:
    // Visitors inside; those who wait to get in; flags. The fast path looks at the flags alone.
    static constexpr std::uint32_t kVisitor = 1;
    static constexpr std::uint32_t kVisitors = (1U << 15) - 1;
    static constexpr std::uint32_t kWaiter = 1U << 15;
    static constexpr std::uint32_t kWaiters = kVisitors << 15;
    static constexpr std::uint32_t kMeasured = 1U << 30;
    static constexpr std::uint32_t kClosed = 1U << 31;

    void enter() {
        const std::uint32_t before = state_.fetch_add(kVisitor, std::memory_order_acquire);
        if ((before & (kClosed | kMeasured)) != 0) [[unlikely]]
            enter_slowly(before);
    }
    void leave() {
        const std::uint32_t before = state_.fetch_sub(kVisitor, std::memory_order_release);
        if ((before & (kClosed | kMeasured)) != 0) [[unlikely]]
            leave_slowly(before);
    }
    void enter_slowly(std::uint32_t before);
    void leave_slowly(std::uint32_t before);
    [[nodiscard]] bool try_enter();
    void wait_until_open();
    void close(HoldCause cause);
    void open();

    /// Acquire in enter() pairs with release in open(); acquire in close() pairs with release in
    /// leave().
    alignas(64) std::atomic<std::uint32_t> state_;
    std::atomic<bool> away_{false};
    // Owner thread only.
    std::uint32_t depth_ = 0;
    HoldCause cause_{};
    HoldMeter::Stopwatch stopwatch_;
};

}  // namespace openmana::base
