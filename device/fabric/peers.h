// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/frame.h"
#include "base/hold_meter.h"
#include "rnic/local_peer.h"
#include "rnic/network.h"

namespace openmana::fabric {

class Port;

/// A NIC of this process as the RDMA devices of others see it.
class Peer {
public:
    virtual ~Peer() = default;
    /// Its RDMA device, if the destination is one of its own addresses, requests from there may
    /// reach it without packets now, and its policy lets them and their answers pass; else nowhere.
    /// The VLAN of the ends is the network's. Any thread that holds no gate.
    [[nodiscard]] virtual rnic::LocalEnd rdma_for(const rnic::Ends& ends) = 0;
    /// Whether its policy lets it have the MAC address. Under a lock: asks nobody. Any thread.
    [[nodiscard]] virtual bool may_claim(const base::MacAddr& mac) const = 0;
    /// Of the switch. Any thread.
    [[nodiscard]] virtual Port& port() = 0;
};

/// Why a NIC has a MAC address. A later one of these goes before an earlier one, whoever came
/// first.
enum class MacRight : std::uint8_t {
    kClaimed,  ///< its guest uses it, and was the first
    kNamed,    ///< its policy names it
    kOwn,      ///< it came with it
};

/// The NICs on a switch by their MAC addresses. Any thread. A peer that was found is good until
/// traffic has ended; it may have lost the address by then.
class Peers {
public:
    /// True if it is the peer's from now on. A claim of what another has is not kept; rights are,
    /// and wait. Who claims what others have claimed who must not have it now goes before them for
    /// good.
    bool add(const base::MacAddr& mac, Peer& peer, MacRight right);
    void remove(const base::MacAddr& mac, const Peer& peer, MacRight right);
    /// Who has it; null if nobody does.
    [[nodiscard]] Peer* find(const base::MacAddr& mac) const;

private:
    struct Claim {
        Peer* peer;
        MacRight right;
    };
    [[nodiscard]] static Peer* best(const base::MacAddr& mac, const std::vector<Claim>& claims);

    mutable base::SharedMutex mutex_{"MAC addresses"};    // protects claims_
    std::map<base::MacAddr, std::vector<Claim>> claims_;  // who comes first goes before
};

}  // namespace openmana::fabric
