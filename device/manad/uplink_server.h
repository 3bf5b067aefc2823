// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/result.h"
#include "fabric/switch.h"
#include "fabric/uplink.h"
#include "fabric/vxlan_endpoint.h"
#include "manad/loop_thread.h"

namespace openmana::manad {

/// An uplink, and the thread that it is served by. Made and destroyed on the main thread, while
/// that does not run.
class UplinkServer {
public:
    /// `only_nic`: the thread of the only NIC of the network, which then serves its UDP uplink too:
    /// what comes in is for nobody else, and needs no other thread to be woken. Null: it gets its
    /// own. `neighbour`: one that it shares thread and socket with, or null. `files`: the thread
    /// that reads its table, if it has one in a file.
    static base::Result<std::unique_ptr<UplinkServer>> create(const fabric::UplinkConfig& config,
                                                              fabric::Switch& network,
                                                              std::shared_ptr<LoopThread> only_nic,
                                                              const UplinkServer* neighbour,
                                                              LoopThread* files);
    ~UplinkServer() { stop(); }
    UplinkServer(const UplinkServer&) = delete;
    UplinkServer& operator=(const UplinkServer&) = delete;

    /// Of VXLAN networks with one local address all are served by the thread of the first.
    [[nodiscard]] bool shares_with(const fabric::UplinkConfig& config) const {
        return config.kind == fabric::UplinkConfig::Kind::kVxlan && endpoint_ != nullptr &&
               endpoint_->local() == config.local;
    }

    base::Result<void> start();
    void stop() { thread_->stop(); }
    [[nodiscard]] LoopThread& thread() { return *thread_; }
    [[nodiscard]] const LoopThread& thread() const { return *thread_; }
    /// Of several uplinks, or of one and a NIC, the same.
    [[nodiscard]] const std::shared_ptr<LoopThread>& shared_thread() const { return thread_; }
    [[nodiscard]] fabric::Uplink& uplink() { return *uplink_; }
    [[nodiscard]] const fabric::Uplink& uplink() const { return *uplink_; }
    /// Of a VXLAN network, with those that share it; else null.
    [[nodiscard]] const fabric::VxlanEndpoint* endpoint() const { return endpoint_.get(); }
    /// Name of the one that it is in.
    [[nodiscard]] const std::string& network() const { return network_; }

private:
    UplinkServer(std::shared_ptr<LoopThread> thread, bool starts, std::string network)
        : network_(std::move(network)), thread_(std::move(thread)), starts_(starts) {}
    const std::string network_;
    const std::shared_ptr<LoopThread> thread_;
    const bool starts_;  // it is the first of those whose thread it is
    std::shared_ptr<fabric::VxlanEndpoint> endpoint_;  // of several uplinks the same
    std::unique_ptr<fabric::Uplink> uplink_;
};

}  // namespace openmana::manad
