// SPDX-License-Identifier: Apache-2.0
#include "manad/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

// 3.3.0 asserts in places that a wrong text comes to ("[[["), and then finds the error all the
// same.
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "base/read_file.h"
#include "manad/in_words.h"

namespace openmana::manad {
namespace {

/// More than a thousand NICs, each with a policy of a thousand rules, would take.
constexpr std::size_t kMaxBytes = 64U << 20;

/// Options that a file may have once.
constexpr std::array<std::string_view, 10> kScalars = {
    "control", "control-access", "socket-access", "user",  "seccomp", "monitor",
    "log",     "log-format",     "pcap",          "format"};

/// The texts of one file.
class Reader {
public:
    explicit Reader(std::string name) : name_(std::move(name)) {}

    [[nodiscard]] Parsed<ConfigTexts> read(const toml::table& root) {
        for (const auto& [key, node] : root) {
            const std::string_view name = key.str();
            if (name == "nic" || name == "uplink") {
                const toml::array* const tables = node.as_array();
                if (tables == nullptr || !tables->is_homogeneous<toml::table>())
                    return wrong_at(node, fmt::format("{0} is a list of tables: [[{0}]]", name));
                for (const toml::node& entry : *tables) {
                    auto error = name == "nic" ? nic(*entry.as_table()) : uplink(*entry.as_table());
                    if (error) return tl::unexpected(std::move(*error));
                }
            } else if (name == "metrics") {
                if (auto error = metrics(node)) return tl::unexpected(std::move(*error));
            } else if (auto error = scalar(name, node)) {
                return tl::unexpected(std::move(*error));
            }
        }
        return std::move(texts_);
    }

private:
    using Error = std::optional<std::string>;

    [[nodiscard]] std::string where(const toml::node& node) const {
        return fmt::format("{}:{}", name_, node.source().begin.line);
    }
    [[nodiscard]] std::string error_at(const toml::node& node, const std::string& what) const {
        return fmt::format("{}: {}", where(node), what);
    }
    [[nodiscard]] tl::unexpected<std::string> wrong_at(const toml::node& node,
                                                       const std::string& what) const {
        return tl::unexpected(error_at(node, what));
    }

    /// As the command line has it: on and off, numbers, and lists with their `separator`.
    [[nodiscard]] Parsed<std::string> value(std::string_view key, const toml::node& node,
                                            const char* separator) const {
        if (const auto* const text = node.as_string()) {
            if (text->get().find('\0') != std::string::npos)
                return wrong_at(node, fmt::format("{} has a zero byte", key));
            return text->get();
        }
        if (const auto* const number = node.as_integer()) return fmt::format("{}", number->get());
        if (const auto* const flag = node.as_boolean())
            return std::string(flag->get() ? "on" : "off");
        const toml::array* const list = node.as_array();
        if (list == nullptr || list->empty() || separator == nullptr)
            return wrong_at(node,
                            fmt::format("{} is not {}", key,
                                        separator == nullptr ? "a text, a number, or true or false"
                                                             : "a text, nor a list of texts"));
        std::string all;
        for (const toml::node& entry : *list) {
            auto one = value(key, entry, nullptr);
            if (!one) return one;
            if (one->find(separator) != std::string::npos)
                return wrong_at(entry,
                                fmt::format("{} has a '{}' in one of its texts", key, separator));
            all += (all.empty() ? "" : separator) + *one;
        }
        return all;
    }

    /// "key=value", for a list of such.
    [[nodiscard]] Parsed<std::string> pair(std::string_view key, const toml::node& node) const {
        const bool rules = key == "acl";
        auto text = value(key, node, rules ? ";" : "+");
        if (!text) return text;
        if (text->find(',') != std::string::npos)
            return wrong_at(node, fmt::format("{} has a comma in it", key));
        return fmt::format("{}={}", key, *text);
    }

    /// All but some keys of a table, behind what is in `text`.
    [[nodiscard]] Error pairs(const toml::table& table, std::string& text,
                              std::initializer_list<std::string_view> without) const {
        for (const auto& [key, node] : table) {
            if (std::ranges::find(without, key.str()) != without.end()) continue;
            auto one = pair(key.str(), node);
            if (!one) return std::move(one.error());
            text += (text.empty() ? "" : ",") + *one;
        }
        return std::nullopt;
    }

    [[nodiscard]] Error scalar(std::string_view key, const toml::node& node) {
        if (std::ranges::find(kScalars, key) == kScalars.end())
            return error_at(node, fmt::format("unknown key '{}'", key));
        auto text = value(key, node, nullptr);
        if (!text) return std::move(text.error());
        if (key == "format") {
            if (*text != "1")
                return error_at(node,
                                fmt::format("format={} is not 1, which this manad reads", *text));
            return std::nullopt;
        }
        texts_.scalars.emplace(key, OptionText{std::move(*text), where(node)});
        return std::nullopt;
    }

