// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace openmana::gdma {

/// A piece of device memory as ALLOC_DM hands it out.
struct DevicePiece {
    std::uint64_t offset = 0;      ///< in the memory of the NIC
    std::span<std::byte> bytes{};  ///< as many as were asked for
};

/// The memory on a NIC: a file without a name, so that the client can map it into the guest. What
/// is in it the guest may change at any time, as in its own memory. Changed on the executor, under
/// an exclusion of the Gate.
///
/// Pieces start at a page and own whole pages, so that a guest's process can map its own alone. A
/// piece is all zeros when it is handed out.
class DeviceMemory {
public:
    static constexpr std::uint64_t kPage = 4096;

    /// Costs nothing before the first use. `size` is rounded up to a power of two of pages.
    explicit DeviceMemory(std::uint64_t size);
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    [[nodiscard]] std::uint64_t size() const { return size_; }
    [[nodiscard]] std::uint64_t used() const { return used_; }  ///< bytes of pages handed out
    /// kExhausted if there is no such stretch of free pages, or the system has no memory.
    base::Result<DevicePiece> allocate(std::uint64_t bytes, unsigned log2_alignment);
    /// Of a piece that nobody uses any more.
    void free(const DevicePiece& piece);
    /// All is free again.
    void reset();
    /// As reset, and whoever has the file keeps the old one.
    void renew();

    /// The file, or -1 if the system has none; it belongs to the object, until it is renewed.
    [[nodiscard]] int file();
    /// All of it, empty if there is no file.
    [[nodiscard]] std::span<std::byte> bytes();

private:
    base::Result<void> open();
    void close();
    void clear(std::uint64_t offset, std::uint64_t length);

    const std::uint64_t size_;
    std::uint64_t used_ = 0;
    std::vector<bool> taken_;  // by page; empty as long as nothing was allocated
    base::UniqueFd file_;
    std::byte* memory_ = nullptr;
};

}  // namespace openmana::gdma
