// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "base/frame.h"
#include "roce/address.h"
#include "roce/packet.h"

namespace openmana::rnic {

struct LocalPeer;

/// Both ends of an RC connection, the own first.
struct Connection {
    roce::Gid local_address{}, remote_address{};
    roce::Qpn local_qpn{}, remote_qpn{};
};

/// Why a requester gave up.
enum class Failure : std::uint8_t { kRetries, kRnrRetries };

/// How an RNIC reaches others; implemented by the fabric (and by tests).
class Network : public base::FrameSink {
public:
    /// The RNIC in this process (Rnic::local_peer) that owns `destination` behind `mac`, if traffic
    /// from `source` to it may take the local path right now (link up, no capture, fault or policy
    /// on the way); else null and frames are used. Called on the source's executor; the answer is
    /// good until the next call returns to the event loop: the caller visits the peer's gate before
    /// it touches it, and peers live as long as the network.
    virtual const LocalPeer* local_peer(const LocalPeer& source, const roce::Gid& destination,
                                        const base::MacAddr& mac) = 0;
    /// As transmit(), but leaves the frame, whose capacity the caller uses again, if it can. Only
    /// the caller's executor.
    virtual void transmit_lent(base::Frame& frame) { transmit(std::move(frame)); }
    /// Bytes of frames that transmit() takes now without filling a queue so far that it drops some;
    /// 0: wait. Only the caller's executor.
    [[nodiscard]] virtual std::uint64_t transmit_room() const { return UINT64_MAX; }
    /// An RC QP has given up its connection, for the peer did not answer or had no receive; its end
    /// comes later. On the QP's executor.
    virtual void connection_failed(const Connection& connection, Failure failure) {
        (void)connection;
        (void)failure;
    }
    /// The driver has negotiated the extension, or has not. The Ethernet device of the same NIC has
    /// packet queues and flow rules then (docs/extensions.md). On the RNIC's executor.
    virtual void extensions_negotiated(bool wanted) { (void)wanted; }
    /// An RC QP has ended its connection: nothing of it is sent any more. On the QP's executor.
    virtual void connection_ended(const Connection& connection) { (void)connection; }
};

}  // namespace openmana::rnic
