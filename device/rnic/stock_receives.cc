// SPDX-License-Identifier: Apache-2.0
#include "rnic/stock_receives.h"

#include <mana/rnic_queue.h>

#include <span>
#include <utility>

#include "base/endian.h"
#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

StockReceives::StockReceives(Qp& qp, gdma::Ring ring)
    : ReceiveFormat({.check = SgeCheck::kWhole, .fails_datagrams = false}),
      qp_(qp),
      ring_(std::move(ring)) {}

bool StockReceives::ring_doorbell(std::uint32_t position) {
    // Without the lock, which a visitor may hold for a whole step: only the owner moves the
    // producer, and what a visitor consumes meanwhile makes the distance smaller.
    const std::uint32_t before = producer_.load(std::memory_order_relaxed);
    if (position - consumer_.load(std::memory_order_acquire) > ring_.bytes()) {
        qp_.datapath.counters.bad_doorbell.add();
        return false;
    }
    if (static_cast<std::int32_t>(position - before) > 0)
        producer_.store(position, std::memory_order_release);
    return true;
}

ReceiveFormat::Take StockReceives::take(Receive& receive) {
    const std::uint32_t position = consumer_.load(std::memory_order_relaxed);
    const std::uint32_t available = producer_.load(std::memory_order_acquire) - position;
    if (available == 0) return Take::kEmpty;
    const auto wqe = gdma::Wqe::fetch(ring_, position, available, gdma::Wqe::kMaxReceiveBytes);
    if (!wqe) return Take::kMalformed;
    receive.name = position;
    receive.pd = qp_.pd->id;
    receive.sges.assign(wqe->sges().begin(), wqe->sges().end());
    receive.total = wqe->total_length();
    consumer_.store(position + wqe->size(), std::memory_order_release);
    return Take::kOk;
}

void StockReceives::complete(const Receive& receive, const Received& message) {
    mana_hw_rnic_recv_cqe cqe{};
    if (message.kind == SegmentKind::kWrite)
        cqe.type = MANA_HW_RNIC_CQE_WRITE_IMM;
    else if (message.invalidate)
        cqe.type = MANA_HW_RNIC_CQE_SEND_INV;
    else
        cqe.type = message.immediate ? MANA_HW_RNIC_CQE_SEND_IMM : MANA_HW_RNIC_CQE_SEND;
    cqe.length = message.length;
    cqe.psn = message.psn.value();
    cqe.immediate = message.value;
    cqe.wqe_offset = receive.name;
    qp_.recv_cq->post(std::as_bytes(std::span(&cqe, 1)), qp_.ids.rq.value(), false,
                      message.solicited);
}

void StockReceives::complete_datagram(const Receive& receive, const roce::Packet& packet,
                                      std::uint32_t length) {
    mana_hw_rnic_ud_recv_cqe cqe{};
    const bool immediate = packet.opcode == roce::Opcode::kUdSendOnlyImm;
    cqe.type = immediate ? MANA_HW_RNIC_CQE_UD_IMM : MANA_HW_RNIC_CQE_UD;
    cqe.length = length;
    cqe.source_qpn = packet.deth.source.value();
    if (immediate) cqe.immediate = base::load_be<std::uint32_t>(packet.immediate.data());
    cqe.wqe_offset = receive.name;
    qp_.recv_cq->post(std::as_bytes(std::span(&cqe, 1)), qp_.ids.rq.value(), false,
                      packet.solicited);
}

bool StockReceives::complete_aborted(const Receive&) {
    return false;
}

void StockReceives::reset() {
    producer_.store(0, std::memory_order_relaxed);
    consumer_.store(0, std::memory_order_relaxed);
}

}  // namespace openmana::rnic
