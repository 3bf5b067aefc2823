// SPDX-License-Identifier: Apache-2.0
#include "manad/options.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "manad/config_file.h"
#include "manad/places.h"
#include "manad/vlan_options.h"

namespace openmana::manad {
namespace {

constexpr std::uint16_t kMinMtu = 1500;
constexpr std::uint16_t kMaxMtu = 9000;
constexpr std::uint64_t kMinMemory = 16ULL << 20;
constexpr std::uint64_t kMaxMemory = 1ULL << 40;
constexpr std::uint32_t kMaxRetain = 3600;

/// An option that makes no sense, in words for the one who typed it.
struct BadOption {
    std::string text;
};

/// Networks with one local address share sockets and threads.
std::optional<std::string> find_vxlan_conflict(const std::vector<fabric::UplinkConfig>& uplinks) {
    std::set<std::string> names;
    std::map<std::string, const fabric::UplinkConfig*> firsts;
    for (const fabric::UplinkConfig& uplink : uplinks) {
        if (uplink.kind != fabric::UplinkConfig::Kind::kVxlan) continue;
        if (!names.insert(uplink.name).second)
            return fmt::format("--uplink: there are two {}", uplink.name);
        const std::string local = uplink.local.text();
        const fabric::UplinkConfig& first = *firsts.emplace(local, &uplink).first->second;
        if (first.vxlan.ttl != uplink.vxlan.ttl)
            return fmt::format("--uplink: the networks of {} have one ttl", local);
        if (first.queues != uplink.queues)
            return fmt::format("--uplink: the networks of {} have the same queues", local);
    }
    return std::nullopt;
}

/// Reads each text of an option that may come several times.
template <typename T, typename Parse>
std::optional<BadOption> read_all(const std::vector<OptionText>& texts, const Parse& parse,
                                  std::vector<T>& into) {
    for (const OptionText& text : texts) {
        auto value = parse(text.text);
        if (!value) return BadOption{fmt::format("{}: {}", text.where, value.error())};
        into.push_back(std::move(*value));
    }
    return std::nullopt;
}

/// What was typed, before it is read.
struct Texts {
    std::vector<std::string> nics;
    std::vector<std::string> uplinks;
    std::vector<std::string> faults;
    std::vector<std::string> policies;
    std::vector<std::string> metrics;
    std::string config;
    bool check = false;
    std::string take_over;
    std::string pcap;
    std::string control;
    std::string socket_access;
    std::string control_access;
    std::string user;
    std::string seccomp;
    std::string monitor;
    std::string level;
    std::string format;
};

void declare(CLI::App& app, Texts& texts) {
    app.set_version_flag("--version", "manad " OPENMANA_VERSION);
    const auto repeatable = [&](const char* name, std::vector<std::string>& into,
                                const char* help) {
        return app.add_option(name, into, help)
            ->take_all()
            ->expected(1)
            ->allow_extra_args(false)
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    };
    repeatable("--nic", texts.nics,
               "A NIC: id=NAME,socket=PATH[,network=NAME][,access=USER:GROUP:MODE]"
               "[,vlan=ID | ,trunk=ID+ID-ID[,native=ID]][,mac=XX:XX:XX:XX:XX:XX]"
               "[,mtu=1500..9000][,speed=MBIT][,memory=SIZE][,error-cqes=always|asked]"
               "[,congestion=on|off][,ext=on|off]"
               "[,migration=on|off][,incoming=on|off][,retain=SECONDS]; repeatable");
    repeatable("--uplink", texts.uplinks,
               "A way out of a network: udp=local=IP:PORT,remote=IP:PORT[,queues=N][,key-file=FILE"
               "[,rekey=3600s]] or tap=INTERFACE or "
               "stream=PATH[,listen[,access=USER:GROUP:MODE]] or "
               "vxlan=local=IP[:PORT],vni=N[,remote=IP[:PORT]+..][,learn=peers|on|off][,fdb=FILE]"
               "[,fdb-dev=NAME][,dscp=N|inherit][,ttl=N][,flood=N|off][,queues=N] or "
               "xdp=INTERFACE[,queues=N|all][,mode=auto|zero-copy|copy|generic], and "
               "[,network=NAME]; repeatable");
    repeatable("--fault", texts.faults,
               "Faults of a NIC's link: "
               "nic=NAME[,dir=tx|rx|both][,loss=1%][,dup=..][,reorder=..][,corrupt=..]"
               "[,delay=10us][,jitter=5us][,flap=UP/DOWN][,seed=N]; repeatable");
    repeatable(
        "--policy", texts.policies,
        "What a NIC may do: nic=NAME[,mac-check=on][,macs=MAC+..|any][,ips=ADDR[/LEN]+..]"
        "[,acl=RULE;..][,limit=10G]"
        "[,rdma-limit=..][,eth-limit=..][,rdma-guarantee=..][,eth-guarantee=..][,dir=tx|rx|both][,"
        "queue=..]"
        "[,ecn=..][,flow-log=FILE][,flow-idle=60s] (docs/network.md); repeatable");
    repeatable("--metrics", texts.metrics,
               "Serve figures for Prometheus by HTTP, at /metrics: IP:PORT, or "
               "PATH[,access=USER:GROUP:MODE] of a Unix socket; repeatable");
    app.add_option(
        "--config", texts.config,
        "A file that says all this (docs/manad.md); what is typed besides adds to it, or "
        "goes before it");
    app.add_flag("--check", texts.check, "Say whether the options and the file are right, no more");
    app.add_option("--take-over", texts.take_over,
                   "Go on in the place of the manad with this control socket, with its guests, its "
                   "sockets and its uplinks; if that fails, it goes on itself");
    app.add_option("--pcap", texts.pcap,
                   "Write every frame of all networks to this file, for Wireshark");
    app.add_option("--control", texts.control, "Socket for manactl");
    app.add_option("--socket-access", texts.socket_access,
                   "Who may connect to the sockets of NICs and uplinks: USER:GROUP:MODE, each of "
                   "which may be empty");
    app.add_option("--control-access", texts.control_access,
                   "Who may connect to the socket for manactl: USER:GROUP:MODE");
    app.add_option("--user", texts.user,
                   "Started as root, become this user before anything is made: USER[:GROUP]");
    app.add_option("--seccomp", texts.seccomp,
                   "What a system call that manad never needs comes to once it is ready: kill (of "
                   "manad, the default), log, or off, as it always is in builds with sanitizers");
    app.add_option("--monitor", texts.monitor,
                   "on: when manad crashes another process goes on with its guests, whose drivers "
                   "are asked for a reset (docs/manad.md); off, the default: it ends");
    app.add_option(
        "--log", texts.level,
        "Least severe line to log: trace, debug, info (the default), warn, error or off");
    app.add_option("--log-format", texts.format,
                   "How lines of the log are written: text, json, journal (systemd's, by its "
                   "socket), or auto, the default: journal if stderr leads there, else text");
}

tl::expected<Account, BadOption> read_user(const OptionText& text) {
    const auto account = parse_account(text.text);
    if (!account) return tl::unexpected(BadOption{text.where + ": " + account.error()});
    if (account->uid == 0)
        return tl::unexpected(BadOption{text.where + ": root is the one that manad should not be"});
    return *account;
}

/// What is right for a text that is one of a few words.
template <typename T>
std::optional<T> one_of(const std::string& text,
                        std::initializer_list<std::pair<const char*, T>> words) {
    for (const auto& [word, value] : words)
        if (text == word) return value;
    return std::nullopt;
}

/// "IP:PORT", or "PATH[,access=USER:GROUP:MODE]".
Parsed<MetricsPlace> parse_metrics(const std::string& text, const base::SocketAccess& access) {
    constexpr std::string_view kAccess = ",access=";
    MetricsPlace place;
    place.text = text;
    place.access = access;
    if (text.find('/') == std::string::npos) {
        const auto address = base::SocketAddress::parse(text);
        if (!address)
            return tl::unexpected(fmt::format("{} is neither IP:PORT nor the path of a socket: {}",
                                              text, address.error().text));
        place.address = *address;
        return place;
    }
    const std::size_t comma = text.find(kAccess);
    place.path = text.substr(0, comma);
    if (place.path.size() >= sizeof(sockaddr_un::sun_path))
        return wrong("metrics", place.path, "a path that a socket can have");
    if (comma == std::string::npos) return place;
    const auto own = parse_access(text.substr(comma + kAccess.size()));
    if (!own) return tl::unexpected("access: " + own.error());
    place.access = *own;
    return place;
}

/// The options that may be there once.
std::optional<BadOption> read_scalars(const std::map<std::string, OptionText>& scalars,
                                      Options& options) {
    const auto find = [&](const char* name, const char* otherwise) {
        const auto found = scalars.find(name);
        return found != scalars.end() ? found->second
                                      : OptionText{otherwise, std::string("--") + name};
    };
    options.pcap = find("pcap", "").text;
    options.control = find("control", "").text;
    if (options.control.size() >= sizeof(sockaddr_un::sun_path))
        return BadOption{find("control", "").where + ": the path is too long for a socket"};
    const OptionText seccomp = find("seccomp", "kill");
    const auto action = one_of<Seccomp>(
        seccomp.text, {{"kill", Seccomp::kKill}, {"log", Seccomp::kLog}, {"off", Seccomp::kOff}});
    if (!action)
        return BadOption{
            fmt::format("{}: '{}' is not kill, log or off", seccomp.where, seccomp.text)};
    options.seccomp = *action;
    const OptionText monitor = find("monitor", "off");
    const auto monitored = one_of<bool>(monitor.text, {{"on", true}, {"off", false}});
    if (!monitored)
        return BadOption{fmt::format("{}: '{}' is not on or off", monitor.where, monitor.text)};
    options.monitor = *monitored;
    const OptionText log = find("log", "info");
    const auto level = base::log_level_of(log.text);
    if (!level)
        return BadOption{fmt::format("{}: '{}' is not trace, debug, info, warn, error or off",
                                     log.where, log.text)};
    options.log_level = *level;
    const OptionText log_format = find("log-format", "auto");
    const auto format = base::log_format_of(log_format.text);
    if (!format)
        return BadOption{fmt::format("{}: '{}' is not text, json, journal or auto",
                                     log_format.where, log_format.text)};
    options.log_format = *format;
    if (const OptionText user = find("user", ""); !user.text.empty()) {
        const auto account = read_user(user);
        if (!account) return account.error();
        options.user = *account;
    }
    for (const auto& [name, access] : {std::pair{"socket-access", &options.socket_access},
                                       std::pair{"control-access", &options.control_access}}) {
        const OptionText text = find(name, "::");
        const auto parsed = parse_access(text.text);
        if (!parsed) return BadOption{text.where + ": " + parsed.error()};
        *access = *parsed;
    }
    return std::nullopt;
}

tl::expected<Options, BadOption> read(const ConfigTexts& texts) {
    Options options;
    if (auto bad = read_scalars(texts.scalars, options)) return tl::unexpected(std::move(*bad));
    const auto nic = [&](const std::string& text) {
        return parse_nic(text, options.socket_access);
    };
    const auto uplink = [&](const std::string& text) {
        return parse_uplink(text, options.socket_access);
    };
    auto bad = read_all(texts.nics, nic, options.nics);
    if (!bad) bad = read_all(texts.uplinks, uplink, options.uplinks);
    if (!bad) bad = read_all(texts.faults, parse_faults, options.faults);
    if (!bad) bad = read_all(texts.policies, parse_policy, options.policies);
    const auto metrics = [&](const std::string& text) {
        return parse_metrics(text, options.control_access);
    };
    if (!bad) bad = read_all(texts.metrics, metrics, options.metrics);
    if (bad) return tl::unexpected(std::move(*bad));
    for (const auto& [name, text] : texts.scalars)
        if (name != "log") options.fixed.emplace_back(name, text.text);
    for (const OptionText& text : texts.uplinks) options.fixed.emplace_back("uplink", text.text);
    for (const OptionText& text : texts.metrics) options.fixed.emplace_back("metrics", text.text);
    if (auto conflict = find_conflict(options))
        return tl::unexpected(BadOption{std::move(*conflict)});
    if (options.nics.empty() && options.control.empty())
        return tl::unexpected(
            BadOption{"no NIC, and no --control by which one could come: --nic is needed"});
    return options;
}

/// What was typed, behind what the file says.
Parsed<ConfigTexts> with_file(const CLI::App& app, const Texts& typed) {
    ConfigTexts all;
    if (!typed.config.empty()) {
        auto file = read_config_file(typed.config);
        if (!file) return file;
        all = std::move(*file);
    }
    const auto append = [](const char* option, const std::vector<std::string>& texts,
                           std::vector<OptionText>& into) {
        for (const std::string& text : texts) into.push_back({text, option});
    };
    append("--nic", typed.nics, all.nics);
    append("--uplink", typed.uplinks, all.uplinks);
    append("--fault", typed.faults, all.faults);
    append("--policy", typed.policies, all.policies);
    append("--metrics", typed.metrics, all.metrics);
    for (const auto& [option, text] :
         {std::pair{"--pcap", &typed.pcap}, std::pair{"--control", &typed.control},
          std::pair{"--socket-access", &typed.socket_access},
          std::pair{"--control-access", &typed.control_access}, std::pair{"--user", &typed.user},
          std::pair{"--seccomp", &typed.seccomp}, std::pair{"--monitor", &typed.monitor},
          std::pair{"--log", &typed.level}, std::pair{"--log-format", &typed.format}})
        if (app.count(option) != 0)
            all.scalars.insert_or_assign(option + 2, OptionText{*text, option});
    return all;
}

ParsedOptions refusal(const std::string& why) {
    ParsedOptions parsed;
    parsed.exit = true;
    parsed.status = 2;
    parsed.text = fmt::format("manad: {}\n", why);
    return parsed;
}

/// What --check says of options that go together.
ParsedOptions checked(const Options& options) {
    if (auto missing = find_missing(options)) return refusal(*missing);
    ParsedOptions parsed;
    parsed.exit = true;
    parsed.text = fmt::format("{} NICs, {} uplinks, {} policies: nothing is wrong\n",
                              options.nics.size(), options.uplinks.size(), options.policies.size());
    return parsed;
}

}  // namespace

base::MacAddr default_mac(const std::string& name) {
    std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    base::MacAddr mac{0x02};
    for (std::size_t i = 1; i < 6; ++i) mac[i] = static_cast<std::uint8_t>(hash >> (8 * i));
    return mac;
}

Parsed<NicOptions> parse_nic(const std::string& text, const base::SocketAccess& access) {
    auto keys = split_keys(text);
    if (!keys) return tl::unexpected(keys.error());
    NicOptions options;
    options.access = access;
    bool has_mac = false;
    for (const auto& [key, value] : *keys) {
        if (key == "id") {
            if (!valid_name(value)) return wrong(key, value, kWantName);
            options.nic.name = value;
        } else if (key == "network") {
            if (!valid_name(value)) return wrong(key, value, kWantName);
            options.network = value;
        } else if (key == "socket") {
            if (value.empty() || value.size() >= sizeof(sockaddr_un::sun_path))
                return wrong(key, value, "a path that a socket can have");
            options.socket = value;
        } else if (key == "vlan" || key == "trunk" || key == "native") {
            continue;  // all of them together, below
        } else if (key == "access") {
            const auto own = parse_access(value);
            if (!own) return tl::unexpected("access: " + own.error());
            options.access = *own;
        } else if (key == "mac") {
            const auto mac = parse_mac(value);
            if (!mac || ((*mac)[0] & 1) != 0 || *mac == base::MacAddr{})
                return wrong(key, value, "a unicast address");
            options.nic.mac = *mac;
            has_mac = true;
        } else if (key == "mtu") {
            const auto mtu = parse_number<std::uint16_t>(value, kMinMtu, kMaxMtu);
            if (!mtu) return wrong(key, value, "a number from 1500 to 9000");
            options.nic.max_mtu = *mtu;
            options.mtu_given = true;
        } else if (key == "speed") {
            const auto speed = parse_number<std::uint32_t>(value, 1, 1000000);
            if (!speed) return wrong(key, value, "a speed in Mbit/s from 1 to 1000000");
            options.nic.link_speed_mbps = *speed;
        } else if (key == "memory") {
            const auto memory = parse_size(value);
            if (!memory || *memory < kMinMemory || *memory > kMaxMemory)
                return wrong(key, value, "a size from 16M to 1024G");
            options.nic.memory = *memory;
        } else if (key == "error-cqes") {
            if (value != "always" && value != "asked")
                return wrong(key, value, "'always' or 'asked'");
            options.nic.error_cqes_unasked = value == "always";
        } else if (key == "congestion") {
            if (value != "on" && value != "off") return wrong(key, value, "'on' or 'off'");
            options.nic.congestion = value == "on";
        } else if (key == "ext") {
            if (value != "on" && value != "off") return wrong(key, value, "'on' or 'off'");
            options.nic.extensions = value == "on";
        } else if (key == "incoming") {
            if (value != "on" && value != "off") return wrong(key, value, "'on' or 'off'");
            options.nic.incoming = value == "on";
        } else if (key == "migration") {
            if (value != "on" && value != "off") return wrong(key, value, "'on' or 'off'");
            options.migration = value == "on";
        } else if (key == "retain") {
            const auto seconds = parse_number<std::uint32_t>(value, 0, kMaxRetain);
            if (!seconds) return wrong(key, value, "a number of seconds from 0 to 3600");
            options.retain = std::chrono::seconds(*seconds);
        } else {
            return tl::unexpected(fmt::format("unknown key '{}'", key));
        }
    }
    if (!keys->contains("id")) return tl::unexpected(std::string("id= is missing"));
    if (!keys->contains("socket")) return tl::unexpected(std::string("socket= is missing"));
    if (!options.migration && (options.nic.incoming || options.retain.count() > 0))
        return tl::unexpected(std::string("incoming= and retain= need migration=on"));
    const auto vlans = parse_vlans(*keys);
    if (!vlans) return tl::unexpected(vlans.error());
    options.nic.vlans = *vlans;
    if (!has_mac) options.nic.mac = default_mac(options.nic.name);
    options.text = in_order(*keys);
    return options;
}

std::optional<std::string> find_conflict(const Options& options) {
    std::set<std::string> names;
    std::set<std::string> sockets;
    std::set<std::pair<std::string, base::MacAddr>> macs;
    if (!options.control.empty()) sockets.insert(options.control);
    for (const NicOptions& nic : options.nics) {
        if (!names.insert(nic.nic.name).second)
            return fmt::format("two NICs have the id {}", nic.nic.name);
        if (!sockets.insert(nic.socket).second)
            return fmt::format("socket {} is named twice", nic.socket);
        if (!macs.insert({nic.network, nic.nic.mac}).second)
            return fmt::format("two NICs of the network {} have the address {}", nic.network,
                               to_string(nic.nic.mac));
    }
    if (auto conflict = find_vxlan_conflict(options.uplinks)) return conflict;
    if (options.monitor && std::ranges::any_of(options.uplinks, [](const auto& uplink) {
            return uplink.kind == fabric::UplinkConfig::Kind::kXdp;
        }))
        return std::string("--monitor: an XDP uplink is made once, and no other process has it");
    std::set<std::string> interfaces;
    for (const fabric::UplinkConfig& uplink : options.uplinks)
        if (uplink.kind == fabric::UplinkConfig::Kind::kXdp &&
            !interfaces.insert(uplink.interface).second)
            return fmt::format("--uplink: there are two {}", uplink.name);
    for (const fabric::UplinkConfig& uplink : options.uplinks)
        if (uplink.listen && !sockets.insert(uplink.path).second)
            return fmt::format("socket {} is named twice", uplink.path);
    for (const MetricsPlace& place : options.metrics)
        if (!place.path.empty() && !sockets.insert(place.path).second)
            return fmt::format("socket {} is named twice", place.path);
    std::set<std::pair<std::string, std::size_t>> faulty;
    std::set<std::string> flapping;
    for (const FaultOptions& fault : options.faults) {
        if (!names.contains(fault.nic))
            return fmt::format("--fault: there is no NIC '{}'", fault.nic);
        for (std::size_t i = 0; i < fabric::kDirections; ++i)
            if (fault.faults.any() && fault.directions[i] && !faulty.insert({fault.nic, i}).second)
                return fmt::format("--fault: {} has faults of this direction already", fault.nic);
        if (fault.flaps.any() && !flapping.insert(fault.nic).second)
            return fmt::format("--fault: {} flaps already", fault.nic);
    }
    std::set<std::string> ruled;
    for (const PolicyOptions& policy : options.policies) {
        if (!names.contains(policy.nic))
            return fmt::format("--policy: there is no NIC '{}'", policy.nic);
        if (!ruled.insert(policy.nic).second)
            return fmt::format("--policy: {} has a policy already", policy.nic);
    }
    return std::nullopt;
}

ParsedOptions parse_options(int argc, const char* const* argv) {
    CLI::App app{"manad: MANA network adapters for QEMU guests, one per socket, over vfio-user"};
    Texts texts;
    declare(app, texts);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& success) {
        ParsedOptions parsed;
        parsed.exit = true;
        parsed.text =
            success.get_name() == "CallForVersion" ? "manad " OPENMANA_VERSION "\n" : app.help();
        return parsed;
    } catch (const CLI::ParseError& error) {
        return refusal(error.what());
    }
    if (app.count("--pcap") != 0 && texts.pcap.empty()) return refusal("--pcap: needs a file");
    if (app.count("--user") != 0 && texts.user.empty()) return refusal("--user: needs a user");
    if (app.count("--config") != 0 && texts.config.empty())
        return refusal("--config: needs a file");
    auto all = with_file(app, texts);
    if (!all) return refusal(all.error());
    auto options = read(*all);
    if (!options) return refusal(options.error().text);
    options->config = texts.config;
    options->take_over = texts.take_over;
    if (texts.check) return checked(*options);
    ParsedOptions parsed;
    parsed.options = std::move(*options);
    return parsed;
}

}  // namespace openmana::manad
