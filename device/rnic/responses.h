// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/state.h"
#include "rnic/segment.h"

namespace openmana::rnic {

struct Qp;

/// Answers of the responder on the wire path, which leave in PSN order (ROCE 4.9, 4.11). Owner's
/// executor.
class Responses {
public:
    explicit Responses(Qp& qp) : qp_(qp) {}
    void add(const Answer& answer);
    /// As many READs and atomics wait as a peer may ever have under way.
    [[nodiscard]] bool full() const { return queue_.size() >= kMost; }
    /// What it takes at most: behind each of these an answer of another kind may wait.
    [[nodiscard]] static constexpr std::uint64_t most_bytes() {
        constexpr std::uint64_t kDeque = 1024;  // what is not answers
        return kDeque + (2 * kMost + 1) * (sizeof(Answer) + sizeof(Answer) / 4);
    }
    /// Sends what is due. True if READ data is left for another turn.
    bool send();
    [[nodiscard]] bool empty() const { return queue_.empty() && !ack_; }
    /// Into new ones of a queue pair whose route is there.
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    void clear() {
        queue_.clear();
        ack_.reset();
    }

private:
    enum class Sent : std::uint8_t { kAll, kPart, kLimited, kRefused };
    static constexpr std::size_t kMost = 128;
    void implied(const Answer& answer);
    Sent send_read(Answer& answer, std::uint64_t& budget);
    void send_aeth(const Answer& answer);

    Qp& qp_;
    std::deque<Answer> queue_;   // a READ in front, what must wait behind it; bounded by kMost
    std::optional<Answer> ack_;  // one for a batch
};

}  // namespace openmana::rnic
