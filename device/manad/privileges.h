// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "manad/account.h"
#include "manad/options.h"

namespace openmana::manad {

/// How manad gives up its rights: `start_as` before it makes anything, `drop_privileges` when all
/// is made and before anybody is served. Both for the one thread that there is by then.

/// Capabilities (CAP_*) that sockets and uplinks take to be made and given to their owners. None
/// takes one to be used.
[[nodiscard]] std::vector<unsigned> capabilities_to_start(const Options& options);

/// Nothing that this process starts can have more rights than it has. With an account it becomes
/// that user, for good, and keeps these capabilities alone, as far as it had them; without one it
/// goes on as who it is.
base::Result<void> start_as(const std::optional<Account>& account,
                            const std::vector<unsigned>& capabilities);

/// Gives up all other capabilities.
base::Result<void> keep_rights(const std::vector<unsigned>& capabilities);

/// Gives up every capability. But who is still root, because no account was named, reaches the
/// files that it reached before (CAP_DAC_OVERRIDE), and is warned.
base::Result<void> drop_privileges();

}  // namespace openmana::manad
