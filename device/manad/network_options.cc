// SPDX-License-Identifier: Apache-2.0
#include "manad/network_options.h"

#include <fmt/format.h>
#include <net/if.h>
#include <sys/un.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

#include "fabric/tunnel_end.h"
#include "manad/account.h"
#include "manad/vxlan_options.h"
#include "manad/xdp_options.h"

namespace openmana::manad {
namespace {

constexpr std::uint64_t kMinRate = 8000;
constexpr std::uint64_t kMaxRate = 1000000000000;
constexpr std::uint64_t kMinQueue = 64U << 10;
constexpr std::uint64_t kMaxQueue = 1U << 30;
constexpr base::Duration kMaxDelay = std::chrono::seconds(60);
constexpr base::Duration kMinFlap = std::chrono::milliseconds(1);
constexpr base::Duration kMaxFlap = std::chrono::hours(24);  // a deadline must not wrap

/// "12" or "12.5" times `unit`, exactly; nothing if it has more digits than the unit, or is too
/// large.
std::optional<std::uint64_t> scaled(std::string_view number, std::uint64_t unit) {
    const std::size_t point = number.find('.');
    const std::string_view whole = number.substr(0, point);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(whole.data(), whole.data() + whole.size(), value);
    if (error != std::errc{} || end != whole.data() + whole.size()) return std::nullopt;
    if (value > (UINT64_MAX >> 1) / unit) return std::nullopt;
    value *= unit;
    if (point == std::string_view::npos) return value;
    const std::string_view digits = number.substr(point + 1);
    if (digits.empty()) return std::nullopt;
    for (const char digit : digits) {
        if (digit < '0' || digit > '9' || unit % 10 != 0) return std::nullopt;
        unit /= 10;
        value += static_cast<std::uint64_t>(digit - '0') * unit;
    }
    return value;
}

/// A number with one of the units; "" stands for no unit.
std::optional<std::uint64_t> with_unit(
    std::string_view text,
    std::initializer_list<std::pair<std::string_view, std::uint64_t>> units) {
    for (const auto& [name, unit] : units) {
        if (!text.ends_with(name)) continue;
        const std::string_view number = text.substr(0, text.size() - name.size());
        if (number.empty() || number.back() < '0' || number.back() > '9') continue;
        return scaled(number, unit);
    }
    return std::nullopt;
}

constexpr const char* kWantChance = "a chance such as 1% or 200ppm";
constexpr const char* kWantDelay = "a time such as 10us, 2ms or 1s, at most 60s";
constexpr const char* kWantRate = "a rate in bit/s such as 10G or 500M, from 8K to 1000G";
constexpr const char* kWantSize = "a size such as 256K or 4M, from 64K to 1G";
constexpr const char* kWantMarking =
    "a size such as 256K, or two sizes and a chance such as 100K/400K/20%";
constexpr const char* kWantDirection = "tx, rx or both";
constexpr const char* kWantFlap = "UP/DOWN with two times from 1ms to 86400s";

bool parse_directions(const std::string& text, bool& transmit, bool& receive) {
    if (text != "tx" && text != "rx" && text != "both") return false;
    transmit = text != "rx";
    receive = text != "tx";
    return true;
}

std::optional<fabric::FlapConfig> parse_flap(const std::string& text) {
    const std::size_t slash = text.find('/');
    if (slash == std::string::npos) return std::nullopt;
    const auto up = parse_duration(text.substr(0, slash));
    const auto down = parse_duration(text.substr(slash + 1));
    const auto fits = [](base::Duration time) { return time >= kMinFlap && time <= kMaxFlap; };
    if (!up || !down || !fits(*up) || !fits(*down)) return std::nullopt;
    return fabric::FlapConfig{*up, *down};
}

/// What is wrong with the rates of a policy, taken together.
std::optional<std::string> find_contradiction(const fabric::ShaperConfig& shaper) {
    std::uint64_t guaranteed = 0;
    for (const auto& entry : shaper.classes) {
        guaranteed += entry.guarantee;
        if (entry.limit != 0 && entry.guarantee > entry.limit)
            return "a guarantee is higher than the limit of its class";
    }
    if (guaranteed > 0 && shaper.limit == 0)
        return "a guarantee is a share of limit=, which is missing";
    if (guaranteed > shaper.limit) return "the guarantees are more than limit=";
    if (shaper.queue_bytes != 0 &&
        std::max(shaper.ecn_bytes, shaper.ecn_max_bytes) > shaper.queue_bytes)
        return "ecn= is larger than queue=";
    return std::nullopt;
}

Parsed<std::vector<fabric::Prefix>> parse_addresses(const std::string& text) {
    std::vector<fabric::Prefix> result;
    std::size_t at = 0;
    while (at <= text.size()) {
        const std::size_t end = std::min(text.find('+', at), text.size());
        const auto prefix = fabric::Prefix::parse(text.substr(at, end - at));
        if (!prefix)
            return tl::unexpected(
                fmt::format("ips: '{}': {}", text.substr(at, end - at), prefix.error().text));
        result.push_back(*prefix);
        at = end + 1;
    }
    return result;
}

/// "any", or "MAC+MAC".
std::optional<std::string> parse_macs(const std::string& text, fabric::PolicyConfig& policy) {
    policy.any_mac = text == "any";
    if (policy.any_mac) return std::nullopt;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find('+', at), text.size());
        const std::string one = text.substr(at, end - at);
        const auto mac = parse_mac(one);
        if (!mac || ((*mac)[0] & 1) != 0 || *mac == base::MacAddr{})
            return fmt::format(
                "macs: '{}' is not a MAC address of one station, such as 02:00:00:00:00:05, nor "
                "'any'",
                one);
        if (std::ranges::find(policy.macs, *mac) == policy.macs.end()) policy.macs.push_back(*mac);
        at = end + 1;
    }
    return std::nullopt;
}

