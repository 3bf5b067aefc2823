// SPDX-License-Identifier: Apache-2.0
#include "fabric/fdb_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "base/mac_text.h"
#include "fabric/tunnel_end.h"
#include "fabric/vxlan.h"

namespace openmana::fabric {
namespace {

using Action = FdbLine::Action;
using Words = std::vector<std::string_view>;

constexpr std::size_t kMaxLine = 1024;

Words split(std::string_view text) {
    constexpr std::string_view kBlank = " \t\r";
    Words words;
    for (std::size_t at = text.find_first_not_of(kBlank); at != std::string_view::npos;
         at = text.find_first_not_of(kBlank, at)) {
        const std::size_t end = std::min(text.find_first_of(kBlank, at), text.size());
        words.push_back(text.substr(at, end - at));
        at = end;
    }
    return words;
}

std::optional<Action> action_of(std::string_view word) {
    if (word == "add") return Action::kAdd;
    if (word == "append") return Action::kAppend;
    if (word == "replace") return Action::kReplace;
    if (word == "del" || word == "delete") return Action::kDelete;
    return std::nullopt;
}

/// States and flags that `bridge` prints or takes, and that change nothing here.
bool means_nothing(std::string_view word) {
    constexpr std::array kWords = {"self",         "permanent", "local",     "static",
                                   "extern_learn", "offload",   "offloaded", "stale",
                                   "sticky",       "router",    "use",       "temp",
                                   "locked",       "inactive",  "norefresh", "activity_notify"};
    return std::ranges::find(kWords, word) != kWords.end();
}

/// Words that have another one behind them, which changes nothing here either.
bool skips_one(std::string_view word) {
    constexpr std::array kWords = {"via", "brport", "link-netnsid", "used", "vlan"};
    return std::ranges::find(kWords, word) != kWords.end();
}

std::optional<std::uint32_t> number(std::string_view text, std::uint32_t low, std::uint32_t high) {
    const bool hexadecimal = text.starts_with("0x");
    if (hexadecimal) text.remove_prefix(2);
    std::uint32_t value = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), value, hexadecimal ? 16 : 10);
    if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high)
        return std::nullopt;
    return value;
}

/// For a message: a file may hold anything.
std::string shown(std::string_view word) {
    constexpr std::size_t kMax = 40;
    std::string text(word.substr(0, kMax));
    for (char& c : text)
        if (c < ' ' || c > '~') c = '?';
    return text;
}

/// Reads the words behind the MAC address.
class Reader {
public:
    Reader(const Words& words, std::size_t at, FdbLine& line)
        : words_(words), at_(at), line_(line) {}
    /// What is wrong, or nothing.
    std::optional<std::string> read() {
        while (at_ < words_.size())
            if (auto wrong = word(words_[at_++])) return wrong;
        return std::nullopt;
    }
    [[nodiscard]] bool has_destination() const { return destination_; }
    [[nodiscard]] bool of_a_bridge() const { return master_; }

private:
    std::optional<std::string> word(std::string_view word) {
        if (means_nothing(word)) return std::nullopt;
        if (word == "dynamic") {
            line_.dynamic = true;
            return std::nullopt;
        }
        if (word == "master") {
            master_ = true;
            // `bridge fdb show` prints whose port it is; commands have nothing there.
            if (line_.action == Action::kListed && at_ < words_.size()) ++at_;
            return std::nullopt;
        }
        if (word == "nhid")
            return "nhid: groups of next hops are not known here, name the ends by dst";
        const bool known = skips_one(word) || word == "dev" || word == "dst" || word == "port" ||
                           word == "vni" || word == "src_vni";
        if (!known) return fmt::format("'{}' is not a word of bridge fdb", shown(word));
        if (at_ >= words_.size()) return fmt::format("'{}' has nothing behind it", word);
        return value(word, words_[at_++]);
    }
    std::optional<std::string> value(std::string_view word, std::string_view value) {
        if (word == "dev") {
            line_.device = value;
        } else if (word == "dst") {
            const auto address = parse_ip(value);
            if (!address) return fmt::format("dst {} is not an IP address", shown(value));
            if (destination_) return "dst is there twice";
            line_.address = *address;
            destination_ = true;
        } else if (word == "port") {
            const auto port = number(value, 1, 65535);
            if (!port) return fmt::format("port {} is not a number from 1 to 65535", shown(value));
            line_.port = static_cast<std::uint16_t>(*port);
        } else if (word == "vni" || word == "src_vni") {
            const auto vni = number(value, 0, Vxlan::kMaxVni);
            if (!vni)
                return fmt::format("{} {} is not a number from 0 to {}", word, shown(value),
                                   Vxlan::kMaxVni);
            (word == "vni" ? line_.vni : line_.source_vni) = *vni;
        }
        return std::nullopt;
    }

    const Words& words_;
    std::size_t at_;
    FdbLine& line_;
    bool destination_ = false;
    bool master_ = false;
};

}  // namespace

tl::expected<std::optional<FdbLine>, std::string> parse_fdb_line(std::string_view text) {
    if (text.size() > kMaxLine) return tl::unexpected(std::string("the line is too long"));
    Words words = split(text.substr(0, text.find('#')));
    std::size_t at = 0;
    for (const std::string_view prefix : {"bridge", "fdb"})
        if (at < words.size() && words[at] == prefix) ++at;
    if (words.empty()) return std::nullopt;
    FdbLine line;
    if (at < words.size()) {
        if (const auto action = action_of(words[at])) {
            line.action = *action;
            ++at;
        }
    }
    if (at >= words.size()) return tl::unexpected(std::string("the MAC address is missing"));
    const auto mac = base::parse_mac(words[at]);
    if (!mac)
        return tl::unexpected(fmt::format("'{}' is {} MAC address", shown(words[at]),
                                          line.action == Action::kListed
                                              ? "neither add, append, replace or del nor a"
                                              : "not a"));
    line.mac = *mac;
    Reader reader(words, at + 1, line);
    if (auto wrong = reader.read()) return tl::unexpected(std::move(*wrong));
    if (reader.has_destination()) return line;
    // Addresses of bridge ports, and those that interfaces have themselves.
    if (line.action == Action::kListed) return std::nullopt;
    return tl::unexpected(std::string(reader.of_a_bridge()
                                          ? "master is for bridges; a tunnel's entry has dst IP"
                                          : "dst IP is missing"));
}

}  // namespace openmana::fabric
