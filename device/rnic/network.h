// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "base/frame.h"
#include "roce/address.h"
#include "roce/packet.h"

namespace openmana::rnic {

struct LocalEnd;
struct LocalPeer;

/// Both ends of an RC connection, the own first.
struct Connection {
    roce::Gid local_address{}, remote_address{};
    roce::Qpn local_qpn{}, remote_qpn{};
    roce::Vlan vlan = roce::kNoVlan;
};

/// Where packets of a queue pair come from, and where they go.
struct Ends {
    roce::Gid source{}, destination{};
    base::MacAddr source_mac{}, destination_mac{};
    roce::Vlan vlan = roce::kNoVlan;  ///< of both, as who asks has it
    friend bool operator==(const Ends&, const Ends&) = default;
};

/// Why a requester gave up.
enum class Failure : std::uint8_t { kRetries, kRnrRetries };

/// How an RNIC reaches others; implemented by the fabric (and by tests).
class Network : public base::FrameSink {
public:
    /// The RNIC in this process (Rnic::local_peer) that owns the destination, if requests to it and
    /// their answers may take the local path right now: link up, no stage on the way needs packets,
    /// and the policies of both NICs allow them. Else nowhere, and frames are used. Called on the
    /// executor of `self`, the caller's own. The answer is good as long as generation() is what it
    /// was before the call, and for the turn in which that changes: the caller visits the peer's
    /// gate before it touches it, and a peer that leaves lives to the end of that turn.
    virtual LocalEnd local_peer(const LocalPeer& self, const Ends& ends) = 0;
    /// Changes after everything that local_peer() and Addresses::owns() depend on; 0 if nobody
    /// counts: an answer is good for one turn then. Any thread.
    [[nodiscard]] virtual std::uint64_t generation() const { return 0; }
    /// As transmit(), of a frame that lacks its ICRC; leaves it, whose capacity the caller uses
    /// again, if it can. Only the caller's executor.
    virtual void transmit_lent(base::Frame& frame) {
        roce::put_icrc(frame);
        transmit(std::move(frame));
    }
    /// Bytes of frames that transmit() takes now without filling a queue so far that it drops some;
    /// 0: wait. Only the caller's executor.
    [[nodiscard]] virtual std::uint64_t transmit_room() const { return UINT64_MAX; }
    /// An RC QP has given up its connection, for the peer did not answer or had no receive; its end
    /// comes later. On the QP's executor.
    virtual void connection_failed(const Connection& connection, Failure failure) {
        (void)connection;
        (void)failure;
    }
    /// The guest has given the adapter an address. False if somebody else serves it: then the
    /// adapter does not, until review_address() says so. This and the next three on the RNIC's
    /// executor, with its gate open.
    virtual bool claim_address(const roce::Address& address) {
        (void)address;
        return true;
    }
    /// The guest has taken it away again.
    virtual void release_address(const roce::Address& address) { (void)address; }
    /// Whether the adapter serves an address that it has claimed.
    virtual bool review_address(const roce::Address& address) {
        (void)address;
        return true;
    }
    /// The adapter serves other addresses than before.
    virtual void addresses_changed() {}
    /// The guest reaches addresses of the adapter by this MAC address, which is not the NIC's own.
    /// False if it may not have it, or somebody else has. On the RNIC's executor, with its gate
    /// open.
    virtual bool claim_mac(const base::MacAddr& mac) {
        (void)mac;
        return true;
    }
    /// It does not any more.
    virtual void release_mac(const base::MacAddr& mac) { (void)mac; }
    /// Whether packets that come by a MAC address which is not the NIC's own are for it, now. Any
    /// thread.
    [[nodiscard]] virtual bool may_have(const base::MacAddr& mac) const {
        (void)mac;
        return false;
    }
    /// The driver has negotiated the extension, or has not. The Ethernet device of the same NIC has
    /// packet queues and flow rules then (docs/extensions.md). On the RNIC's executor.
    virtual void extensions_negotiated(bool wanted) { (void)wanted; }
    /// An RC QP has ended its connection: nothing of it is sent any more. On the QP's executor.
    virtual void connection_ended(const Connection& connection) { (void)connection; }
};

}  // namespace openmana::rnic
