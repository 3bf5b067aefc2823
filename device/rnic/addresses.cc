// SPDX-License-Identifier: Apache-2.0
#include "rnic/addresses.h"

#include <algorithm>

#include "base/hold_meter.h"
#include "gdma/types.h"
#include "rnic/network.h"

namespace openmana::rnic {
namespace {

constexpr std::size_t kMost = 1024;

/// A change looks at all, or moves them.
template <typename T>
void count_work_on(const std::vector<T>& addresses) {
    base::count_work(1 + addresses.size() / base::kSmallSteps);
}

}  // namespace

auto Addresses::entry_of(const roce::Address& address) -> std::vector<Entry>::iterator {
    return std::ranges::find(entries_, address, &Entry::address);
}

bool Addresses::any_extended() const {
    return std::ranges::any_of(entries_, [&](const Entry& entry) {
        return entry.address.vlan != roce::kNoVlan ||
               std::ranges::any_of(entry.macs, [&](const auto& mac) { return mac != own_; });
    });
}

std::uint32_t Addresses::claim(const base::MacAddr& mac) {
    if (mac == own_) return gdma::kHwcSuccess;
    // Of a command or of a state: of one station, and not the address of nobody.
    if ((mac[0] & 1) != 0 || mac == base::MacAddr{}) return gdma::kHwcInvalidParameter;
    if (const auto known = claimed_.find(mac); known != claimed_.end()) {
        ++known->second;
        return gdma::kHwcSuccess;
    }
    if (claimed_.size() >= kMostMacs) return gdma::kHwcNoResources;
    if (!network_.claim_mac(mac)) return gdma::kHwcInvalidParameter;
    {
        const base::Gate::Exclusion exclusion(gate_, {"claim to a MAC address"});
        claimed_.emplace(mac, 1);
    }
    network_.addresses_changed();
    return gdma::kHwcSuccess;
}

void Addresses::release(const base::MacAddr& mac) {
    const auto known = claimed_.find(mac);
    if (known == claimed_.end() || --known->second > 0) return;
    {
        const base::Gate::Exclusion exclusion(gate_, {"end of a claim to a MAC address"});
        claimed_.erase(known);
    }
    network_.release_mac(mac);
    network_.addresses_changed();
}

std::uint32_t Addresses::add(const roce::Address& address, const base::MacAddr& mac) {
    const auto known = entry_of(address);
    if (known == entries_.end() ? entries_.size() >= kMost : known->macs.size() >= kMostMacs)
        return gdma::kHwcNoResources;
    if (const std::uint32_t status = claim(mac); status != gdma::kHwcSuccess) return status;
    if (known != entries_.end()) {
        known->macs.push_back(mac);
        return gdma::kHwcSuccess;
    }
    const bool served = network_.claim_address(address);
    Entry entry{address, {mac}, served};
    {
        const base::Gate::Exclusion exclusion(gate_, {"new address"});
        count_work_on(entries_);
        entries_.push_back(std::move(entry));
    }
    network_.addresses_changed();
    return gdma::kHwcSuccess;
}

std::uint32_t Addresses::remove(const roce::Address& address, const base::MacAddr& mac) {
    const auto found = entry_of(address);
    if (found == entries_.end()) return gdma::kHwcNotFound;
    const auto by = std::ranges::find(found->macs, mac);
    if (by == found->macs.end()) return gdma::kHwcNotFound;
    release(mac);
    found->macs.erase(by);
    // What was sent by this one may have another now.
    sends_from_.reset();
    if (!found->macs.empty()) return gdma::kHwcSuccess;
    {
        const base::Gate::Exclusion exclusion(gate_, {"end of an address"});
        count_work_on(entries_);
        entries_.erase(found);
        sends_from_.reset();
    }
    network_.release_address(address);
    network_.addresses_changed();
    return gdma::kHwcSuccess;
}

std::uint32_t Addresses::add(const base::MacAddr& mac) {
    if (std::ranges::find(macs_, mac) != macs_.end()) return gdma::kHwcSuccess;
    if (const std::uint32_t status = claim(mac); status != gdma::kHwcSuccess) return status;
    const base::Gate::Exclusion exclusion(gate_, {"new MAC address"});
    count_work_on(macs_);
    macs_.push_back(mac);
    return gdma::kHwcSuccess;
}

std::uint32_t Addresses::remove(const base::MacAddr& mac) {
    const auto found = std::ranges::find(macs_, mac);
    if (found == macs_.end()) return gdma::kHwcNotFound;
    release(mac);
    const base::Gate::Exclusion exclusion(gate_, {"end of a MAC address"});
    count_work_on(macs_);
    macs_.erase(found);
    return gdma::kHwcSuccess;
}

void Addresses::clear() {
    std::vector<Entry> gone;
    std::map<base::MacAddr, std::uint32_t> claimed;
    {
        const base::Gate::Exclusion exclusion(gate_, {"end of all addresses"});
        gone.swap(entries_);
        claimed.swap(claimed_);
        macs_.clear();
        sends_from_.reset();
    }
    const base::Gate::Recess recess(gate_);
    base::count_work(gone.size() + claimed.size());
    for (const Entry& entry : gone) network_.release_address(entry.address);
    for (const auto& [mac, uses] : claimed) network_.release_mac(mac);
    network_.addresses_changed();
}

void Addresses::review(const roce::Address& address) {
    if (const auto found = entry_of(address); found != entries_.end())
        review(std::span(&*found, 1));
}

void Addresses::review(std::span<Entry> entries) {
    bool changed = false;
    base::count_work(entries.size());
    for (Entry& entry : entries) {
        const bool served = network_.review_address(entry.address);
        if (served == entry.served) continue;
        const base::Gate::Exclusion exclusion(gate_, {"review of an address"});
        entry.served = served;
        sends_from_.reset();
        changed = true;
    }
    if (changed) network_.addresses_changed();
}

bool Addresses::owns(const roce::Address& address) const {
    return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
        return entry.address == address && entry.served;
    });
}

bool Addresses::owns(const base::MacAddr& mac) const {
    return mac == own_ || claimed_.contains(mac);
}

const base::MacAddr& Addresses::mac_of(const roce::Address& address) const {
    const auto found = std::ranges::find(entries_, address, &Entry::address);
    return found == entries_.end() ? own_ : found->macs.front();
}

bool Addresses::in_vlan(roce::Vlan vlan) const {
    return vlan == roce::kNoVlan ||
           std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
               return entry.address.vlan == vlan && entry.served;
           });
}

}  // namespace openmana::rnic
