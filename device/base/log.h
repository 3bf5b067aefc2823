// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spdlog/spdlog.h>

namespace openmana::base {

/// Sends log lines to stderr with a time stamp; `level` as spdlog names them (trace, debug, info,
/// warn, error, off).
void log_to_stderr(spdlog::level::level_enum level);

}  // namespace openmana::base

// One event a line, `object verb: key=value ...`, no newline and no full stop.
#define OM_TRACE(...) ::spdlog::trace(__VA_ARGS__)
#define OM_DEBUG(...) ::spdlog::debug(__VA_ARGS__)
#define OM_INFO(...) ::spdlog::info(__VA_ARGS__)
#define OM_WARN(...) ::spdlog::warn(__VA_ARGS__)
#define OM_ERROR(...) ::spdlog::error(__VA_ARGS__)
