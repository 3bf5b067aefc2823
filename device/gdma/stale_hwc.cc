// SPDX-License-Identifier: Apache-2.0
#include "gdma/stale_hwc.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <mana/gdma.h>
#include <mana/queue.h>

#include "base/log.h"

namespace openmana::gdma {
namespace {

constexpr std::uint64_t kQueueBytes = MANA_HW_HWC_QUEUE_BYTES;

std::unique_ptr<DmaRegion> one_page(std::uint64_t address) {
    return std::make_unique<DmaRegion>(kQueueBytes, 0, MANA_HW_PAGE_SHIFT, std::span(&address, 1));
}

Ring ring_at(const base::GuestMemory& memory, std::uint64_t address) {
    return {memory, one_page(address), kQueueBytes};
}

Handle<PageGrant> page_of(std::uint32_t page) {
    return make_handle<PageGrant>(DoorbellPage(page), kHwcDevice, false);
}

/// Where the next entry of a ring goes, modulo its eight laps: the owner bits of a lap end where
/// those of the lap before begin (GDMA 3.7). The last word of an entry has them in its highest
/// bits. A ring of zeros is as good as behind its eighth lap: it is where the first one begins.
std::uint64_t producer_of(const Ring& ring, std::size_t entry) {
    const std::uint64_t entries = ring.bytes() / entry;
    const auto owner_of = [&](std::uint64_t index) {
        std::uint32_t word = 0;
        (void)ring.read((index + 1) * entry - sizeof word,
                        std::as_writable_bytes(std::span(&word, 1)));
        return word >> MANA_HW_OWNER_SHIFT;
    };
    const std::uint32_t first = owner_of(0);
    std::uint64_t index = 1;
    while (index < entries && owner_of(index) == first) ++index;
    return (first == 0 ? 8U : first) * entries + index;
}

}  // namespace

StaleHwc::StaleHwc(const Parts& parts, const ChannelLedger& ledger)
    : parts_(parts),
      channel_(ledger.channel.get()),
      sq_(ring_at(parts.memory, channel_.sq)),
      rq_(ring_at(parts.memory, channel_.rq)),
      quiet_(parts.executor, [this] { answer_all(); }) {
    const auto page = page_of(channel_.page);
    Ring eq = ring_at(parts.memory, channel_.eq);
    Ring cq = ring_at(parts.memory, channel_.cq);
    const std::uint64_t eq_producer = producer_of(eq, sizeof(mana_hw_eqe));
    const std::uint64_t cq_producer = producer_of(cq, sizeof(mana_hw_cqe));
    eq_ =
        make_handle<EventQueue>(Eqn(channel_.eqn), page, std::move(eq), parts.irq, channel_.vector);
    eq_->go_on_at(eq_producer);
    cq_ = make_handle<CompletionQueue>(Cqn(channel_.cqn), page, std::move(cq), eq_, true);
    cq_->go_on_at(cq_producer);
    const std::uint64_t done = ledger.done[cq_producer % 2].load(std::memory_order_acquire);
    sq_done_ = sq_posted_ = static_cast<std::uint32_t>(done);
    rq_done_ = static_cast<std::uint32_t>(done >> 32);
    rq_posted_ = ledger.rq_posted.load(std::memory_order_acquire);
}

/// The interrupt comes whether the driver has armed the EQ or not: nobody knows.
void StaleHwc::request_reset() {
    OM_INFO("reset request: nic={} eq={:#x} vector={}", parts_.config.name, channel_.eqn,
            channel_.vector);
    eq_->post(EqeType::kHwcResetRequest, {0, 0, 0});
}

bool StaleHwc::ring(std::uint64_t offset, std::uint64_t value) {
    if (offset / MANA_HW_PAGE_BYTES != channel_.page) return false;
    const auto id = static_cast<std::uint32_t>(value & MANA_HW_DB_ID);
    const auto high = static_cast<std::uint32_t>(value >> 32);
    const auto index =
        static_cast<std::uint32_t>((value & MANA_HW_DB_INDEX) >> MANA_HW_DB_INDEX_SHIFT);
    const bool arm = (value & MANA_HW_DB_ARM) != 0;
    switch (offset % MANA_HW_PAGE_BYTES) {
        case MANA_HW_DB_SQ:
            if (id != channel_.sqn) return false;
            sq_posted_ = high;
            quiet_.arm(kQuiet);
            return true;
        case MANA_HW_DB_RQ:
            if (id != channel_.rqn) return false;
            rq_posted_ = high;
            return true;
        case MANA_HW_DB_CQ:
            if (id != channel_.cqn) return false;
            (void)cq_->ring_doorbell(index, arm);
            return true;
        case MANA_HW_DB_EQ:
            if ((value & MANA_HW_DB_EQ_ID) != channel_.eqn) return false;
            eq_->ring_doorbell(index, arm);
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
            return;
        }
        sq_done_ += wqe->size();
        if (!refuse(*wqe)) parts_.counters.hwc_malformed.add();
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
    cq_->post(std::as_bytes(std::span(&cqe, 1)), channel_.rqn, false);
    return true;
}

}  // namespace openmana::gdma
