// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace openmana::base {

/// Keeps the process alive when a client shrinks the file behind memory that it has lent: an access
/// past the end of the file raises SIGBUS. In a registered range the lost page is then replaced by
/// zeros, private to this process, and the access goes on; anywhere else SIGBUS ends the process as
/// ever. Pages of hugetlbfs cannot be replaced so.
///
/// The table is shared by all threads and read in the signal handler; it takes no lock.
class BusGuard {
public:
    /// Catches SIGBUS from now on. Once, before threads start.
    static Result<void> install();
    /// False if the table is full.
    [[nodiscard]] static bool add(const void* start, std::size_t length);
    static void remove(const void* start);
    /// Pages replaced since the start.
    [[nodiscard]] static std::uint64_t lost_pages();
};

}  // namespace openmana::base
