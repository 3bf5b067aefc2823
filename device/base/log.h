// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <optional>
#include <string_view>
#include <utility>

namespace openmana::base {

/// How much a line matters, least first; kOff is above all of them.
enum class LogLevel : int { kTrace, kDebug, kInfo, kWarn, kError, kOff };

/// The level of a name: trace, debug, info, warn, error, off.
[[nodiscard]] std::optional<LogLevel> log_level_of(std::string_view name);

/// Sends log lines of `level` and above to stderr with a time stamp. Before threads start.
void log_to_stderr(LogLevel level);
/// Lines below `level` are not written any more. Any thread.
void set_log_level(LogLevel level);

namespace detail {

inline std::atomic<LogLevel> log_threshold{LogLevel::kInfo};

/// Writes one line. Here, and not in the template, so that only log.cc sees the logging library.
void write_log(LogLevel level, fmt::string_view format, fmt::format_args arguments);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... arguments) {
    if (level >= log_threshold.load(std::memory_order_relaxed)) [[unlikely]]
        write_log(level, format, fmt::make_format_args(arguments...));
}

}  // namespace detail
}  // namespace openmana::base

// One event a line, `object verb: key=value ...`, no newline and no full stop. Any thread.
#define OM_TRACE(...) ::openmana::base::detail::log(::openmana::base::LogLevel::kTrace, __VA_ARGS__)
#define OM_DEBUG(...) ::openmana::base::detail::log(::openmana::base::LogLevel::kDebug, __VA_ARGS__)
#define OM_INFO(...) ::openmana::base::detail::log(::openmana::base::LogLevel::kInfo, __VA_ARGS__)
#define OM_WARN(...) ::openmana::base::detail::log(::openmana::base::LogLevel::kWarn, __VA_ARGS__)
#define OM_ERROR(...) ::openmana::base::detail::log(::openmana::base::LogLevel::kError, __VA_ARGS__)
