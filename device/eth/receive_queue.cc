// SPDX-License-Identifier: Apache-2.0
#include "eth/receive_queue.h"

#include <mana/eth.h>

#include <algorithm>
#include <cstring>

#include "base/hold_meter.h"
#include "base/log.h"
#include "eth/queue_parts.h"
#include "gdma/wqe.h"

namespace openmana::eth {
namespace {

constexpr std::uint64_t kMaxFences = 64;

/// Copies `source` to the list behind its first `skip` bytes; there is room.
void scatter(const gdma::SpanList& spans, std::size_t skip, std::span<const std::byte> source) {
    for (const auto& span : spans) {
        if (source.empty()) return;
        if (skip >= span.size()) {
            skip -= span.size();
            continue;
        }
        const std::size_t n = std::min(span.size() - skip, source.size());
        std::memcpy(span.data() + skip, source.data(), n);
        source = source.subspan(n);
        skip = 0;
    }
}

}  // namespace

void ReceiveQueue::ring(std::uint32_t position) {
    const std::lock_guard lock(mutex_);
    if (failed_ || position - consumer_ > ring_.bytes()) {
        counters_.doorbell_ignored.add();
        return;
    }
    producer_ = position;
    flush_fences_locked();
}

bool ReceiveQueue::deliver(const ReceivedFrame& frame, unsigned together) {
    const std::lock_guard lock(mutex_);
    if (failed_) {
        counters_.rx_bad_wqe.add();
        return false;
    }
    if (available_locked() == 0) {
        counters_.rx_no_wqe.add();
        return false;
    }
    const auto wqe =
        gdma::Wqe::fetch(ring_, consumer_, available_locked(), gdma::Wqe::kMaxReceiveBytes);
    if (!wqe) {
        failed_ = true;
        counters_.rx_bad_wqe.add();
        OM_DEBUG("eth rq failed: rqn={:#x} position={:#x} error=\"{}\"", id_.value(), consumer_,
                 wqe.error().text);
        return false;
    }
    if (wqe->total_length() < frame.size()) {
        counters_.rx_too_long.add();
        return false;
    }

    spans_.clear();
    std::size_t left = frame.size();
    bool writable = true;
    for (const gdma::Sge& sge : wqe->sges()) {
        const std::size_t n = std::min<std::size_t>(sge.length, left);
        if (n == 0) continue;
        if (keys_.resolve(sge.key, owner_.pd->id, sge.address, n, gdma::kLocalWrite, spans_) !=
            gdma::MrFault::kNone) {
            writable = false;
            break;
        }
        left -= n;
    }
    consumer_ += wqe->size();
    if (!writable) {
        // Reported as truncated, so that the driver drops the packet and posts the buffer again.
        counters_.rx_bad_wqe.add();
        truncated_locked(frame, wqe->position());
        return false;
    }
    scatter(spans_, 0, frame.macs);
    scatter(spans_, frame.macs.size(), frame.rest);
    received_locked(frame, wqe->position(), together);
    return true;
}

void ReceiveQueue::received_locked(const ReceivedFrame& frame, std::uint32_t position,
                                   unsigned together) {
    const std::uint32_t flags = frame.flags | frame.hash_type << MANA_HW_ETH_RX_HASH_SHIFT;
    if (received_.count != 0 && (received_.flags != flags || received_.together != together))
        complete_locked();
    if (received_.count == 0) {
        received_.flags = flags;
        received_.position = position;
        received_.together = together;
    }
    received_.packets[received_.count++] = {static_cast<std::uint16_t>(frame.size()), frame.hash};
    if (received_.count == together) {
        complete_locked();
    } else if (!later_knows_) {
        later_knows_ = true;
        later_.put(handle_, later_.now() + kTogether);
    }
}

void ReceiveQueue::truncated_locked(const ReceivedFrame& frame, std::uint32_t position) {
    complete_locked();
    mana_hw_eth_rx_cqe cqe{};
    cqe.type = MANA_HW_ETH_CQE_RX_TRUNCATED | MANA_HW_ETH_CQE_CLIENT;
    cqe.packets[0].length = static_cast<std::uint16_t>(frame.size());
    cqe.packets[0].hash = frame.hash;
    cqe.wqe_offset = static_cast<std::uint32_t>(position % ring_.bytes());
    cq_->post(std::as_bytes(std::span(&cqe, 1)), id_.value(), false);
}

/// Tells of what was received, if there is something.
void ReceiveQueue::complete_locked() {
    if (received_.count == 0) return;
    const auto& packets = received_.packets;
    mana_hw_eth_rx_cqe cqe{};
    std::uint32_t type = MANA_HW_ETH_CQE_RX_OK;
    if (received_.count > 1) {
        type = received_.together == 8 ? MANA_HW_ETH_CQE_RX_EIGHT : MANA_HW_ETH_CQE_RX_COALESCED;
    }
    cqe.type = type | MANA_HW_ETH_CQE_CLIENT;
    cqe.flags = received_.flags;
    cqe.wqe_offset = static_cast<std::uint32_t>(received_.position % ring_.bytes());
    for (unsigned i = 0; i < received_.count; ++i) {
        if (type != MANA_HW_ETH_CQE_RX_EIGHT) {
            cqe.packets[i].length = packets[i].length;
            cqe.packets[i].hash = packets[i].hash;
        } else if (i % 2 == 0) {
            // Behind the last one are zeros.
            const bool more = i + 1 < received_.count;
            const mana_hw_eth_rx_pair pair{packets[i].hash, packets[i].length,
                                           more ? packets[i + 1].length : std::uint16_t{0},
                                           more ? packets[i + 1].hash : 0};
            std::memcpy(&cqe.packets[i / 2], &pair, sizeof pair);
        }
    }
    received_.count = 0;
    cq_->post(std::as_bytes(std::span(&cqe, 1)), id_.value(), false);
}

void ReceiveQueue::flush() {
    const std::lock_guard lock(mutex_);
    later_knows_ = false;
    complete_locked();
}

/// More than one CQE per posted WQE is never owed, nor more than who delivers may wait for.
std::uint64_t ReceiveQueue::most_fences() const {
    return std::min<std::uint64_t>(ring_.bytes() / 32, kMaxFences);
}

bool ReceiveQueue::fence() {
    const std::lock_guard lock(mutex_);
    if (fences_ >= most_fences()) return false;
    ++fences_;
    complete_locked();
    flush_fences_locked();
    return true;
}

void ReceiveQueue::flush_fences_locked() {
    for (std::uint32_t posted = available_locked() / 32; fences_ != 0 && posted != 0;
         --fences_, --posted) {
        mana_hw_eth_rx_cqe cqe{};
        cqe.type = MANA_HW_ETH_CQE_RX_FENCE | MANA_HW_ETH_CQE_CLIENT;
        cq_->post(std::as_bytes(std::span(&cqe, 1)), id_.value(), false);
        counters_.rx_fences.add();
        base::count_work(1);
    }
}

void ReceiveQueue::save(base::StateWriter& out) const {
    const std::lock_guard lock(mutex_);
    QueueParts::save(out, handle_, id_.value(), owner_, ring_, *cq_, keeps_tags_);
    out(producer_, consumer_, fences_, failed_, later_knows_, received_.flags, received_.position,
        received_.together, received_.count, received_.packets);
}

void ReceiveQueue::load(base::StateReader& in) {
    const std::lock_guard lock(mutex_);
    Received received;
    in(producer_, consumer_, fences_, failed_, later_knows_, received.flags, received.position,
       received.together, received.count, received.packets);
    const unsigned together = received.together;
    in.require(available_locked() <= ring_.bytes() && fences_ <= most_fences(),
               "positions of an RQ that cannot be");
    in.require((together == 1 || together == 4 || together == 8) && received.count < together &&
                   (received.count == 0 || later_knows_),
               "packets that nobody will be told of");
    if (!in.ok()) return;
    received_ = received;
    if (later_knows_) later_.put(handle_, later_.now() + kTogether);
}

}  // namespace openmana::eth
