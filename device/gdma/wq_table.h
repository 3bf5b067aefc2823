// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/huge_pages.h"
#include "base/prefetch.h"
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
    struct Slot {
        DoorbellTarget* target = nullptr;
        DoorbellPage page{};
        std::uint16_t target_bytes = 0;  ///< see WorkQueues::connect
        std::uint16_t beyond_bytes = 0;  ///< see WorkQueues::set_beyond
    };
    static_assert(sizeof(Slot) == 16);

    /// Null if the id was never connected.
    [[nodiscard]] const Slot* find(std::uint32_t id) const {
        const Row& row = rows_[id % kRows];
        return id / kRows < row.slots.size() ? &row.slots[id / kRows] : nullptr;
    }
    void connect(std::uint32_t id, DoorbellPage page, DoorbellTarget* target, std::uint16_t bytes) {
        Row& row = rows_[id % kRows];
        const std::size_t place = id / kRows;
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
        Row& row = rows_[id % kRows];
        row.slots[id / kRows].beyond_bytes = bytes;
        row.beyond[id / kRows] = memory;
    }
    /// That of the last doorbell, for short ones.
    [[nodiscard]] std::uint32_t& position(std::uint32_t id) {
        return rows_[id % kRows].positions[id / kRows];
    }
    /// Hints. First for the table itself; then for the memory that a doorbell leads to, none of
    /// which has to be there to be asked for.
    void prefetch(std::uint32_t id) const {
        if (find(id) == nullptr) return;
        const Row& row = rows_[id % kRows];
        __builtin_prefetch(&row.slots[id / kRows]);
        __builtin_prefetch(&row.beyond[id / kRows]);
    }
    void prefetch_memory(std::uint32_t id) const {
        const Slot* const slot = find(id);
        if (slot == nullptr || slot->target == nullptr) return;
        const auto* const own = reinterpret_cast<const std::byte*>(slot->target);
        base::prefetch(own, own + slot->target_bytes);
        if (slot->beyond_bytes == 0) return;
        const auto* const beyond =
            static_cast<const std::byte*>(rows_[id % kRows].beyond[id / kRows]);
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
    };
    std::array<Row, kRows> rows_;
};

}  // namespace openmana::gdma
