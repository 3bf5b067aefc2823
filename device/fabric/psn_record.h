// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "roce/psn.h"

namespace openmana::fabric {

/// An answer may be this far from the last request that was seen: a READ takes a PSN for each
/// packet of its answer.
constexpr std::int32_t kPsnReach = 1 << 16;

/// The PSNs that one direction has shown: tells a repetition from something new, also when the
/// network lost it before it came here, and it comes behind later ones.
class PsnRecord {
public:
    /// Packets of `count` PSNs from `psn` on; `certain` if the count is known. False if they
    /// were here before.
    bool add(roce::Psn psn, std::uint32_t count = 1, bool certain = true);
    /// The count of what was added last, now that it is known.
    void settle(std::uint32_t count);
    [[nodiscard]] std::optional<roce::Psn> first() const { return first_; }
    [[nodiscard]] std::optional<roce::Psn> last() const { return last_; }

    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
        a(self.first_, self.last_, self.next_, self.next_certain_, self.gaps_);
        a.require(self.gaps_.size() <= kMaxGaps, "more gaps than are remembered");
    }

private:
    struct Gap {
        roce::Psn begin, end;
        template <typename Archive, typename Self>
        static void fields(Archive& a, Self& self) {
            a(self.begin, self.end);
        }
    };
    static constexpr std::size_t kMaxGaps = 64;
    std::optional<roce::Psn> first_, last_;
    roce::Psn next_;
    bool next_certain_ = false;
    std::vector<Gap> gaps_;  // oldest first
};

}  // namespace openmana::fabric
