// SPDX-License-Identifier: Apache-2.0
#include "manad/vlan_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace openmana::manad {
namespace {

std::optional<roce::Vlan> parse_vlan(std::string_view text) {
    roce::Vlan vlan{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), vlan);
    if (error != std::errc{} || end != text.data() + text.size() || vlan == roce::kNoVlan ||
        vlan >= roce::kReservedVlan)
        return std::nullopt;
    return vlan;
}

/// "10+20-29".
bool parse_list(std::string_view text, fabric::VlanConfig& config) {
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find('+', at), text.size());
        const std::string_view one = text.substr(at, end - at);
        const std::size_t dash = one.find('-');
        const auto first = parse_vlan(one.substr(0, dash));
        const auto last = dash == std::string_view::npos ? first : parse_vlan(one.substr(dash + 1));
        if (!first || !last || *last < *first) return false;
        for (std::size_t vlan = *first; vlan <= *last; ++vlan) config.tagged.set(vlan);
        at = end + 1;
    }
    return true;
}

auto wrong(const std::string& key, const std::string& value, const char* want) {
    return tl::unexpected(fmt::format("{}={} is not {}", key, value, want));
}

}  // namespace

Parsed<fabric::VlanConfig> parse_vlans(const Keys& keys) {
    constexpr const char* kWantVlan = "a VLAN from 1 to 4094";
    fabric::VlanConfig config;
    const auto access = keys.find("vlan");
    const auto trunk = keys.find("trunk");
    const auto native = keys.find("native");
    config.all = access == keys.end() && trunk == keys.end();
    if (access != keys.end() && trunk != keys.end())
        return tl::unexpected(std::string("vlan= and trunk= contradict each other"));
    if (native != keys.end() && trunk == keys.end())
        return tl::unexpected(std::string("native= goes with trunk= only"));
    for (const auto& one : {access, native}) {
        if (one == keys.end()) continue;
        const auto vlan = parse_vlan(one->second);
        if (!vlan) return wrong(one->first, one->second, kWantVlan);
        config.native = *vlan;
    }
    if (trunk != keys.end() && !parse_list(trunk->second, config))
        return wrong("trunk", trunk->second, "VLANs from 1 to 4094 such as 10+20-29");
    if (config.native != roce::kNoVlan && config.tagged[config.native])
        return tl::unexpected(fmt::format(
            "native={0}: {0} is in trunk=, too: its frames have a tag or they have none",
            config.native));
    return config;
}

std::string vlan_text(const fabric::VlanConfig& config) {
    if (config.all) return "all";
    if (config.is_access()) return fmt::format("access {}", config.native);
    std::string text;
    for (std::size_t vlan = 0; vlan < config.tagged.size(); ++vlan) {
        if (!config.tagged[vlan]) continue;
        std::size_t last = vlan;
        while (last + 1 < config.tagged.size() && config.tagged[last + 1]) ++last;
        text += fmt::format("{}{}", text.empty() ? "trunk " : "+", vlan);
        if (last != vlan) text += fmt::format("-{}", last);
        vlan = last;
    }
    if (config.native != roce::kNoVlan) text += fmt::format(" native {}", config.native);
    return text;
}

}  // namespace openmana::manad
