// SPDX-License-Identifier: Apache-2.0
#include "rnic/ext_errors.h"

#include <mana/ext.h>
#include <mana/rnic_queue.h>

#include <mutex>

#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

void ExtErrors::event(std::uint32_t number) {
    qp_.datapath.events.extension(qp_.qpn(), number);
}

void ExtErrors::fatal() {
    event(MANA_HW_EXT_EVENT_QP_FATAL);
}

void ExtErrors::established() {
    event(MANA_HW_EXT_EVENT_COMMUNICATION_ESTABLISHED);
}

void ExtErrors::flush() {
    const bool both = qp_.state() == MANA_HW_RNIC_QP_ERR;
    sends_.flush();
    if (both) receives_.flush();
}

/// A request of an unreliable QP that cannot be executed stops its send queue (IBTA 10.3.1): SQE.
/// An impossible producer index leaves nothing to go on with.
bool ExtErrors::stops_sends_only(std::uint16_t vendor) const {
    return qp_.type != QpType::kRc && vendor != MANA_HW_RNIC_VE_TX_MISBEHAVING;
}

void ExtErrors::send_failed(std::uint16_t vendor, bool) {
    const SendWqe* const wqe =
        vendor == MANA_HW_RNIC_VE_TX_MISBEHAVING ? nullptr : qp_.requester.take_failed();
    if (wqe != nullptr)
        sends_.complete(*wqe, ext_send_outcome(vendor));
    else
        fatal();
    flush();
}

void ExtErrors::datagram_failed() {
    const SendWqe& wqe = sends_.datagram();
    {
        const std::lock_guard lock(qp_.responder.mutex);
        qp_.set_state(stops_sends_only(wqe.error) ? MANA_HW_RNIC_QP_SQE : MANA_HW_RNIC_QP_ERR);
        tally(qp_.datapath.counters.fatal_errors, qp_.events.fatal_errors);
    }
    if (wqe.error == MANA_HW_RNIC_VE_TX_MISBEHAVING)
        fatal();
    else
        sends_.complete(wqe, ext_send_outcome(wqe.error));
    flush();
}

void ExtErrors::receive_failed(roce::NakCode code, std::uint16_t vendor) {
    if (vendor != 0 && qp_.responder.taken()) {
        const bool access = code == roce::NakCode::kRemoteAccess;
        const ExtOutcome outcome =
            access ? ExtOutcome{MANA_HW_WC_LOC_ACCESS_ERR, vendor} : ext_receive_outcome(vendor);
        receives_.complete_with_error(qp_.responder.receive(), outcome);
        qp_.responder.drop_receive();
        return;
    }
    switch (code) {
        case roce::NakCode::kInvalidRequest:
            event(MANA_HW_EXT_EVENT_QP_REQUEST_ERROR);
            break;
        case roce::NakCode::kRemoteAccess:
            event(MANA_HW_EXT_EVENT_QP_ACCESS_ERROR);
            break;
        default:
            fatal();
            break;
    }
}

}  // namespace openmana::rnic
