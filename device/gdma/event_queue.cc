// SPDX-License-Identifier: Apache-2.0
#include "gdma/event_queue.h"

#include <algorithm>
#include <utility>

#include <mana/queue.h>

namespace openmana::gdma {

EventQueue::EventQueue(Eqn id, Handle<PageGrant> page, Ring ring, pci::IrqSink& irq,
                       unsigned vector)
    : id_(id),
      page_(page->page),
      grant_(std::move(page)),
      irq_(irq),
      vector_(vector),
      ring_(std::move(ring)),
      entries_(static_cast<std::uint32_t>(ring_.bytes() / sizeof(mana_hw_eqe))),
      producer_(entries_),
      consumer_(entries_) {}

void EventQueue::append_locked(const Event& event) {
    const auto owner = static_cast<std::uint32_t>(producer_ / entries_ & 7);
    const mana_hw_eqe eqe{
        {event.data[0], event.data[1], event.data[2]},
        static_cast<std::uint32_t>(event.type) | owner << MANA_HW_OWNER_SHIFT,
    };
    // Events for memory that the guest took away are dropped, as the hardware does.
    (void)ring_.write_entry(producer_ % entries_ * sizeof eqe, std::as_bytes(std::span(&eqe, 1)));
    ++producer_;
}

void EventQueue::hold_locked(const Event& event) {
    const bool added = held_names_.insert(name_of(event)).second;
    if (!added) {
        // A second completion, test or error event of the same object says nothing new. Of link
        // events the last one must be the last one.
        if (event.type != EqeType::kReconfigData) return;
        std::erase_if(held_, [&](const Event& other) { return name_of(other) == name_of(event); });
    }
    held_.push_back(event);
}

void EventQueue::flush_locked() {
    while (!held_.empty() && !full_locked()) {
        const Event event = held_.front();
        held_.pop_front();
        if (held_names_.erase(name_of(event)) != 0) append_locked(event);
    }
}

void EventQueue::post(EqeType type, std::array<std::uint32_t, 3> data) {
    const std::lock_guard lock(mutex_);
    const Event event{type, data};
    if (full_locked() || !held_.empty()) {
        hold_locked(event);
        return;
    }
    append_locked(event);
    if (armed_) {
        armed_ = false;
        irq_.raise(vector_);
    }
}

void EventQueue::ring_doorbell(std::uint32_t index, bool arm) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t wrap = std::uint64_t{8} * entries_;
    std::uint64_t pending = (producer_ % wrap + wrap - index % wrap) % wrap;
    if (pending <= entries_) {
        // Never backwards: a consumer that does that would take our space away.
        consumer_ = std::max(consumer_, producer_ - pending);
        const std::uint64_t before = producer_;
        flush_locked();
        pending += producer_ - before;
    } else {
        pending = 0;  // ahead of us: nothing pending (GDMA 3.10 rule 2)
    }
    armed_ = armed_ || arm;
    if (pending != 0 && armed_) {
        armed_ = false;
        irq_.raise(vector_);
    }
}

void EventQueue::forget_cq(Cqn cq) {
    const std::lock_guard lock(mutex_);
    held_names_.erase(name_of(Event{EqeType::kCompletion, {cq.value(), 0, 0}}));
    // Withdrawn events stay in line until they are half of it, so that the cost of this is flat.
    if (held_.size() < 2 * held_names_.size() + 64) return;
    std::unordered_set<std::uint64_t> seen;
    std::erase_if(held_, [&](const Event& event) {
        return !held_names_.contains(name_of(event)) || !seen.insert(name_of(event)).second;
    });
}

}  // namespace openmana::gdma
