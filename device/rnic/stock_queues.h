// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gdma/ring.h"
#include "rnic/stock_errors.h"
#include "rnic/stock_receives.h"
#include "rnic/stock_sends.h"

namespace openmana::rnic {

/// The queues of a QP of the stock ABI.
struct StockQueues {
    struct Regions {
        std::unique_ptr<gdma::DmaRegion> send;
        std::unique_ptr<gdma::DmaRegion> read_scatter;  ///< RC only
        std::unique_ptr<gdma::DmaRegion> receive;
        std::vector<std::unique_ptr<gdma::DmaRegion>>
            held;  ///< belong to the QP; the model needs no memory there
    };
    StockQueues(Qp& qp, Regions regions);
    static constexpr std::uint16_t kSendBytes = 128;  ///< see Qp::requester_memory

    // The state (format_state.cc): first what queues are made of, then where they stand. Some of
    // the regions may be null when `in` has refused.
    void save_layout(base::StateWriter& out) const;
    [[nodiscard]] static Regions load_layout(base::StateReader& in, base::MemoryAccount& account);
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);

    StockSends sends;  // first: see Qp
    StockReceives receives;
    StockErrors errors;

private:
    std::vector<std::unique_ptr<gdma::DmaRegion>> held_;
};
// Without what READs need at last.
static_assert(sizeof(StockSends) - 2 * sizeof(std::uint32_t) - sizeof(std::optional<gdma::Ring>) <=
              StockQueues::kSendBytes);

}  // namespace openmana::rnic
