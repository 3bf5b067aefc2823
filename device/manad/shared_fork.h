// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace openmana::manad {

/// As fork(), but the child shares the descriptors: what one of both opens or closes, the other has
/// and has not. `signal` is what the parent gets at its end; with 0 it is not told. Where other
/// threads run, the child makes system calls alone.
[[nodiscard]] pid_t fork_sharing_descriptors(int signal);

}  // namespace openmana::manad
