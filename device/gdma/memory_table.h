// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/guest_memory.h"
#include "gdma/ring.h"
#include "gdma/types.h"

namespace openmana::gdma {

enum class MrType : std::uint32_t {
    kGpa = 1,
    kGva = 2,
    kZeroBased = 4,
    kDeviceMemory = 5,
    kWindowType1 = 6,
    kWindowType2 = 7,
};

/// Device memory of ALLOC_DM, reachable only through MRs of type 5.
using DeviceMemory = std::vector<std::byte>;

/// A memory region or window. Immutable after creation.
struct MemoryRegion {
    Key key{};
    Pdn pd{};
    MrType type = MrType::kGva;
    std::uint32_t access = 0;  ///< AccessFlag bits
    std::uint64_t base = 0;    ///< address of its first byte
    std::uint64_t length = 0;
    std::unique_ptr<DmaRegion> region;     ///< types 2 and 4
    std::shared_ptr<DeviceMemory> device;  ///< type 5
    std::uint64_t device_offset = 0;
};

/// Keys to regions: (index << 8) + tag, the tag changes when an index is used again. Changed on the
/// executor under an exclusion of the Gate; `resolve` also during a visit. No lock and no
/// allocation on the data path.
class MemoryTable {
public:
    MemoryTable(const base::GuestMemory& memory, std::uint32_t max_entries);

    /// Fills in `key`. kExhausted when the table is full.
    base::Result<Key> insert(MemoryRegion region);
    base::Result<void> remove(Key key);
    void clear();
    [[nodiscard]] const MemoryRegion* find(Key key) const;
    [[nodiscard]] std::size_t size() const { return used_; }
    [[nodiscard]] bool full() const { return used_ >= max_entries_; }

    /// Host memory of `[address, address + length)` under `key`, appended to `out`. All of `need`
    /// must be granted. Length 0 needs no key. On a fault `out` is as it was.
    [[nodiscard]] MrFault resolve(Key key, Pdn pd, std::uint64_t address, std::uint64_t length,
                                  std::uint32_t need, SpanList& out) const;
    /// True if any region belongs to `pd`.
    [[nodiscard]] bool pd_in_use(Pdn pd) const;

private:
    struct Slot {
        std::unique_ptr<MemoryRegion> region;
        std::uint32_t next_free = 0;
        std::uint8_t tag = 0;
    };
    const base::GuestMemory& memory_;
    const std::uint32_t max_entries_;
    std::vector<Slot> slots_;      // index 0 is never used: a key is not zero
    std::uint32_t free_head_ = 0;  // oldest free index, so that keys come back late; 0: none
    std::uint32_t free_tail_ = 0;
    std::size_t used_ = 0;
    std::uint8_t first_tag_ = 0;         // of indices never used since the last clear()
    std::vector<std::uint32_t> per_pd_;  // regions by PD id
};

}  // namespace openmana::gdma
