// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spdlog/spdlog.h>

namespace openmana::base {

/// Sends log lines to stderr with a time stamp; `level` as spdlog names them (trace, debug, info, warn, error, off).
void log_to_stderr(spdlog::level::level_enum level);

}  // namespace openmana::base

// One event a line, `object verb: key=value ...`, no newline and no full stop.
#define OM_TRACE(...) SPDLOG_TRACE(__VA_ARGS__)
#define OM_DEBUG(...) SPDLOG_DEBUG(__VA_ARGS__)
#define OM_INFO(...) SPDLOG_INFO(__VA_ARGS__)
#define OM_WARN(...) SPDLOG_WARN(__VA_ARGS__)
#define OM_ERROR(...) SPDLOG_ERROR(__VA_ARGS__)
