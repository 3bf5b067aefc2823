// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/result.h"
#include "fabric/switch.h"
#include "manad/control.h"
#include "manad/network_control.h"
#include "manad/nic_server.h"
#include "manad/options.h"

namespace openmana::manad {

/// The whole daemon: a switch, a NicServer per `--nic`, and the control socket on the loop of the
/// caller's thread.
class Daemon {
public:
    /// Creates every socket. The error's text names what could not be had; `subject` gets the
    /// option or path meant.
    static base::Result<std::unique_ptr<Daemon>> create(const Options& options,
                                                        std::string& subject);
    ~Daemon();

    /// Serves until stop().
    void run();
    /// From any thread.
    void stop() { loop_->stop(); }
    [[nodiscard]] base::EventLoop& loop() { return *loop_; }
    /// Answers one request of the control socket (docs/manad.md). On the loop's thread.
    nlohmann::json handle(const nlohmann::json& request);

private:
    explicit Daemon(std::unique_ptr<base::EventLoop> loop)
        : loop_(std::move(loop)), switch_(clock_), network_(*loop_, switch_, nics_) {}
    nlohmann::json status();
    nlohmann::json stats(const std::vector<NicServer*>& nics);
    nlohmann::json qps(const std::vector<NicServer*>& nics);

    base::SystemClock clock_;
    std::unique_ptr<base::EventLoop> loop_;
    fabric::Switch switch_;
    std::vector<std::unique_ptr<NicServer>> nics_;
    NetworkControl network_;
    std::unique_ptr<ControlServer> control_;
};

}  // namespace openmana::manad
