// SPDX-License-Identifier: Apache-2.0
#include "rnic/shared_receive_queue.h"

#include <mana/ext.h>

#include <algorithm>
#include <cstddef>

namespace openmana::rnic {
namespace {

constexpr unsigned kSrqProducer = offsetof(mana_hw_ext_srq_record, producer) / 4;

}  // namespace

SharedReceiveQueue::SharedReceiveQueue(const base::GuestMemory& memory, AdapterEvents& events,
                                       base::Counter& bad_records, std::uint32_t id,
                                       gdma::Handle<gdma::Pd> pd, const Layout& layout,
                                       base::MemoryAccount::Charge charge)
    : events_(events),
      bad_records_(bad_records),
      id_(id),
      charge_(std::move(charge)),
      pd_(std::move(pd)),
      record_(memory, layout.region, layout.ring_bytes),
      receives_(gdma::Ring(memory, layout.region, layout.ring_bytes), layout.stride),
      limit_(layout.limit) {}

ReceiveFormat::Take SharedReceiveQueue::take(Receive& receive) {
    using Take = ReceiveFormat::Take;
    const std::lock_guard lock(mutex_);
    if (failed_) return Take::kEmpty;
    const auto producer = record_.load(kSrqProducer);
    const std::optional<Take> taken = producer ? receives_.take(*producer, receive) : std::nullopt;
    if (!taken) {
        failed_ = true;
        bad_records_.add();
        events_.extension(id_, MANA_HW_EXT_EVENT_SRQ_ERROR);
        return Take::kEmpty;
    }
    receive.pd = pd_->id;
    if (*taken != Take::kEmpty && receives_.posted(*producer) < limit_) {
        limit_ = 0;
        events_.extension(id_, MANA_HW_EXT_EVENT_SRQ_LIMIT);
    }
    return *taken;
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
