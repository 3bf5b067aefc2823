// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "base/memory_account.h"
#include "base/result.h"
#include "base/state.h"
#include "gdma/doorbell_target.h"
#include "gdma/id_pool.h"
#include "gdma/types.h"
#include "gdma/wq_table.h"

namespace openmana::gdma {

template <typename Id>
class WorkQueues;

/// Neighbouring ids of work queues. When it ends, doorbells for them reach nobody, and they are
/// free; they come back late.
template <typename Id>
class QueueIds {
public:
    QueueIds() = default;
    QueueIds(QueueIds&& other) noexcept { swap(other); }
    QueueIds& operator=(QueueIds&& other) noexcept {
        swap(other);
        return *this;
    }
    ~QueueIds() {
        if (table_ != nullptr && table_->resets_ == epoch_) table_->free(first_, count_);
    }
    [[nodiscard]] Id first() const { return first_; }
    [[nodiscard]] Id at(std::uint32_t place) const { return Id(first_.value() + place); }

private:
    friend class WorkQueues<Id>;
    QueueIds(WorkQueues<Id>& table, Id first, std::uint32_t count)
        : table_(&table), epoch_(table.resets_), first_(first), count_(count) {}
    void swap(QueueIds& other) {
        std::swap(table_, other.table_);
        std::swap(epoch_, other.epoch_);
        std::swap(first_, other.first_);
        std::swap(count_, other.count_);
    }
    WorkQueues<Id>* table_ = nullptr;
    std::uint64_t epoch_ = 0;  // those from before a reset are not the table's any more
    Id first_{};
    std::uint32_t count_ = 0;
};

/// The SQs or the RQs of a function: their ids, and who gets their doorbells. On the executor.
///
/// Ids that the guest alone sees are small: short doorbells have room for 12 bits (GDMA 3.9).
/// Public ones, by which others address the queue (RNIC 3.2: QP numbers), begin at a place that
/// nobody can know.
template <typename Id>
class WorkQueues {
public:
    /// `account` pays, and outlives it. `seed` decides where public ids begin, after each reset
    /// anew.
    WorkQueues(base::MemoryAccount& account, std::uint32_t quota, std::uint64_t seed = 0)
        : account_(account), quota_(quota), chance_(seed), ids_(quota) {
        begin();
    }

    /// `count` (at most 4) neighbours, the first a multiple of `align` (1, 2 or 4).
    [[nodiscard]] base::Result<QueueIds<Id>> allocate(std::uint32_t count, std::uint32_t align) {
        return take(ids_, count, align);
    }
    [[nodiscard]] base::Result<QueueIds<Id>> allocate_public(std::uint32_t count,
                                                             std::uint32_t align) {
        return take(public_ids_, count, align);
    }
    /// No public id is less; good until the next reset.
    [[nodiscard]] Id first_public() const { return Id(public_ids_.first()); }
    /// An id below 4, which `allocate` never gives, by its number; kBusy if it is taken.
    [[nodiscard]] base::Result<QueueIds<Id>> allocate_reserved(Id id) {
        OM_CHECK(id.value() < QueueIdPool::kBlock);
        if ((reserved_taken_ & bit(id)) != 0)
            return base::fail(base::ErrorCode::kBusy, "reserved queue id is in use", id.value());
        TRY_VOID(table_.reserve(id.value(), 1, account_));
        reserved_taken_ |= bit(id);
        return QueueIds<Id>(*this, id, 1);
    }
    /// From now on doorbells on `page` for the id reach `target`; null disconnects. `bytes`: how
    /// much memory, from the target on, it looks at then. All of it is asked for when a doorbell
    /// comes.
    void connect(Id id, DoorbellPage page, DoorbellTarget* target,
                 std::uint16_t bytes = sizeof(DoorbellTarget)) {
        table_.connect(id.value(), page, target, bytes);
    }
    /// A hint: memory that a connected queue's target goes on to, asked for with the target's own.
    /// It may be gone when a doorbell comes.
    void set_beyond(Id id, const void* memory, std::uint16_t bytes) {
        table_.set_beyond(id.value(), memory, bytes);
    }
    /// A hint: a doorbell of this queue follows soon.
    void prefetch(Id id) const { table_.prefetch(id.value()); }
    /// Those of ids that come from a doorbell.
    [[nodiscard]] const WqTable& table() const { return table_; }

    /// A doorbell; `relative`: the position counts on from the last one. False if the queue is not
    /// connected on this page.
    [[nodiscard]] bool ring(std::uint32_t id, DoorbellPage page, std::uint32_t position,
                            bool relative) {
        const WqTable::Slot* const slot = connected(id, page);
        if (slot == nullptr) return false;
        table_.prefetch_memory(id);
        std::uint32_t& last = table_.position(id);
        last = relative ? last + position : position;
        slot->target->ring(last);
        return true;
    }
    [[nodiscard]] bool ring_client(std::uint32_t id, DoorbellPage page, std::uint32_t value) {
        const WqTable::Slot* const slot = connected(id, page);
        if (slot == nullptr) return false;
        slot->target->ring_client(value);
        return true;
    }
    /// That of the last doorbell, from which short ones count on. Of a connected queue.
    [[nodiscard]] std::uint32_t& position(Id id) { return table_.position(id.value()); }

