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

/// An uplink, and the thread that it is served by. Made and destroyed on the main thread, while
/// that does not run.
class UplinkServer {
public:
    /// `only_nic`: the thread of the only NIC of the network, which then serves its UDP uplink too:
    /// what comes in is for nobody else, and needs no other thread to be woken. Null: it gets its
    /// own.
    static base::Result<std::unique_ptr<UplinkServer>> create(const fabric::UplinkConfig& config,
                                                              fabric::Switch& network,
                                                              LoopThread* only_nic);
    ~UplinkServer() { stop(); }
    UplinkServer(const UplinkServer&) = delete;
    UplinkServer& operator=(const UplinkServer&) = delete;

    base::Result<void> start();
    /// Ends its own thread.
    void stop() {
        if (own_thread_) own_thread_->stop();
    }
    /// Null if it is served by another's.
    [[nodiscard]] LoopThread* own_thread() const { return own_thread_.get(); }
    [[nodiscard]] LoopThread& thread() { return thread_; }
    [[nodiscard]] const LoopThread& thread() const { return thread_; }
    [[nodiscard]] fabric::Uplink& uplink() { return *uplink_; }
    [[nodiscard]] const fabric::Uplink& uplink() const { return *uplink_; }
    /// Name of the one that it is in.
    [[nodiscard]] const std::string& network() const { return network_; }

private:
    UplinkServer(std::unique_ptr<LoopThread> own, LoopThread& thread, std::string network)
        : network_(std::move(network)), own_thread_(std::move(own)), thread_(thread) {}
    const std::string network_;
    const std::unique_ptr<LoopThread> own_thread_;
    LoopThread& thread_;
    std::unique_ptr<fabric::Uplink> uplink_;
};

}  // namespace openmana::manad
