// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "rnic/segment.h"

namespace openmana::rnic {

struct Qp;

/// How requests of the stock ABI complete (RNIC 3.8): the host arms a PSN, and one CQE with the
/// newest PSN that is done comes when that is reached, whatever it covers.
class StockCompletions {
public:
    void start(Psn first) {
        done_.store((first - 1).value(), std::memory_order_relaxed);
        reported_ = first - 1;
        armed_ = false;
    }
    /// All up to `psn` is done. Told by settle(), so once in a batch.
    void complete(Psn psn) { done_.store(psn.value(), std::memory_order_relaxed); }
    /// Doorbell 0x408.
    void arm(const Qp& qp, Psn psn) {
        if (reported_ >= psn) return;
        armed_psn_ = psn;
        armed_ = true;
        settle(qp);
    }
    void settle(const Qp& qp) {
        if (armed_ && done() >= armed_psn_) post(qp);
    }
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
        a(self.done_, self.reported_, self.armed_psn_, self.armed_);
    }
    /// Tells the host of what is done, armed or not, if it does not know it.
    void report(const Qp& qp) {
        if (done() != reported_) post(qp);
    }
    /// The newest request that is done. Also for visitors.
    [[nodiscard]] Psn done() const { return Psn(done_.load(std::memory_order_relaxed)); }

private:
    void post(const Qp& qp);

    std::atomic<std::uint32_t> done_{0};
    Psn reported_{};
    Psn armed_psn_{};
    bool armed_ = false;
};

}  // namespace openmana::rnic
