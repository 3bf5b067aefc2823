// SPDX-License-Identifier: Apache-2.0
#include "rnic/stock_completions.h"

#include <mana/rnic_queue.h>

#include <span>

#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

void StockCompletions::post(const Qp& qp) {
    mana_hw_rnic_armed_cqe cqe{};
    cqe.type = MANA_HW_RNIC_CQE_ARMED;
    cqe.msn_syndrome = std::uint32_t{roce::kAckUnlimited} << MANA_HW_RNIC_CQE_SYNDROME_SHIFT;
    cqe.psn = done().value();
    armed_ = false;
    reported_ = done();
    qp.datapath.counters.armed_cqes.add();
    qp.send_cq->post(std::as_bytes(std::span(&cqe, 1)), qp.ids.rreq.value(), false);
}

}  // namespace openmana::rnic
