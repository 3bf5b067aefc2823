// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fabric/udp_queue.h"
#include "fabric/uplink.h"

namespace openmana::fabric {

/// One frame a datagram, as QEMU's `-netdev dgram` has it, to and from one other end; or one packet
/// of ESP with a frame in it. With several queues a flow has one of them, so that its frames keep
/// their order.
class UdpUplink final : public Uplink {
public:
    static base::Result<std::unique_ptr<UdpUplink>> create(std::span<base::EventLoop* const> loops,
                                                           Switch& network,
                                                           const UplinkConfig& config);
    ~UdpUplink() override;
    void deliver(base::FrameViews frames) override;
    void visit_counters(const CounterVisitor& visitor) const override;
    [[nodiscard]] UplinkEncryption* encryption(std::size_t queue) override {
        return queue < queues_.size() ? queues_[queue]->encryption() : nullptr;
    }
    void save(base::StateWriter& out) const override;

private:
    using FlowKey = std::array<std::uint64_t, 2>;
    UdpUplink(base::EventLoop& loop, Switch& network, const UplinkConfig& config,
              const FlowKey& key)
        : Uplink(loop, network, config.name, Kind::kPlain, config.queues), flow_key_(key) {}
    base::Result<void> add_queue(base::EventLoop& loop, const UplinkConfig& config,
                                 base::UniqueFd inherited);
    void load(base::StateReader& in, std::size_t queues);
    void send(UdpQueue& queue, base::FrameViews frames);

    const FlowKey flow_key_;
    std::vector<std::unique_ptr<UdpQueue>> queues_;
};

}  // namespace openmana::fabric
