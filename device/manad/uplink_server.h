// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <thread>

#include "base/event_loop.h"
#include "base/result.h"
#include "fabric/switch.h"
#include "fabric/uplink.h"

namespace openmana::manad {

/// An uplink with its thread. Made and destroyed on the main thread, while its own does not run.
class UplinkServer {
public:
    static base::Result<std::unique_ptr<UplinkServer>> create(const fabric::UplinkConfig& config,
                                                              fabric::Switch& network);
    ~UplinkServer();
    UplinkServer(const UplinkServer&) = delete;
    UplinkServer& operator=(const UplinkServer&) = delete;

    void start();
    void stop();
    [[nodiscard]] const fabric::Uplink& uplink() const { return *uplink_; }

private:
    explicit UplinkServer(std::unique_ptr<base::EventLoop> loop) : loop_(std::move(loop)) {}
    std::unique_ptr<base::EventLoop> loop_;
    std::unique_ptr<fabric::Uplink> uplink_;
    std::thread thread_;
};

}  // namespace openmana::manad
