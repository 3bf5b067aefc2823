// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fd.h"
#include "base/result.h"

namespace openmana::manad {

/// Has SIGTERM and SIGINT wait in the descriptor that is given (a signalfd, non-blocking), and
/// makes signals that report a failed write harmless: the write fails with EPIPE (SIGPIPE) or EFBIG
/// (SIGXFSZ, a file that reaches RLIMIT_FSIZE) anyway. Before any thread starts, so that all of
/// them leave the signals to the descriptor.
base::Result<base::UniqueFd> prepare_signals();

}  // namespace openmana::manad