/// "256K", or "100K/400K/20%".
bool parse_marking(const std::string& text, fabric::ShaperConfig& shaper) {
    const std::size_t first = text.find('/');
    const auto low = parse_size(text.substr(0, first));
    if (!low || *low < 1 || *low > kMaxQueue) return false;
    shaper.ecn_bytes = *low;
    if (first == std::string::npos) return true;
    const std::size_t second = text.find('/', first + 1);
    if (second == std::string::npos) return false;
    const auto high = parse_size(text.substr(first + 1, second - first - 1));
    const auto chance = parse_chance(text.substr(second + 1));
    if (!high || *high < *low || *high > kMaxQueue || !chance) return false;
    shaper.ecn_max_bytes = *high;
    shaper.ecn_ppm = *chance;
    return true;
}

/// A key of `--policy` that is a rate or a size; false if it is none. `failed` says what was wanted
/// instead.
bool parse_amount(const std::string& key, const std::string& value, fabric::ShaperConfig& shaper,
                  const char*& failed) {
    auto& rdma = shaper.classes[static_cast<std::size_t>(fabric::TrafficClass::kRdma)];
    auto& ethernet = shaper.classes[static_cast<std::size_t>(fabric::TrafficClass::kEthernet)];
    const std::pair<const char*, std::uint64_t*> rates[] = {{"limit", &shaper.limit},
                                                            {"rdma-limit", &rdma.limit},
                                                            {"eth-limit", &ethernet.limit},
                                                            {"rdma-guarantee", &rdma.guarantee},
                                                            {"eth-guarantee", &ethernet.guarantee}};
    for (const auto& [name, target] : rates) {
        if (key != name) continue;
        const auto rate = parse_rate(value);
        if (!rate || *rate < kMinRate || *rate > kMaxRate)
            failed = kWantRate;
        else
            *target = *rate;
        return true;
    }
    if (key == "ecn") {
        if (!parse_marking(value, shaper)) failed = kWantMarking;
        return true;
    }
    if (key != "queue") return false;
    const auto size = parse_size(value);
    if (!size || *size < kMinQueue || *size > kMaxQueue)
        failed = kWantSize;
    else
        shaper.queue_bytes = *size;
    return true;
}

