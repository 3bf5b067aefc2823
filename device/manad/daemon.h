// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/result.h"
#include "manad/control.h"
#include "manad/network_control.h"
#include "manad/networks.h"
#include "manad/nic_server.h"
#include "manad/options.h"
#include "manad/watchdog.h"

namespace openmana::manad {

/// The whole daemon: its networks, a NicServer per `--nic`, and the control socket on the loop of
/// the caller's thread.
class Daemon {
public:
    /// Creates every socket. The error's text names what could not be had; `subject` gets the
    /// option or path meant. `patience` is how long requests wait for a NIC's thread.
    static base::Result<std::unique_ptr<Daemon>> create(
        const Options& options, std::string& subject,
        base::Duration patience = LoopThread::kPatience);
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
    /// The paths of its sockets, which are left behind if it is not destroyed. From any thread.
    [[nodiscard]] const std::vector<std::string>& sockets() const { return sockets_; }
    /// Null if there is none of that name.
    [[nodiscard]] NicServer* find(const std::string& name) const { return network_.find(name); }
    [[nodiscard]] base::EventLoop& loop() { return *loop_; }
    /// Answers one request of the control socket (docs/manad.md). On the loop's thread.
    nlohmann::json handle(const nlohmann::json& request);

private:
    Daemon(std::unique_ptr<base::EventLoop> loop, const Options& options, base::Duration patience)
        : loop_(std::move(loop)),
          patience_(patience),
          watch_(*loop_, "thread=control"),
          networks_(clock_, options),
          network_(*loop_, networks_, nics_),
          watchdog_(clock_) {}
    void end();
    nlohmann::json status();
    nlohmann::json stats(const std::vector<NicServer*>& nics);
    nlohmann::json qps(const std::vector<NicServer*>& nics);

    base::SystemClock clock_;
    std::unique_ptr<base::EventLoop> loop_;
    const base::Duration patience_;
    LoopWatch watch_;                  // of the main thread
    std::atomic<bool> serves_{false};  // the main thread; tells of itself alone, so relaxed
    const Networks networks_;
    std::vector<std::unique_ptr<NicServer>> nics_;
    NetworkControl network_;
    std::unique_ptr<ControlServer> control_;
    std::vector<LoopThread*> threads_;  // those of the NICs and uplinks
    std::vector<std::string> sockets_;
    Watchdog watchdog_;
};

}  // namespace openmana::manad
