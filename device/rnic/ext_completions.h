// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mana/ext.h>
#include <mana/rnic_queue.h>
#include <mana/status.h>

#include <cstdint>

#include "gdma/completion_queue.h"

namespace openmana::rnic {

struct Qp;

/// How a work request of the extended format ended.
struct ExtOutcome {
    std::uint8_t status = MANA_HW_WC_SUCCESS;
    std::uint16_t vendor = 0;
};
constexpr ExtOutcome kExtFlushed{MANA_HW_WC_WR_FLUSH_ERR, MANA_HW_RNIC_VE_FLUSHED};

/// Of a send, or a receive, that failed with this vendor error (ROCE 4.4).
[[nodiscard]] ExtOutcome ext_send_outcome(std::uint16_t vendor);
[[nodiscard]] ExtOutcome ext_receive_outcome(std::uint16_t vendor);

/// Fills in what all completions of a QP have, and writes it.
void post_ext_cqe(const Qp& qp, gdma::CompletionQueue& cq, mana_hw_ext_cqe& cqe, bool is_sq,
                  bool solicited);

}  // namespace openmana::rnic
