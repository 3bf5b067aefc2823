// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <malloc.h>

#include <cstddef>

namespace openmana::base {

/// What this process has allocated and not given back, of all threads; 0 under sanitizers, which
/// have an allocator of their own.
[[nodiscard]] inline std::size_t heap_bytes() {
    const struct mallinfo2 info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
}

}  // namespace openmana::base
