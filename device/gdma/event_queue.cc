// SPDX-License-Identifier: Apache-2.0
#include "gdma/event_queue.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <mana/queue.h>

#include "base/hold_meter.h"

namespace openmana::gdma {
namespace {

/// Events that are written while one who posts may wait.
constexpr std::uint32_t kFlushStep = 64;

}  // namespace

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
    const auto found = names_.find(name_of(event));
    if (found != names_.end()) {
        // A second completion, test or error event of the same object says nothing new. Of link
        // events the last one must be the last one.
        if (event.type != EqeType::kReconfigData) return;
        held_.erase(found->second);
        names_.erase(found);
    }
    names_.emplace(name_of(event), held_.insert(held_.end(), event));
}

/// Some of what was held back, as far as there is room. True if there may be more to write.
bool EventQueue::flush_locked() {
    for (std::uint32_t n = 0; !held_.empty() && !full_locked(); ++n) {
        if (n == kFlushStep) return true;
        base::count_work(1);
        append_locked(held_.front());
        names_.erase(name_of(held_.front()));
        held_.pop_front();
    }
    return false;
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

void EventQueue::go_on_at(std::uint64_t producer) {
    const std::lock_guard lock(mutex_);
    OM_CHECK(producer >= entries_);
    producer_ = consumer_ = producer;
}

std::uint64_t EventQueue::producer() const {
    const std::lock_guard lock(mutex_);
    return producer_;
}

std::uint64_t EventQueue::consumer() const {
    const std::lock_guard lock(mutex_);
    return consumer_;
}

void EventQueue::ring_doorbell(std::uint32_t index, bool arm) {
    const auto ring_again = [&] {
        const std::lock_guard lock(mutex_);
        const base::MeasuredHold hold({"EQ doorbell", id_.value()});
        return ring_locked(index, arm);
    };
    // Who waits to post an event gets the lock in between.
    while (ring_again()) mutex_.hand_over();
}

/// True if there is more to write than one who posts should wait for; then this is to be done
/// again.
bool EventQueue::ring_locked(std::uint32_t index, bool arm) {
    const std::uint64_t wrap = std::uint64_t{8} * entries_;
    std::uint64_t pending = (producer_ % wrap + wrap - index % wrap) % wrap;
    if (pending <= entries_) {
        // Never backwards: a consumer that does that would take our space away.
        consumer_ = std::max(consumer_, producer_ - pending);
        const std::uint64_t before = producer_;
        const bool more = flush_locked();
        pending += producer_ - before;
        if (more) return true;
    } else {
        pending = 0;  // ahead of us: nothing pending (GDMA 3.10 rule 2)
    }
    armed_ = armed_ || arm;
    if (pending != 0 && armed_) {
        armed_ = false;
        irq_.raise(vector_);
    }
    return false;
}

void EventQueue::save(base::StateWriter& out) const {
    const std::lock_guard lock(mutex_);
    out(producer_, consumer_, armed_);
    out.count(held_.size());
    for (const Event& event : held_) out(static_cast<std::uint8_t>(event.type), event.data);
}

void EventQueue::load(base::StateReader& in, std::uint64_t most) {
    const std::lock_guard lock(mutex_);
    in(producer_, consumer_, armed_);
    in.require(consumer_ <= producer_ && producer_ - consumer_ <= entries_ && consumer_ >= entries_,
               "positions of an EQ that cannot be");
    const std::size_t count = in.count(sizeof(Event::data));
    in.require(count <= most, "more events than there are objects for");
    for (std::size_t n = count; n > 0 && in.ok(); --n) {
        Event event{};
        event.type = static_cast<EqeType>(in.get<std::uint8_t>());
        in(event.data);
        in.require(full_locked() && !names_.contains(name_of(event)),
                   "event that waits for nothing");
        if (in.ok()) hold_locked(event);
    }
    if (!in.ok()) {
        producer_ = consumer_ = entries_;
        held_.clear();
        names_.clear();
    }
}

std::uint64_t EventQueue::held() const {
    const std::lock_guard lock(mutex_);
    return held_.size();
}

void EventQueue::forget(EqeType type, std::uint32_t object, std::uint32_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(name_of(Event{type, {object, number, 0}}));
    if (found == names_.end()) return;
    held_.erase(found->second);
    names_.erase(found);
}

}  // namespace openmana::gdma
