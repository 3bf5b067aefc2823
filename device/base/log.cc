// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/log_line.h"
#include "base/log_output.h"

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

/// Where lines go, if not as text to stderr.
struct Output {
    bool json = false;
    UniqueFd journal;
    sockaddr_un address{};
    socklen_t address_size = 0;

    void open(const char* path) {
        const std::size_t length = std::strlen(path);
        if (length >= sizeof address.sun_path) return;
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path, length + 1);
        address_size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length + 1);
        journal = UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    }
    /// False: it is to go to stderr as text. By an address each time: the journal may be another by
    /// now.
    [[nodiscard]] bool write(LogLevel level, std::string_view text) {
        if (json) {
            const std::string line = in_json(level, std::chrono::system_clock::now(), text);
            // At once, so that lines of several threads stay whole; no place is left to say that it
            // failed.
            (void)!::write(STDERR_FILENO, line.data(), line.size());
            return true;
        }
        if (!journal) return false;
        const std::string fields = in_journal(level, program_invocation_short_name, text);
        return ::sendto(journal.get(), fields.data(), fields.size(), MSG_NOSIGNAL,
                        reinterpret_cast<const sockaddr*>(&address), address_size) >= 0;
    }
};

Output& output() {
    static Output the_one;
    return the_one;
}

/// As its manager says to a service: JOURNAL_STREAM is device and inode of what it has for stderr.
bool stderr_is_journal() {
    const char* const stream = std::getenv("JOURNAL_STREAM");
    struct stat file {};
    return stream != nullptr && ::fstat(STDERR_FILENO, &file) == 0 &&
           fmt::format("{}:{}", file.st_dev, file.st_ino) == stream;
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

std::optional<LogFormat> log_format_of(std::string_view name) {
    constexpr std::array<std::string_view, 4> kNames{"text", "json", "journal", "auto"};
    for (std::size_t i = 0; i < kNames.size(); ++i)
        if (kNames[i] == name) return static_cast<LogFormat>(i);
    return std::nullopt;
}

void log_as(LogFormat format, const char* journal) {
    if (format == LogFormat::kAuto)
        format = stderr_is_journal() ? LogFormat::kJournal : LogFormat::kText;
    output() = {};
    if (format == LogFormat::kJournal) output().open(journal);
    output().json = format == LogFormat::kJson;
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
    if (output().write(level, {line.data(), line.size()})) return;
    spdlog::default_logger_raw()->log(in_spdlog(level), fmt::string_view(line.data(), line.size()));
}

}  // namespace openmana::base
