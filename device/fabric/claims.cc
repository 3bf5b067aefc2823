// SPDX-License-Identifier: Apache-2.0
#include "fabric/claims.h"

#include <algorithm>
#include <mutex>

namespace openmana::fabric {

/// Who has it keeps it until somebody's claim is better. Others than who is asking are told.
void Claims::settle(const roce::Gid& gid, Address& address, const Claimant& asking) {
    const Claim* best = nullptr;
    for (const Claim& claim : address.claims)
        if (claim.claimant == address.holder) best = &claim;
    for (const Claim& claim : address.claims)
        if (best == nullptr || claim.standing > best->standing) best = &claim;
    Claimant* const before = address.holder;
    address.holder = best != nullptr ? best->claimant : nullptr;
    if (address.holder == before) return;
    for (Claimant* const one : {before, address.holder})
        if (one != nullptr && one != &asking) one->claim_changed(gid);
}

bool Claims::claim(Claimant& claimant, const roce::Gid& gid) {
    const std::lock_guard lock(mutex_);
    Address& address = addresses_[gid];
    address.claims.push_back({&claimant, claimant.standing(gid)});
    settle(gid, address, claimant);
    return address.holder == &claimant;
}

void Claims::release(Claimant& claimant, const roce::Gid& gid) {
    const std::lock_guard lock(mutex_);
    const auto found = addresses_.find(gid);
    if (found == addresses_.end()) return;
    Address& address = found->second;
    std::erase_if(address.claims, [&](const Claim& claim) { return claim.claimant == &claimant; });
    if (address.holder == &claimant) address.holder = nullptr;
    settle(gid, address, claimant);
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
    for (Claim& claim : address.claims)
        if (claim.claimant == &claimant) claim.standing = claimant.standing(gid);
    settle(gid, address, claimant);
    return address.holder == &claimant;
}

bool Claims::foreign(const Claimant* claimant, const roce::Gid& gid) const {
    const std::lock_guard lock(mutex_);
    const auto found = addresses_.find(gid);
    if (found == addresses_.end() || found->second.holder == claimant) return false;
    // Nobody may be kept out by who must not use it himself.
    return std::ranges::any_of(found->second.claims, [&](const Claim& claim) {
        return claim.claimant == found->second.holder && claim.standing != Standing::kForbidden;
    });
}

std::string Claims::holder_name(const roce::Gid& gid) const {
    const std::lock_guard lock(mutex_);
    const auto found = addresses_.find(gid);
    return found != addresses_.end() ? found->second.holder->claimant_name() : std::string();
}

}  // namespace openmana::fabric
