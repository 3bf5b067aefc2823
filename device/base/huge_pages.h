// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

#include "base/hold_meter.h"

namespace openmana::base {

/// Allocates for a container that is looked up at random places. From half a huge page on its
/// memory is in such, and so many whole ones, if the system has them: else each look-up costs a
/// walk of the page tables, which are in no cache either.
template <typename T>
struct HugePageAllocator {
    using value_type = T;
    static constexpr std::size_t kPage = std::size_t{2} << 20;

    HugePageAllocator() = default;
    template <typename U>
    HugePageAllocator(const HugePageAllocator<U>&) {}

    /// What so many take.
    [[nodiscard]] static constexpr std::size_t bytes(std::size_t count) {
        const std::size_t least = count * sizeof(T);
        return least < kLeast ? least : (least + kPage - 1) / kPage * kPage;
    }
    [[nodiscard]] T* allocate(std::size_t count) {
        const std::size_t whole = bytes(count);
        if (whole < kLeast)
            return static_cast<T*>(::operator new (whole, std::align_val_t{alignof(T)}));
        void* const memory = ::operator new (whole, std::align_val_t{kPage});
        // Advice only: small pages serve as well.
        (void)::madvise(memory, whole, MADV_HUGEPAGE);
        return static_cast<T*>(memory);
    }
    void deallocate(T* memory, std::size_t count) {
        count_work(count * sizeof(T) / kSmallPage);
        ::operator delete (memory,
                           std::align_val_t{count * sizeof(T) < kLeast ? alignof(T) : kPage});
    }
    friend bool operator==(const HugePageAllocator&, const HugePageAllocator&) { return true; }

private:
    static constexpr std::size_t kLeast = kPage / 2;
    static constexpr std::size_t kSmallPage = 4096;
};

}  // namespace openmana::base
