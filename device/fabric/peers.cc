// SPDX-License-Identifier: Apache-2.0
#include "fabric/peers.h"

#include <mutex>

namespace openmana::fabric {

Peer* Peers::best(const base::MacAddr& mac, const std::vector<Claim>& claims) {
    // All who look at the claims to one address look here.
    base::count_work(1 + claims.size() / base::kSmallSteps);
    const Claim* best = nullptr;
    for (const Claim& claim : claims) {
        if (best != nullptr && claim.right <= best->right) continue;
        // Nobody is kept out by who must not have it himself.
        if (claim.right != MacRight::kClaimed || claim.peer->may_claim(mac)) best = &claim;
    }
    return best == nullptr ? nullptr : best->peer;
}

bool Peers::add(const base::MacAddr& mac, Peer& peer, MacRight right) {
    const std::lock_guard lock(mutex_);
    std::vector<Claim>& claims = claims_[mac];
    const Peer* const before = best(mac, claims);
    if (right == MacRight::kClaimed && before != nullptr && before != &peer) return false;
    if (before == nullptr)
        claims.insert(claims.begin(), {&peer, right});
    else
        claims.push_back({&peer, right});
    return best(mac, claims) == &peer;
}

void Peers::remove(const base::MacAddr& mac, const Peer& peer, MacRight right) {
    const std::lock_guard lock(mutex_);
    const auto found = claims_.find(mac);
    if (found == claims_.end()) return;
    base::count_work(1 + found->second.size() / base::kSmallSteps);
    std::erase_if(found->second,
                  [&](const Claim& claim) { return claim.peer == &peer && claim.right == right; });
    if (found->second.empty()) claims_.erase(found);
}

Peer* Peers::find(const base::MacAddr& mac) const {
    const std::lock_guard lock(mutex_);
    const auto found = claims_.find(mac);
    return found == claims_.end() ? nullptr : best(mac, found->second);
}

}  // namespace openmana::fabric
