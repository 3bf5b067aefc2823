// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/memory_loss.h"
#include "base/result.h"

namespace openmana::base {

/// Keeps the process alive when memory that a client has lent goes away: an access past the end of
/// a file that it has shrunk, to a page for which its tmpfs has no room, or to broken memory raises
/// SIGBUS. In a registered range the lost page and those around it are then replaced by zeros,
/// private to this process, and the access goes on; the range's owner is told, and has to end its
/// use. Anywhere else SIGBUS ends the process as ever.
///
/// mmap holds up every thread of the process, so the first access replaces no more than 2 MiB or
/// one huge page; each later one in the same range twice as much as the one before, so that no
/// range is cut into more than some dozens of mappings, of which the system gives a process a
/// limited number.
///
/// The table is shared by all threads, and takes a lock for a few steps; the signal handler, which
/// reads it, takes none.
class BusGuard {
public:
    static constexpr std::uint64_t kPage = 4096;

    struct Range {
        const void* start = nullptr;  ///< whole pages
        std::size_t length = 0;
        std::uint64_t page = kPage;  ///< of the mapping; a part of a huge page cannot be replaced
    };

    /// Catches SIGBUS from now on. Once, before threads start.
    static Result<void> install();
    /// Ranges of the process, of which each takes a mapping.
    static constexpr std::size_t kMaxRanges = 65536;
    /// Where it is in the table; nothing if that is full. `loss`, if any, is told of each
    /// replacement.
    [[nodiscard]] static std::optional<std::uint32_t> add(const Range& range, MemoryLoss* loss);
    /// Nobody accesses the range any more.
    static void remove(std::uint32_t place);
    /// Replacements since the start.
    [[nodiscard]] static std::uint64_t losses();
};

/// What a loss at `address`, which lies in the range, replaces: `step` bytes at a multiple of
/// `step`, as far as they lie in the range. `step` is a power of two and no less than a page.
struct LostPiece {
    std::uintptr_t start = 0;
    std::size_t length = 0;
};
[[nodiscard]] LostPiece lost_piece(std::uintptr_t start, std::size_t length, std::uintptr_t address,
                                   std::size_t step);

}  // namespace openmana::base
