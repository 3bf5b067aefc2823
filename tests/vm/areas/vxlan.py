# SPDX-License-Identifier: Apache-2.0
"""A guest with MANA whose manad has an end of a VXLAN tunnel, and a guest with Soft-RoCE
(rdma_rxe on virtio-net) whose TAP device is on a bridge with the VXLAN device of its host's kernel,
which is the other end, both ways round."""

from __future__ import annotations

from areas import xdp
from harness import Area, Context, check

from lab.session import VNI

AREA = Area("vxlan", layout="vxlan")
LOSSES = ("fabric.uplink.tx_dropped", "fabric.vxlan.too_large", "fabric.vxlan.flood_limited",
          "fabric.vxlan.own_source")

xdp.add_all(AREA, f"vxlan{VNI}")


@AREA.case("what left the tunnel is plain RoCEv2: tshark finds no error, every ICRC is right",
           smoke=True)
def decoded(context: Context) -> None:
    xdp.decode(context)


@AREA.case("nothing was lost at the tunnel, whose other end was learned", smoke=True)
def counted(context: Context) -> None:
    xdp.counters_of(context, LOSSES)
    table = context.lab.manactl("fdb")
    mac = context.b.guest.virtio_macs[0]
    check(any(line.startswith(mac) for line in table.splitlines()),
          f"{mac} was not learned: {table}")
