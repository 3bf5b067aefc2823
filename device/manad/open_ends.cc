// SPDX-License-Identifier: Apache-2.0
#include "manad/open_ends.h"

#include <fmt/format.h>

#include <algorithm>

namespace openmana::manad {
namespace {

/// Names of the NICs whose policy, the default one if they have none, `leaves` something open.
template <typename Leaves>
std::vector<std::string> nics_of(const Options& options, Leaves&& leaves) {
    std::vector<std::string> names;
    for (const NicOptions& nic : options.nics) {
        const auto found = std::ranges::find(options.policies, nic.nic.name, &PolicyOptions::nic);
        const fabric::PolicyConfig policy =
            found != options.policies.end() ? found->policy : fabric::PolicyConfig();
        if (leaves(nic.nic, policy)) names.push_back(nic.nic.name);
    }
    return names;
}

void add(std::vector<std::string>& lines, const char* who, const std::vector<std::string>& names,
         const char* what) {
    if (!names.empty()) lines.push_back(fmt::format("{}={} {}", who, fmt::join(names, ","), what));
}

}  // namespace

std::vector<std::string> open_ends(const Options& options) {
    std::vector<std::string> lines;
    add(lines, "nics",
        nics_of(options,
                [](const auto&, const fabric::PolicyConfig& policy) {
                    return policy.addresses.empty();
                }),
        "what=\"any IP address as source, but for RDMA those that other NICs serve now\" "
        "cure=\"--policy nic=NAME,ips=ADDRESS\"");
    // By packet queues.
    add(lines, "nics",
        nics_of(options,
                [](const auto&, const fabric::PolicyConfig& policy) { return !policy.check_mac; }),
        "what=\"any MAC address as source, but those of other NICs\" "
        "cure=\"--policy nic=NAME,mac-check=on\"");
    std::vector<std::string> uplinks;
    for (const fabric::UplinkConfig& uplink : options.uplinks) uplinks.push_back(uplink.name);
    add(lines, "uplinks", uplinks,
        "what=\"what comes in is believed, but for RDMA from addresses that are a NIC's here by "
        "right\"");
    return lines;
}

}  // namespace openmana::manad
