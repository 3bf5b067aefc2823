# SPDX-License-Identifier: Apache-2.0
"""Captures of RDMA between two guests: tshark decodes them, and a check of our own finds every
ICRC right. Without the capture the same traffic makes no packets."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from areas import cm
from frames import Packet, summary
from harness import Area, Context, check
from programs import captured, check_capture, gid_index, perftest, verify

AREA = Area("capture")
SIZE = 65536
COUNT = 20
# What a tool must show on the wire: how often its messages begin, and who carries the data.
OPERATIONS = {"ib_write_bw": ("WRITE first", "WRITE "), "ib_send_bw": ("SEND first", "SEND "),
              "ib_read_bw": ("READ request", "READ response ")}


def both_links(context: Context, version: int, action: Callable[[], object]) -> list[Packet]:
    """Captures both links during an action; returns the packets, the same on both."""
    with captured(context.a, context.b, folder=context.lab.output_dir) as files:
        action()
    found = [check_capture(path) for path in files]
    keys = [sorted((one.qpn, one.psn, one.opcode, one.size) for one in packets)
            for packets in found]
    check(keys[0] == keys[1], f"{len(keys[0])} packets on one link, {len(keys[1])} on the other")
    data = [packet for packet in found[0] if packet.opcode >> 5 == 0]
    check(data and all(packet.version == version for packet in data),
          f"IPv{version} was asked for, but not all of {len(data)} packets have it")
    context.note(f"{len(found[0])} packets, every ICRC right")
    return found[0]


def tool(name: str, version: int, context: Context) -> None:
    """One perftest tool: every message and every byte is there."""
    gid = gid_index(context.a, version)
    check(gid == gid_index(context.b, version), "the GIDs have different indexes")
    for size in (SIZE, 13):
        packets = both_links(context, version, lambda size=size: perftest(
            context, name, "-s", str(size), "-n", str(COUNT), gid=gid))
        first, prefix = OPERATIONS[name]
        count = summary(packets)
        begun = count[first] + (count[prefix + "only"] if "READ" not in first else 0)
        moved = sum(packet.payload for packet in packets if packet.name.startswith(prefix))
        check(begun >= COUNT and moved >= COUNT * size,
              f"{name} -s {size}: {begun} messages and {moved} bytes in {dict(count)}")


for _version in (4, 6):
    for _tool in OPERATIONS:
        AREA.add(f"{_tool} over IPv{_version}", partial(tool, _tool, _version),
                 smoke=(_tool, _version) == ("ib_read_bw", 4))


def pinged(version: int, context: Context) -> None:
    """rping: connection management on QP1, then SENDs, READs and WRITEs."""
    packets = both_links(context, version,
                         lambda: cm.rping("-V", context, version=version, count=10))
    count = summary(packets)
    for name in ("UD SEND", "SEND only", "READ request", "WRITE only", "ACK"):
        check(count[name] > 0, f"no {name} in {dict(count)}")


for _version in (4, 6):
    AREA.add(f"rping over IPv{_version}", partial(pinged, _version), smoke=_version == 6,
             **cm.ONLY)


@AREA.case("without a capture the same traffic makes no packets")
def local_path(context: Context) -> None:
    if context.pcap is not None or len(context.lab.manads) > 1:
        return  # all of this run's traffic makes packets
    before = context.b.counters()["fabric.port.tx_bytes"]
    perftest(context, "ib_write_bw", "-s", str(SIZE), "-n", "200")
    sent = context.b.counters()["fabric.port.tx_bytes"] - before
    check(sent < SIZE, f"{sent} bytes of frames for {200 * SIZE} bytes of WRITEs")


@AREA.case("captures that come and go while data is verified")
def toggled(context: Context) -> None:
    from threading import Event, Thread
    stop = Event()
    switched: list[int] = []  # packets of each capture
    errors: list[Exception] = []

    def toggle() -> None:
        path = context.lab.output_dir / "toggled.pcap"
        try:
            while not stop.is_set():
                peer = (context.a, context.b)[len(switched) % 2]
                peer.manactl("capture", "start", peer.in_manad, str(path))
                time.sleep(0.15)
                peer.manactl("capture", "stop", peer.in_manad)
                switched.append(len(check_capture(path)))
        except Exception as error:  # raised in the case's own thread, below
            errors.append(error)

    thread = Thread(target=toggle)
    thread.start()
    try:
        verify(context, "--seed", "71", "--rounds", "120", "--batch", "24", "--max", "70000",
               "--both", "--align", "3", "--qps", "2")
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]
    # Those of the first second see nothing: the programs are about to begin. The traffic is of over
    # 10,000 packets; of each link at least one capture has some hundreds of them.
    check(max(switched[0::2]) > 300 and max(switched[1::2]) > 300,
          f"packets in the captures of the two links: {switched[0::2]}, {switched[1::2]}")
    context.note(f"{len(switched)} captures, {sum(switched)} packets")
