// SPDX-License-Identifier: Apache-2.0
#include "manad/networks.h"

#include <algorithm>

#include "base/result.h"

namespace openmana::manad {

std::vector<std::string> network_names(const Options& options) {
    std::vector<std::string> names;
    const auto add = [&](const std::string& name) {
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    };
    for (const NicOptions& nic : options.nics) add(nic.network);
    for (const fabric::UplinkConfig& uplink : options.uplinks) add(uplink.network);
    return names;
}

Networks::Networks(const base::Clock& clock, const Options& options) {
    for (std::string& name : network_names(options))
        all_.push_back({std::move(name), std::make_unique<fabric::Switch>(clock)});
}

fabric::Switch& Networks::of(const std::string& name) const {
    const auto found = std::ranges::find(all_, name, &Network::name);
    OM_CHECK(found != all_.end());
    return *found->network;
}

}  // namespace openmana::manad
