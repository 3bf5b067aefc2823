// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/result.h"
#include "fabric/uplink_mtu.h"
#include "manad/control.h"
#include "manad/loop_threads.h"
#include "manad/metrics_server.h"
#include "manad/network_control.h"
#include "manad/networks.h"
#include "manad/nic_server.h"
#include "manad/options.h"
#include "manad/take_over.h"
#include "manad/upgrade.h"
#include "manad/watchdog.h"

namespace openmana::manad {

/// NICs, policies and uplinks are those that were handed over, besides what the options add.
/// `subject` gets what an error is about.
base::Result<void> take_options(Options& options, HandedOver& handed, std::string& subject);

/// The whole daemon: its networks, a NicServer per `--nic` and for each that came later, and the
/// control socket on the loop of the caller's thread.
class Daemon {
public:
    /// Creates every socket. The error's text names what could not be had; `subject` gets the
    /// option or path meant. `patience` is how long requests wait for a NIC's thread. `taken`: what
    /// another process has handed over, which this goes on with. `ledger`: where the NICs write
    /// down what a process needs that goes on when this one has ended, and find it; outlives this.
    /// If one that goes on fails, it has let go of nothing, and its process has to end without it.
    static base::Result<std::unique_ptr<Daemon>> create(
        const Options& options, std::string& subject,
        base::Duration patience = LoopThread::kPatience, TakeOver* taken = nullptr,
        Ledger* ledger = nullptr);
    ~Daemon();

    /// Starts its threads.
    base::Result<void> start();
    /// Serves, once started, until stop(), and then until all its threads have ended.
    void run();
    /// From any thread.
    void stop() { loop_->stop(); }
    /// Of a daemon that was stopped, and whose run() does not return: which threads hang, and what
    /// each is at, a line of the log each. From any thread.
    [[nodiscard]] std::vector<std::string> hanging() const;
    /// Another process has the same sockets, and may be the one that goes on: this one has not
    /// taken its place yet, or hands over to it. From any thread.
    [[nodiscard]] bool shares() const { return shares_.load(std::memory_order_relaxed); }
    /// The paths of its sockets, which are left behind if it is not destroyed. From any thread.
    [[nodiscard]] std::vector<std::string> sockets() const;
    /// Null if there is none of that name.
    [[nodiscard]] NicServer* find(const std::string& name) const { return network_.find(name); }
    [[nodiscard]] base::EventLoop& loop() { return *loop_; }
    /// Answers one request of the control socket (docs/manad.md). On the loop's thread.
    nlohmann::json handle(const nlohmann::json& request);
    /// The same for the connection that the request came by. What it asks for may be that this
    /// process ends, and another one goes on (docs/manad.md).
    nlohmann::json handle(const nlohmann::json& request, int connection);
    /// Makes a NIC while others are in traffic. The error is for the one who asked. On the loop's
    /// thread, once started.
    Parsed<void> add_nic(const NicOptions& nic, const std::optional<PolicyOptions>& policy = {});
    /// Sends the client away, if there is one and `force` says so, and takes the NIC from its
    /// network; it goes when nobody is at work with it any more. The same threads.
    Parsed<void> remove_nic(const std::string& name, bool force);
    /// How options are read anew, for `reload`. Before it is started.
    void set_reload(std::function<ParsedOptions()> read) { read_again_ = std::move(read); }
    /// Reads them, and has NICs, policies, faults and the level of the log be what they say. What
    /// cannot change while it runs has to be what it was, or nothing changes. What was done, or why
    /// not, in words. The same threads.
    Parsed<std::string> reload();
    /// The same, for the log.
    void reload_and_tell();
    /// Who starts another one of this program, for `upgrade`; before it is started.
    base::Result<void> set_starter(std::unique_ptr<Starter> starter);
    /// Told the process that goes on in this one's place, as the last of what this one does.
    void on_handed_over(std::function<void(pid_t)> told) { on_handed_over_ = std::move(told); }
    /// NICs that have left and not gone.
    [[nodiscard]] std::size_t leaving() const { return leaving_.size(); }

private:
    Daemon(std::unique_ptr<base::EventLoop> loop, const Options& options, base::Duration patience)
        : loop_(std::move(loop)),
          patience_(patience),
          options_(options),
          watch_(std::make_shared<LoopWatch>(*loop_, "thread=control")),
          networks_(clock_, options),
          network_(*loop_, networks_, nics_),
          watchdog_(clock_) {}
    /// All that it has.
    base::Result<void> make(const Options& options, std::string& subject, TakeOver* taken);
    nlohmann::json hand_over(int connection, pid_t main);
    base::Result<void> send_all(HandOver& other);
    nlohmann::json upgrade(const nlohmann::json& request);
    void end();
    void note_policies();
    void add_socket(const std::string& path);
    /// Once it has left: waits for those that are at work with it, and ends it.
    void let_go(std::unique_ptr<NicServer> nic);
    void end_thread(const LoopThread& thread);
    /// What keeps the options from being these; nothing if they can be.
    [[nodiscard]] std::optional<std::string> find_obstacle(const Options& wanted);
    /// reload(), but for what is written down of it.
    Parsed<std::string> bring_to_read();
    /// NICs of these options that are not there yet are there then, or none of them. Their names.
    Parsed<std::vector<std::string>> add_nics_of(const Options& wanted);
    /// NICs that are not of these options are gone then. How many.
    Parsed<std::size_t> remove_nics_not_of(const Options& wanted);
    [[nodiscard]] NicOptions* options_of(const std::string& nic);
    nlohmann::json change_nics(const nlohmann::json& request);
    [[nodiscard]] std::string metrics(bool open_metrics);
    nlohmann::json status();
    nlohmann::json stats(const std::vector<NicServer*>& nics);
    nlohmann::json qps(const std::vector<NicServer*>& nics);

    base::SystemClock clock_;
    std::unique_ptr<base::EventLoop> loop_;
    const base::Duration patience_;
    std::function<ParsedOptions()> read_again_;
    std::function<void(pid_t)> on_handed_over_;
    std::unique_ptr<Upgrade> upgrade_;  // or null
    pid_t from_ = 0;                    // the process that this one has taken the place of
    Ledger* ledger_ = nullptr;
    Options options_;  // with NICs that came, without those that left
    std::map<std::string, std::optional<fabric::UplinkMtu>> path_mtus_;  // of uplinks, by name
    std::shared_ptr<LoopWatch> watch_;                                   // of the main thread
    std::atomic<bool> serves_{false};  // the main thread; tells of itself alone, so relaxed
    std::atomic<bool> shares_{false};  // the same
    Networks networks_;
    LoopThreads threads_;
    std::vector<std::unique_ptr<NicServer>> nics_;
    std::list<std::unique_ptr<NicServer>> leaving_;
    NetworkControl network_;
    std::unique_ptr<ControlServer> control_;
    std::vector<std::unique_ptr<MetricsServer>> metrics_;
    mutable std::mutex mutex_;  // protects sockets_
    std::vector<std::string> sockets_;
    Watchdog watchdog_;
};

}  // namespace openmana::manad
