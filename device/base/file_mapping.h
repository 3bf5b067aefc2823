// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/fd.h"
#include "base/memory_loss.h"
#include "base/result.h"

namespace openmana::base {

/// The whole pages of a file around a part of it.
struct EnclosingPages {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::uint64_t skip = 0;  ///< from `offset` to the part
};
/// `page` is a power of two, and `[offset, offset + length)` lies in a file of whole pages.
[[nodiscard]] EnclosingPages enclosing_pages(std::uint64_t offset, std::uint64_t length,
                                             std::uint64_t page);

/// A part of a file of memory that a client has lent, mapped and guarded (BusGuard).
class FileMapping {
public:
    struct Part {
        std::uint64_t offset = 0;
        std::uint64_t length = 0;
        bool readable = false;
        bool writable = false;
    };

    FileMapping() = default;
    ~FileMapping() { reset(); }
    FileMapping(FileMapping&& other) noexcept { swap(other); }
    FileMapping& operator=(FileMapping&& other) noexcept {
        FileMapping taken(std::move(other));
        swap(taken);
        return *this;
    }
    FileMapping(const FileMapping&) = delete;
    FileMapping& operator=(const FileMapping&) = delete;

    /// Only files that are memory: memfd, tmpfs, hugetlbfs. A page fault on any other may wait for
    /// a disk, a network or, with FUSE, for the client itself. Keeps the file from shrinking where
    /// it can be sealed. `loss`, if any, is told when pages of the part go away, and outlives the
    /// mapping. kExhausted: with the pages around the part it is more than `most` bytes. Takes the
    /// fd only for the time of the call.
    static Result<FileMapping> create(const UniqueFd& fd, const Part& part, MemoryLoss* loss,
                                      std::uint64_t most = UINT64_MAX);

    [[nodiscard]] std::byte* data() const { return pages_ + skip_; }
    /// With the pages around the part.
    [[nodiscard]] std::uint64_t length() const { return pages_ == nullptr ? 0 : length_; }
    [[nodiscard]] explicit operator bool() const { return pages_ != nullptr; }

private:
    FileMapping(std::byte* pages, const EnclosingPages& enclosing, std::uint64_t page,
                std::uint32_t guard)
        : pages_(pages),
          length_(enclosing.length),
          skip_(enclosing.skip),
          page_(page),
          guard_(guard) {}
    void swap(FileMapping& other) noexcept;
    void reset();

    std::byte* pages_ = nullptr;
    std::uint64_t length_ = 0;
    std::uint64_t skip_ = 0;
    std::uint64_t page_ = 0;
    std::uint32_t guard_ = 0;  // BusGuard's name of it
};

}  // namespace openmana::base
