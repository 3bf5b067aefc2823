// SPDX-License-Identifier: Apache-2.0
// Armed completions (RNIC 3.8), error completions and the end of a QP's life (RNIC 3.9, 3.10).
#include "base/log.h"
#include "rnic/adapter.h"

namespace openmana::rnic {

namespace {

/// An application that looks only at the CQ of the side that did not fail learns of it after this
/// long.
constexpr base::Duration kHold = std::chrono::milliseconds(100);

}  // namespace

void Requester::arm(Psn psn) {
    if (reported_ >= psn) return;
    arm_psn_ = psn;
    armed_ = true;
    test_armed();
}

void Requester::test_armed() {
    if (armed_ && acked() >= arm_psn_) post_armed();
}

void Requester::post_armed() {
    mana_hw_rnic_armed_cqe cqe{};
    cqe.type = MANA_HW_RNIC_CQE_ARMED;
    cqe.msn_syndrome = std::uint32_t{roce::kAckUnlimited} << MANA_HW_RNIC_CQE_SYNDROME_SHIFT;
    cqe.psn = acked().value();
    armed_ = false;
    reported_ = acked();
    adapter_.counters.armed_cqes.add();
    qp_.send_cq.post(std::as_bytes(std::span(&cqe, 1)), qp_.ids.rreq.value(), false);
}

bool Requester::report_error(std::uint16_t vendor, bool on_rreq) {
    if (error_reported_ || !outstanding()) return false;
    error_reported_ = true;
    // Rules a and b of RNIC 3.9: the providers blame the first WQE behind the PSN of the error.
    if (acked() != reported_) post_armed();
    adapter_.counters.error_cqes.add();
    mana_hw_rnic_error_cqe cqe{};
    cqe.type_vendor = MANA_HW_RNIC_CQE_ERROR | std::uint32_t{vendor}
                                                   << MANA_HW_RNIC_CQE_VENDOR_SHIFT;
    cqe.psn_opcode = acked().value();
    cqe.responder_psn = 0xffffffff;
    const std::uint32_t id = on_rreq ? qp_.ids.rreq.value() : qp_.ids.sq.value();
    qp_.send_cq.post(std::as_bytes(std::span(&cqe, 1)), id, !on_rreq);
    return true;
}

void Requester::settle() {
    if (failure_ != 0) {
        qp_.fail_send(failure_, failure_on_rreq_);
        return;
    }
    test_armed();
}

void Qp::fail_send(std::uint16_t vendor, bool on_rreq) {
    {
        const std::lock_guard lock(responder.mutex);
        if (state() == MANA_HW_RNIC_QP_ERR || state() == MANA_HW_RNIC_QP_RESET) return;
        set_state(MANA_HW_RNIC_QP_ERR);
        ++errors;
    }
    OM_DEBUG("qp error: nic={} qpn={:#x} vendor={:#x}", adapter.function.config().name, qpn(),
             vendor);
    adapter.counters.fatal_errors.add();
    requester.stop();
    responses.clear();
    const bool told = adapter.error_cqes() && requester.report_error(vendor, on_rreq);
    // A driver that did not ask for error CQEs may know nothing of them.
    if (!told || !adapter.error_cqes_wanted) adapter.post_fatal_event(*this);
    if (adapter.error_cqes()) hold_timer.arm(kHold);
}

void Qp::responder_failed() {
    if (state() != MANA_HW_RNIC_QP_ERR) return;
    OM_DEBUG("qp responder error: nic={} qpn={:#x}", adapter.function.config().name, qpn());
    requester.stop();
    if (!adapter.error_cqes_wanted) adapter.post_fatal_event(*this);
    if (!adapter.error_cqes()) return;
    bool told = false;
    {
        const std::lock_guard lock(responder.mutex);
        told = responder.error_reported();
    }
    if (told) {
        hold_timer.arm(kHold);
        return;
    }
    // Neither side has a status of its own: flush both, and tell the host by the event if there is
    // nothing to flush.
    bool flushed = requester.report_error(MANA_HW_RNIC_VE_FLUSHED, false);
    {
        const std::lock_guard lock(responder.mutex);
        flushed = responder.report_error(MANA_HW_RNIC_VE_FLUSHED) || flushed;
    }
    if (!flushed && adapter.error_cqes_wanted) adapter.post_fatal_event(*this);
}

void Qp::flush_other_side() {
    hold_timer.cancel();
    if (!adapter.error_cqes() || state() != MANA_HW_RNIC_QP_ERR) return;
    if (type == QpType::kRc) requester.report_error(MANA_HW_RNIC_VE_FLUSHED, false);
    const std::lock_guard lock(responder.mutex);
    // The kernel's UD queues know no error completions (RNIC 7.4).
    if (type == QpType::kRc) responder.report_error(MANA_HW_RNIC_VE_FLUSHED);
}

void Qp::enter_error() {
    {
        const std::lock_guard lock(responder.mutex);
        set_state(MANA_HW_RNIC_QP_ERR);
    }
    requester.stop();
    responses.clear();
    flush_other_side();
}

void Qp::end_connection() {
    const std::uint32_t before = state();
    if (type != QpType::kRc || before == MANA_HW_RNIC_QP_RESET || before == MANA_HW_RNIC_QP_INIT)
        return;
    adapter.network.connection_ended(
        {attributes.source, attributes.destination, qpn(), attributes.dest_qpn});
}

void Qp::reset() {
    end_connection();
    hold_timer.cancel();
    {
        const std::lock_guard lock(responder.mutex);
        set_state(MANA_HW_RNIC_QP_RESET);
        responder.reset();
    }
    requester.reset();
    responses.clear();
    limiter.reset();
    next_cnp = {};
    datagram_producer_ = datagram_consumer_ = datagram_psn_ = 0;
    life = adapter.next_life++;
}

void Qp::SendBell::ring(std::uint32_t position) {
    if (qp.type != QpType::kRc) {
        qp.ring_datagrams(position);
        return;
    }
    qp.requester.ring(position);
    // A post that crossed the error is flushed, unless the flush of this side is still held back.
    if (qp.state() == MANA_HW_RNIC_QP_ERR && !qp.hold_timer.armed()) qp.flush_other_side();
}

void Qp::ReceiveBell::ring(std::uint32_t position) {
    if (!qp.responder.ring(position)) {
        qp.adapter.counters.bad_doorbell.add();
        if (qp.type == QpType::kRc && qp.responds()) {
            {
                const std::lock_guard lock(qp.responder.mutex);
                qp.set_state(MANA_HW_RNIC_QP_ERR);
                if (qp.adapter.error_cqes())
                    qp.responder.report_error(MANA_HW_RNIC_VE_RX_MISBEHAVING);
            }
            qp.responder_failed();
        }
        return;
    }
    if (qp.state() == MANA_HW_RNIC_QP_ERR && !qp.hold_timer.armed()) qp.flush_other_side();
}

}  // namespace openmana::rnic
