// SPDX-License-Identifier: Apache-2.0
#include "gdma/completion_queue.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <utility>

#include <mana/ext.h>
#include <mana/queue.h>

#include "base/hold_meter.h"
#include "base/probe.h"
#include "base/result.h"
#include "gdma/cq_table.h"

namespace openmana::gdma {

CompletionQueue::CompletionQueue(Cqn id, Handle<PageGrant> page, Ring ring, Handle<EventQueue> eq,
                                 bool armed, CqTable* table)
    : id_(id),
      page_(page->page),
      grant_(std::move(page)),
      eq_(std::move(eq)),
      table_(table),
      ring_(std::move(ring)),
      entries_(static_cast<std::uint32_t>(ring_.bytes() / sizeof(mana_hw_cqe))),
      producer_(entries_),
      armed_(armed),
      notified_(producer_) {}

CompletionQueue::~CompletionQueue() {
    if (eq_) eq_->forget(EqeType::kCompletion, id_.value());
    if (table_ != nullptr) table_->remove(*this);
}

void CompletionQueue::event_locked() {
    armed_ = false;
    waiting_ = false;
    notified_ = producer_;
    if (eq_) eq_->post(EqeType::kCompletion, {id_.value(), 0, 0});
}

namespace {

constexpr unsigned kConsumer = offsetof(mana_hw_ext_cq_record, consumer) / 4;
constexpr unsigned kArm = offsetof(mana_hw_ext_cq_record, arm) / 4;
static_assert(SharedWords::kBytes == MANA_HW_EXT_RECORD_BYTES);

}  // namespace

void CompletionQueue::use_record(std::unique_ptr<SharedWords> words) {
    record_ = std::move(words);
    consumer_ = static_cast<std::uint32_t>(producer_);
    record_->store(kConsumer, consumer_);
}

/// False if the consumer has not taken what lies in the next entry.
bool CompletionQueue::room_locked() {
    const auto free = [&] { return static_cast<std::uint32_t>(producer_) - consumer_ < entries_; };
    if (free()) return true;
    consumer_ = record_->load(kConsumer).value_or(consumer_);
    return free();
}

bool CompletionQueue::due_locked(bool solicited) {
    // Partner: the full barrier of the host between its store of `arm` and its last look for CQEs.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const std::uint32_t arm =
        record_->load(kArm).value_or(sequence_ << MANA_HW_EXT_ARM_SEQUENCE_SHIFT);
    if (arm >> MANA_HW_EXT_ARM_SEQUENCE_SHIFT == sequence_) return false;
    if ((arm & MANA_HW_EXT_ARM_SOLICITED) != 0 && !solicited) return false;
    sequence_ = arm >> MANA_HW_EXT_ARM_SEQUENCE_SHIFT;
    return true;
}

std::uint32_t CompletionQueue::waiting_locked() const {
    const auto producer = static_cast<std::uint32_t>(producer_);
    return producer - record_->load(kConsumer).value_or(producer);
}

auto CompletionQueue::begin_move(Ring ring, std::unique_ptr<SharedWords> words) const
    -> std::optional<Move> {
    const auto entries = static_cast<std::uint32_t>(ring.bytes() / sizeof(mana_hw_cqe));
    const std::lock_guard lock(mutex_);
    const std::uint32_t waiting = waiting_locked();
    if (overrun() || waiting > entries_ || waiting > entries) return std::nullopt;
    return Move{std::move(ring), std::move(words), entries, 0, producer_ - waiting};
}

auto CompletionQueue::move_step(Move& move) -> Moved {
    const std::lock_guard lock(mutex_);
    const std::uint64_t left = producer_ - move.next;
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, kMoveStep));
    if (overrun() || count > move.entries - move.moved) return Moved::kTooMany;
    for (std::uint32_t i = 0; i < count; ++i, ++move.next, ++move.moved) {
        mana_hw_cqe cqe{};
        (void)ring_.read(move.next % entries_ * sizeof cqe,
                         std::as_writable_bytes(std::span(&cqe, 1)));
        cqe.word = (cqe.word & ~MANA_HW_OWNER_BITS) | 1U << MANA_HW_OWNER_SHIFT;
        (void)move.ring.write_entry(move.moved * sizeof cqe, std::as_bytes(std::span(&cqe, 1)));
    }
    base::count_work(count);
    if (count < left) return Moved::kPart;
    finish_move_locked(move);
    return Moved::kAll;
}

void CompletionQueue::finish_move_locked(Move& move) {
    move.words->store(kConsumer, move.entries);
    move.words->store(kArm, record_->load(kArm).value_or(0));
    std::swap(ring_, move.ring);
    std::swap(record_, move.words);
    entries_ = consumer_ = move.entries;
    producer_ = std::uint64_t{entries_} + move.moved;
}

