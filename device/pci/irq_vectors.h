// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/event_signal.h"
#include "base/executor.h"
#include "base/fd.h"
#include "base/result.h"
#include "base/state.h"
#include "pci/counters.h"
#include "pci/endpoint_ledger.h"

namespace openmana::pci {

/// The MSI-X vectors of a function, each an eventfd that the client gave or none. An interrupt that
/// finds no eventfd, or a masked vector, stays pending until it finds one. Any thread; one lock for
/// each vector, held over the signal to its eventfd, so that it goes to the old eventfd or the new
/// one and never into a closed descriptor. Nothing that the client does to an eventfd makes `raise`
/// wait (EventSignal). Each of its watchers is woken by the signal, though, and a client may have
/// any number of them: a vector whose signals take too much of the time is raised by the function's
/// own executor until that is forgiven. Quick ones in between, or another client, change nothing:
/// the same hand may be behind all of them.
class IrqVectors {
public:
    /// Signals that take no longer are not counted.
    static constexpr base::Duration kLong = std::chrono::microseconds(200);
    /// What the others may take together: no matter of a thread that had to wait now and then. One
    /// part in kForgiven of the time that goes by is forgiven.
    static constexpr base::Duration kMostTaken = std::chrono::milliseconds(100);
    static constexpr int kForgiven = 50;

    IrqVectors(unsigned count, Counters& counters);
    /// Who raises what takes long. Outlived by this, so that nothing is run of it any more. Before
    /// anything is raised.
    void use_executor(base::Executor& executor) { executor_ = &executor; }
    /// From now on the eventfds are written down there. Before there are any.
    void use_ledger(EndpointLedger& ledger);
    /// Those that a process that has ended wrote down there. Behind load() and hold(), as
    /// load_eventfds().
    base::Result<void> recover_eventfds();

    [[nodiscard]] unsigned count() const { return count_; }
    void raise(unsigned vector);
    /// Each that has an eventfd.
    void raise_assigned();
    /// Refuses what is no eventfd: a write to that may block, or mean something.
    base::Result<void> assign(unsigned vector, base::UniqueFd eventfd);
    void mask(unsigned vector, bool masked);
    /// All of them: what is raised meanwhile stays pending.
    void hold(bool held);
    [[nodiscard]] bool pending(unsigned vector) const;
    /// Takes all eventfds, to be let go of where nobody waits: a file's watchers, which are the
    /// client's, have a say in how long that takes. Pending interrupts stay: some clients disable
    /// all vectors and enable them again to add one.
    [[nodiscard]] std::vector<base::UniqueFd> disable();
    /// Forgets what is pending and unmasks, but for hold(). The eventfds stay, they are the
    /// client's.
    void reset();
    /// What is pending and what is masked; with an eventfd what is pending is sent. Whether they
    /// are held is what hold() says, before load().
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    /// The eventfds, for another process of this host: behind load() and hold() there, so that
    /// what is kept back stays so.
    void save_eventfds(base::StateWriter& out) const;
    void load_eventfds(base::StateReader& in);

private:
    /// A line each: neighbours are raised by different threads.
    struct alignas(64) Vector {
        mutable std::mutex mutex;
        std::atomic<bool> left{false};    // to the executor
        std::atomic<bool> posted{false};  // a task that raises it
        base::Duration taken{};           // by long signals, less what was forgiven by then
        base::TimePoint forgiven_at{};
        base::UniqueFd eventfd;
        bool pending = false;
        bool masked = false;
        bool held = false;
    };
    void note_locked(unsigned number, const base::UniqueFd& eventfd);
    void release_locked(Vector& vector);
    void fire_locked(Vector& vector);
    void signal_locked(Vector& vector);
    void forgive_locked(Vector& vector) const;
    void raise_later(unsigned number);

    const unsigned count_;
    Counters& counters_;
    base::EventSignal& signal_;
    std::unique_ptr<Vector[]> vectors_;
    EndpointLedger* ledger_ = nullptr;
    base::Executor* executor_ = nullptr;
};

}  // namespace openmana::pci
