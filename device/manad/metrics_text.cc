// SPDX-License-Identifier: Apache-2.0
#include "manad/metrics_text.h"

#include <fmt/format.h>

namespace openmana::manad {
namespace {

/// As the value of a label is written, and, but for `quotes` in the older format, an explanation.
std::string escaped(std::string_view text, bool quotes = true) {
    std::string result;
    for (const char c : text) {
        if (c == '\\' || (c == '"' && quotes)) result += '\\';
        if (c == '\n')
            result += "\\n";
        else
            result += c;
    }
    return result;
}

}  // namespace

std::string MetricsText::name_of(std::string_view counter) {
    constexpr std::string_view kOwn = "manad.";
    if (counter.starts_with(kOwn)) counter.remove_prefix(kOwn.size());
    std::string name = "manad_";
    for (const char c : counter) name += c == '.' ? '_' : c;
    return name;
}

void MetricsText::add(std::string_view name, Type type, std::string_view help, Labels labels,
                      double value) {
    add_text(name, type, help, labels, fmt::format("{}", value));
}

void MetricsText::add(std::string_view name, Type type, std::string_view help, Labels labels,
                      std::uint64_t value) {
    add_text(name, type, help, labels, fmt::format("{}", value));
}

void MetricsText::add_text(std::string_view name, Type type, std::string_view help, Labels labels,
                           std::string value) {
    auto family = families_.find(name);
    if (family == families_.end())
        family = families_.emplace(std::string(name), Family{type, std::string(help), {}}).first;
    std::string text;
    for (const auto& [label, of] : labels)
        text += fmt::format("{}{}=\"{}\"", text.empty() ? "{" : ",", label, escaped(of));
    if (!text.empty()) text += '}';
    family->second.samples.emplace_back(std::move(text), std::move(value));
}

std::string MetricsText::write(bool open) const {
    std::string text;
    for (const auto& [name, family] : families_) {
        const bool counter = family.type == Type::kCounter;
        const std::string sample = counter ? name + "_total" : name;
        const std::string& head = open ? name : sample;
        text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", head, escaped(family.help, open), head,
                            counter ? "counter" : "gauge");
        for (const auto& [labels, value] : family.samples)
            text += fmt::format("{}{} {}\n", sample, labels, value);
    }
    if (open) text += "# EOF\n";
    return text;
}

}  // namespace openmana::manad
