// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/datagram_socket.h"
#include "fabric/uplink.h"

namespace openmana::fabric {

/// One socket of a UDP uplink, between its two ports, and what is encrypted with keys of its own.
/// Sends from any thread, reads on its loop.
class UdpQueue {
public:
    /// What has come in, in memory that is good during the call.
    using Receive = std::function<void(base::FrameViews)>;
    /// Between the ports of the options, each `number` higher; `inherited` is a socket of another
    /// process, or none.
    static base::Result<std::unique_ptr<UdpQueue>> create(base::EventLoop& loop,
                                                          const UplinkConfig& config,
                                                          std::size_t number,
                                                          base::UniqueFd inherited,
                                                          Receive receive);
    ~UdpQueue() { loop_.remove(socket_.fd()); }
    UdpQueue(const UdpQueue&) = delete;
    UdpQueue& operator=(const UdpQueue&) = delete;

    /// In their order.
    base::DatagramSocket::Sent send(base::FrameViews frames);
    void send_notice();
    [[nodiscard]] UplinkEncryption* encryption() const { return encryption_.get(); }
    [[nodiscard]] int socket() const { return socket_.fd(); }
    /// What was encrypted may not be any more, or the other way round: so that stands by itself.
    void save_encryption(base::StateWriter& out) const;
    void load_encryption(base::StateReader& in);

private:
    UdpQueue(base::EventLoop& loop, base::DatagramSocket socket,
             std::unique_ptr<UplinkEncryption> encryption, Receive receive)
        : loop_(loop),
          socket_(std::move(socket)),
          encryption_(std::move(encryption)),
          receive_(std::move(receive)) {}
    void read();

    base::EventLoop& loop_;
    base::DatagramSocket socket_;
    const std::unique_ptr<UplinkEncryption> encryption_;  // or null
    const Receive receive_;
    std::vector<base::FrameView> frames_;  // for its memory
};

}  // namespace openmana::fabric
