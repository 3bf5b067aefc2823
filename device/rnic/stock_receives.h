// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "gdma/ring.h"
#include "rnic/receive_format.h"

namespace openmana::rnic {

struct Qp;

/// Receives of the stock ABI (RNIC 3.3, 4, 7.4): a ring of WQEs whose producer is in the doorbell.
class StockReceives final : public ReceiveFormat {
public:
    StockReceives(Qp& qp, gdma::Ring ring);

    bool ring_doorbell(std::uint32_t position) override;
    Take take(Receive& receive) override;
    void complete(const Receive& receive, const Received& message) override;
    void complete_datagram(const Receive& receive, const roce::Packet& packet,
                           std::uint32_t length) override;
    bool complete_aborted(const Receive& receive) override;
    void reset() override;
    /// Into ones that were just made of the same ring (format_state.cc).
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    [[nodiscard]] const gdma::Ring& ring() const { return ring_; }

    /// Receives wait for messages. Held.
    [[nodiscard]] bool posted() const {
        return producer_.load(std::memory_order_acquire) !=
               consumer_.load(std::memory_order_relaxed);
    }

private:
    Qp& qp_;
    /// Written by the owner; acquire pairs with release in ring_doorbell().
    std::atomic<std::uint32_t> producer_{0};
    /// Written under the mutex; release pairs with acquire in ring_doorbell().
    std::atomic<std::uint32_t> consumer_{0};
    gdma::Ring ring_;
};

}  // namespace openmana::rnic
