// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mana/eth.h>

#include <cstdint>

#include "eth/counters.h"
#include "eth/receive_parse.h"

namespace openmana::eth {

/// A frame given to the guest, or sent by it, among those of its kind.
void count_received(EthernetCounters& counters, Cast cast, std::uint64_t bytes);
void count_sent(EthernetCounters& counters, Cast cast, std::uint64_t bytes);

/// The vPort's counters as QUERY_GF_STAT tells them (GDMA 6.9); `wanted`:
/// MANA_HW_ETH_GF_STAT_*.
[[nodiscard]] mana_hw_eth_gf_stat_resp gf_statistics(const EthernetCounters& counters,
                                                     std::uint64_t wanted);
/// The same as QUERY_PHY_STAT tells them: all traffic is of class 0.
[[nodiscard]] mana_hw_eth_phy_stat_resp phy_statistics(const EthernetCounters& counters);

}  // namespace openmana::eth
