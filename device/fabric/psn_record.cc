// SPDX-License-Identifier: Apache-2.0
#include "fabric/psn_record.h"

#include <algorithm>

namespace openmana::fabric {

bool PsnRecord::add(roce::Psn psn, std::uint32_t count, bool certain) {
    if (!last_ || psn >= next_) {
        // Behind a READ of unknown size nothing is known to be missing.
        if (next_certain_ && psn != next_) {
            if (gaps_.size() == kMaxGaps) gaps_.erase(gaps_.begin());
            gaps_.push_back({next_, psn});
        }
        if (!first_) first_ = psn;
        last_ = psn;
        next_ = psn + count;
        next_certain_ = certain;
        return true;
    }
    if (psn < *first_ && *first_ - psn < kPsnReach && *last_ - *first_ >= 0 &&
        *last_ - *first_ < kPsnReach) {
        // The network lost the very first, and the numbers have not come round since.
        if (certain && psn + count < *first_ && gaps_.size() < kMaxGaps)
            gaps_.push_back({psn + count, *first_});
        first_ = psn;
        return true;
    }
    const auto gap = std::find_if(gaps_.begin(), gaps_.end(), [psn](const Gap& candidate) {
        return psn >= candidate.begin && psn < candidate.end;
    });
    if (gap == gaps_.end()) return false;
    const Gap rest{psn + count, gap->end};
    gap->end = psn;
    const bool rest_left = rest.begin < rest.end;
    if (gap->begin == gap->end) {
        if (rest_left)
            *gap = rest;
        else
            gaps_.erase(gap);
    } else if (rest_left && gaps_.size() < kMaxGaps) {
        gaps_.insert(gap + 1, rest);
    }
    return true;
}

void PsnRecord::settle(std::uint32_t count) {
    if (!last_) return;
    next_ = *last_ + count;
    next_certain_ = true;
}

}  // namespace openmana::fabric
