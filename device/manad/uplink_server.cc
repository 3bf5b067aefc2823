// SPDX-License-Identifier: Apache-2.0
#include "manad/uplink_server.h"

#include "base/log.h"
#include "base/random_seed.h"
#include "fabric/vxlan_uplink.h"

namespace openmana::manad {
namespace {

using Kind = fabric::UplinkConfig::Kind;

base::Result<std::unique_ptr<fabric::VxlanEndpoint>> make_endpoint(
    std::span<base::EventLoop* const> loops, const fabric::UplinkConfig& config) {
    TRY(auto state,
        fabric::open_inherited(config.inherited_endpoint, loops.front()->clock().now()));
    if (state) return fabric::VxlanEndpoint::create(loops, config.local, config.vxlan.ttl, *state);
    fabric::VxlanEndpoint::Key key;
    for (std::uint64_t& word : key) {
        TRY(word, base::random_seed());
    }
    return fabric::VxlanEndpoint::create(loops, config.local, config.vxlan.ttl, key);
}

}  // namespace

base::Result<std::unique_ptr<UplinkServer>> UplinkServer::create(
    const fabric::UplinkConfig& config, fabric::Switch& network,
    std::shared_ptr<LoopThread> only_nic, const UplinkServer* neighbour, LoopThread* files) {
    const bool vxlan = config.kind == Kind::kVxlan;
    std::vector<std::shared_ptr<LoopThread>> served_by;
    bool starts = false;
    if (neighbour != nullptr) {
        served_by = neighbour->threads_;
    } else if (only_nic == nullptr || config.kind != Kind::kUdp || config.queues > 1) {
        // Others read one frame a call, and so are longer at it; a tunnel's end serves several; an
        // interface that is opened anew takes its time.
        const std::string label = vxlan ? "vxlan=" + config.local.text() : config.name;
        for (std::size_t i = 0; i < config.queues; ++i) {
            const std::string queue = config.queues > 1 ? " queue=" + std::to_string(i) : "";
            TRY(auto thread, LoopThread::create("uplink=" + label + queue, "uplink"));
            served_by.push_back(std::move(thread));
        }
        starts = true;
    } else {
        served_by.push_back(std::move(only_nic));
    }
    LoopThread& thread = *served_by.front();
    std::vector<base::EventLoop*> loops;
    for (const auto& one : served_by) loops.push_back(&one->loop());
    std::unique_ptr<UplinkServer> server(
        new UplinkServer(std::move(served_by), starts, config.network));
    if (!vxlan) {
        TRY(server->uplink_, fabric::Uplink::create(loops, network, config));
        return server;
    }
    if (neighbour != nullptr) {
        server->endpoint_ = neighbour->endpoint_;
    } else {
        TRY(server->endpoint_, make_endpoint(loops, config));
    }
    TRY(server->uplink_,
        fabric::VxlanUplink::create(thread.loop(), network, config, *server->endpoint_,
                                    files != nullptr ? files->loop() : thread.loop()));
    return server;
}

base::Result<void> UplinkServer::start() {
    OM_INFO("uplink start: uplink={} network={}", uplink_->name(), network_);
    if (!starts_) return {};
    for (const auto& thread : threads_) TRY_VOID(thread->start());
    return {};
}

}  // namespace openmana::manad
