// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <iterator>
#include <memory>

namespace openmana::base {
namespace {

spdlog::level::level_enum in_spdlog(LogLevel level) {
    switch (level) {
        case LogLevel::kTrace:
            return spdlog::level::trace;
        case LogLevel::kDebug:
            return spdlog::level::debug;
        case LogLevel::kInfo:
            return spdlog::level::info;
        case LogLevel::kWarn:
            return spdlog::level::warn;
        case LogLevel::kError:
            return spdlog::level::err;
        case LogLevel::kOff:
            break;
    }
    return spdlog::level::off;
}

}  // namespace

std::optional<LogLevel> log_level_of(std::string_view name) {
    constexpr std::array<std::string_view, 6> kNames{"trace", "debug", "info",
                                                     "warn",  "error", "off"};
    for (std::size_t i = 0; i < kNames.size(); ++i)
        if (kNames[i] == name) return static_cast<LogLevel>(i);
    return std::nullopt;
}

void set_log_level(LogLevel level) {
    detail::log_threshold.store(level, std::memory_order_relaxed);
    spdlog::set_level(in_spdlog(level));
}

void log_to_stderr(LogLevel level) {
    auto logger = std::make_shared<spdlog::logger>(
        "openmana", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
    logger->flush_on(spdlog::level::debug);
    spdlog::set_default_logger(std::move(logger));
    set_log_level(level);
}

void detail::write_log(LogLevel level, fmt::string_view format, fmt::format_args arguments) {
    fmt::memory_buffer line;
    fmt::vformat_to(std::back_inserter(line), format, arguments);
    spdlog::default_logger_raw()->log(in_spdlog(level), fmt::string_view(line.data(), line.size()));
}

}  // namespace openmana::base