    /// Which ids are free; whose the others are is in the states of their owners, who adopt() them
    /// when they are read. In the end all_adopted().
    void save(base::StateWriter& out) const {
        out(public_ids_.first());
        ids_.save(out);
        public_ids_.save(out);
    }
    void load(base::StateReader& in) {
        const auto first = in.get<std::uint32_t>();
        in.require(public_begins_at(first), "public queue ids begin where they cannot");
        if (!in.ok()) return;
        public_ids_ = QueueIdPool(quota_, first);
        table_ = WqTable(first);
        ids_.load(in);
        public_ids_.load(in);
    }
    /// `count` ids of the owner whose state is read. Not its own: `in` has refused.
    [[nodiscard]] QueueIds<Id> adopt(base::StateReader& in, Id first, std::uint32_t count) {
        if (!claim(first, count)) {
            in.require(false, "queue ids that are not to be had");
            return {};
        }
        QueueIds<Id> ids(*this, first, count);
        if (const auto room = table_.reserve(first.value(), count, account_); !room)
            in.refuse(room.error());
        return ids;
    }
    [[nodiscard]] bool all_adopted() { return ids_.all_claimed() && public_ids_.all_claimed(); }
    [[nodiscard]] std::uint32_t used() const {
        return ids_.used() + public_ids_.used() +
               static_cast<std::uint32_t>(std::popcount(reserved_taken_));
    }
    /// All ids are free, whoever has them.
    void reset() {
        ++resets_;
        ids_ = QueueIdPool(quota_);
        begin();
        reserved_taken_ = 0;
    }

private:
    friend class QueueIds<Id>;
    [[nodiscard]] static std::uint32_t bit(Id id) { return 1U << id.value(); }
    [[nodiscard]] const WqTable::Slot* connected(std::uint32_t id, DoorbellPage page) const {
        const WqTable::Slot* const slot = table_.find(id);
        return slot != nullptr && slot->target != nullptr && slot->page == page ? slot : nullptr;
    }
    // Neither among the ids of the other kind nor beyond 24 bits.
    static constexpr std::uint32_t kChoices = (1U << 24) - 2 * QueueIdPool::kSpan;
    [[nodiscard]] static bool public_begins_at(std::uint32_t first) {
        return first % QueueIdPool::kBlock == 0 && first >= QueueIdPool::kSpan &&
               first - QueueIdPool::kSpan < kChoices;
    }
    [[nodiscard]] bool claim(Id first, std::uint32_t count) {
        if (count > quota_ - ids_.used() - public_ids_.used()) return false;
        if (first >= first_public()) return public_ids_.claim(first.value(), count);
        if (first.value() >= QueueIdPool::kBlock) return ids_.claim(first.value(), count);
        if (count != 1 || (reserved_taken_ & bit(first)) != 0) return false;
        reserved_taken_ |= bit(first);
        return true;
    }
    void begin() {
        const auto chosen = static_cast<std::uint32_t>(chance_.below(kChoices));
        const std::uint32_t first =
            QueueIdPool::kSpan + chosen / QueueIdPool::kBlock * QueueIdPool::kBlock;
        public_ids_ = QueueIdPool(quota_, first);
        table_ = WqTable(first);
    }
    [[nodiscard]] base::Result<QueueIds<Id>> take(QueueIdPool& pool, std::uint32_t count,
                                                  std::uint32_t align) {
        if (count == 0 || count > QueueIdPool::kBlock || (align != 1 && align != 2 && align != 4))
            return base::fail(base::ErrorCode::kInvalidArgument, "no such range of queue ids",
                              count, align);
        const std::uint32_t used = ids_.used() + public_ids_.used();
        const auto first = count > quota_ - used ? std::nullopt : pool.take(count, align);
        if (!first) return base::fail(base::ErrorCode::kExhausted, "no work queue left", quota_);
        QueueIds<Id> ids(*this, Id(*first), count);
        TRY_VOID(table_.reserve(*first, count, account_));
        return ids;
    }
    void free(Id first, std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i)
            table_.connect(first.value() + i, DoorbellPage(0), nullptr, 0);
        if (first.value() < QueueIdPool::kBlock)
            reserved_taken_ &= ~bit(first);
        else if (first < first_public())
            ids_.give_back(first.value(), count);
        else
            public_ids_.give_back(first.value(), count);
    }

    base::MemoryAccount& account_;
    const std::uint32_t quota_;
    base::Random chance_;
    WqTable table_;
    QueueIdPool ids_;
    QueueIdPool public_ids_{0};
    std::uint64_t resets_ = 0;
    std::uint32_t reserved_taken_ = 0;  // a bit for each id below 4
};

using SendQueues = WorkQueues<Sqn>;
using ReceiveQueues = WorkQueues<Rqn>;
using SqIds = QueueIds<Sqn>;
using RqIds = QueueIds<Rqn>;

}  // namespace openmana::gdma
