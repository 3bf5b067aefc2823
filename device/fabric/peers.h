// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <mutex>

#include "base/frame.h"
#include "rnic/local_peer.h"
#include "rnic/network.h"

namespace openmana::fabric {

/// A NIC of this process as the RDMA devices of others see it.
class Peer {
public:
    virtual ~Peer() = default;
    /// Its RDMA device, if the destination is one of its own addresses, requests from there may
    /// reach it without packets now, and its policy lets them and their answers pass; else null.
    /// Any thread that holds no gate.
    [[nodiscard]] virtual const rnic::LocalPeer* rdma_for(const rnic::Ends& ends) = 0;
};

/// The NICs on a switch by their MAC addresses. Any thread. A peer that was found is good until it
/// is removed, which happens when traffic has ended.
class Peers {
public:
    void add(const base::MacAddr& mac, Peer& peer);
    void remove(const base::MacAddr& mac, const Peer& peer);
    /// Null if there is none.
    [[nodiscard]] Peer* find(const base::MacAddr& mac) const;

private:
    mutable std::mutex mutex_;  // protects peers_; nothing is called under it
    std::map<base::MacAddr, Peer*> peers_;
};

}  // namespace openmana::fabric
