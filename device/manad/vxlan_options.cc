// SPDX-License-Identifier: Apache-2.0
#include "manad/vxlan_options.h"

#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "fabric/fdb_table.h"
#include "fabric/vxlan.h"

namespace openmana::manad {
namespace {

using fabric::TunnelEnd;
using fabric::Vxlan;
using Learn = fabric::VxlanConfig::Learn;

constexpr const char* kWantEnd = "IP or IP:PORT, where IPv6 with a port is in brackets";

/// "10.0.0.1", "10.0.0.1:4789", "fd00::1", "[fd00::1]", "[fd00::1]:4789".
std::optional<TunnelEnd> parse_end(std::string_view text) {
    TunnelEnd end;
    end.port = Vxlan::kPort;
    std::string_view host = text;
    if (text.starts_with('[')) {
        const std::size_t close = text.find(']');
        if (close == std::string_view::npos) return std::nullopt;
        host = text.substr(1, close - 1);
        if (host.find(':') == std::string_view::npos) return std::nullopt;
        text.remove_prefix(close + 1);
    } else if (std::ranges::count(text, ':') == 1) {
        host = text.substr(0, text.find(':'));
        text.remove_prefix(host.size());
    } else {
        text = {};
    }
    if (!text.empty()) {
        const auto port = text.starts_with(':')
                              ? parse_number<std::uint16_t>(text.substr(1), 1, 65535)
                              : std::nullopt;
        if (!port) return std::nullopt;
        end.port = *port;
    }
    const auto address = fabric::parse_ip(host);
    if (!address) return std::nullopt;
    end.address = *address;
    return end;
}

/// "IP+IP:PORT"; `local` is this end.
Parsed<std::vector<TunnelEnd>> parse_remotes(const std::string& text, const TunnelEnd& local) {
    std::vector<TunnelEnd> ends;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t stop = std::min(text.find('+', at), text.size());
        const std::string one = text.substr(at, stop - at);
        auto end = parse_end(one);
        if (!end) return wrong("remote", one, kWantEnd);
        end->vni = local.vni;
        if (const char* const why = fabric::why_no_end(*end, local))
            return tl::unexpected(fmt::format("remote={} {}", one, why));
        if (std::ranges::find(ends, *end) != ends.end())
            return tl::unexpected(fmt::format("remote={} is there twice", one));
        if (ends.size() == fabric::FdbTable::kMaxEnds)
            return tl::unexpected(fmt::format("remote= has more than {} ends", ends.size()));
        ends.push_back(*end);
        at = stop + 1;
    }
    return ends;
}

std::optional<Learn> parse_learn(const std::string& text) {
    if (text == "peers") return Learn::kPeers;
    if (text == "on") return Learn::kAll;
    if (text == "off") return Learn::kNothing;
    return std::nullopt;
}

/// What is not about addresses; what is wrong with it, or nothing.
std::optional<std::string> take(const std::string& key, const std::string& value,
                                fabric::VxlanConfig& vxlan) {
    const auto not_so = [&](const std::string& want) {
        return fmt::format("{}={} is not {}", key, value, want);
    };
    if (key == "vni") {
        const auto vni = parse_number<std::uint32_t>(value, 0, Vxlan::kMaxVni);
        if (!vni) return not_so(fmt::format("a number from 0 to {}", Vxlan::kMaxVni));
        vxlan.vni = *vni;
    } else if (key == "learn") {
        const auto learn = parse_learn(value);
        if (!learn) return not_so("'peers', 'on' or 'off'");
        vxlan.learn = *learn;
    } else if (key == "fdb") {
        if (value.empty()) return not_so("a file");
        vxlan.fdb = value;
    } else if (key == "fdb-dev") {
        if (value.empty() || value.size() >= IFNAMSIZ)
            return not_so("a name that an interface can have");
        vxlan.fdb_device = value;
    } else if (key == "dscp") {
        const auto dscp = parse_number<int>(value, 0, 63);
        if (!dscp && value != "inherit") return not_so("a number from 0 to 63, or 'inherit'");
        vxlan.dscp = dscp.value_or(-1);
    } else if (key == "ttl") {
        const auto ttl = parse_number<int>(value, 1, 255);
        if (!ttl) return not_so("a number from 1 to 255");
        vxlan.ttl = *ttl;
    } else if (key == "flood") {
        const auto flood = parse_number<std::uint32_t>(value, 1, 1000000000);
        if (!flood && value != "off") return not_so("a number from 1 to 1000000000, or 'off'");
        vxlan.flood = flood.value_or(0);
    } else {
        return fmt::format("unknown key '{}'", key);
    }
    return std::nullopt;
}

}  // namespace

Parsed<fabric::UplinkConfig> parse_vxlan_uplink(const std::string& text,
                                                fabric::UplinkConfig config) {
    auto keys = split_keys(text);
    if (!keys) return tl::unexpected(keys.error());
    config.kind = fabric::UplinkConfig::Kind::kVxlan;
    for (const auto& [key, value] : *keys) {
        if (key == "local" || key == "remote") continue;
        if (key == "queues") {
            const auto count = parse_queues(value);
            if (!count) return tl::unexpected(count.error());
            config.queues = *count;
            continue;
        }
        if (auto bad = take(key, value, config.vxlan)) return tl::unexpected(std::move(*bad));
    }
    if (!keys->contains("local") || !keys->contains("vni"))
        return tl::unexpected(std::string("vxlan needs local=IP[:PORT],vni=N"));
    auto local = parse_end((*keys)["local"]);
    if (!local || roce::is_multicast(local->address))
        return wrong("local", (*keys)["local"], kWantEnd);
    // Other ends send to it and know what comes from it by it: one that stands for any is none.
    TunnelEnd other = *local;
    other.port = static_cast<std::uint16_t>(local->port ^ 1U);
    if (const char* const why = fabric::why_no_end(*local, other))
        return tl::unexpected(fmt::format("local={} {}", (*keys)["local"], why));
    local->vni = config.vxlan.vni;
    config.local = fabric::socket_address_of(*local);
    if (keys->contains("remote")) {
        auto remotes = parse_remotes((*keys)["remote"], *local);
        if (!remotes) return tl::unexpected(std::move(remotes.error()));
        config.vxlan.remotes = std::move(*remotes);
    }
    if (!config.vxlan.fdb_device.empty() && config.vxlan.fdb.empty())
        return tl::unexpected(std::string("fdb-dev= is about the file of fdb=, which is missing"));
    // Remotes may be many, and are shown elsewhere.
    config.name = fmt::format("vxlan={},vni={}", fabric::to_string(*local), config.vxlan.vni);
    return config;
}

}  // namespace openmana::manad
