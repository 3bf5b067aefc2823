// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "base/datagram_socket.h"
#include "fabric/uplink.h"

namespace openmana::fabric {

/// One frame a datagram, as QEMU's `-netdev dgram` has it, to and from one other end.
class UdpUplink final : public Uplink {
public:
    static base::Result<std::unique_ptr<UdpUplink>> create(base::EventLoop& loop, Switch& network,
                                                           const UplinkConfig& config);
    ~UdpUplink() override;
    void deliver(base::FrameViews frames) override;

private:
    UdpUplink(base::EventLoop& loop, Switch& network, const UplinkConfig& config,
              base::DatagramSocket socket)
        : Uplink(loop, network, config.name), socket_(std::move(socket)) {}
    void read();

    base::DatagramSocket socket_;
    std::vector<base::FrameView> frames_;  // for its memory
};

}  // namespace openmana::fabric
