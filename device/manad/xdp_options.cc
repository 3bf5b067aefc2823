// SPDX-License-Identifier: Apache-2.0
#include "manad/xdp_options.h"

#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <iterator>

namespace openmana::manad {
namespace {

using fabric::XdpConfig;

constexpr std::pair<const char*, XdpConfig::Mode> kModes[] = {
    {"auto", XdpConfig::Mode::kAuto},
    {"zero-copy", XdpConfig::Mode::kZeroCopy},
    {"copy", XdpConfig::Mode::kCopy},
    {"generic", XdpConfig::Mode::kGeneric}};

}  // namespace

Parsed<fabric::UplinkConfig> parse_xdp_uplink(const std::string& text,
                                              fabric::UplinkConfig config) {
    config.kind = fabric::UplinkConfig::Kind::kXdp;
    const std::size_t comma = text.find(',');
    config.interface = text.substr(0, comma);
    config.name = "xdp=" + config.interface;
    if (config.interface.empty() || config.interface.size() >= IFNAMSIZ ||
        config.interface.find('/') != std::string::npos)
        return wrong("xdp", config.interface, "a name that an interface can have");
    if (comma == std::string::npos) return config;
    const auto keys = split_keys(text.substr(comma + 1));
    if (!keys) return tl::unexpected(keys.error());
    for (const auto& [key, value] : *keys) {
        if (key == "queues") {
            const auto count = parse_number<unsigned>(value, 1, XdpConfig::kMaxQueues);
            if (!count && value != "all")
                return wrong(key, value, "'all', or a number from 1 to 64");
            config.xdp.queues = count.value_or(0);
        } else if (key == "mode") {
            const auto* const mode = std::ranges::find(
                kModes, value, [](const auto& entry) { return std::string(entry.first); });
            if (mode == std::end(kModes))
                return wrong(key, value, "auto, zero-copy, copy or generic");
            config.xdp.mode = mode->second;
        } else {
            return tl::unexpected(fmt::format("unknown key '{}'", key));
        }
    }
    return config;
}

}  // namespace openmana::manad
