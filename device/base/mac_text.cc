// SPDX-License-Identifier: Apache-2.0
#include "base/mac_text.h"

#include <fmt/format.h>

#include <charconv>

namespace openmana::base {

std::optional<MacAddr> parse_mac(std::string_view text) {
    MacAddr mac{};
    if (text.size() != 17) return std::nullopt;
    for (std::size_t i = 0; i < mac.size(); ++i) {
        const char* const from = text.data() + 3 * i;
        const auto [end, error] = std::from_chars(from, from + 2, mac[i], 16);
        if (error != std::errc{} || end != from + 2) return std::nullopt;
        if (i < 5 && from[2] != ':') return std::nullopt;
    }
    return mac;
}

std::string to_string(const MacAddr& mac) {
    return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", mac[0], mac[1], mac[2], mac[3],
                       mac[4], mac[5]);
}

}  // namespace openmana::base
