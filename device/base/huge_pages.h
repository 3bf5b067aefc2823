// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace openmana::base {

/// Allocates for a container that is looked up at random places. From some size on its memory is in
/// huge pages, if the system has them: else each look-up costs a walk of the page tables, which are
/// in no cache either.
template <typename T>
struct HugePageAllocator {
    using value_type = T;
    static constexpr std::size_t kPage = std::size_t{2} << 20;

    HugePageAllocator() = default;
    template <typename U>
    HugePageAllocator(const HugePageAllocator<U>&) {}

    [[nodiscard]] T* allocate(std::size_t count) {
        const std::size_t bytes = count * sizeof(T);
        void* const memory = ::operator new(bytes, alignment(bytes));
        // Advice only: small pages serve as well.
        if (bytes >= kPage) (void)::madvise(memory, bytes / kPage * kPage, MADV_HUGEPAGE);
        return static_cast<T*>(memory);
    }
    void deallocate(T* memory, std::size_t count) {
        ::operator delete(memory, alignment(count * sizeof(T)));
    }
    friend bool operator==(const HugePageAllocator&, const HugePageAllocator&) { return true; }

private:
    static std::align_val_t alignment(std::size_t bytes) {
        return std::align_val_t{bytes >= kPage ? kPage : alignof(T)};
    }
};

}  // namespace openmana::base
