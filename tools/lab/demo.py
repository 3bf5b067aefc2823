# SPDX-License-Identifier: Apache-2.0
"""manalab demo: ib_write_bw between two guests, and three lines on what that says."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Sequence

from .build import ensure_manad
from .chart import human_size
from .errors import LabError
from .guest import Guest, GuestSpec
from .paths import IS_SOURCE_TREE
from .perftest import TRIES, is_timed, mend, perftest, table_rows, timed_line
from .prepare import beside
from .progress import Step, say
from .session import Lab

# The largest size, for a moment: emulation translates the program, and host and guest touch all of
# its memory for the first time.
WARM_UP = ("-F", "-s", str(1 << 23), "-n", "50")
# Runs, in all, for rows that perftest could not time; each takes two or three seconds.
MOST_REPEATS = 10
# The best row of Soft-RoCE between the same guests, Gb/s, of the table in docs/benchmarks.md.
SOFT_ROCE = 0.18
# Many short rounds, of which one is not disturbed.
COPY_ROUNDS = 40
COPY_SECONDS = 0.005


def copy_speed(size: int) -> float:
    """Gb/s of the host's memcpy between two buffers: the best round."""
    source = ctypes.create_string_buffer(b"x" * size, size)
    target = ctypes.create_string_buffer(b"y" * size, size)
    batch = max(1, (1 << 22) // size)
    best = 0.0
    for _ in range(COPY_ROUNDS):
        begin, copies, elapsed = time.perf_counter(), 0, 0.0
        while elapsed < COPY_SECONDS:
            for _ in range(batch):
                ctypes.memmove(target, source, size)
            copies += batch
            elapsed = time.perf_counter() - begin
        best = max(best, copies * size * 8 / elapsed / 1e9)
    return best


def gbps(row: Sequence[float]) -> float:
    """Gb/s of a row of ib_write_bw, whose unit is MiB/s."""
    return row[3] * (1 << 20) * 8 / 1e9


def size_words(size: float) -> str:
    """1048576 -> 1 MiB"""
    text = human_size(size)
    return f"{text[:-1]} {text[-1]}iB" if text[-1].isalpha() else f"{text} bytes"


def speed_words(speed: float) -> str:
    """Three digits, and no exponent."""
    return f"{speed:,.0f} Gb/s" if speed >= 100 else f"{speed:.3g} Gb/s"


def summary(rows: Sequence[Sequence[float]], specs: Sequence[GuestSpec]) -> list[str]:
    """Three lines: what was reached, beside what, and what to try next."""
    adjective = {"stock": "stock", "ours": "our"}
    whose = " and ".join(dict.fromkeys(
        f"{spec.suite} with {adjective[spec.driver]} driver and {adjective[spec.provider]} provider"
        for spec in specs))
    timed = [row for row in rows if is_timed(list(row))]
    size = 1 << 20
    if timed:
        best, small = max(timed, key=gbps), min(timed, key=lambda row: row[0])
        size = int(best[0])
        reached = (f"{speed_words(gbps(best))} with writes of {size_words(size)}, "
                   f"{small[4] * 1e6:,.0f} writes of {size_words(small[0])} a second")
    else:
        reached = "no figure: this machine is too busy for perftest to time the CPU's counter"
    command = "./tools/manalab" if IS_SOURCE_TREE else "manalab"
    if all(spec.driver == spec.provider == "ours" for spec in specs):
        further = (f"beside stock guests: {command} bench --driver ours --provider ours "
                   f"--beside-stock")
    else:
        further = (f"with OpenMANA's driver and provider: {command} demo --driver ours "
                   f"--provider ours")
    return [f"Reached: {reached} ({whose}).",
            f"Compare: memcpy of {size_words(size)} on this machine, measured now: "
            f"{speed_words(copy_speed(size))}; Soft-RoCE between such guests: {SOFT_ROCE} Gb/s "
            f"(docs/benchmarks.md).",
            f"Next, {further}"]


def measure(server: Guest, client: Guest, *options: str) -> str:
    """The table of ib_write_bw for all sizes, after a warm-up, and notes on rows that perftest
    could not time."""
    def once(*chosen: str) -> str:
        return perftest(server, client, "ib_write_bw", *chosen, timeout=600)

    with Step("warming up"):
        once(*WARM_UP)
    with Step(f"ib_write_bw {' '.join(('-a', *options))} from {client.name} to {server.name}"):
        table = once("-a", *options)
    left = MOST_REPEATS

    def again(size: int) -> str | None:
        def run() -> str:
            nonlocal left
            left -= 1
            return once("-s", str(size), *options)

        return timed_line(f"ib_write_bw of {human_size(size)}", run, min(left, TRIES))

    table, found, missing = mend(table, again)
    for sizes, words in ((found, "measured again"), (missing, "without a figure")):
        if sizes:
            table += (f"{words}, since perftest could not time the CPU's counter: "
                      f"{', '.join(map(human_size, sizes))}\n")
    return table


def run(specs: list[GuestSpec], mtu: int | None, iterations: int | None, ext: bool = True
        ) -> int:
    """Everything from nothing to the table, and what it says."""
    if len(specs) < 2:
        raise LabError("the demo needs two guests")
    # refuses what makes no sense, before work
    whole = Lab(specs, nics=1, mtu=mtu, ext=ext, name="demo")
    sides = ["ours" if "ours" in {getattr(spec, side) for spec in specs} else "stock"
             for side in ("driver", "provider")]
    with beside(list(dict.fromkeys(spec.suite for spec in specs)), *sides):
        ensure_manad()
    with whole as lab:
        lab.configure_network()
        server, client = lab.guests[0], lab.guests[1]
        say(f"{client.name}: {client.interface()} {client.ip()}, {client.rdma_device()}; "
            f"{server.name}: {server.interface()} {server.ip()}, {server.rdma_device()}")
        table = measure(server, client, "-F", *(["-n", str(iterations)] if iterations else []))
    sys.stdout.write(table)
    print("\n".join(summary(table_rows(table), specs[:2])))
    return 0
