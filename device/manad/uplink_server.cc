// SPDX-License-Identifier: Apache-2.0
#include "manad/uplink_server.h"

#include "base/log.h"

namespace openmana::manad {

base::Result<std::unique_ptr<UplinkServer>> UplinkServer::create(const fabric::UplinkConfig& config,
                                                                 fabric::Switch& network) {
    TRY(auto thread, LoopThread::create("uplink=" + config.name, "uplink"));
    std::unique_ptr<UplinkServer> server(new UplinkServer(std::move(thread), config.network));
    TRY(server->uplink_, fabric::Uplink::create(server->thread_->loop(), network, config));
    return server;
}

base::Result<void> UplinkServer::start() {
    OM_INFO("uplink start: uplink={} network={}", uplink_->name(), network_);
    return thread_->start();
}

}  // namespace openmana::manad
