// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "fabric/switch.h"
#include "fabric/uplink.h"
#include "fabric/vxlan_endpoint.h"
#include "manad/loop_thread.h"

namespace openmana::manad {

/// An uplink, and the threads that it is served by, one for each of its queues. Made and destroyed
/// on the main thread, while that does not run.
class UplinkServer {
public:
    /// `only_nic`: the thread of the only NIC of the network, which then serves its UDP uplink of
    /// one queue too: what comes in is for nobody else, and needs no other thread to be woken.
    /// Null: it gets its own. `neighbour`: one that it shares thread and socket with, or null.
    /// `files`: the thread that reads its table, if it has one in a file.
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
    void stop() {
        for (const auto& thread : threads_) thread->stop();
    }
    /// Of its first queue.
    [[nodiscard]] const LoopThread& thread() const { return *threads_.front(); }
    /// In the order of its queues. Of several uplinks, or of one and a NIC, the same.
    [[nodiscard]] const std::vector<std::shared_ptr<LoopThread>>& threads() const {
        return threads_;
    }
    [[nodiscard]] fabric::Uplink& uplink() { return *uplink_; }
    [[nodiscard]] const fabric::Uplink& uplink() const { return *uplink_; }
    /// Of a VXLAN network, with those that share it; else null.
    [[nodiscard]] const fabric::VxlanEndpoint* endpoint() const { return endpoint_.get(); }
    /// Name of the one that it is in.
    [[nodiscard]] const std::string& network() const { return network_; }

private:
    UplinkServer(std::vector<std::shared_ptr<LoopThread>> threads, bool starts, std::string network)
        : network_(std::move(network)), threads_(std::move(threads)), starts_(starts) {}
    const std::string network_;
    const std::vector<std::shared_ptr<LoopThread>> threads_;
    const bool starts_;  // it is the first of those whose threads they are
    std::shared_ptr<fabric::VxlanEndpoint> endpoint_;  // of several uplinks the same
    std::unique_ptr<fabric::Uplink> uplink_;
};

}  // namespace openmana::manad
