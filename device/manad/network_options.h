// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <tl/expected.hpp>

#include "base/mac_text.h"
#include "fabric/faults.h"
#include "fabric/frame_headers.h"
#include "fabric/policy.h"
#include "fabric/uplink.h"

namespace openmana::manad {

/// A value, or what is wrong with the text it was to be read from, in words for the one who typed
/// it.
template <typename T>
using Parsed = tl::expected<T, std::string>;

/// Of a NIC or a network: 1 to 32 letters, digits, '-', '_' and '.'.
[[nodiscard]] bool valid_name(const std::string& name);
inline constexpr const char* kWantName = "a name of 1 to 32 letters, digits, '-', '_' and '.'";

/// That the value of a key is not what was wanted, as the other side of a Parsed.
[[nodiscard]] tl::unexpected<std::string> wrong(const std::string& key, const std::string& value,
                                                const std::string& want);
/// All of the text is a number of that type, in that range.
template <typename T>
[[nodiscard]] std::optional<T> parse_number(std::string_view text, T low, T high) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high)
        return std::nullopt;
    return value;
}

using Keys = std::map<std::string, std::string>;
/// "key=value,key=value", each key at most once.
[[nodiscard]] Parsed<Keys> split_keys(const std::string& text);
/// The same as text, but for one key.
[[nodiscard]] std::string in_order(const Keys& keys, std::string_view without = {});

/// One `--fault`: what it sets, for the directions named.
struct FaultOptions {
    std::string nic;  ///< empty if not given
    std::array<bool, fabric::kDirections> directions{true, true};
    fabric::FaultConfig faults;
    fabric::FlapConfig flaps;
    std::string text;  ///< as given, without the NIC
};
[[nodiscard]] Parsed<FaultOptions> parse_faults(const std::string& text);

/// One `--policy`.
struct PolicyOptions {
    /// So that a Ledger has room for it.
    static constexpr std::size_t kMaxText = 256U << 10;
    std::string nic;
    fabric::PolicyConfig policy;
    std::string text;
};
[[nodiscard]] Parsed<PolicyOptions> parse_policy(const std::string& text);

/// Of an uplink of UDP or VXLAN: from 1 to UplinkConfig::kMaxQueues.
Parsed<std::size_t> parse_queues(const std::string& value);

/// `access` is that of a socket that the text says nothing else of.
[[nodiscard]] Parsed<fabric::UplinkConfig> parse_uplink(const std::string& text,
                                                        const base::SocketAccess& access = {});

using base::parse_mac;
/// "1.5%" or "200ppm", to parts per million.
[[nodiscard]] std::optional<std::uint32_t> parse_chance(const std::string& text);
/// "10us", "1.5ms", "2s", "100ns".
[[nodiscard]] std::optional<base::Duration> parse_duration(const std::string& text);
/// Bit/s: "10G", "2.5M", "800K", "64000".
[[nodiscard]] std::optional<std::uint64_t> parse_rate(const std::string& text);
/// Bytes: "1M", "256K", "65536".
[[nodiscard]] std::optional<std::uint64_t> parse_size(const std::string& text);

}  // namespace openmana::manad
