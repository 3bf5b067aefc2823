// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <cstdint>

#include "base/result.h"

namespace openmana::base {

/// Bits that nobody can know, from the system.
[[nodiscard]] inline Result<std::uint64_t> random_seed() {
    std::uint64_t seed = 0;
    // So few come whole, once the system has any at all.
    if (::getrandom(&seed, sizeof seed, 0) != static_cast<ssize_t>(sizeof seed))
        return fail(ErrorCode::kIo, "the system gives no random bits",
                    static_cast<unsigned>(errno));
    return seed;
}

}  // namespace openmana::base
