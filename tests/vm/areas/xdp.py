# SPDX-License-Identifier: Apache-2.0
"""A guest with MANA whose manad has an interface of its host by AF_XDP, and a guest with Soft-RoCE
(rdma_rxe on virtio-net) whose TAP device is on a bridge with the other end of the wire, both ways
round."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from areas import softroce
from harness import Area, Context, check
from programs import check_capture

from lab.hosts import INTERFACE
from lab.proc import end_group, spawn

AREA = Area("xdp", layout="xdp")
RECORDER = Path(__file__).resolve().parents[1] / "record.py"
FAR = 1  # the host of the bridge
LOSSES = ("tx_full", "tx_large", "rx_groups_lost", "rx_large", "kernel_rx_dropped",
          "kernel_rx_full", "kernel_rx_invalid", "kernel_tx_invalid")
_recorders: list[subprocess.Popen[bytes]] = []


def recorded(interface: str, action: Callable[[Context], None], swap: bool, context: Context
             ) -> None:
    """Runs a case, with all that is on an interface of the far host in the capture of the run."""
    if not _recorders:
        recorder = spawn([*context.lab.hosts.words(FAR), sys.executable, "-B", str(RECORDER),
                          interface, str(context.pcap)], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE)
        _recorders.append(recorder)
        assert recorder.stdout is not None
        check(recorder.stdout.readline() == b"ready\n", "the wire is not recorded")
    softroce.soft(action, swap, context)


def add_all(area: Area, interface: str) -> None:
    """What runs between a guest here and Soft-RoCE behind the wire, both ways round."""
    cases: list[tuple[str, Callable[[Context], None]]] = []
    # Soft-RoCE on an emulated CPU may not answer for half a second: -u 18.
    # Each end of perftest sets the other's number of READs under way, and Soft-RoCE has more than
    # ours.
    for tool, more in (("ib_send_bw", ()), ("ib_write_bw", ()), ("ib_read_bw", ("-o", "16"))):
        cases.append((tool, partial(softroce.bandwidth, tool, ("-s", "65536", "-n", "60", "-u",
                                                               "18", *more))))
    cases.append(("verified: all operations at all edges", partial(
        softroce.verified, ("--seed", "81", "--batch", "2", "--max", "262144", "--align", "1"))))
    cases.append(("verified: 4 queue pairs over IPv6", partial(
        softroce.verified, ("--seed", "83", "--rounds", "10", "--batch", "8", "--max", "20000",
                            "--both", "--qps", "4", "--family", "6"))))
    for title, action in cases:
        for who, swap in (("MANA", False), ("Soft-RoCE", True)):
            area.add(f"{title}, {who} serves", partial(recorded, interface, action, swap),
                     smoke=True)


def decode(context: Context) -> None:
    """Ends the capture, and finds plain RoCEv2 of both in it."""
    check(_recorders, "nothing was recorded")
    recorder = _recorders.pop()
    recorder.terminate()
    check(recorder.wait(30) == 0, "the capture has gaps")
    end_group(recorder, grace=0.5)
    assert context.pcap is not None
    packets = check_capture(context.pcap)
    for source in (context.a.ip(), context.b.ip()):
        check(any(packet.source == source for packet in packets), f"no packets of {source}")
    context.note(f"{len(packets)} packets")


def counters_of(context: Context, names: tuple[str, ...]) -> dict[str, int]:
    """Of the uplink, which carried something; `names` have stayed at zero."""
    uplinks = json.loads(context.lab.manad_of(0).ctl("--json", "uplinks"))["uplinks"]
    counters: dict[str, int] = uplinks[0]["counters"]
    lost = {name: counters[name] for name in names if counters[name]}
    check(not lost, f"lost: {lost}")
    check(counters["fabric.uplink.tx_frames"] > 0 and counters["fabric.uplink.rx_frames"] > 0,
          f"nothing went through: {counters}")
    context.note(f"{counters['fabric.uplink.tx_frames']} frames out, "
                 f"{counters['fabric.uplink.rx_frames']} in")
    return counters


add_all(AREA, INTERFACE)


@AREA.case("what was on the wire is plain RoCEv2: tshark finds no error, every ICRC is right",
           smoke=True)
def decoded(context: Context) -> None:
    decode(context)


@AREA.case("nothing was lost at the interface", smoke=True)
def counted(context: Context) -> None:
    counters_of(context, tuple(f"fabric.xdp.{name}" for name in LOSSES))
