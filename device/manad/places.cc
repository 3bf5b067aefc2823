// SPDX-License-Identifier: Apache-2.0
#include "manad/places.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

namespace openmana::manad {
namespace {

namespace fs = std::filesystem;

/// The directory that a path is made in is there.
std::optional<std::string> no_room(const std::string& path) {
    if (path.empty()) return std::nullopt;
    const fs::path directory =
        fs::path(path).has_parent_path() ? fs::path(path).parent_path() : ".";
    std::error_code error;
    if (fs::is_directory(directory, error)) return std::nullopt;
    return fmt::format("{}: there is no directory {}", path, directory.string());
}

std::optional<std::string> not_there(const std::string& path) {
    std::error_code error;
    if (path.empty() || fs::is_regular_file(path, error)) return std::nullopt;
    return fmt::format("{}: there is no file of that name", path);
}

}  // namespace

std::optional<std::string> find_missing(const Options& options) {
    if (auto missing = no_room(options.control)) return missing;
    if (auto missing = no_room(options.pcap)) return missing;
    for (const MetricsPlace& place : options.metrics)
        if (auto missing = no_room(place.path)) return missing;
    for (const NicOptions& nic : options.nics)
        if (auto missing = no_room(nic.socket)) return missing;
    for (const PolicyOptions& policy : options.policies)
        if (auto missing = no_room(policy.policy.flow_log)) return missing;
    for (const fabric::UplinkConfig& uplink : options.uplinks) {
        if (auto missing = no_room(uplink.path)) return missing;
        if (auto missing = no_room(uplink.vxlan.fdb)) return missing;
        if (auto missing = not_there(uplink.encryption.key_file)) return missing;
    }
    return std::nullopt;
}

}  // namespace openmana::manad
