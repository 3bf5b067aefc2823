// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"

namespace openmana::base {

/// A line of the log by its parts: `event: key=value key="more words"`.
struct LogLine {
    std::string_view event;  ///< empty: the line has none
    std::vector<std::pair<std::string_view, std::string_view>> fields;

    /// Views of `text`. What is neither is left to the text.
    [[nodiscard]] static LogLine of(std::string_view text);
};

/// One JSON object, with a newline: time, level, event, fields, and the whole as message. Bytes
/// that are not UTF-8 become U+FFFD; of two fields of one name the last one is told.
[[nodiscard]] std::string in_json(LogLevel level, std::chrono::system_clock::time_point time,
                                  std::string_view text);

/// A datagram for the socket of systemd's journal: MESSAGE, PRIORITY, SYSLOG_IDENTIFIER, and event
/// and fields as OPENMANA_EVENT, OPENMANA_NIC and so on.
[[nodiscard]] std::string in_journal(LogLevel level, std::string_view program,
                                     std::string_view text);

}  // namespace openmana::base
