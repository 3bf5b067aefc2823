// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "base/clock.h"
#include "base/result.h"
#include "manad/ledger.h"

namespace openmana::manad {

/// How often processes may end before they count as ones that cannot serve.
struct CrashLimit {
    std::size_t ends = 5;
    base::Duration within = std::chrono::seconds(60);
};

/// Makes this process the monitor of one that serves, and of the next one when that has ended by a
/// signal or an error. Returns in each that is to serve: how many there were, with this one. The
/// monitor itself ends here, as its last process did.
///
/// All of them have the same table of descriptors: whatever one opens or is sent, the monitor has
/// at that moment, and so has the next. Before there are threads. SIGTERM, SIGINT and SIGHUP that
/// the monitor gets are passed on; when it ends, so does the one that serves.
base::Result<unsigned> start_monitor(const Ledger& ledger, CrashLimit limit = {});

}  // namespace openmana::manad
