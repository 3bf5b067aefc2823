// SPDX-License-Identifier: Apache-2.0
#include "gdma/device_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace openmana::gdma {

using base::ErrorCode;
using base::fail;
using base::Result;
using base::UniqueFd;

DeviceMemory::DeviceMemory(std::uint64_t size) : size_(std::bit_ceil(std::max(size, kPage))) {}

DeviceMemory::~DeviceMemory() {
    close();
}

Result<void> DeviceMemory::open() {
    if (memory_ != nullptr) return {};
    UniqueFd file(::memfd_create("openmana-device-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    // The client gets the file: it must not be able to take pages away from under our mapping.
    if (!file || ::ftruncate(file.get(), static_cast<off_t>(size_)) < 0 ||
        ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return fail(ErrorCode::kExhausted, "no file for device memory",
                    static_cast<unsigned>(errno));
    void* const memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED)
        return fail(ErrorCode::kExhausted, "cannot map device memory",
                    static_cast<unsigned>(errno));
    memory_ = static_cast<std::byte*>(memory);
    file_ = std::move(file);
    return {};
}

void DeviceMemory::close() {
    if (memory_ != nullptr) ::munmap(memory_, size_);
    memory_ = nullptr;
    file_.reset();
}

int DeviceMemory::file() {
    return open() ? file_.get() : -1;
}

std::span<std::byte> DeviceMemory::bytes() {
    if (!open()) return {};
    return {memory_, size_};
}

/// A hole reads as zeros and costs the host nothing.
void DeviceMemory::clear(std::uint64_t offset, std::uint64_t length) {
    if (::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(offset), static_cast<off_t>(length)) < 0)
        std::memset(memory_ + offset, 0, length);
}

Result<DevicePiece> DeviceMemory::allocate(std::uint64_t bytes, unsigned log2_alignment) {
    if (bytes == 0 || log2_alignment >= 64)
        return fail(ErrorCode::kInvalidArgument, "no such device memory", bytes, log2_alignment);
    if (bytes > size_ - used_)
        return fail(ErrorCode::kExhausted, "device memory is full", bytes, used_);
    TRY_VOID(open());
    if (taken_.empty()) taken_.resize(size_ / kPage);
    const std::uint64_t pages = (bytes + kPage - 1) / kPage;
    const std::uint64_t step = std::max(std::uint64_t{1} << log2_alignment, kPage) / kPage;
    std::uint64_t first = 0;
    while (first < taken_.size() && pages <= taken_.size() - first) {
        std::uint64_t in = 0;
        while (in < pages && !taken_[first + in]) ++in;
        if (in == pages) {
            const auto begin = taken_.begin() + static_cast<std::ptrdiff_t>(first);
            std::fill(begin, begin + static_cast<std::ptrdiff_t>(pages), true);
            used_ += pages * kPage;
            // A guest's process may have had it mapped when the function was reset.
            clear(first * kPage, pages * kPage);
            return DevicePiece{first * kPage, {memory_ + first * kPage, bytes}};
        }
        // The first aligned page behind the one that is taken.
        const std::uint64_t skip = (first + in) / step + 1;
        if (skip > taken_.size() / step) break;
        first = skip * step;
    }
    return fail(ErrorCode::kExhausted, "no stretch of device memory is long enough", bytes, used_);
}

void DeviceMemory::free(const DevicePiece& piece) {
    const std::uint64_t pages = (piece.bytes.size() + kPage - 1) / kPage;
    const auto begin = taken_.begin() + static_cast<std::ptrdiff_t>(piece.offset / kPage);
    std::fill(begin, begin + static_cast<std::ptrdiff_t>(pages), false);
    used_ -= pages * kPage;
    clear(piece.offset, pages * kPage);
}

void DeviceMemory::reset() {
    used_ = 0;
    taken_.clear();
    // Not only what was taken: the guest can write everywhere.
    if (memory_ != nullptr) clear(0, size_);
}

void DeviceMemory::renew() {
    used_ = 0;
    taken_.clear();
    close();
}

}  // namespace openmana::gdma
