// SPDX-License-Identifier: Apache-2.0
#include "fabric/peers.h"

namespace openmana::fabric {

void Peers::add(const base::MacAddr& mac, Peer& peer) {
    const std::lock_guard lock(mutex_);
    peers_[mac] = &peer;
}

void Peers::remove(const base::MacAddr& mac, const Peer& peer) {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(mac);
    if (found != peers_.end() && found->second == &peer) peers_.erase(found);
}

Peer* Peers::find(const base::MacAddr& mac) const {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(mac);
    return found == peers_.end() ? nullptr : found->second;
}

}  // namespace openmana::fabric