    [[nodiscard]] Error metrics(const toml::node& node) {
        const toml::array* const several = node.as_array();
        if (several == nullptr) return metrics_at(node);
        for (const toml::node& one : *several)
            if (auto error = metrics_at(one)) return error;
        return std::nullopt;
    }
    [[nodiscard]] Error metrics_at(const toml::node& node) {
        auto text = value("metrics", node, nullptr);
        if (!text) return std::move(text.error());
        texts_.metrics.push_back({std::move(*text), where(node)});
        return std::nullopt;
    }

    [[nodiscard]] Error nic(const toml::table& table) {
        const toml::node* const id = table.get("id");
        if (id == nullptr) return error_at(table, "a [[nic]] without an id");
        auto name = value("id", *id, nullptr);
        if (!name) return std::move(name.error());
        OptionText text{.text = {}, .where = where(table)};
        if (auto error = pairs(table, text.text, {"policy", "fault"})) return error;
        texts_.nics.push_back(std::move(text));
        if (const toml::node* const policy = table.get("policy"))
            if (auto error = of_nic(*name, "policy", *policy, texts_.policies)) return error;
        const toml::node* const fault = table.get("fault");
        if (fault == nullptr) return std::nullopt;
        const toml::array* const several = fault->as_array();
        if (several == nullptr) return of_nic(*name, "fault", *fault, texts_.faults);
        for (const toml::node& one : *several)
            if (auto error = of_nic(*name, "fault", one, texts_.faults)) return error;
        return std::nullopt;
    }

    [[nodiscard]] Error of_nic(const std::string& nic, std::string_view what,
                               const toml::node& node, std::vector<OptionText>& into) const {
        const toml::table* const table = node.as_table();
        if (table == nullptr) return error_at(node, fmt::format("{} is a table", what));
        if (const toml::node* const named = table->get("nic"))
            return error_at(*named, fmt::format("{} is of the NIC that it stands in", what));
        OptionText text{.text = "nic=" + nic, .where = where(node)};
        if (auto error = pairs(*table, text.text, {})) return error;
        into.push_back(std::move(text));
        return std::nullopt;
    }

    /// "udp=local=...,remote=...", "tap=NAME", "stream=PATH,listen,access=...", "vxlan=...",
    /// "xdp=NAME,...".
    [[nodiscard]] Error uplink(const toml::table& table) {
        const toml::node* const node = table.get("kind");
        if (node == nullptr || !node->is_string())
            return error_at(table, "an [[uplink]] without a kind, such as kind = \"udp\"");
        const std::string kind = node->as_string()->get();
        OptionText text{.text = kind + "=", .where = where(table)};
        const bool device = kind == "tap" || kind == "xdp";
        if (!device && kind != "stream") {
            std::string rest;
            if (auto error = pairs(table, rest, {"kind"})) return error;
            text.text += rest;
            texts_.uplinks.push_back(std::move(text));
            return std::nullopt;
        }
        // The other end has no key there.
        const char* const key = device ? "interface" : "path";
        const toml::node* const end = table.get(key);
        if (end == nullptr) return error_at(table, fmt::format("{} needs {}", kind, key));
        auto place = pair(key, *end);
        if (!place) return std::move(place.error());
        text.text += place->substr(std::strlen(key) + 1);
        if (const toml::node* const listen = table.get("listen"); listen != nullptr && !device) {
            if (!listen->is_boolean()) return error_at(*listen, "listen is true or false");
            if (listen->as_boolean()->get()) text.text += ",listen";
        }
        std::string rest;
        if (auto error = pairs(table, rest, {"kind", key, device ? "" : "listen"})) return error;
        if (!rest.empty()) text.text += "," + rest;
        texts_.uplinks.push_back(std::move(text));
        return std::nullopt;
    }

    const std::string name_;
    ConfigTexts texts_;
};

}  // namespace

namespace {

/// The line of a character that is not ASCII outside of quotes and comments, which toml++ 3.3.0
/// takes for impossible in one of its tables; 0 if there is none. Strings of several lines are
/// looked at line by line.
std::size_t find_foreign(std::string_view text) {
    std::size_t line = 1;
    char quote = '\0';
    bool comment = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '\n') {
            ++line;
            quote = '\0';
            comment = false;
        } else if (comment) {
            continue;
        } else if (quote != '\0') {
            if (c == '\\' && quote == '"' && i + 1 < text.size() && text[i + 1] != '\n')
                ++i;
            else if (c == quote)
                quote = '\0';
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '#') {
            comment = true;
        } else if (static_cast<unsigned char>(c) > 0x7f) {
            return line;
        }
    }
    return 0;
}

}  // namespace

Parsed<ConfigTexts> read_config(const std::string& text, const std::string& name) {
    if (const std::size_t line = find_foreign(text); line != 0)
        return tl::unexpected(fmt::format(
            "{}:{}: a character that is not ASCII stands outside of quotes", name, line));
    try {
        return Reader(name).read(toml::parse(text, name));
    } catch (const toml::parse_error& error) {
        return tl::unexpected(
            fmt::format("{}:{}: {}", name, error.source().begin.line, error.description()));
    }
}

Parsed<ConfigTexts> read_config_file(const std::string& path) {
    const auto text = base::read_file(path, kMaxBytes);
    if (!text) return tl::unexpected(in_words(path, text.error()));
    return read_config(*text, path);
}

}  // namespace openmana::manad