/// Takes "network=NAME" out of what stands behind the first comma, and gives the name; the text
/// that is left names the uplink.
Parsed<std::string> take_network(std::string& text) {
    constexpr std::string_view kKey = ",network=";
    const std::size_t at = text.find(kKey);
    if (at == std::string::npos) return std::string(fabric::kDefaultNetwork);
    const std::size_t end = std::min(text.find(',', at + 1), text.size());
    std::string name = text.substr(at + kKey.size(), end - at - kKey.size());
    text.erase(at, end - at);
    if (text.find(kKey) != std::string::npos)
        return tl::unexpected(std::string("'network' is given twice"));
    if (!valid_name(name)) return wrong("network", name, kWantName);
    return name;
}

/// A key that has an uplink encrypt; false if it is none. `failed` says what was wanted instead.
bool parse_encryption(const std::string& key, const std::string& value,
                      fabric::EncryptionConfig& encryption, const char*& failed) {
    if (key == "key-file") {
        if (value.empty()) failed = "a file";
        encryption.key_file = value;
        return true;
    }
    if (key != "rekey") return false;
    const auto time = parse_duration(value);
    if (!time || *time < std::chrono::seconds(1) || *time > std::chrono::hours(24))
        failed = "a time from 1s to 86400s";
    else
        encryption.limits.rekey = *time;
    return true;
}

Parsed<fabric::UplinkConfig> parse_udp_uplink(const std::string& text,
                                              fabric::UplinkConfig config) {
    const auto keys = split_keys(text);
    if (!keys) return tl::unexpected(keys.error());
    for (const auto& [key, value] : *keys) {
        const char* failed = nullptr;
        if (parse_encryption(key, value, config.encryption, failed)) {
            if (failed != nullptr) return wrong(key, value, failed);
            continue;
        }
        if (key == "queues") {
            const auto count = parse_queues(value);
            if (!count) return tl::unexpected(count.error());
            config.queues = *count;
            continue;
        }
        if (key != "local" && key != "remote")
            return tl::unexpected(fmt::format("unknown key '{}'", key));
        const auto address = fabric::SocketAddress::parse(value);
        if (!address)
            return tl::unexpected(fmt::format("{}={}: {}", key, value, address.error().text));
        (key == "local" ? config.local : config.remote) = *address;
    }
    if (config.local.length == 0 || config.remote.length == 0)
        return tl::unexpected(std::string("udp needs local=ADDRESS:PORT,remote=ADDRESS:PORT"));
    if (config.local.storage.ss_family != config.remote.storage.ss_family)
        return tl::unexpected(std::string("local and remote are not of one IP version"));
    for (const auto* const address : {&config.local, &config.remote})
        if (fabric::port_of(*address) + config.queues - 1 > 65535)
            return tl::unexpected(fmt::format("{}: there are not {} ports from there on",
                                              address->text(), config.queues));
    if (keys->contains("rekey") && !keys->contains("key-file"))
        return tl::unexpected(std::string("rekey= is for an uplink with key-file="));
    return config;
}

/// "PATH[,listen[,access=USER:GROUP:MODE]]".
Parsed<fabric::UplinkConfig> parse_stream_uplink(const std::string& text,
                                                 fabric::UplinkConfig config,
                                                 const base::SocketAccess& access) {
    constexpr std::string_view kListen = "listen";
    constexpr std::string_view kAccess = "listen,access=";
    const std::size_t comma = text.find(',');
    config.path = text.substr(0, comma);
    const std::string rest = comma == std::string::npos ? "" : text.substr(comma + 1);
    config.listen = comma != std::string::npos;
    config.access = access;
    if (rest.starts_with(kAccess)) {
        const auto own = parse_access(rest.substr(kAccess.size()));
        if (!own) return tl::unexpected("access: " + own.error());
        config.access = *own;
    } else if (config.listen && rest != kListen) {
        return tl::unexpected(fmt::format(
            "'{}': behind the path of a stream only 'listen' can be, and 'access=' behind it",
            rest));
    }
    if (config.path.empty() || config.path.size() >= sizeof(sockaddr_un::sun_path))
        return wrong("stream", config.path, "a path that a socket can have");
    return config;
}

}  // namespace

bool valid_name(const std::string& name) {
    if (name.empty() || name.size() > 32) return false;
    for (const char c : name)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.')
            return false;
    return true;
}

tl::unexpected<std::string> wrong(const std::string& key, const std::string& value,
                                  const std::string& want) {
    return tl::unexpected(fmt::format("{}={} is not {}", key, value, want));
}

