// SPDX-License-Identifier: Apache-2.0
// Doorbells, errors and the end of a QP's life, as far as they do not depend on the queue format.
#include "base/log.h"
#include "rnic/adapter.h"

namespace openmana::rnic {

void Requester::settle() {
    queue_.settle();
    if (failure_ != 0) {
        qp_.fail_send(failure_, failure_on_rreq_);
        return;
    }
    qp_.queues->settle();
}

void Qp::fail_send(std::uint16_t vendor, bool on_rreq) {
    {
        const std::lock_guard lock(responder.mutex);
        if (state() == MANA_HW_RNIC_QP_ERR || state() == MANA_HW_RNIC_QP_RESET) return;
        set_state(queues->stops_sends_only(vendor) ? MANA_HW_RNIC_QP_SQE : MANA_HW_RNIC_QP_ERR);
    }
    OM_DEBUG("qp error: nic={} qpn={:#x} vendor={:#x}", adapter.function.config().name, qpn(),
             vendor);
    tally(adapter.counters.fatal_errors, events.fatal_errors);
    if (type == QpType::kRc &&
        (vendor == MANA_HW_RNIC_VE_RETRY || vendor == MANA_HW_RNIC_VE_RNR_RETRY))
        adapter.network.connection_failed(connection(), vendor == MANA_HW_RNIC_VE_RETRY
                                                            ? Failure::kRetries
                                                            : Failure::kRnrRetries);
    requester.stop();
    responses.clear();
    queues->send_failed(vendor, on_rreq);
}

void Qp::responder_failed() {
    if (state() != MANA_HW_RNIC_QP_ERR) return;
    OM_DEBUG("qp responder error: nic={} qpn={:#x}", adapter.function.config().name, qpn());
    requester.stop();
    queues->responder_failed();
}

void Qp::enter_error() {
    {
        const std::lock_guard lock(responder.mutex);
        set_state(MANA_HW_RNIC_QP_ERR);
    }
    requester.stop();
    responses.clear();
    queues->enter_error();
}

void Qp::end_connection() {
    const std::uint32_t before = state();
    if (type != QpType::kRc || before == MANA_HW_RNIC_QP_RESET || before == MANA_HW_RNIC_QP_INIT)
        return;
    adapter.network.connection_ended(connection());
}

Connection Qp::connection() const {
    return {attributes.source, attributes.destination, qpn(), attributes.dest_qpn};
}

void Qp::reset() {
    end_connection();
    {
        const std::lock_guard lock(responder.mutex);
        set_state(MANA_HW_RNIC_QP_RESET);
        queues->reset();
        responder.reset();
    }
    requester.reset();
    responses.clear();
    limiter.reset();
    next_cnp = {};
    life = adapter.next_life++;
}

void Qp::sends_posted() {
    if (scheduled) return;
    if (connected() ? requester.turn() : send_datagrams()) adapter.schedule(*this);
}

void Qp::SendBell::ring(std::uint32_t position) {
    if (!qp.queues->ring_sends(position)) return;
    qp.sends_posted();
    const std::uint32_t state = qp.state();
    if (state == MANA_HW_RNIC_QP_ERR || state == MANA_HW_RNIC_QP_SQE) qp.queues->posted_in_error();
}

void Qp::ReceiveBell::ring(std::uint32_t position) {
    if (!qp.queues->ring_receives(position)) {
        if (qp.type == QpType::kRc && qp.responds()) {
            {
                const std::lock_guard lock(qp.responder.mutex);
                qp.set_state(MANA_HW_RNIC_QP_ERR);
                qp.queues->receive_failed(roce::NakCode::kRemoteOperational,
                                          MANA_HW_RNIC_VE_RX_MISBEHAVING);
            }
            qp.responder_failed();
        }
        return;
    }
    if (qp.state() == MANA_HW_RNIC_QP_ERR) qp.queues->posted_in_error();
}

}  // namespace openmana::rnic
