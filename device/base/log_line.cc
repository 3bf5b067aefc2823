// SPDX-License-Identifier: Apache-2.0
#include "base/log_line.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

namespace openmana::base {
namespace {

bool is_key_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

/// The key that `text` begins with, if '=' follows it; else nothing.
std::string_view key_at(std::string_view text) {
    const auto end = std::ranges::find_if_not(text, is_key_letter);
    const auto length = static_cast<std::size_t>(end - text.begin());
    return length > 0 && length < text.size() && text[length] == '=' ? text.substr(0, length)
                                                                     : std::string_view();
}

/// The value that `text` begins with, and how much of it that is. One in quotes ends where a quote
/// is the end of a word.
std::pair<std::string_view, std::size_t> value_at(std::string_view text) {
    if (text.starts_with('"')) {
        const std::size_t end = std::min(text.find("\" ", 1), text.rfind('"'));
        if (end > 0 && end != std::string_view::npos) return {text.substr(1, end - 1), end + 1};
    }
    const std::size_t end = std::min(text.find(' '), text.size());
    return {text.substr(0, end), end};
}

/// With a newline in the value its length stands before it.
void add_field(std::string& to, std::string_view name, std::string_view value) {
    to += name;
    if (value.find('\n') == std::string_view::npos) {
        to += '=';
    } else {
        to += '\n';
        for (unsigned i = 0; i < 8; ++i)
            to += static_cast<char>(std::uint64_t{value.size()} >> (8 * i) & 0xff);
    }
    to += value;
    to += '\n';
}

std::string_view name_of(LogLevel level) {
    constexpr std::array<std::string_view, 6> kNames{"trace", "debug", "info",
                                                     "warn",  "error", "off"};
    return kNames[static_cast<std::size_t>(level)];
}

/// As syslog counts.
char priority_of(LogLevel level) {
    switch (level) {
        case LogLevel::kError:
            return '3';
        case LogLevel::kWarn:
            return '4';
        case LogLevel::kInfo:
            return '6';
        default:
            return '7';
    }
}

}  // namespace

LogLine LogLine::of(std::string_view text) {
    LogLine line;
    const std::size_t colon = text.find(": ");
    if (colon != std::string_view::npos &&
        text.substr(0, colon).find_first_of("=\"") == std::string_view::npos) {
        line.event = text.substr(0, colon);
        text.remove_prefix(colon + 2);
    }
    while (!text.empty()) {
        if (const std::string_view key = key_at(text); !key.empty()) {
            text.remove_prefix(key.size() + 1);
            const auto [value, size] = value_at(text);
            line.fields.emplace_back(key, value);
            text.remove_prefix(size);
        }
        text.remove_prefix(std::min(text.find(' '), text.size()));
        text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    }
    return line;
}

std::string in_json(LogLevel level, std::chrono::system_clock::time_point time,
                    std::string_view text) {
    const LogLine line = LogLine::of(text);
    const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
    const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(time - seconds);
    nlohmann::ordered_json object;
    object["time"] =
        fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                    fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), millis.count());
    object["level"] = name_of(level);
    if (!line.event.empty()) object["event"] = line.event;
    auto& fields = object["fields"] = nlohmann::ordered_json::object();
    for (const auto& [key, value] : line.fields) fields[std::string(key)] = value;
    object["message"] = text;
    // What a guest or a file named need not be UTF-8, but JSON has to be.
    return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

std::string in_journal(LogLevel level, std::string_view program, std::string_view text) {
    const LogLine line = LogLine::of(text);
    std::string result;
    add_field(result, "MESSAGE", text);
    add_field(result, "PRIORITY", std::string(1, priority_of(level)));
    add_field(result, "SYSLOG_IDENTIFIER", program);
    if (!line.event.empty()) add_field(result, "OPENMANA_EVENT", line.event);
    for (const auto& [key, value] : line.fields) {
        std::string name = "OPENMANA_";
        std::ranges::transform(key, std::back_inserter(name), [](char c) {
            return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
        });
        add_field(result, name, value);
    }
    return result;
}

}  // namespace openmana::base
