// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/result.h"
#include "fabric/switch.h"
#include "fabric/uplink.h"
#include "manad/loop_thread.h"

namespace openmana::manad {

/// An uplink with its thread. Made and destroyed on the main thread, while its own does not run.
class UplinkServer {
public:
    static base::Result<std::unique_ptr<UplinkServer>> create(const fabric::UplinkConfig& config,
                                                              fabric::Switch& network);
    ~UplinkServer() { thread_->stop(); }
    UplinkServer(const UplinkServer&) = delete;
    UplinkServer& operator=(const UplinkServer&) = delete;

    base::Result<void> start();
    [[nodiscard]] LoopThread& thread() { return *thread_; }
    [[nodiscard]] const LoopThread& thread() const { return *thread_; }
    [[nodiscard]] const fabric::Uplink& uplink() const { return *uplink_; }
    /// Name of the one that it is in.
    [[nodiscard]] const std::string& network() const { return network_; }

private:
    UplinkServer(std::unique_ptr<LoopThread> thread, std::string network)
        : network_(std::move(network)), thread_(std::move(thread)) {}
    const std::string network_;
    std::unique_ptr<LoopThread> thread_;
    std::unique_ptr<fabric::Uplink> uplink_;
};

}  // namespace openmana::manad
