// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "base/endian.h"
#include "base/guest_memory.h"
#include "base/result.h"

namespace openmana::test {

/// Guest memory for tests: zeroed, at one bus address range, with an allocator of 4 KiB pages.
class GuestRam {
public:
    static constexpr std::uint64_t kPage = 4096;

    /// With an fd: its memory, shared, from its start on.
    explicit GuestRam(base::GuestMemory& memory, std::uint64_t bytes = 64ULL << 20,
                      base::GuestAddr start = base::GuestAddr(0x1'0000'0000ULL), int fd = -1)
        : memory_(memory), bytes_(bytes), start_(start), next_(start.value()) {
        // Anonymous memory: a big RAM costs only what a test touches.
        void* host =
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, fd, 0);
        OM_CHECK(host != MAP_FAILED);
        host_ = static_cast<std::byte*>(host);
        OM_CHECK(memory.map_host(start, {host_, bytes_}).has_value());
    }
    ~GuestRam() {
        (void)memory_.unmap(start_, bytes_);
        ::munmap(host_, bytes_);
    }
    GuestRam(const GuestRam&) = delete;
    GuestRam& operator=(const GuestRam&) = delete;

    /// What was in memory of one file is in that of another from now on, which has the same bytes:
    /// where the host sees it stays.
    void move_to(int fd) {
        void* const host =
            ::mmap(host_, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
        OM_CHECK(host == host_);
    }

    [[nodiscard]] base::GuestMemory& memory() { return memory_; }
    [[nodiscard]] base::GuestAddr start() const { return start_; }
    [[nodiscard]] std::uint64_t size() const { return bytes_; }

    /// Zeroed, page aligned, contiguous; rounded up to pages.
    base::GuestAddr alloc(std::uint64_t length) {
        const std::uint64_t need = round(length);
        auto& pool = free_[need];
        std::uint64_t address = 0;
        if (!pool.empty()) {
            address = pool.back();
            pool.pop_back();
        } else {
            OM_CHECK(need <= start_.value() + bytes_ - next_);
            address = next_;
            next_ += need;
        }
        std::memset(at(base::GuestAddr(address)), 0, need);
        return base::GuestAddr(address);
    }
    void free(base::GuestAddr address, std::uint64_t length) {
        free_[round(length)].push_back(address.value());
    }
    /// Takes everything back.
    void free_all() {
        next_ = start_.value();
        free_.clear();
    }
    /// `count` pages of which no two neighbours follow each other in memory.
    std::vector<std::uint64_t> alloc_scattered(std::size_t count) {
        std::vector<std::uint64_t> pages;
        for (std::size_t i = 0; i < count; ++i) pages.push_back(alloc(2 * kPage).value());
        std::reverse(pages.begin(), pages.end());
        return pages;
    }

    [[nodiscard]] std::byte* at(base::GuestAddr address) {
        OM_CHECK(address >= start_ && address.value() - start_.value() < bytes_);
        return host_ + (address.value() - start_.value());
    }
    [[nodiscard]] std::span<std::byte> bytes(base::GuestAddr address, std::uint64_t length) {
        OM_CHECK(length <= bytes_ && address.value() - start_.value() <= bytes_ - length);
        return {at(address), length};
    }
    template <typename T>
    [[nodiscard]] T read(base::GuestAddr address) {
        return base::load_le<T>(bytes(address, sizeof(T)).data());
    }
    template <typename T>
    void write(base::GuestAddr address, T value) {
        base::store_le<T>(bytes(address, sizeof(T)).data(), value);
    }

private:
    static std::uint64_t round(std::uint64_t length) {
        return std::max<std::uint64_t>((length + kPage - 1) / kPage * kPage, kPage);
    }
    base::GuestMemory& memory_;
    const std::uint64_t bytes_;
    const base::GuestAddr start_;
    std::uint64_t next_;
    std::byte* host_ = nullptr;
    std::map<std::uint64_t, std::vector<std::uint64_t>> free_;
};

}  // namespace openmana::test
