// SPDX-License-Identifier: Apache-2.0
#include "manad/uplink_server.h"

#include "base/log.h"

namespace openmana::manad {

base::Result<std::unique_ptr<UplinkServer>> UplinkServer::create(const fabric::UplinkConfig& config,
                                                                 fabric::Switch& network,
                                                                 LoopThread* only_nic) {
    std::unique_ptr<LoopThread> own;
    // Others read one frame a call, and so are longer at it.
    if (only_nic == nullptr || config.kind != fabric::UplinkConfig::Kind::kUdp) {
        TRY(own, LoopThread::create("uplink=" + config.name, "uplink"));
    }
    LoopThread& thread = own ? *own : *only_nic;
    std::unique_ptr<UplinkServer> server(new UplinkServer(std::move(own), thread, config.network));
    TRY(server->uplink_, fabric::Uplink::create(thread.loop(), network, config));
    return server;
}

base::Result<void> UplinkServer::start() {
    OM_INFO("uplink start: uplink={} network={}", uplink_->name(), network_);
    if (!own_thread_) return {};
    return own_thread_->start();
}

}  // namespace openmana::manad
