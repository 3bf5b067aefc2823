// SPDX-License-Identifier: Apache-2.0
#include "manad/uplink_server.h"

#include <pthread.h>

#include "base/log.h"

namespace openmana::manad {

base::Result<std::unique_ptr<UplinkServer>> UplinkServer::create(const fabric::UplinkConfig& config,
                                                                 fabric::Switch& network) {
    TRY(auto loop, base::EventLoop::create());
    std::unique_ptr<UplinkServer> server(new UplinkServer(std::move(loop)));
    TRY(server->uplink_, fabric::Uplink::create(*server->loop_, network, config));
    return server;
}

UplinkServer::~UplinkServer() {
    stop();
}

void UplinkServer::start() {
    OM_INFO("uplink start: uplink={}", uplink_->name());
    thread_ = std::thread([this] {
        ::pthread_setname_np(::pthread_self(), "uplink");
        loop_->run();
    });
}

void UplinkServer::stop() {
    if (!thread_.joinable()) return;
    loop_->stop();
    thread_.join();
}

}  // namespace openmana::manad
