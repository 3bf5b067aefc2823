// SPDX-License-Identifier: Apache-2.0
#include "fabric/claims.h"

#include <algorithm>
#include <mutex>

namespace openmana::fabric {

auto Claims::held(const Address& address) -> Claim {
    // All who look at the claims to one address look here.
    base::count_work(1 + address.claims.size() / base::kSmallSteps);
    for (const Claim& claim : address.claims)
        if (claim.claimant == address.holder) return claim;
    return {};
}

/// Who has it keeps it until somebody's claim is better. Others than who is asking are told.
/// `before`: what was held().
void Claims::settle(const roce::Gid& gid, Address& address, const Claimant& asking,
                    const Claim& before) {
    Claim best = held(address);
    for (const Claim& claim : address.claims)
        if (best.claimant == nullptr || claim.standing > best.standing) best = claim;
    address.holder = best.claimant;
    if (best == before) return;
    reach_.changed();
    if (best.claimant == before.claimant) return;
    for (Claimant* const one : {before.claimant, best.claimant})
        if (one != nullptr && one != &asking) one->claim_changed(gid);
}

bool Claims::claim(Claimant& claimant, const roce::Gid& gid) {
    const std::lock_guard lock(mutex_);
    Address& address = addresses_[gid];
    const Claim before = held(address);
    address.claims.push_back({&claimant, claimant.standing(gid)});
    settle(gid, address, claimant, before);
    return address.holder == &claimant;
}

void Claims::release(Claimant& claimant, const roce::Gid& gid) {
    const std::lock_guard lock(mutex_);
    const auto found = addresses_.find(gid);
    if (found == addresses_.end()) return;
    Address& address = found->second;
    const Claim before = held(address);
    std::erase_if(address.claims, [&](const Claim& claim) { return claim.claimant == &claimant; });
    settle(gid, address, claimant, before);
    if (address.claims.empty()) addresses_.erase(found);
}

void Claims::release_all(Claimant& claimant) {
    std::vector<roce::Gid> claimed;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [gid, address] : addresses_)
            if (std::ranges::any_of(address.claims, [&](const Claim& claim) {
                    return claim.claimant == &claimant;
                }))
                claimed.push_back(gid);
    }
    for (const roce::Gid& gid : claimed) release(claimant, gid);
}

bool Claims::review(Claimant& claimant, const roce::Gid& gid) {
    const std::lock_guard lock(mutex_);
    const auto found = addresses_.find(gid);
    if (found == addresses_.end()) return false;
    Address& address = found->second;
    const Claim before = held(address);
    for (Claim& claim : address.claims)
        if (claim.claimant == &claimant) claim.standing = claimant.standing(gid);
    settle(gid, address, claimant, before);
    return address.holder == &claimant;
}

bool Claims::foreign(const Claimant* claimant, const roce::Gid& gid, Standing least) const {
    const std::lock_guard lock(mutex_);
    const auto found = addresses_.find(gid);
    if (found == addresses_.end() || found->second.holder == claimant) return false;
    return held(found->second).standing >= least;
}

std::string Claims::holder_name(const roce::Gid& gid) const {
    const std::lock_guard lock(mutex_);
    const auto found = addresses_.find(gid);
    return found != addresses_.end() ? found->second.holder->claimant_name() : std::string();
}

}  // namespace openmana::fabric