void CompletionQueue::post(std::span<const std::byte> data, std::uint32_t queue_id, bool is_sq,
                           bool solicited) {
    mana_hw_cqe cqe{};
    OM_CHECK(data.size() <= sizeof cqe.data);
    if (!data.empty()) std::memcpy(cqe.data, data.data(), data.size());
    cqe.word = (queue_id & MANA_HW_CQE_QUEUE_ID) | (is_sq ? MANA_HW_CQE_IS_SQ : 0);
    const std::lock_guard lock(mutex_);
    if (has_record() && (overrun() || !room_locked())) {
        // In this order: who is told may look at once, on another thread.
        const bool first = !overrun_.exchange(true, std::memory_order_relaxed);
        if (first && overrun_handler_) overrun_handler_();
        return;
    }
    cqe.word |= static_cast<std::uint32_t>(producer_ / entries_ & 7) << MANA_HW_OWNER_SHIFT;
    // Completions for memory that the guest took away are dropped, as the hardware does.
    (void)ring_.write_entry(producer_ % entries_ * sizeof cqe, std::as_bytes(std::span(&cqe, 1)));
    ++producer_;
    OM_PROBE(completion, id_.value(), queue_id, is_sq);
    if (has_record() ? due_locked(solicited) : armed_ && !waits_locked()) event_locked();
}

/// Whether the event of an armed CQ with entries waits for more of them.
bool CompletionQueue::waits_locked() {
    if (moderation_.usec == 0) return false;
    if (moderation_.completions != 0 && producer_ - notified_ >= moderation_.completions)
        return false;
    Postponed& events = table_->events();
    if (!waiting_) {
        waiting_ = true;
        due_ = events.now() + std::chrono::microseconds(moderation_.usec);
    }
    if (!called_at_ || due_ < *called_at_) {
        called_at_ = due_;
        events.put(id_.value(), due_);
    }
    return true;
}

void CompletionQueue::moderate(Moderation moderation) {
    OM_CHECK(table_ != nullptr);
    const std::lock_guard lock(mutex_);
    moderation_ = moderation;
    // What waits by other rules waits no more.
    if (waiting_) event_locked();
}

auto CompletionQueue::moderation() const -> Moderation {
    const std::lock_guard lock(mutex_);
    return moderation_;
}

void CompletionQueue::waited() {
    const std::lock_guard lock(mutex_);
    Postponed& events = table_->events();
    const base::TimePoint now = events.now();
    if (!called_at_ || now < *called_at_) return;
    called_at_.reset();
    if (!waiting_) return;
    if (now >= due_) {
        event_locked();
    } else {
        called_at_ = due_;
        events.put(id_.value(), due_);
    }
}

void CompletionQueue::go_on_at(std::uint64_t producer) {
    const std::lock_guard lock(mutex_);
    OM_CHECK(producer >= entries_ && !has_record());
    producer_ = notified_ = producer;
}

bool CompletionQueue::ring_doorbell(std::uint32_t index, bool arm) {
    // Without arm the index is a hint that nothing here needs: there is no flow control (RNIC 4.3).
    if (!arm || has_record()) return true;
    const std::lock_guard lock(mutex_);
    const std::uint64_t wrap = std::uint64_t{8} * entries_;
    const std::uint64_t newer = (producer_ % wrap + wrap - index % wrap) % wrap;
    const bool counted_on = index % wrap == (armed_index_ + 1) % wrap;
    armed_index_ = static_cast<std::uint32_t>(index % wrap);
    if (newer == 0 || newer >= std::uint64_t{4} * entries_) {
        // Providers that arm once more without having read anything move the index on, and stay
        // ahead as long as they read one entry for each arming. Who moderates counts what he reads.
        if (counted_on && producer_ != notified_ && moderation_.usec == 0) {
            event_locked();
            return true;
        }
        armed_ = true;
        waiting_ = false;
        notified_ = producer_;
        return true;
    }
    // Entries that came after the consumer's last look wait like those that come now.
    armed_ = true;
    notified_ = producer_ - newer;
    if (!waits_locked()) event_locked();
    return newer <= entries_;
}

void CompletionQueue::save(base::StateWriter& out) const {
    const std::lock_guard lock(mutex_);
    out(producer_, armed_, notified_, armed_index_, moderation_.usec, moderation_.completions,
        waiting_, due_, called_at_, consumer_, sequence_, overrun_, overrun_told_);
}

void CompletionQueue::load(base::StateReader& in) {
    const std::lock_guard lock(mutex_);
    in(producer_, armed_, notified_, armed_index_, moderation_.usec, moderation_.completions,
       waiting_, due_, called_at_, consumer_, sequence_, overrun_, overrun_told_);
    // notified_ is only subtracted: what a guest armed for may lie before its first entry.
    in.require(producer_ >= entries_ && armed_index_ < std::uint64_t{8} * entries_,
               "positions of a CQ that cannot be");
    if (!in.ok()) return;
    if (table_ != nullptr && called_at_) table_->events().put(id_.value(), *called_at_);
}

std::uint64_t CompletionQueue::posted() const {
    const std::lock_guard lock(mutex_);
    return producer_ - entries_;
}

}  // namespace openmana::gdma
