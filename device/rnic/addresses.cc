// SPDX-License-Identifier: Apache-2.0
#include "rnic/addresses.h"

#include <algorithm>

#include "base/hold_meter.h"
#include "gdma/types.h"

namespace openmana::rnic {
namespace {

constexpr std::size_t kMost = 1024;

/// A change looks at all, or moves them.
template <typename T>
void count_work_on(const std::vector<T>& addresses) {
    base::count_work(1 + addresses.size() / base::kSmallSteps);
}

}  // namespace

std::uint32_t Addresses::add(const roce::Gid& gid) {
    count_work_on(gids_);
    const auto found = std::find_if(gids_.begin(), gids_.end(),
                                    [&](const Entry& entry) { return entry.gid == gid; });
    if (found != gids_.end())
        ++found->uses;
    else if (gids_.size() >= kMost)
        return gdma::kHwcNoResources;
    else
        gids_.push_back({gid, 1});
    return gdma::kHwcSuccess;
}

std::uint32_t Addresses::remove(const roce::Gid& gid) {
    count_work_on(gids_);
    const auto found = std::find_if(gids_.begin(), gids_.end(),
                                    [&](const Entry& entry) { return entry.gid == gid; });
    if (found == gids_.end()) return gdma::kHwcNotFound;
    if (--found->uses == 0) gids_.erase(found);
    return gdma::kHwcSuccess;
}

std::uint32_t Addresses::add(const base::MacAddr& mac) {
    count_work_on(macs_);
    if (std::find(macs_.begin(), macs_.end(), mac) != macs_.end()) return gdma::kHwcSuccess;
    if (macs_.size() >= kMost) return gdma::kHwcNoResources;
    macs_.push_back(mac);
    return gdma::kHwcSuccess;
}

std::uint32_t Addresses::remove(const base::MacAddr& mac) {
    count_work_on(macs_);
    const auto found = std::find(macs_.begin(), macs_.end(), mac);
    if (found == macs_.end()) return gdma::kHwcNotFound;
    macs_.erase(found);
    return gdma::kHwcSuccess;
}

void Addresses::clear() {
    gids_.clear();
    macs_.clear();
}

bool Addresses::owns(const roce::Gid& gid) const {
    return std::any_of(gids_.begin(), gids_.end(),
                       [&](const Entry& entry) { return entry.gid == gid; });
}

bool Addresses::owns(const base::MacAddr& mac) const {
    return mac == own_ || std::find(macs_.begin(), macs_.end(), mac) != macs_.end();
}

}  // namespace openmana::rnic
