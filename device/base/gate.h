// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace openmana::base {

/// Lets other threads into a NIC's objects, and keeps them out while its own thread changes them.
///
/// A thread that works on a *foreign* NIC (local path, frame delivery) holds `Visit` for one
/// bounded step and takes no other gate meanwhile. The NIC's own thread needs no visit; it holds
/// `Exclusion` while it creates, destroys, modifies or resets objects and while it maps or unmaps
/// guest memory, and holds no visit then. So no cycle of waits can form, and when an `Exclusion`
/// was obtained nobody else holds a pointer into the NIC.
class Gate {
public:
    class Visit {
    public:
        explicit Visit(Gate& gate) : gate_(gate) { gate_.enter(); }
        ~Visit() { gate_.leave(); }
        Visit(const Visit&) = delete;
        Visit& operator=(const Visit&) = delete;

    private:
        Gate& gate_;
    };

    /// Nests on the owning thread.
    class Exclusion {
    public:
        explicit Exclusion(Gate& gate) : gate_(gate) { gate_.close(); }
        ~Exclusion() { gate_.open(); }
        Exclusion(const Exclusion&) = delete;
        Exclusion& operator=(const Exclusion&) = delete;

    private:
        Gate& gate_;
    };

private:
    static constexpr std::uint32_t kClosed = 1U << 31;
    void enter();
    void leave();
    void close();
    void open();

    /// Visitors inside, and kClosed. Acquire in enter() pairs with release in open(); acquire in
    /// close() pairs with release in leave().
    alignas(64) std::atomic<std::uint32_t> state_{0};
    std::uint32_t depth_ = 0;  // owner thread only
};

}  // namespace openmana::base
