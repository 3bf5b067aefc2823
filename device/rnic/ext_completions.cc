// SPDX-License-Identifier: Apache-2.0
#include "rnic/ext_completions.h"

#include <cstddef>
#include <span>

#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

namespace {

std::uint8_t send_status(std::uint16_t vendor) {
    switch (vendor) {
        case MANA_HW_RNIC_VE_TX_LENGTH:
        case MANA_HW_RNIC_VE_READ_LENGTH:
            return MANA_HW_WC_LOC_LEN_ERR;
        case MANA_HW_RNIC_VE_TX_DATA_ACCESS:
        case MANA_HW_RNIC_VE_TX_DATA_RANGE:
        case MANA_HW_RNIC_VE_TX_DATA_KEY:
        case MANA_HW_RNIC_VE_RX_SGE_KEY:
        case MANA_HW_RNIC_VE_RX_SGE_ACCESS:
        case MANA_HW_RNIC_VE_RX_SGE_RANGE:
            return MANA_HW_WC_LOC_PROT_ERR;
        case MANA_HW_RNIC_VE_FLUSHED:
            return MANA_HW_WC_WR_FLUSH_ERR;
        case MANA_HW_EXT_VE_MEMORY_OPERATION:
            return MANA_HW_WC_MW_BIND_ERR;
        case MANA_HW_RNIC_VE_BAD_RESPONSE:
            return MANA_HW_WC_BAD_RESP_ERR;
        case MANA_HW_RNIC_VE_NAK_INVALID_REQUEST:
            return MANA_HW_WC_REM_INV_REQ_ERR;
        case MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS:
            return MANA_HW_WC_REM_ACCESS_ERR;
        case MANA_HW_RNIC_VE_NAK_REMOTE_OPERATION:
            return MANA_HW_WC_REM_OP_ERR;
        case MANA_HW_RNIC_VE_RETRY:
            return MANA_HW_WC_RETRY_EXC_ERR;
        case MANA_HW_RNIC_VE_RNR_RETRY:
            return MANA_HW_WC_RNR_RETRY_EXC_ERR;
        default:
            return MANA_HW_WC_LOC_QP_OP_ERR;
    }
}

std::uint8_t receive_status(std::uint16_t vendor) {
    switch (vendor) {
        case MANA_HW_RNIC_VE_RX_TOO_LONG:
            return MANA_HW_WC_LOC_LEN_ERR;
        case MANA_HW_RNIC_VE_RX_SGE_KEY:
        case MANA_HW_RNIC_VE_RX_SGE_ACCESS:
        case MANA_HW_RNIC_VE_RX_SGE_RANGE:
            return MANA_HW_WC_LOC_PROT_ERR;
        case MANA_HW_RNIC_VE_RX_OPCODE:
        case MANA_HW_RNIC_VE_RX_RKEY:
            return MANA_HW_WC_REM_INV_REQ_ERR;
        default:
            return MANA_HW_WC_LOC_QP_OP_ERR;
    }
}

}  // namespace

ExtOutcome ext_send_outcome(std::uint16_t vendor) {
    return {send_status(vendor), vendor};
}

ExtOutcome ext_receive_outcome(std::uint16_t vendor) {
    return {receive_status(vendor), vendor};
}

void post_ext_cqe(const Qp& qp, gdma::CompletionQueue& cq, mana_hw_ext_cqe& cqe, bool is_sq,
                  bool solicited) {
    cqe.type = MANA_HW_EXT_CQE;
    cqe.timestamp =
        static_cast<std::uint64_t>(qp.datapath.executor.now().time_since_epoch().count());
    cq.post(std::as_bytes(std::span(&cqe, 1)), qp.qpn().value(), is_sq, solicited);
}

}  // namespace openmana::rnic
