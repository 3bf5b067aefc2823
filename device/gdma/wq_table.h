// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/huge_pages.h"
#include "base/memory_account.h"
#include "base/prefetch.h"
#include "base/result.h"
#include "gdma/doorbell_target.h"
#include "gdma/id_pool.h"
#include "gdma/types.h"

namespace openmana::gdma {

/// Who gets the doorbells of the work queues of one kind, by queue id.
///
/// A doorbell begins with a look at this table, at a place that nobody can guess. So it is dense:
/// only what decides about a doorbell lies in a slot, and the slots of the first, second, ... ids
/// of the blocks that ids come in lie together, since most owners of a block use the same few of
/// it.
class WqTable {
public:
    /// Ids are small, or not far above `high`, a multiple of the block size: two dense ranges.
    explicit WqTable(std::uint32_t high = UINT32_MAX / kRows * kRows) : high_(high) {}

    struct Slot {
        DoorbellTarget* target = nullptr;
        DoorbellPage page{};
        std::uint16_t target_bytes = 0;  ///< see WorkQueues::connect
        std::uint16_t beyond_bytes = 0;  ///< see WorkQueues::set_beyond
    };
    static_assert(sizeof(Slot) == 16);

    /// Null if the id was never connected.
    [[nodiscard]] const Slot* find(std::uint32_t id) const {
        const Row& row = row_of(id);
        const std::size_t place = place_of(id);
        return place < row.slots.size() ? &row.slots[place] : nullptr;
    }
    /// Room for what connect() says of these ids, which `account` pays for.
    [[nodiscard]] base::Result<void> reserve(std::uint32_t first, std::uint32_t count,
                                             base::MemoryAccount& account) {
        for (std::uint32_t id = first; id - first < count; ++id) {
            Row& row = row_of(id);
            const std::size_t places = place_of(id) + 1;
            TRY_VOID(base::reserve(row.slots, places, account, row.slots_charge));
            TRY_VOID(base::reserve(row.beyond, places, account, row.beyond_charge));
            TRY_VOID(base::reserve(row.positions, places, account, row.positions_charge));
        }
        return {};
    }
    void connect(std::uint32_t id, DoorbellPage page, DoorbellTarget* target, std::uint16_t bytes) {
        Row& row = row_of(id);
        const std::size_t place = place_of(id);
        if (place >= row.slots.size()) {
            if (target == nullptr) return;
            row.slots.resize(place + 1);
            row.beyond.resize(place + 1);
            row.positions.resize(place + 1);
        }
        row.slots[place] = Slot{target, page, bytes, 0};
        row.beyond[place] = nullptr;
        row.positions[place] = 0;
    }
    // Of ids that were connected.
    void set_beyond(std::uint32_t id, const void* memory, std::uint16_t bytes) {
        Row& row = row_of(id);
        row.slots[place_of(id)].beyond_bytes = bytes;
        row.beyond[place_of(id)] = memory;
    }
    /// That of the last doorbell, for short ones.
    [[nodiscard]] std::uint32_t& position(std::uint32_t id) {
        return row_of(id).positions[place_of(id)];
    }
    /// Hints. First for the table itself; then for the memory that a doorbell leads to, none of
    /// which has to be there to be asked for.
    void prefetch(std::uint32_t id) const {
        if (find(id) == nullptr) return;
        const Row& row = row_of(id);
        __builtin_prefetch(&row.slots[place_of(id)]);
        __builtin_prefetch(&row.beyond[place_of(id)]);
    }
    void prefetch_memory(std::uint32_t id) const {
        const Slot* const slot = find(id);
        if (slot == nullptr || slot->target == nullptr) return;
        const auto* const own = reinterpret_cast<const std::byte*>(slot->target);
        base::prefetch(own, own + slot->target_bytes);
        if (slot->beyond_bytes == 0) return;
        const auto* const beyond = static_cast<const std::byte*>(row_of(id).beyond[place_of(id)]);
        base::prefetch(beyond, beyond + slot->beyond_bytes);
    }

private:
    static constexpr std::uint32_t kRows = QueueIdPool::kBlock;
    template <typename T>
    using Column = std::vector<T, base::HugePageAllocator<T>>;
    struct Row {
        Column<Slot> slots;
        Column<const void*> beyond;
        Column<std::uint32_t> positions;
        base::MemoryAccount::Charge slots_charge;
        base::MemoryAccount::Charge beyond_charge;
        base::MemoryAccount::Charge positions_charge;
    };
    // Without a branch: which range an id is in nobody can guess either.
    [[nodiscard]] std::uint32_t in_high(std::uint32_t id) const { return id >= high_ ? 1 : 0; }
    [[nodiscard]] const Row& row_of(std::uint32_t id) const {
        return rows_[id % kRows + in_high(id) * kRows];
    }
    [[nodiscard]] Row& row_of(std::uint32_t id) { return rows_[id % kRows + in_high(id) * kRows]; }
    [[nodiscard]] std::size_t place_of(std::uint32_t id) const {
        return (id - in_high(id) * high_) / kRows;
    }

    std::uint32_t high_;
    std::array<Row, std::size_t{2} * kRows> rows_;
};

}  // namespace openmana::gdma
