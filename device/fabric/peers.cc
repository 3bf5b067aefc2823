// SPDX-License-Identifier: Apache-2.0
#include "fabric/peers.h"

namespace openmana::fabric {

void Peers::add(const base::MacAddr& mac, Peer& peer, MacRight right) {
    const std::lock_guard lock(mutex_);
    claims_[mac].push_back({&peer, right});
}

void Peers::remove(const base::MacAddr& mac, const Peer& peer, MacRight right) {
    const std::lock_guard lock(mutex_);
    const auto found = claims_.find(mac);
    if (found == claims_.end()) return;
    std::erase_if(found->second,
                  [&](const Claim& claim) { return claim.peer == &peer && claim.right == right; });
    if (found->second.empty()) claims_.erase(found);
}

void Peers::remove_all(const Peer& peer) {
    const std::lock_guard lock(mutex_);
    for (auto& [mac, claims] : claims_)
        std::erase_if(claims, [&](const Claim& claim) { return claim.peer == &peer; });
    std::erase_if(claims_, [](const auto& item) { return item.second.empty(); });
}

Peer* Peers::find(const base::MacAddr& mac) const {
    const std::lock_guard lock(mutex_);
    const auto found = claims_.find(mac);
    if (found == claims_.end()) return nullptr;
    const Claim* best = nullptr;
    for (const Claim& claim : found->second) {
        if (best != nullptr && claim.right <= best->right) continue;
        // Nobody is kept out by who must not have it himself.
        if (claim.right != MacRight::kClaimed || claim.peer->may_claim(mac)) best = &claim;
    }
    return best == nullptr ? nullptr : best->peer;
}

}  // namespace openmana::fabric
