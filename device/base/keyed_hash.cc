// SPDX-License-Identifier: Apache-2.0
#include "base/keyed_hash.h"

#include <sys/random.h>
#include <sys/types.h>

#include "base/result.h"

namespace openmana::base {

const std::array<std::uint64_t, 2>& process_hash_key() {
    static const std::array<std::uint64_t, 2> key = [] {
        std::array<std::uint64_t, 2> drawn{};
        // So few bytes come whole, and always once the system has booted.
        const ssize_t bytes = ::getrandom(drawn.data(), sizeof drawn, 0);
        OM_CHECK(bytes == ssize_t{sizeof drawn});
        return drawn;
    }();
    return key;
}

}  // namespace openmana::base
