// SPDX-License-Identifier: Apache-2.0
#include "eth/statistics.h"

namespace openmana::eth {

void count_received(EthernetCounters& counters, Cast cast, std::uint64_t bytes) {
    counters.rx_bytes.add(bytes);
    switch (cast) {
        case Cast::kUnicast:
            counters.rx_unicast_packets.add();
            counters.rx_unicast_bytes.add(bytes);
            break;
        case Cast::kMulticast:
            counters.rx_multicast_packets.add();
            counters.rx_multicast_bytes.add(bytes);
            break;
        case Cast::kBroadcast:
            counters.rx_broadcast_packets.add();
            counters.rx_broadcast_bytes.add(bytes);
            break;
    }
}

void count_sent(EthernetCounters& counters, Cast cast, std::uint64_t bytes) {
    counters.tx_bytes.add(bytes);
    switch (cast) {
        case Cast::kUnicast:
            counters.tx_unicast_packets.add();
            counters.tx_unicast_bytes.add(bytes);
            break;
        case Cast::kMulticast:
            counters.tx_multicast_packets.add();
            counters.tx_multicast_bytes.add(bytes);
            break;
        case Cast::kBroadcast:
            counters.tx_broadcast_packets.add();
            counters.tx_broadcast_bytes.add(bytes);
            break;
    }
}

mana_hw_eth_gf_stat_resp gf_statistics(const EthernetCounters& counters, std::uint64_t wanted) {
    mana_hw_eth_gf_stat_resp out{};
    out.reported = wanted & MANA_HW_ETH_GF_STAT_ALL;
    out.rx_no_wqe = counters.rx_no_wqe.value();
    out.rx_vport_disabled = counters.rx_disabled.value() + counters.rx_no_queue.value();
    out.rx_bytes = counters.rx_bytes.value();
    out.rx_unicast_packets = counters.rx_unicast_packets.value();
    out.rx_unicast_bytes = counters.rx_unicast_bytes.value();
    out.rx_broadcast_packets = counters.rx_broadcast_packets.value();
    out.rx_broadcast_bytes = counters.rx_broadcast_bytes.value();
    out.rx_multicast_packets = counters.rx_multicast_packets.value();
    out.rx_multicast_bytes = counters.rx_multicast_bytes.value();
    out.tx_vport_disabled = counters.tx_link_down.value();
    out.tx_vport_offset = counters.tx_vport_offset.value();
    out.tx_ethertype = counters.tx_ethertype.value();
    out.tx_source = counters.tx_source.value();
    out.tx_mtu = counters.tx_mtu.value();
    out.tx_oob = counters.tx_oob.value() + counters.tx_headers.value();
    out.tx_bytes = counters.tx_bytes.value();
    out.tx_unicast_packets = counters.tx_unicast_packets.value();
    out.tx_unicast_bytes = counters.tx_unicast_bytes.value();
    out.tx_broadcast_packets = counters.tx_broadcast_packets.value();
    out.tx_broadcast_bytes = counters.tx_broadcast_bytes.value();
    out.tx_multicast_packets = counters.tx_multicast_packets.value();
    out.tx_multicast_bytes = counters.tx_multicast_bytes.value();
    out.tx_gdma = counters.tx_gdma.value();
    return out;
}

mana_hw_eth_phy_stat_resp phy_statistics(const EthernetCounters& counters) {
    mana_hw_eth_phy_stat_resp out{};
    out.rx_drops = counters.rx_no_wqe.value() + counters.rx_disabled.value() +
                   counters.rx_no_queue.value() + counters.rx_malformed.value() +
                   counters.rx_too_long.value() + counters.rx_bad_wqe.value();
    out.tx_drops = counters.tx_link_down.value();
    // [0] receive, [1] transmit
    out.packets[0] = counters.rx_unicast_packets.value() + counters.rx_broadcast_packets.value() +
                     counters.rx_multicast_packets.value();
    out.packets[1] = counters.tx_unicast_packets.value() + counters.tx_broadcast_packets.value() +
                     counters.tx_multicast_packets.value();
    out.bytes[0] = counters.rx_bytes.value();
    out.bytes[1] = counters.tx_bytes.value();
    return out;
}

}  // namespace openmana::eth
