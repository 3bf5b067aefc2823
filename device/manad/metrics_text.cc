// SPDX-License-Identifier: Apache-2.0
#include "manad/metrics_text.h"

#include <fmt/format.h>

#include <iterator>

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

std::string labels_text(const MetricsText::Labels& labels) {
    std::string text;
    for (const auto& [label, of] : labels)
        fmt::format_to(std::back_inserter(text), "{}{}=\"{}\"", text.empty() ? "" : ",", label,
                       escaped(of));
    return text;
}

std::string in_braces(const std::string& labels) {
    return labels.empty() ? "" : "{" + labels + "}";
}

/// The end of a bucket is the same text in both formats, as the newer one wants it.
std::string with_point(std::string number) {
    if (number.find_first_of(".e") == std::string::npos) number += ".0";
    return number;
}

const char* type_name(MetricsText::Type type) {
    switch (type) {
        case MetricsText::Type::kCounter:
            return "counter";
        case MetricsText::Type::kGauge:
            return "gauge";
        case MetricsText::Type::kHistogram:
            return "histogram";
    }
    return "";
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
    add_sample(name, type, help, labels, value);
}

void MetricsText::add(std::string_view name, Type type, std::string_view help, Labels labels,
                      std::uint64_t value) {
    add_sample(name, type, help, labels, value);
}

MetricsText::Family& MetricsText::family(std::string_view name, Type type, std::string_view help) {
    const auto found = families_.find(name);
    if (found != families_.end()) return found->second;
    return families_.emplace(std::string(name), Family{type, std::string(help), {}}).first->second;
}

template <typename Value>
void MetricsText::add_sample(std::string_view name, Type type, std::string_view help, Labels labels,
                             Value value) {
    const char* const suffix = type == Type::kCounter ? "_total" : "";
    fmt::format_to(std::back_inserter(family(name, type, help).samples), "{}{}{} {}\n", name,
                   suffix, in_braces(labels_text(labels)), value);
}

void MetricsText::add(std::string_view name, std::string_view help, Labels labels,
                      const base::HistogramReading& reading, double per_unit) {
    const std::string text = labels_text(labels);
    const auto to = std::back_inserter(family(name, Type::kHistogram, help).samples);
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < reading.counts.size(); ++i) {
        const std::string end =
            i < reading.upper.size()
                ? with_point(fmt::format("{}", static_cast<double>(reading.upper[i]) / per_unit))
                : "+Inf";
        count += reading.counts[i];
        fmt::format_to(to, "{}_bucket{{{}{}le=\"{}\"}} {}\n", name, text, text.empty() ? "" : ",",
                       end, count);
    }
    fmt::format_to(to, "{0}_count{1} {2}\n{0}_sum{1} {3}\n", name, in_braces(text), count,
                   static_cast<double>(reading.sum) / per_unit);
}

std::string MetricsText::write(bool open) const {
    std::string text;
    for (const auto& [name, family] : families_) {
        const std::string head = family.type == Type::kCounter && !open ? name + "_total" : name;
        fmt::format_to(std::back_inserter(text), "# HELP {} {}\n# TYPE {} {}\n{}", head,
                       escaped(family.help, open), head, type_name(family.type), family.samples);
    }
    if (open) text += "# EOF\n";
    return text;
}

}  // namespace openmana::manad
