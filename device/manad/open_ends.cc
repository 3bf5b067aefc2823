// SPDX-License-Identifier: Apache-2.0
#include "manad/open_ends.h"

#include <fmt/format.h>

#include <algorithm>

#include "manad/networks.h"

namespace openmana::manad {
namespace {

/// Names of the NICs of a network whose policy, the default one if they have none, `leaves`
/// something open.
template <typename Leaves>
std::vector<std::string> nics_of(const Options& options, const std::string& network,
                                 Leaves&& leaves) {
    std::vector<std::string> names;
    for (const NicOptions& nic : options.nics) {
        if (nic.network != network) continue;
        const auto found = std::ranges::find(options.policies, nic.nic.name, &PolicyOptions::nic);
        const fabric::PolicyConfig policy =
            found != options.policies.end() ? found->policy : fabric::PolicyConfig();
        if (leaves(nic.nic, policy)) names.push_back(nic.nic.name);
    }
    return names;
}

}  // namespace

std::vector<std::string> open_ends(const Options& options) {
    std::vector<std::string> lines;
    for (const std::string& network : network_names(options)) {
        const auto add = [&](const char* who, const std::vector<std::string>& names,
                             const char* what) {
            if (!names.empty())
                lines.push_back(fmt::format("network={} {}={} what=\"{}\"", network, who,
                                            fmt::join(names, ","), what));
        };
        add("nics",
            nics_of(options, network,
                    [](const auto&, const fabric::PolicyConfig& policy) {
                        return policy.addresses.empty();
                    }),
            "any IP address as source, but for RDMA those that other NICs of the network serve "
            "now\" cure=\"--policy nic=NAME,ips=ADDRESS");
        // By packet queues.
        add("nics",
            nics_of(
                options, network,
                [](const auto&, const fabric::PolicyConfig& policy) { return !policy.check_mac; }),
            "any MAC address as source, but those of other NICs of the network\" cure=\"--policy "
            "nic=NAME,mac-check=on");
        add("nics",
            nics_of(options, network,
                    [](const fabric::NicConfig& nic, const auto&) { return nic.vlans.all; }),
            "any VLAN of the network\" cure=\"--nic ...,vlan=ID, or trunk=ID+ID");
        std::vector<std::string> uplinks;
        for (const fabric::UplinkConfig& uplink : options.uplinks)
            if (uplink.network == network) uplinks.push_back(uplink.name);
        std::vector<std::string> listening;
        for (const fabric::UplinkConfig& uplink : options.uplinks)
            if (uplink.network == network && uplink.kind == fabric::UplinkConfig::Kind::kVxlan &&
                uplink.vxlan.learn == fabric::VxlanConfig::Learn::kAll)
                listening.push_back(uplink.name);
        add("uplinks", listening,
            "who reaches the local address is in the network\" cure=\"learn=peers, with remote= or "
            "fdb=");
        add("uplinks", uplinks,
            "what comes in is believed, but for RDMA from addresses that are by right those of a "
            "NIC of the network");
    }
    return lines;
}

}  // namespace openmana::manad
