// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/guest_memory.h"
#include "base/memory_account.h"
#include "base/state.h"
#include "gdma/types.h"

namespace openmana::gdma {

/// A list of equal-size guest pages that describes a queue buffer or an MR (RNIC 2.3). Immutable
/// once complete.
class DmaRegion {
public:
    struct Extent {
        std::uint64_t offset;  ///< of its first byte in the region
        GuestAddr address;
        std::uint64_t length;
    };
    /// Neighbouring pages are merged, so that a contiguous buffer is one extent. `charge` pays for
    /// it.
    DmaRegion(std::uint64_t length, std::uint32_t first_offset, unsigned page_shift,
              std::span<const std::uint64_t> pages, base::MemoryAccount::Charge charge = {});
    ~DmaRegion();
    /// What one of these would cost.
    [[nodiscard]] static std::uint64_t cost(std::uint64_t length, std::uint32_t first_offset,
                                            unsigned page_shift,
                                            std::span<const std::uint64_t> pages);
    DmaRegion(const DmaRegion&) = delete;
    DmaRegion& operator=(const DmaRegion&) = delete;
    void save(base::StateWriter& out) const;
    /// Null if it is refused, or `account` does not pay for it.
    [[nodiscard]] static std::unique_ptr<DmaRegion> load(base::StateReader& in,
                                                         base::MemoryAccount& account);

    [[nodiscard]] std::uint64_t length() const { return length_; }
    [[nodiscard]] std::uint32_t first_offset() const { return first_offset_; }
    [[nodiscard]] const std::vector<Extent>& extents() const { return extents_; }
    /// Appends the host memory of `[offset, offset + length)`. False if outside, or if guest memory
    /// is missing; then what was appended is meaningless.
    [[nodiscard]] bool resolve(const base::GuestMemory& memory, std::uint64_t offset,
                               std::uint64_t length, base::Access access, SpanList& out) const;
    /// Calls `visit(address, length)`, which returns false to stop, for the pieces of `[offset,
    /// offset + length)`. False if outside or stopped.
    template <typename Visit>
    [[nodiscard]] bool walk(std::uint64_t offset, std::uint64_t length, Visit&& visit) const {
        if (length > length_ || offset > length_ - length) return false;
        if (length == 0) return true;
        auto extent = extents_.begin();
        if (extents_.size() > 1)
            extent = std::prev(std::upper_bound(
                extents_.begin(), extents_.end(), offset,
                [](std::uint64_t value, const Extent& other) { return value < other.offset; }));
        while (length != 0) {
            const std::uint64_t skip = offset - extent->offset;
            const std::uint64_t n = std::min(length, extent->length - skip);
            if (!visit(extent->address + skip, n)) return false;
            offset += n;
            length -= n;
            ++extent;
        }
        return true;
    }

private:
    DmaRegion() = default;
    std::uint64_t length_ = 0;
    std::uint32_t first_offset_ = 0;
    std::vector<Extent> extents_;
    base::MemoryAccount::Charge charge_;
};

/// A byte ring in guest memory over a region. Positions are running byte counters; the ring takes
/// them modulo its size. Every read copies; nothing is promised about what the guest writes
/// meanwhile.
class Ring {
public:
    /// `[offset, offset + bytes)` lies in the region; `bytes` need not be a power of two (user
    /// CQs).
    Ring(const base::GuestMemory& memory, std::shared_ptr<const DmaRegion> region,
         std::uint64_t bytes, std::uint64_t offset = 0);
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    [[nodiscard]] const DmaRegion& region() const { return *region_; }
    /// Where it is, if its region is in one piece.
    [[nodiscard]] const std::optional<GuestAddr>& start() const { return start_; }
    /// Copies out, wrapping at the end. False if the guest took the memory away.
    [[nodiscard]] bool read(std::uint64_t position, std::span<std::byte> target) const;
    /// A hint: `[position, position + length)` is read soon. The first part of it, since from there
    /// on the processor sees for itself where this leads.
    void prefetch(std::uint64_t position, std::uint64_t length) const;
    /// Writes one queue entry (16 or 64 bytes, does not wrap): all but its last word, then the last
    /// word with release order, since that word holds the owner bits. The region must be aligned to
    /// the entry size.
    [[nodiscard]] bool write_entry(std::uint64_t position, std::span<const std::byte> entry);

private:
    const base::GuestMemory* memory_;
    std::shared_ptr<const DmaRegion> region_;
    std::uint64_t bytes_;
    std::uint64_t offset_;
    /// Where it starts, if its region is in one piece: then nothing else is looked at.
    std::optional<GuestAddr> start_;
};

/// 32-bit words in guest memory that host and device both write: a doorbell record of an extended
/// queue. Any thread that is on the executor or visits the function.
class SharedWords {
public:
    static constexpr std::uint64_t kBytes = 64;

    /// `[offset, offset + kBytes)` lies in the region; both it and the region are aligned to
    /// kBytes.
    SharedWords(const base::GuestMemory& memory, std::shared_ptr<const DmaRegion> region,
                std::uint64_t offset);
    /// Acquire: pairs with the host's release. Null if the guest took the memory away.
    [[nodiscard]] std::optional<std::uint32_t> load(unsigned index) const;
    /// Release. Without memory nothing happens.
    void store(unsigned index, std::uint32_t value) const;

private:
    [[nodiscard]] std::uint32_t* words() const;
    void note_write() const;

    const base::GuestMemory& memory_;
    const std::shared_ptr<const DmaRegion> region_;
    const std::uint64_t offset_;
    // Where the words are, as long as the generation of the guest memory is the same. It changes
    // while nobody is here, so racing writers write the same values.
    mutable std::atomic<std::uint32_t*> words_{nullptr};
    mutable std::atomic<std::uint64_t> generation_{0};
};

}  // namespace openmana::gdma
