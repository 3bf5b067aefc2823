# SPDX-License-Identifier: Apache-2.0
"""Both queue pairs on one NIC, and on two NICs of one guest: the same results as between guests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from areas import cm, errors
from harness import Area, Context, check
from programs import ALL_SIZES, gbits, perftest, set_mtu, verify

AREA = Area("placement", layout="one")

PLACES = {"on one NIC": ((0, 0), (0, 0)), "between two NICs of one guest": ((0, 0), (0, 1))}


def placed(place: str, action: Callable[[Context], None], context: Context) -> None:
    """Runs a case with its two ends at a place."""
    ends = context.a, context.b
    context.a, context.b = context.ends(*PLACES[place])
    try:
        action(context)
    finally:
        context.a, context.b = ends


def run_perftest(tool: str, options: tuple[str, ...], sizes: int, context: Context) -> None:
    """perftest between the two ends."""
    rows = perftest(context, tool, *options, sizes=sizes)
    if tool.endswith("_bw"):
        context.note(gbits(max(rows, key=lambda row: float(row[3]))))


def run_verify(options: tuple[str, ...], sges: bool, mtu: int, context: Context) -> None:
    """rdma_verify between the two ends."""
    if mtu != 1500:
        set_mtu(mtu, context.a, context.b)
    try:
        said = verify(context, *options, sges=sges)
    finally:
        if mtu != 1500:
            set_mtu(1500, context.a, context.b)
    context.note(said.strip().removeprefix("verified: "))


def neighbours(context: Context) -> None:
    """Two NICs of one guest, whichever asks first."""
    ends = context.ends((0, 0), (0, 1))
    for own, other in (ends, reversed(ends)):
        # A ping asks: Linux answers one to its own address by itself, but not over a named device.
        own.run(f"ip neigh flush dev {own.interface}; "
                f"ping -c 1 -W {5 * context.patience:.0f} -I {own.interface} {other.ip()}")
        found = own.out(f"ip neigh show dev {own.interface} to {other.ip()}")
        check("lladdr" in found, f"{own.interface} has not found {other.ip()}: {found}")


AREA.add("a NIC finds the other one of its guest, whoever asks", neighbours, smoke=True)

for _place in PLACES:
    for _tool, _options, _sizes in (
            ("ib_write_bw", ("-a", "-n", "60"), ALL_SIZES),
            ("ib_read_bw", ("-s", "65536", "-n", "300"), 1),
            ("ib_send_bw", ("-b", "-s", "65536", "-n", "300"), 1),
            ("ib_send_bw", ("-e", "-s", "65536", "-n", "300"), 1),
            ("ib_write_bw", ("-q", "64", "-s", "16384", "-n", "100", "-N"), 1),
            ("ib_write_lat", ("-s", "8", "-n", "200"), 1),
            ("ib_read_lat", ("-s", "8", "-n", "200"), 1),
            ("ib_send_lat", ("-s", "8", "-n", "200"), 1)):
        AREA.add(f"{' '.join((_tool, *_options))}, {_place}", partial(
            placed, _place, partial(run_perftest, _tool, _options, _sizes)),
            smoke="-q" in _options)
    for _title, _words, _sges, _mtu in (
            ("all operations, sizes 0 to 8 MiB", ("--seed", "61", "--batch", "2", "--align", "1"),
             False, 1500),
            ("random sizes, many SGEs, both directions",
             ("--seed", "62", "--rounds", "40", "--batch", "16", "--max", "70000", "--both",
              "--qps", "4", "--align", "3"), True, 1500),
            ("path MTU 4096", ("--seed", "63", "--rounds", "20", "--batch", "8", "--max", "300000",
                               "--mtu", "4096", "--both"), False, 9000),
            ("PSN wraps, events", ("--seed", "64", "--rounds", "20", "--batch", "8", "--max",
                                   "65536", "--psn", "0xfffff0", "--both", "--events"), False,
             1500)):
        AREA.add(f"verified: {_title}, {_place}", partial(
            placed, _place, partial(run_verify, _words, _sges, _mtu)), smoke=_sges)
    for _mode in ("wrong-rkey", "long-message", "rnr", "closed-peer", "to-err"):
        AREA.add(f"error: {errors.MODES[_mode][0]}, {_place}", partial(
            placed, _place, partial(errors.run, _mode, ())), smoke=_mode == "to-err")
    AREA.add(f"rping -V, {_place}", partial(
        placed, _place, partial(cm.rping, "-V -S 4000")), **cm.ONLY)
