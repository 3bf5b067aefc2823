// SPDX-License-Identifier: Apache-2.0
#include "fabric/claims.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace openmana::fabric {

auto Claims::held(const Claimed& claimed) -> Claim {
    // All who look at the claims to one address look here.
    base::count_work(1 + claimed.claims.size() / base::kSmallSteps);
    for (const Claim& claim : claimed.claims)
        if (claim.claimant == claimed.holder) return claim;
    return {};
}

/// Who has it keeps it until somebody's claim is better. Others than who is asking are told.
/// `before`: what was held().
void Claims::settle(const roce::Address& address, Claimed& claimed, const Claimant& asking,
                    const Claim& before) {
    Claim best = held(claimed);
    for (const Claim& claim : claimed.claims)
        if (best.claimant == nullptr || claim.standing > best.standing) best = claim;
    claimed.holder = best.claimant;
    if (best == before) return;
    reach_.changed();
    if (best.claimant == before.claimant) return;
    for (Claimant* const one : {before.claimant, best.claimant})
        if (one != nullptr && one != &asking) one->claim_changed(address);
}

bool Claims::claim(Claimant& claimant, const roce::Address& address) {
    const std::lock_guard lock(mutex_);
    Claimed& claimed = addresses_[address];
    const Claim before = held(claimed);
    claimed.claims.push_back({&claimant, claimant.standing(address.gid)});
    claimed_by_[&claimant].insert(address);
    settle(address, claimed, claimant, before);
    return claimed.holder == &claimant;
}

void Claims::release(Claimant& claimant, const roce::Address& address) {
    const std::lock_guard lock(mutex_);
    const auto found = addresses_.find(address);
    if (found == addresses_.end()) return;
    Claimed& claimed = found->second;
    const Claim before = held(claimed);
    std::erase_if(claimed.claims, [&](const Claim& claim) { return claim.claimant == &claimant; });
    settle(address, claimed, claimant, before);
    if (claimed.claims.empty()) addresses_.erase(found);
    const auto own = claimed_by_.find(&claimant);
    if (own == claimed_by_.end()) return;
    own->second.erase(address);
    if (own->second.empty()) claimed_by_.erase(own);
}

void Claims::release_all(Claimant& claimant) {
    std::set<roce::Address> mine;
    {
        const std::lock_guard lock(mutex_);
        base::count_work(1);
        const auto own = claimed_by_.extract(&claimant);
        if (own) mine = std::move(own.mapped());
    }
    // Each with the lock for itself.
    for (const roce::Address& address : mine) release(claimant, address);
}

bool Claims::review(Claimant& claimant, const roce::Address& address) {
    const std::lock_guard lock(mutex_);
    const auto found = addresses_.find(address);
    if (found == addresses_.end()) return false;
    Claimed& claimed = found->second;
    const Claim before = held(claimed);
    for (Claim& claim : claimed.claims)
        if (claim.claimant == &claimant) claim.standing = claimant.standing(address.gid);
    settle(address, claimed, claimant, before);
    return claimed.holder == &claimant;
}

bool Claims::foreign(const Claimant* claimant, const roce::Address& address, Standing least) const {
    const std::lock_guard lock(mutex_);
    const auto found = addresses_.find(address);
    if (found == addresses_.end() || found->second.holder == claimant) return false;
    return held(found->second).standing >= least;
}

std::string Claims::holder_name(const roce::Address& address) const {
    const std::lock_guard lock(mutex_);
    const auto found = addresses_.find(address);
    return found != addresses_.end() ? found->second.holder->claimant_name() : std::string();
}

}  // namespace openmana::fabric
