// SPDX-License-Identifier: Apache-2.0
#include "gdma/stale_hwc.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <mana/gdma.h>
#include <mana/queue.h>

#include "base/log.h"
#include "gdma/doorbell_value.h"
#include "gdma/stale_rings.h"

namespace openmana::gdma {

StaleHwc::StaleHwc(const Parts& parts, ChannelLedger& ledger)
    : parts_(parts),
      ledger_(ledger),
      channel_(ledger.channel.get()),
      resets_itself_(
          (ledger.driver_caps.load(std::memory_order_acquire) & MANA_HW_CAP_SELF_RESET) != 0),
      sq_(ring_at(parts.memory, channel_.sq)),
      rq_(ring_at(parts.memory, channel_.rq)),
      eq_(stale_eq(parts.memory, parts.irq, channel_.eq)),
      cq_(stale_cq(parts.memory, channel_.cq, eq_)) {
    const std::uint64_t done = ledger.done[producer_of(*cq_) % 2].load(std::memory_order_acquire);
    sq_done_ = sq_posted_ = static_cast<std::uint32_t>(done);
    rq_done_ = static_cast<std::uint32_t>(done >> 32);
    rq_posted_ = ledger.rq_posted.load(std::memory_order_acquire);
}

/// The interrupt comes whether the driver has armed the EQ or not: nobody knows.
void StaleHwc::request_reset() {
    OM_INFO("reset request: nic={} eq={:#x} vector={}", parts_.config.name, channel_.eq.id,
            channel_.eq.vector);
    eq_->post(EqeType::kHwcResetRequest, {0, 0, 0});
    asked_at_ = eq_->producer();
}

/// Requests up to here are done when the CQ has had so many more entries.
void StaleHwc::note_done(std::uint64_t more) {
    ledger_.set_done(producer_of(*cq_) + more, sq_done_, rq_done_);
}

void StaleHwc::requests_posted(std::uint32_t position) {
    sq_posted_ = position;
    if (!resets_itself_ || !heard_) {
        answer_all();
        return;
    }
    sq_done_ = sq_posted_;
    note_done(0);
}

void StaleHwc::eq_rung(std::uint32_t index, bool arm) {
    eq_->ring_doorbell(index, arm);
    heard_ = heard_ || (asked_at_ != 0 && eq_->consumer() >= asked_at_);
}

bool StaleHwc::ring(std::uint64_t offset, std::uint64_t value) {
    if (offset / MANA_HW_PAGE_BYTES != channel_.cq.page) return false;
    const DoorbellValue doorbell(value);
    switch (offset % MANA_HW_PAGE_BYTES) {
        case MANA_HW_DB_SQ:
            if (doorbell.id != channel_.sqn) return false;
            requests_posted(doorbell.position);
            return true;
        case MANA_HW_DB_RQ:
            if (doorbell.id != channel_.rqn) return false;
            rq_posted_ = doorbell.position;
            ledger_.rq_posted.store(rq_posted_, std::memory_order_release);
            return true;
        case MANA_HW_DB_CQ:
            if (doorbell.id != channel_.cq.id) return false;
            (void)cq_->ring_doorbell(doorbell.index, doorbell.arm);
            return true;
        case MANA_HW_DB_EQ:
            if (doorbell.eq_id != channel_.eq.id) return false;
            eq_rung(doorbell.index, doorbell.arm);
            return true;
        default:
            return false;
    }
}

/// As Hwc: where a WQE makes no sense nobody knows where the next one starts.
void StaleHwc::answer_all() {
    while (sq_done_ != sq_posted_) {
        const std::uint32_t left = sq_posted_ - sq_done_;
        const auto wqe = Wqe::fetch(sq_, sq_done_, left, Wqe::kMaxSendBytes);
        if (left > sq_.bytes() || !wqe) {
            parts_.counters.hwc_malformed.add();
            sq_done_ = sq_posted_;
            note_done(0);
            return;
        }
        sq_done_ += wqe->size();
        if (refuse(*wqe)) continue;
        parts_.counters.hwc_malformed.add();
        note_done(0);
    }
}

bool StaleHwc::is_readable(const Wqe& wqe) const {
    return wqe.sges().size() == 1 && wqe.sges()[0].key.value() == channel_.key;
}

bool StaleHwc::refuse(const Wqe& wqe) {
    mana_hw_request request{};
    if (!is_readable(wqe) || wqe.total_length() < sizeof request ||
        !parts_.memory.read(GuestAddr(wqe.sges()[0].address),
                            std::as_writable_bytes(std::span(&request, 1))))
        return false;
    const std::uint32_t posted = rq_posted_ - rq_done_;
    if (posted == 0 || posted > rq_.bytes()) return false;
    const auto receive = Wqe::fetch(rq_, rq_done_, posted, Wqe::kMaxReceiveBytes);
    if (!receive || !is_readable(*receive)) return false;

    parts_.counters.hwc_requests.add();
    parts_.counters.hwc_failed.add();
    mana_hw_response answer{};
    answer.response.opcode = request.request.opcode;
    answer.response.message_id = request.request.message_id;
    answer.response.size = sizeof answer;
    answer.device = request.device;
    answer.activity_id = request.activity_id;
    answer.status = kHwcBusy;
    if (receive->total_length() < sizeof answer ||
        !parts_.memory.write(GuestAddr(receive->sges()[0].address),
                             std::as_bytes(std::span(&answer, 1))))
        return false;
    mana_hw_hwc_rx_cqe cqe{};
    cqe.flags = MANA_HW_HWC_CQE_SOM | MANA_HW_HWC_CQE_EOM;
    cqe.rq_wqe_offset = receive->position();
    cqe.length = sizeof answer;
    rq_done_ += receive->size();
    note_done(1);
    cq_->post(std::as_bytes(std::span(&cqe, 1)), channel_.rqn, false);
    return true;
}

}  // namespace openmana::gdma
