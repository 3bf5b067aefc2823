// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/counters.h"

namespace openmana::eth {

#define OM_ETH_COUNTERS(X)                                                                         \
    X(rx_bytes, "eth.rx.bytes", "bytes of frames given to the guest")                              \
    X(rx_unicast_packets, "eth.rx.unicast_packets", "unicast frames given to the guest")           \
    X(rx_unicast_bytes, "eth.rx.unicast_bytes", "bytes of unicast frames given to the guest")      \
    X(rx_broadcast_packets, "eth.rx.broadcast_packets", "broadcast frames given to the guest")     \
    X(rx_broadcast_bytes, "eth.rx.broadcast_bytes",                                                \
      "bytes of broadcast frames given to the guest")                                              \
    X(rx_multicast_packets, "eth.rx.multicast_packets", "multicast frames given to the guest")     \
    X(rx_multicast_bytes, "eth.rx.multicast_bytes",                                                \
      "bytes of multicast frames given to the guest")                                              \
    X(rx_by_rule, "eth.rx.by_rule", "frames given to the guest by a flow rule")                    \
    X(rx_own, "eth.rx.own", "of these, frames that the port itself sent")                          \
    X(rx_no_wqe, "eth.rx.no_wqe", "frames dropped: no receive WQE posted")                         \
    X(rx_disabled, "eth.rx.disabled", "frames dropped: vPort disabled or link down")               \
    X(rx_no_queue, "eth.rx.no_queue", "frames dropped: steered to no receive queue")               \
    X(rx_filtered, "eth.rx.filtered",                                                              \
      "frames dropped: for a MAC address that the vPort may not have")                             \
    X(rx_malformed, "eth.rx.malformed", "frames dropped: shorter than their headers")              \
    X(rx_too_long, "eth.rx.too_long", "frames dropped: longer than the receive buffer")            \
    X(rx_bad_wqe, "eth.rx.bad_wqe", "frames dropped: receive WQE or its memory is unusable")       \
    X(rx_checksum_bad, "eth.rx.checksum_bad",                                                      \
      "frames delivered with a wrong IP, TCP or UDP checksum")                                     \
    X(rx_fences, "eth.rx.fences", "fence completions written")                                     \
    X(tx_bytes, "eth.tx.bytes", "bytes of frames sent")                                            \
    X(tx_unicast_packets, "eth.tx.unicast_packets", "unicast frames sent")                         \
    X(tx_unicast_bytes, "eth.tx.unicast_bytes", "bytes of unicast frames sent")                    \
    X(tx_broadcast_packets, "eth.tx.broadcast_packets", "broadcast frames sent")                   \
    X(tx_broadcast_bytes, "eth.tx.broadcast_bytes", "bytes of broadcast frames sent")              \
    X(tx_multicast_packets, "eth.tx.multicast_packets", "multicast frames sent")                   \
    X(tx_multicast_bytes, "eth.tx.multicast_bytes", "bytes of multicast frames sent")              \
    X(tx_segments, "eth.tx.segments", "frames cut by segmentation offload")                        \
    X(tx_link_down, "eth.tx.link_down", "frames dropped: link down")                               \
    X(tx_vport_offset, "eth.tx.vport_offset",                                                      \
      "WQEs refused: vPort offset is not that of the vPort")                                       \
    X(tx_ethertype, "eth.tx.ethertype", "WQEs refused: offload asked for another EtherType")       \
    X(tx_source, "eth.tx.source",                                                                  \
      "WQEs of the interface refused: from a MAC address that the vPort may not have")             \
    X(tx_mtu, "eth.tx.mtu", "WQEs refused: longer than the MTU")                                   \
    X(tx_oob, "eth.tx.oob", "WQEs refused: WQE or OOB makes no sense")                             \
    X(tx_headers, "eth.tx.headers", "WQEs refused: packet headers do not fit the offload")         \
    X(tx_gdma, "eth.tx.gdma", "WQEs refused: memory of the packet cannot be read")                 \
    X(doorbell_ignored, "eth.doorbell.ignored", "doorbells beyond the ring, or on a failed queue") \
    X(commands_failed, "eth.command.failed", "commands answered with an error status")

OM_COUNTERS(EthernetCounters, OM_ETH_COUNTERS);

}  // namespace openmana::eth
