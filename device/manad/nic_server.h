// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "base/guest_memory.h"
#include "base/memory_loss.h"
#include "base/pausable_executor.h"
#include "base/result.h"
#include "fabric/nic.h"
#include "fabric/switch.h"
#include "gdma/function.h"
#include "manad/ledger.h"
#include "manad/loop_thread.h"
#include "manad/nic_mover.h"
#include "manad/options.h"
#include "pci/endpoint.h"
#include "vfio_user/server.h"

namespace openmana::manad {

/// A NIC with its socket and its thread. Made on the main thread. Destroyed there, which ends its
/// thread, or on that: then the thread, which others may share, is theirs to end.
class NicServer {
public:
    /// `patience` is that of `call`. `state`: what save() has written in another process, whose
    /// guest this one then has; it is in a pause. `ledger`: what it writes down for a process that
    /// goes on when this one has ended, and what such a one has; may be null. If the latter fails,
    /// it has let go of nothing.
    static base::Result<std::unique_ptr<NicServer>> create(
        const NicOptions& options, fabric::Switch& network,
        base::Duration patience = LoopThread::kPatience, base::StateReader* state = nullptr,
        NicLedgerClaim ledger = nullptr);
    ~NicServer();
    NicServer(const NicServer&) = delete;
    NicServer& operator=(const NicServer&) = delete;

    /// One that is `apart` (fabric::NicConfig), or goes on behind a crash, is in its network once
    /// its thread serves. Before that nobody has found it, so that it may go at once, and takes up
    /// what its predecessor has left while nobody visits.
    base::Result<void> start();
    void stop() { thread_->stop(); }
    [[nodiscard]] LoopThread& thread() { return *thread_; }
    [[nodiscard]] const std::shared_ptr<LoopThread>& shared_thread() const { return thread_; }
    /// On the NIC's thread (LoopThread::call).
    template <typename F>
    auto call(const char* what, F f) {
        return thread_->call(what, std::move(f));
    }
    /// Says to a user that a call got no answer, why, and what the NIC's thread is at.
    [[nodiscard]] std::string no_answer(const base::Error& error) const;

    [[nodiscard]] fabric::Nic& nic() { return *nic_; }
    [[nodiscard]] const std::string& name() const { return nic_->config().name; }
    [[nodiscard]] const std::string& socket() const { return socket_; }
    [[nodiscard]] const pci::DmaLimits& dma_limits() const { return dma_limits_; }
    /// Name of the one that it is in.
    [[nodiscard]] const std::string& network() const { return network_; }

    /// From any thread, as it was a moment ago.
    [[nodiscard]] bool has_client() const { return server_->connected(); }
    /// What only the NIC's thread can tell. The rest is on that thread alone.
    struct Status {
        bool client = false;
        std::size_t qps = 0;
        gdma::ObjectCounts objects;
    };
    [[nodiscard]] Status status() const;
    /// Nothing is read from the guest or sent to it until resume(), and what the NIC has sent has
    /// left. On its thread.
    void pause();
    void resume();
    /// When it paused, here or in another process, by the clock of this host. While it rests.
    [[nodiscard]] base::TimePoint paused_at() const { return paused_at_; }
    /// Before start().
    void set_handed_over(base::TimePoint paused) {
        paused_at_ = paused;
        handed_over_ = true;
    }
    /// How long nobody has served the guest, from the pause in another process until this one went
    /// on; zero if it has not, or none was handed over. Any thread.
    [[nodiscard]] base::Duration blackout() const {
        return blackout_.load(std::memory_order_relaxed);
    }
    /// It was handed over, and nobody serves its guest yet. Any thread.
    [[nodiscard]] bool waits_to_serve() const { return handed_over_ && blackout().count() == 0; }
    /// The policy that it has, for a process that goes on when this one has ended. On the main
    /// thread.
    void note_policy(const std::string& text) {
        if (ledger_) ledger_->policy.set(text);
    }
    /// Its client is at moving the guest elsewhere, or has gone and may come again (retain=):
    /// nothing of that is in save(). On its thread.
    [[nodiscard]] bool moving() const { return mover_->busy(); }
    /// Its driver has yet to reset it after a crash. In a pause as well.
    [[nodiscard]] bool waits_for_reset() const { return mover_->lost(); }
    /// All that another process needs to go on with the guest. In a pause, while its thread rests.
    void save(base::StateWriter& out) const;
    /// What policy and faults have seen (fabric::Nic::save_stages), for one that has the same.
    void save_stages(base::StateWriter& out) const { nic_->save_stages(out); }
    /// The function forgets everything, as after a function-level reset.
    void reset();
    /// The client is sent away, the socket is gone, and nobody finds the NIC any more
    /// (fabric::Nic::leave). Nothing but its end comes after that.
    void leave();

    /// Every counter of the NIC, layer by layer, from any thread.
    template <typename F>
    void visit_counters(F&& f) {
        thread_->watch().counters().visit(f);
        server_->counters().visit(f);
        endpoint_->counters().visit(f);
        nic_->function().account().visit(f);
        nic_->visit_counters(f);
    }

private:
    NicServer(const NicOptions& options, std::unique_ptr<LoopThread> thread,
              std::unique_ptr<base::MemoryLoss> loss, fabric::Switch& network,
              NicLedgerClaim ledger);
    [[nodiscard]] vfio_user::ServerLedger* server_ledger() const {
        return ledger_ ? &ledger_->server : nullptr;
    }
    base::Result<void> open(const NicOptions& options, base::StateReader* state);
    base::Result<void> load(base::StateReader& in, const NicOptions& options);
    void take_up();
    vfio_user::Moving offered(const NicOptions& options);
    void on_memory_loss();

    NicLedgerClaim ledger_;  // or null; all others write to it
    const std::string socket_;
    const pci::DmaLimits dma_limits_;
    const std::string network_;
    std::shared_ptr<LoopThread> thread_;
    std::unique_ptr<base::MemoryLoss> loss_;
    std::unique_ptr<base::GuestMemory> memory_;
    std::unique_ptr<pci::Endpoint> endpoint_;
    base::PausableExecutor executor_;  // of nic_
    std::unique_ptr<fabric::Nic> nic_;
    std::unique_ptr<NicMover> mover_;
    std::unique_ptr<vfio_user::Server> server_;
    base::TimePoint paused_at_{};
    bool handed_over_ = false;
    bool left_behind_ = false;                // its thread has yet to take up what a process left
    bool recovered_ = false;                  // the guest of a process that has ended, which runs
    std::atomic<base::Duration> blackout_{};  // of itself alone, so relaxed
};

}  // namespace openmana::manad
