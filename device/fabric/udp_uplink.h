// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "base/datagram_socket.h"
#include "fabric/uplink.h"

namespace openmana::fabric {

/// One frame a datagram, as QEMU's `-netdev dgram` has it, to and from one other end; or one packet
/// of ESP with a frame in it.
class UdpUplink final : public Uplink {
public:
    static base::Result<std::unique_ptr<UdpUplink>> create(base::EventLoop& loop, Switch& network,
                                                           const UplinkConfig& config);
    ~UdpUplink() override;
    void deliver(base::FrameViews frames) override;
    void visit_counters(const CounterVisitor& visitor) const override;
    [[nodiscard]] UplinkEncryption* encryption() override { return encryption_.get(); }
    void save(base::StateWriter& out) const override;

private:
    UdpUplink(base::EventLoop& loop, Switch& network, const UplinkConfig& config,
              base::DatagramSocket socket, std::unique_ptr<UplinkEncryption> encryption)
        : Uplink(loop, network, config.name),
          socket_(std::move(socket)),
          encryption_(std::move(encryption)) {}
    void load(base::StateReader& in);
    void read();
    void send(std::span<const base::Datagram> datagrams);
    void send_notice();

    base::DatagramSocket socket_;
    const std::unique_ptr<UplinkEncryption> encryption_;  // or null
    std::vector<base::FrameView> frames_;                 // for its memory
};

}  // namespace openmana::fabric
