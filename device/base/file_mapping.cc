// SPDX-License-Identifier: Apache-2.0
#include "base/file_mapping.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/bus_guard.h"

namespace openmana::base {
namespace {

/// As much is unmapped at once: every thread's page faults wait meanwhile.
constexpr std::uint64_t kUnmapStep = 16U << 20;

/// The page size of a file of memory. Asks for nothing that a file system of the client's could
/// delay: only files of memory have seals, if only the one that forbids others.
Result<std::uint64_t> memory_page(const UniqueFd& fd) {
    const int seals = ::fcntl(fd.get(), F_GET_SEALS);
    if (seals < 0)
        return fail(ErrorCode::kUnsupported, "guest memory is neither memfd, tmpfs nor hugetlbfs",
                    static_cast<unsigned>(errno));
    // QEMU's memory-backend-memfd does it itself; others may let us. The guest needs all of its RAM
    // anyway.
    if ((seals & (F_SEAL_SEAL | F_SEAL_SHRINK)) == 0)
        (void)::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK);
    struct statfs system {};
    if (::fstatfs(fd.get(), &system) != 0)
        return fail(ErrorCode::kIo, "cannot examine the memory file", static_cast<unsigned>(errno));
    return system.f_type == HUGETLBFS_MAGIC ? static_cast<std::uint64_t>(system.f_bsize)
                                            : BusGuard::kPage;
}

}  // namespace

EnclosingPages enclosing_pages(std::uint64_t offset, std::uint64_t length, std::uint64_t page) {
    const std::uint64_t skip = offset & (page - 1);
    return {offset - skip, (skip + length + page - 1) & ~(page - 1), skip};
}

Result<FileMapping> FileMapping::create(const UniqueFd& fd, const Part& part, MemoryLoss* loss,
                                        std::uint64_t most) {
    TRY(const std::uint64_t page, memory_page(fd));
    if (!std::has_single_bit(page))
        return fail(ErrorCode::kUnsupported, "page size of the memory file", page);
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0)
        return fail(ErrorCode::kIo, "cannot examine the memory file", static_cast<unsigned>(errno));
    const auto size = static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0));
    // Accesses past the end of the file raise SIGBUS; the client may still shrink it: see BusGuard.
    if (part.length == 0 || part.length > size || part.offset > size - part.length)
        return fail(ErrorCode::kOutOfRange, "DMA map passes the end of its file", part.offset,
                    part.length);
    const EnclosingPages whole = enclosing_pages(part.offset, part.length, page);
    if (whole.length > most)
        return fail(ErrorCode::kExhausted, "DMA maps of too many bytes", whole.length, most);
    const int protection =
        (part.readable ? PROT_READ : 0) | (part.writable ? PROT_READ | PROT_WRITE : 0);
    void* pages = ::mmap(nullptr, whole.length, protection, MAP_SHARED, fd.get(),
                         static_cast<off_t>(whole.offset));
    if (pages == MAP_FAILED)
        return fail(ErrorCode::kIo, "cannot map guest memory", static_cast<unsigned>(errno));
    // Nobody should find a guest's secrets in a core dump, nor wait until all of it is written.
    (void)::madvise(pages, whole.length, MADV_DONTDUMP);
    const auto guard = BusGuard::add({pages, whole.length, page}, loss);
    if (!guard) {
        ::munmap(pages, whole.length);
        return fail(ErrorCode::kExhausted, "too many DMA maps in this process");
    }
    return FileMapping(static_cast<std::byte*>(pages), whole, page, *guard);
}

void FileMapping::swap(FileMapping& other) noexcept {
    std::swap(pages_, other.pages_);
    std::swap(length_, other.length_);
    std::swap(skip_, other.skip_);
    std::swap(page_, other.page_);
    std::swap(guard_, other.guard_);
}

void FileMapping::reset() {
    if (pages_ == nullptr) return;
    BusGuard::remove(guard_);
    const std::uint64_t step = std::max(kUnmapStep, page_);
    for (std::uint64_t done = 0; done < length_; done += step)
        ::munmap(pages_ + done, std::min(step, length_ - done));
    pages_ = nullptr;
}

}  // namespace openmana::base