Parsed<Keys> split_keys(const std::string& text) {
    Keys keys;
    std::size_t at = 0;
    while (at <= text.size()) {
        const std::size_t end = std::min(text.find(',', at), text.size());
        const std::string item = text.substr(at, end - at);
        const std::size_t equals = item.find('=');
        if (equals == std::string::npos || equals == 0)
            return tl::unexpected(fmt::format("'{}' is not key=value", item));
        if (!keys.emplace(item.substr(0, equals), item.substr(equals + 1)).second)
            return tl::unexpected(fmt::format("'{}' is given twice", item.substr(0, equals)));
        at = end + 1;
    }
    return keys;
}

std::string in_order(const Keys& keys, std::string_view without) {
    std::string text;
    for (const auto& [key, value] : keys)
        if (key != without) text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
    return text;
}

std::optional<std::uint32_t> parse_chance(const std::string& text) {
    const auto ppm = with_unit(text, {{"%", 10000}, {"ppm", 1}});
    if (!ppm || *ppm > 1000000) return std::nullopt;
    return static_cast<std::uint32_t>(*ppm);
}

std::optional<base::Duration> parse_duration(const std::string& text) {
    const auto nanoseconds =
        with_unit(text, {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}});
    if (!nanoseconds) return std::nullopt;
    return base::Duration(static_cast<base::Duration::rep>(*nanoseconds));
}

std::optional<std::uint64_t> parse_rate(const std::string& text) {
    return with_unit(text, {{"G", 1000000000}, {"M", 1000000}, {"K", 1000}, {"", 1}});
}

std::optional<std::uint64_t> parse_size(const std::string& text) {
    return with_unit(text, {{"G", 1U << 30}, {"M", 1U << 20}, {"K", 1U << 10}, {"", 1}});
}

Parsed<FaultOptions> parse_faults(const std::string& text) {
    const auto keys = split_keys(text);
    if (!keys) return tl::unexpected(keys.error());
    FaultOptions options;
    options.text = in_order(*keys, "nic");
    const std::pair<const char*, std::uint32_t*> chances[] = {
        {"loss", &options.faults.loss_ppm},
        {"dup", &options.faults.duplicate_ppm},
        {"reorder", &options.faults.reorder_ppm},
        {"corrupt", &options.faults.corrupt_ppm}};
    for (const auto& [key, value] : *keys) {
        const auto chance =
            std::find_if(std::begin(chances), std::end(chances),
                         [&name = key](const auto& entry) { return name == entry.first; });
        if (chance != std::end(chances)) {
            const auto ppm = parse_chance(value);
            if (!ppm) return wrong(key, value, kWantChance);
            *chance->second = *ppm;
        } else if (key == "nic") {
            options.nic = value;
        } else if (key == "dir") {
            if (!parse_directions(value, options.directions[0], options.directions[1]))
                return wrong(key, value, kWantDirection);
        } else if (key == "delay" || key == "jitter") {
            const auto time = parse_duration(value);
            if (!time || *time > kMaxDelay) return wrong(key, value, kWantDelay);
            (key == "delay" ? options.faults.delay : options.faults.jitter) = *time;
        } else if (key == "seed") {
            const auto [end, error] =
                std::from_chars(value.data(), value.data() + value.size(), options.faults.seed);
            if (error != std::errc{} || end != value.data() + value.size())
                return wrong(key, value, "a number");
        } else if (key == "flap") {
            const auto flap = parse_flap(value);
            if (!flap) return wrong(key, value, kWantFlap);
            options.flaps = *flap;
        } else {
            return tl::unexpected(fmt::format("unknown key '{}'", key));
        }
    }
    if (!options.faults.any() && !options.flaps.any())
        return tl::unexpected(
            std::string("names no fault: one of loss, dup, reorder, corrupt, delay, jitter and "
                        "flap is needed"));
    return options;
}

