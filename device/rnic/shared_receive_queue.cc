// SPDX-License-Identifier: Apache-2.0
#include "rnic/shared_receive_queue.h"

#include <mana/queue.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "rnic/ext_format.h"

namespace openmana::rnic {
namespace {

constexpr unsigned kSrqProducer = offsetof(mana_hw_ext_srq_record, producer) / 4;

}  // namespace

QueueFormat::Take ReceiveRing::take(std::uint32_t producer, Receive& receive, bool& bad_index) {
    const std::uint32_t available = producer - consumer_;
    bad_index = available > entries_;
    if (bad_index) return QueueFormat::Take::kMalformed;
    if (available == 0) return QueueFormat::Take::kEmpty;
    std::array<std::byte, MANA_HW_EXT_WQE_MAX_BYTES> bytes;
    const auto wqe = std::span(bytes).first(stride_);
    receive.sges.clear();
    receive.total = 0;
    receive.name = 0;
    receive.named = false;
    const bool read = ring_.read(std::uint64_t{consumer_ % entries_} * stride_, wqe);
    ++consumer_;
    if (!read) return QueueFormat::Take::kMalformed;
    const auto header = ext_segment_at<mana_hw_ext_receive>(wqe, 0);
    receive.name = header.cookie;
    receive.named = true;
    const std::size_t room = (stride_ - sizeof header) / sizeof(mana_hw_sge);
    if (header.sge_count > std::min<std::size_t>(room, kExtMaxSge))
        return QueueFormat::Take::kMalformed;
    for (std::uint32_t i = 0; i < header.sge_count; ++i) {
        receive.sges.push_back(ext_sge_at(wqe.data() + sizeof header + i * sizeof(mana_hw_sge)));
        receive.total += receive.sges.back().length;
    }
    return QueueFormat::Take::kOk;
}

SharedReceiveQueue::SharedReceiveQueue(const base::GuestMemory& memory, AdapterEvents& events,
                                       base::Counter& bad_records, std::uint32_t id,
                                       gdma::Handle<gdma::Pd> pd, const Layout& layout)
    : events_(events),
      bad_records_(bad_records),
      id_(id),
      pd_(std::move(pd)),
      record_(memory, layout.region, layout.ring_bytes),
      receives_(gdma::Ring(memory, layout.region, layout.ring_bytes), layout.stride),
      limit_(layout.limit) {}

QueueFormat::Take SharedReceiveQueue::take(Receive& receive) {
    const std::lock_guard lock(mutex_);
    if (failed_) return QueueFormat::Take::kEmpty;
    const auto producer = record_.load(kSrqProducer);
    bool bad_index = !producer.has_value();
    QueueFormat::Take taken = QueueFormat::Take::kEmpty;
    if (producer) taken = receives_.take(*producer, receive, bad_index);
    if (bad_index) {
        failed_ = true;
        bad_records_.add();
        events_.extension(id_, MANA_HW_EXT_EVENT_SRQ_ERROR);
        return QueueFormat::Take::kEmpty;
    }
    receive.pd = pd_->id;
    if (taken != QueueFormat::Take::kEmpty && receives_.posted(*producer) < limit_) {
        limit_ = 0;
        events_.extension(id_, MANA_HW_EXT_EVENT_SRQ_LIMIT);
    }
    return taken;
}

void SharedReceiveQueue::set_limit(std::uint32_t limit) {
    const std::uint32_t now = posted();
    const std::lock_guard lock(mutex_);
    limit_ = limit;
    if (now >= limit) return;
    limit_ = 0;
    events_.extension(id_, MANA_HW_EXT_EVENT_SRQ_LIMIT);
}

std::uint32_t SharedReceiveQueue::limit() const {
    const std::lock_guard lock(mutex_);
    return limit_;
}

std::uint32_t SharedReceiveQueue::posted() const {
    const std::lock_guard lock(mutex_);
    const auto producer = record_.load(kSrqProducer);
    return producer ? std::min(receives_.posted(*producer), receives_.entries()) : 0;
}

}  // namespace openmana::rnic
