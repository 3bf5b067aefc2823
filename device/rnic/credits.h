// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "roce/aeth.h"
#include "roce/packet.h"
#include "roce/psn.h"

namespace openmana::rnic {

/// What a peer's credits allow (ROCE 2.6, IBTA 9.7.7.2): it counts the messages it has executed
/// (MSN), we number ours in the same way (SSN, from 1), and an ACK says for how many messages more
/// there are receives. A message that needs one may go up to that limit; the one behind it may ask,
/// so that a connection whose credits are used up still hears of new ones.
class Credits {
public:
    /// Counts 24 bits and is ordered as a PSN is.
    using Ssn = roce::Psn;

    void start() { *this = Credits(); }
    /// The first of the numbers for the next `count` messages, of whatever kind.
    Ssn next(std::uint32_t count = 1) {
        const Ssn first = newest_ + 1;
        newest_ += count;
        return first;
    }
    [[nodiscard]] Ssn newest() const { return newest_; }

    /// What an AETH that says ACK tells. `oldest` is the first message that is not finished.
    void take(roce::Aeth aeth, Ssn oldest) {
        const std::uint8_t code = roce::aeth_value(aeth.syndrome);
        const Ssn msn(aeth.msn);
        // Only a peer that counts from elsewhere, since it was not reset when we were, says less
        // than it has acknowledged or more than it got. Its limits would be nonsense as well.
        if (code == roce::kAckUnlimited || msn + 1 < oldest || msn > newest_) {
            limited_ = false;
            return;
        }
        const Ssn limit = msn + roce::credits(code);
        if (!limited_ || limit > limit_) limit_ = limit;
        limited_ = true;
    }
    void lift() { limited_ = false; }

    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
        a(self.newest_, self.limit_, self.limited_);
    }
    [[nodiscard]] bool limited() const { return limited_; }
    [[nodiscard]] bool allows(Ssn ssn) const { return !limited_ || ssn <= limit_; }
    [[nodiscard]] bool may_ask(Ssn ssn) const { return !limited_ || ssn <= limit_ + 1; }

private:
    Ssn newest_{};
    Ssn limit_{};
    bool limited_ = false;
};

}  // namespace openmana::rnic