Parsed<PolicyOptions> parse_policy(const std::string& text) {
    const auto keys = split_keys(text);
    if (!keys) return tl::unexpected(keys.error());
    PolicyOptions options;
    options.text = in_order(*keys, "nic");
    if (options.text.size() > PolicyOptions::kMaxText)
        return tl::unexpected(fmt::format("is longer than {} KiB", PolicyOptions::kMaxText / 1024));
    fabric::PolicyConfig& policy = options.policy;
    for (const auto& [key, value] : *keys) {
        const char* failed = nullptr;
        if (key == "nic") {
            options.nic = value;
        } else if (key == "mac-check") {
            if (value != "on" && value != "off") return wrong(key, value, "'on' or 'off'");
            policy.check_mac = value == "on";
        } else if (key == "macs") {
            if (auto error = parse_macs(value, policy)) return tl::unexpected(std::move(*error));
        } else if (key == "ips") {
            auto addresses = parse_addresses(value);
            if (!addresses) return tl::unexpected(addresses.error());
            policy.addresses = std::move(*addresses);
        } else if (key == "acl") {
            auto acl = fabric::Acl::parse(value);
            if (!acl) return tl::unexpected(fmt::format("acl: '{}': {}", value, acl.error().text));
            if (acl->empty())
                return wrong(key, value, "a rule such as 'deny tx tcp to any port 25'");
            policy.acl = std::move(*acl);
        } else if (key == "dir") {
            if (!parse_directions(value, policy.shape[0], policy.shape[1]))
                return wrong(key, value, kWantDirection);
        } else if (key == "flow-log") {
            if (value.empty()) return wrong(key, value, "a file");
            policy.flow_log = value;
        } else if (key == "flow-idle") {
            const auto time = parse_duration(value);
            if (!time || *time < std::chrono::seconds(1) || *time > std::chrono::hours(24))
                return wrong(key, value, "a time from 1s to 86400s");
            policy.flow_idle = *time;
        } else if (parse_amount(key, value, policy.shaper, failed)) {
            if (failed != nullptr) return wrong(key, value, failed);
        } else {
            return tl::unexpected(fmt::format("unknown key '{}'", key));
        }
    }
    if (policy.check_mac && policy.any_mac)
        return tl::unexpected(
            std::string("mac-check=on and macs=any contradict each other: name the MAC addresses "
                        "that the guest has (macs=MAC+MAC), or leave mac-check away"));
    if (auto contradiction = find_contradiction(policy.shaper))
        return tl::unexpected(std::move(*contradiction));
    if (!policy.filters() && !policy.shapes() && keys->count("mac-check") == 0)
        return tl::unexpected(
            std::string("names no policy: one of mac-check, macs, ips, acl, limit, rdma-limit, "
                        "eth-limit and flow-log is needed"));
    return options;
}

Parsed<std::size_t> parse_queues(const std::string& value) {
    const auto count = parse_number<std::size_t>(value, 1, fabric::UplinkConfig::kMaxQueues);
    if (!count) return wrong("queues", value, "a number from 1 to 16");
    return *count;
}

Parsed<fabric::UplinkConfig> parse_uplink(const std::string& given,
                                          const base::SocketAccess& access) {
    using Kind = fabric::UplinkConfig::Kind;
    fabric::UplinkConfig config;
    std::string text = given;
    auto network = take_network(text);
    if (!network) return tl::unexpected(std::move(network.error()));
    config.network = std::move(*network);
    config.name = text;
    const std::size_t equals = text.find('=');
    const std::string kind = text.substr(0, equals);
    std::string rest = equals == std::string::npos ? "" : text.substr(equals + 1);
    if (kind == "udp") return parse_udp_uplink(rest, config);
    if (kind == "tap") {
        config.kind = Kind::kTap;
        if (rest.empty() || rest.size() >= IFNAMSIZ || rest.find('/') != std::string::npos)
            return wrong("tap", rest, "a name that an interface can have");
        config.interface = rest;
        return config;
    }
    if (kind == "stream") {
        config.kind = Kind::kStream;
        return parse_stream_uplink(rest, config, access);
    }
    if (kind == "vxlan") return parse_vxlan_uplink(rest, std::move(config));
    if (kind == "xdp") return parse_xdp_uplink(rest, std::move(config));
    return tl::unexpected(fmt::format(
        "'{}' is not udp=..., tap=INTERFACE, stream=PATH[,listen[,access=...]], vxlan=... or "
        "xdp=INTERFACE...",
        text));
}

}  // namespace openmana::manad
