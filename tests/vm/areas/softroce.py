# SPDX-License-Identifier: Apache-2.0
"""A guest with MANA and a guest with Soft-RoCE (rdma_rxe on virtio-net), joined by QEMU's stream
netdev, both ways round."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from areas import cm, perftest as tools
from frames import packets_of, summary
from harness import Area, CaseSkipped, Context, check
from programs import check_capture, gbits, gid_index, perftest, ping, verify

AREA = Area("softroce", layout="soft")
_ready: set[int] = set()


def soft(action: Callable[[Context], None], swap: bool, context: Context) -> None:
    """Runs a case with the device of Soft-RoCE there; `swap`: that guest is the server."""
    guest = context.b
    if guest.guest.pid not in _ready:
        guest.run(f"modprobe rdma_rxe && rdma link add {guest.rdma} type rxe netdev "
                  f"{guest.interface}", timeout=60)
        guest.until(f"ibv_devinfo -d {guest.rdma} | grep -q PORT_ACTIVE", "rxe stays down")
        ping(context.a, guest.ip())
        _ready.add(guest.guest.pid)
    ends = context.a, context.b
    if swap:
        context.a, context.b = context.b, context.a
    try:
        action(context)
    finally:
        context.a, context.b = ends


def add(title: str, action: Callable[[Context], None], **options: object) -> None:
    """A case, both ways round."""
    AREA.add(f"{title}, MANA serves", partial(soft, action, False), **options)
    AREA.add(f"{title}, Soft-RoCE serves", partial(soft, action, True), **options)


def bandwidth(tool: str, options: tuple[str, ...], context: Context) -> None:
    """One perftest tool."""
    rows = perftest(context, tool, *options)
    context.note(gbits(rows[0]))


def verified(options: tuple[str, ...], context: Context) -> None:
    """rdma_verify between the two."""
    context.note(verify(context, *options).strip().removeprefix("verified: "))


for _tool in ("ib_send_bw", "ib_write_bw", "ib_read_bw"):
    add(_tool, partial(bandwidth, _tool, ("-s", "65536", "-n", "60")), smoke=True)
# Soft-RoCE on an emulated CPU does not answer for half a second when it sends by itself: -u 18.
add("ib_write_bw -b -q 4", partial(bandwidth, "ib_write_bw", (
    "-b", "-q", "4", "-s", "16384", "-n", "60", "-u", "18")))
add("ibv_rc_pingpong", partial(tools.pingpong, "-n 100 -c"))
add("ibv_rc_pingpong with 256 KiB messages", partial(tools.pingpong, "-n 10 -s 262144 -c"))
for _version in (4, 6):
    add(f"rping over IPv{_version}", partial(cm.rping, "-V", version=_version, count=10), **cm.ONLY)
add("verified: all operations at all edges", partial(
    verified, ("--seed", "81", "--batch", "2", "--max", "262144", "--align", "1")))
add("verified: random sizes, both directions, PSN wrap", partial(
    verified, ("--seed", "82", "--rounds", "20", "--batch", "8", "--max", "40000", "--both",
               "--psn", "0xffff80", "--align", "3")))
add("verified: 4 queue pairs over IPv6", partial(
    verified, ("--seed", "83", "--rounds", "10", "--batch", "8", "--max", "20000", "--both",
               "--qps", "4", "--family", "6")))


@AREA.case("what went between them: tshark finds no error, every ICRC is right", smoke=True)
def decoded(context: Context) -> None:
    if context.pcap is None:
        raise CaseSkipped("this run has no capture")
    context.lab.manactl("capture", "show")  # writes what waits for the disk
    if not packets_of(context.pcap):
        raise CaseSkipped("no case of this run made packets")
    packets = check_capture(context.pcap)
    for source in (context.a.ip(), context.b.ip()):
        mine = [packet for packet in packets if packet.source == source]
        check(mine, f"no packets of {source}")
    context.note(f"{len(packets)} packets, {len(summary(packets))} operations")
    check(gid_index(context.a) >= 0, "the device is gone")
