// SPDX-License-Identifier: Apache-2.0
#include "rnic/stock_errors.h"

#include <mana/rnic_queue.h>

#include <chrono>
#include <mutex>
#include <span>

#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

namespace {

/// An application that looks only at the CQ of the side that did not fail learns of it after this
/// long.
constexpr base::Duration kHold = std::chrono::milliseconds(100);

/// What the error CQEs of both sides have in common.
mana_hw_rnic_error_cqe error_cqe(std::uint16_t vendor) {
    mana_hw_rnic_error_cqe cqe{};
    cqe.type_vendor = MANA_HW_RNIC_CQE_ERROR | std::uint32_t{vendor}
                                                   << MANA_HW_RNIC_CQE_VENDOR_SHIFT;
    cqe.responder_psn = 0xffffffff;
    return cqe;
}

}  // namespace

StockErrors::StockErrors(Qp& qp, StockSends& sends, StockReceives& receives)
    : qp_(qp),
      datapath_(qp.datapath),
      sends_(sends),
      receives_(receives),
      hold_timer_(datapath_.executor, [this] { flush_other_side(); }) {}

bool StockErrors::report_send_error(std::uint16_t vendor, bool on_read_queue) {
    if (send_error_reported_ || (qp_.requester.idle() && !sends_.posted())) return false;
    send_error_reported_ = true;
    // Rules a and b of RNIC 3.9: the providers blame the first WQE behind the PSN of the error.
    sends_.report_progress();
    datapath_.counters.error_cqes.add();
    mana_hw_rnic_error_cqe cqe = error_cqe(vendor);
    cqe.psn_opcode = sends_.error_psn().value();
    const std::uint32_t id = on_read_queue ? qp_.ids.rreq.value() : qp_.ids.sq.value();
    qp_.send_cq->post(std::as_bytes(std::span(&cqe, 1)), id, !on_read_queue);
    return true;
}

bool StockErrors::report_receive_error(std::uint16_t vendor) {
    const bool outstanding = qp_.responder.taken() || receives_.posted();
    if (receive_error_reported_ || !outstanding) return false;
    receive_error_reported_ = true;
    datapath_.counters.error_cqes.add();
    mana_hw_rnic_error_cqe cqe = error_cqe(vendor);
    cqe.msn_syndrome = qp_.responder.msn();
    cqe.psn_opcode = qp_.type == QpType::kRc ? sends_.acked().value() : 0;
    cqe.responder_msn = qp_.responder.msn();
    qp_.recv_cq->post(std::as_bytes(std::span(&cqe, 1)), qp_.ids.rq.value(), false);
    return true;
}

void StockErrors::send_failed(std::uint16_t vendor, bool on_read_queue) {
    const bool reported = datapath_.error_cqes.on() && report_send_error(vendor, on_read_queue);
    // A driver that did not ask for error CQEs may know nothing of them.
    if (!reported || !datapath_.error_cqes.wanted) fatal();
    if (datapath_.error_cqes.on()) hold_timer_.arm(kHold);
}

void StockErrors::datagram_failed() {
    {
        const std::lock_guard lock(qp_.responder.mutex);
        qp_.set_state(MANA_HW_RNIC_QP_ERR);
    }
    fatal();
}

void StockErrors::fatal() {
    datapath_.events.qp_fatal(qp_.qpn());
}

void StockErrors::receive_failed(roce::NakCode code, std::uint16_t vendor) {
    // A WRITE with immediate and a bad key: both sides are flushed, as for one without.
    if (code == roce::NakCode::kRemoteAccess) return;
    if (vendor != 0 && datapath_.error_cqes.on()) report_receive_error(vendor);
}

void StockErrors::responder_failed() {
    if (!datapath_.error_cqes.wanted) fatal();
    if (!datapath_.error_cqes.on()) return;
    bool reported = false;
    {
        const std::lock_guard lock(qp_.responder.mutex);
        reported = receive_error_reported_;
    }
    if (reported) {
        hold_timer_.arm(kHold);
        return;
    }
    // Neither side has a status of its own: flush both, and tell the host by the event if there is
    // nothing to flush.
    bool flushed = report_send_error(MANA_HW_RNIC_VE_FLUSHED, false);
    {
        const std::lock_guard lock(qp_.responder.mutex);
        flushed = report_receive_error(MANA_HW_RNIC_VE_FLUSHED) || flushed;
    }
    if (!flushed && datapath_.error_cqes.wanted) fatal();
}

void StockErrors::flush_other_side() {
    hold_timer_.cancel();
    if (!datapath_.error_cqes.on() || qp_.state() != MANA_HW_RNIC_QP_ERR) return;
    // The kernel's UD queues know no error completions (RNIC 7.4).
    if (!qp_.connected()) return;
    report_send_error(MANA_HW_RNIC_VE_FLUSHED, false);
    const std::lock_guard lock(qp_.responder.mutex);
    report_receive_error(MANA_HW_RNIC_VE_FLUSHED);
}

void StockErrors::enter_error() {
    flush_other_side();
}

void StockErrors::posted_in_error() {
    // A post that crossed the error is flushed, unless the flush of this side is still held back.
    if (!hold_timer_.armed()) flush_other_side();
}

void StockErrors::reset() {
    hold_timer_.cancel();
    send_error_reported_ = false;
    receive_error_reported_ = false;
}

}  // namespace openmana::rnic
