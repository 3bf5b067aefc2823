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

Networks::Networks(const base::Clock& clock, const Options& options) : clock_(clock) {
    for (const std::string& name : network_names(options)) add(name);
}

fabric::Switch& Networks::add(const std::string& name) {
    all_.push_back({name, std::make_unique<fabric::Switch>(clock_)});
    return *all_.back().network;
}

fabric::Switch* Networks::find(const std::string& name) const {
    const auto found = std::ranges::find(all_, name, &Network::name);
    return found == all_.end() ? nullptr : found->network.get();
}

fabric::Switch& Networks::of(const std::string& name) const {
    fabric::Switch* const network = find(name);
    OM_CHECK(network != nullptr);
    return *network;
}

}  // namespace openmana::manad
