// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace openmana::manad {

/// While it lives what is freed stays the process's, and large blocks come from the same heap: so
/// their pages are had from the system once. Of one thread's allocations; of the main thread, one
/// at a time.
class WarmHeap {
public:
    /// Has so many bytes' pages at once, as far as there are any.
    explicit WarmHeap(std::size_t bytes = 0);
    /// What is not used goes back.
    ~WarmHeap();
    WarmHeap(const WarmHeap&) = delete;
    WarmHeap& operator=(const WarmHeap&) = delete;
};

}  // namespace openmana::manad
