// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

namespace openmana::base {

/// How lines of the log are written.
enum class LogFormat {
    kText,     ///< with a time stamp
    kJson,     ///< an object a line, for a collector of logs
    kJournal,  ///< to systemd's journal, with fields to search by
    kAuto,     ///< to the journal if stderr leads there, else text
};
[[nodiscard]] std::optional<LogFormat> log_format_of(std::string_view name);

/// From now on lines go to stderr in this format, or to the journal by its socket; what the journal
/// does not take goes to stderr. Before threads start.
void log_as(LogFormat format, const char* journal = "/run/systemd/journal/socket");

}  // namespace openmana::base
