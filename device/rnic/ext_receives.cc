// SPDX-License-Identifier: Apache-2.0
#include "rnic/ext_receives.h"

#include <mana/queue.h>
#include <mana/rnic_queue.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/endian.h"
#include "base/hold_meter.h"
#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

namespace {

constexpr unsigned kProducer = offsetof(mana_hw_ext_qp_record, rq_producer) / 4;
constexpr unsigned kKick = offsetof(mana_hw_ext_qp_record, rq_kick) / 4;
/// Receives that are flushed while a visitor may wait.
constexpr std::uint32_t kFlushStep = 64;

}  // namespace

ExtReceives::ExtReceives(Qp& qp, const gdma::SharedWords& record,
                         gdma::Handle<SharedReceiveQueue> srq, std::optional<ReceiveRing> ring,
                         bool fresh)
    : ReceiveFormat({.check = SgeCheck::kPart, .fails_datagrams = true}),
      qp_(qp),
      record_(record),
      srq_(std::move(srq)),
      ring_(std::move(ring)) {
    if (fresh) record_.store(kKick, 0);
}

/// Its position says nothing that the record does not.
bool ExtReceives::ring_doorbell(std::uint32_t) {
    return true;
}

ReceiveFormat::Take ExtReceives::take(Receive& receive) {
    if (srq_ != nullptr) return srq_->take(receive);
    if (!ring_) return Take::kEmpty;
    receive.pd = qp_.pd->id;
    receive.named = false;
    const auto producer = record_.load(kProducer);
    if (!producer) return Take::kMalformed;
    const std::optional<Take> taken = ring_->take(*producer, receive);
    if (!taken) qp_.datapath.counters.bad_records.add();
    return taken.value_or(Take::kMalformed);
}

void ExtReceives::complete(const Receive& receive, const Received& message) {
    mana_hw_ext_cqe cqe{};
    cqe.opcode =
        message.kind == SegmentKind::kWrite ? MANA_HW_EXT_WC_RECV_WRITE_IMM : MANA_HW_EXT_WC_RECV;
    cqe.flags = static_cast<std::uint8_t>((message.immediate ? MANA_HW_EXT_CQE_IMMEDIATE : 0) |
                                          (message.invalidate ? MANA_HW_EXT_CQE_INVALIDATED : 0) |
                                          (message.solicited ? MANA_HW_EXT_CQE_SOLICITED : 0));
    cqe.length = message.length;
    cqe.cookie = receive.name;
    cqe.value = message.immediate || message.invalidate ? message.value : 0;
    cqe.source_qpn = qp_.route.dest_qpn.value();
    post_ext_cqe(qp_, *qp_.recv_cq, cqe, false, message.solicited);
}

/// A receive of an SRQ may not stay with one of its queue pairs, where it may never be used.
bool ExtReceives::complete_aborted(const Receive& receive) {
    if (srq_ == nullptr) return false;
    complete_with_error(receive, {MANA_HW_WC_REM_ABORT_ERR, MANA_HW_RNIC_VE_RX_OPCODE});
    return true;
}

void ExtReceives::complete_datagram(const Receive& receive, const roce::Packet& packet,
                                    std::uint32_t length) {
    const bool immediate = packet.opcode == roce::Opcode::kUdSendOnlyImm;
    mana_hw_ext_cqe cqe{};
    cqe.opcode = MANA_HW_EXT_WC_RECV;
    cqe.flags = static_cast<std::uint8_t>(
        MANA_HW_EXT_CQE_GRH | (immediate ? MANA_HW_EXT_CQE_IMMEDIATE : 0) |
        (packet.solicited ? MANA_HW_EXT_CQE_SOLICITED : 0) |
        (roce::is_ipv4(packet.source) ? MANA_HW_EXT_CQE_IPV4 : 0));
    cqe.length = length;
    cqe.cookie = receive.name;
    if (immediate) cqe.value = base::load_be<std::uint32_t>(packet.immediate.data());
    cqe.source_qpn = packet.deth.source.value();
    std::copy(packet.source_mac.begin(), packet.source_mac.end(), std::begin(cqe.source_mac));
    if (packet.vlan() != roce::kNoVlan) cqe.vlan = *packet.vlan_tci;
    post_ext_cqe(qp_, *qp_.recv_cq, cqe, false, packet.solicited);
}

void ExtReceives::complete_with_error(const Receive& receive, ExtOutcome error) {
    mana_hw_ext_cqe cqe{};
    cqe.opcode = MANA_HW_EXT_WC_RECV;
    cqe.status = error.status;
    cqe.vendor_error = error.vendor;
    cqe.cookie = receive.name;
    qp_.datapath.counters.error_cqes.add();
    post_ext_cqe(qp_, *qp_.recv_cq, cqe, false, true);
}

void ExtReceives::flush() {
    record_.store(kKick, 1);
    // Partner: the full barrier of the host between its producer and its look at the kick word.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    {
        const std::lock_guard lock(qp_.responder.mutex);
        flush_taken();
        if (srq_ != nullptr) {
            if (!last_reported_)
                qp_.datapath.events.extension(qp_.qpn(), MANA_HW_EXT_EVENT_LAST_WQE_REACHED);
            last_reported_ = true;
            return;
        }
    }
    // At most what a ring holds in one go; the host rings for more.
    std::uint32_t left = ring_ ? ring_->entries() : 0;
    while (left > 0 && flush_step(left)) qp_.responder.mutex.hand_over();
}

/// Flushes some of what is left. False if there is no more to flush.
bool ExtReceives::flush_step(std::uint32_t& left) {
    // A visitor that waits for the mutex gets it behind this step. It finds the QP in ERR, and does
    // nothing.
    const std::lock_guard lock(qp_.responder.mutex);
    const base::MeasuredHold hold({"flush of receives", qp_.qpn().value()});
    Receive receive;
    for (std::uint32_t n = std::min(left, kFlushStep); n > 0; --n, --left) {
        const Take taken = take(receive);
        if (taken == Take::kEmpty || (taken == Take::kMalformed && !receive.named)) return false;
        base::count_work(1);
        complete_with_error(receive, kExtFlushed);
    }
    return true;
}

/// The receive that a message is using, if there is one. Held: the responder's mutex.
void ExtReceives::flush_taken() {
    if (!qp_.responder.taken()) return;
    complete_with_error(qp_.responder.receive(), kExtFlushed);
    qp_.responder.drop_receive();
}

void ExtReceives::give_back() {
    // A receive of the QP's own ring ends with the ring; that of an SRQ belongs to who posted it.
    if (srq_ != nullptr) flush_taken();
}

void ExtReceives::reset() {
    give_back();
    record_.store(kKick, 0);
    if (ring_) ring_->reset();
    last_reported_ = false;
}

}  // namespace openmana::rnic
