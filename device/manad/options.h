// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/frame.h"
#include "base/log.h"
#include "base/log_output.h"
#include "base/unix_socket.h"
#include "fabric/nic.h"
#include "fabric/uplink.h"
#include "manad/account.h"
#include "manad/metrics_server.h"
#include "manad/network_options.h"
#include "manad/sandbox.h"
#include "pci/endpoint.h"

namespace openmana::manad {

/// One `--nic`.
struct NicOptions {
    std::string socket;
    base::SocketAccess access;
    std::string network = fabric::kDefaultNetwork;
    fabric::NicConfig nic;
    bool migration = true;    ///< its client may move its guest
    base::Duration retain{};  ///< how long it is kept for another client of its guest
    bool mtu_given = false;   ///< nic.max_mtu was said, and does not follow from uplinks
    std::string text;         ///< as given, in the order of the keys
    bool came_later = false;  ///< and so is none of those that a reload is about
    pci::DmaLimits dma{};     ///< not an option
};

struct Options {
    std::string config;  ///< the file that they are from, besides the command line; empty: none
    /// What stays as it is while manad runs: the option and its text, in their order.
    std::vector<std::pair<std::string, std::string>> fixed;
    std::vector<NicOptions> nics;
    std::vector<fabric::UplinkConfig> uplinks;
    std::vector<FaultOptions> faults;
    std::vector<PolicyOptions> policies;
    std::vector<MetricsPlace> metrics;
    std::string pcap;     ///< file for all frames; empty: none
    std::string control;  ///< path of the control socket; empty: none
    /// Control socket of the process in whose place this one comes; empty: none.
    std::string take_over;
    base::SocketAccess control_access;
    base::SocketAccess socket_access;  ///< of NICs and uplinks that say nothing else
    std::optional<Account> user;       ///< whom to become
    Seccomp seccomp = Seccomp::kKill;
    bool monitor = false;  ///< another process goes on when the one that serves has ended
    base::LogLevel log_level = base::LogLevel::kInfo;
    base::LogFormat log_format = base::LogFormat::kAuto;
};

/// What a command line came to: options, or a text and an exit status (help, version, or an error
/// in one line).
struct ParsedOptions {
    Options options;
    bool exit = false;
    int status = 0;
    std::string text;
};

[[nodiscard]] ParsedOptions parse_options(int argc, const char* const* argv);

/// The value of one `--nic`. `access` is that of a socket that the text says nothing else of.
[[nodiscard]] Parsed<NicOptions> parse_nic(const std::string& text,
                                           const base::SocketAccess& access);
/// What contradicts something else in the options, in words for the one who typed it; nothing if
/// they go together.
[[nodiscard]] std::optional<std::string> find_conflict(const Options& options);

/// A locally administered unicast address that depends on the name alone, so that a NIC keeps it
/// over restarts.
[[nodiscard]] base::MacAddr default_mac(const std::string& name);
using base::to_string;

}  // namespace openmana::manad
