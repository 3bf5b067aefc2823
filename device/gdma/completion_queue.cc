// SPDX-License-Identifier: Apache-2.0
#include "gdma/completion_queue.h"

#include <algorithm>
#include <cstring>

#include <mana/queue.h>

#include "base/result.h"

namespace openmana::gdma {

CompletionQueue::CompletionQueue(Cqn id, DoorbellPage page, Ring ring, EventQueue* eq, bool armed)
    : id_(id),
      page_(page),
      eq_(eq),
      ring_(std::move(ring)),
      entries_(static_cast<std::uint32_t>(ring_.bytes() / sizeof(mana_hw_cqe))),
      producer_(entries_),
      armed_(armed) {}

void CompletionQueue::event_locked() {
    armed_ = false;
    if (eq_ != nullptr) eq_->post(EqeType::kCompletion, {id_.value(), 0, 0});
}

void CompletionQueue::post(std::span<const std::byte> data, std::uint32_t queue_id, bool is_sq) {
    mana_hw_cqe cqe{};
    OM_CHECK(data.size() <= sizeof cqe.data);
    if (!data.empty()) std::memcpy(cqe.data, data.data(), data.size());
    cqe.word = (queue_id & MANA_HW_CQE_QUEUE_ID) | (is_sq ? MANA_HW_CQE_IS_SQ : 0);
    const std::lock_guard lock(mutex_);
    cqe.word |= static_cast<std::uint32_t>(producer_ / entries_ & 7) << MANA_HW_OWNER_SHIFT;
    // Memory that the guest took away loses its completions, like the hardware's.
    (void)ring_.write_entry(producer_ % entries_ * sizeof cqe, std::as_bytes(std::span(&cqe, 1)));
    ++producer_;
    if (armed_) event_locked();
}

bool CompletionQueue::ring_doorbell(std::uint32_t index, bool arm) {
    // Without arm the index is a hint that nothing here needs: there is no flow control (RNIC 4.3).
    if (!arm) return true;
    const std::lock_guard lock(mutex_);
    const std::uint64_t wrap = std::uint64_t{8} * entries_;
    const std::uint64_t newer = (producer_ % wrap + wrap - index % wrap) % wrap;
    if (newer == 0 || newer >= std::uint64_t{4} * entries_) {
        armed_ = true;
        return true;
    }
    event_locked();
    return newer <= entries_;
}

std::uint64_t CompletionQueue::posted() const {
    const std::lock_guard lock(mutex_);
    return producer_ - entries_;
}

}  // namespace openmana::gdma
