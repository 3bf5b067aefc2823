// SPDX-License-Identifier: Apache-2.0
#include "manad/nic_mtus.h"

#include <fmt/format.h>

#include <algorithm>

namespace openmana::manad {

std::vector<NicOptions> with_mtus_of_paths(
    const Options& options, std::vector<std::string>& lines,
    const std::function<std::optional<fabric::UplinkMtu>(const fabric::UplinkConfig&)>& find) {
    std::vector<NicOptions> nics = options.nics;
    for (const fabric::UplinkConfig& uplink : options.uplinks) {
        const auto mtu = find(uplink);
        if (!mtu) continue;
        std::size_t largest = 0;
        for (NicOptions& nic : nics) {
            if (nic.network != uplink.network) continue;
            if (!nic.mtu_given && nic.nic.max_mtu > mtu->inside)
                nic.nic.max_mtu = static_cast<std::uint16_t>(std::max(mtu->inside, kLeastNicMtu));
            largest = std::max<std::size_t>(largest, nic.nic.max_mtu);
        }
        if (largest > mtu->inside)
            lines.push_back(fmt::format(
                "{}: uplink={} path_mtu={} nic_mtu={} fits={} "
                "cure=\"a larger MTU on the path, or no more than {} in the guests\"",
                uplink.kind == fabric::UplinkConfig::Kind::kUdp ? "frames go in fragments"
                                                                : "frames are too large",
                uplink.name, mtu->path, largest, mtu->inside, mtu->inside));
    }
    return nics;
}

}  // namespace openmana::manad
