# SPDX-License-Identifier: Apache-2.0
"""A long path between two manad that loses datagrams and changes their order (lab/relay.py): what
works on one host works there too, slowly and without a stall."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from areas import cm
from areas.perftest import unreliable
from harness import Area, Context, check, skip
from programs import iperf, perftest, ping, transfer, verify

AREA = Area("far", layout="far")
#: Seconds without a datagram on the path that no program may cause. The longest ACK timeout of
#: those here is that of the connection manager, 4 s.
SILENCE = 12.0
VERIFY = "rdma_verify.c"


@contextlib.contextmanager
def moving(context: Context) -> Iterator[None]:
    """Fails if nothing passes for a long time; notes what passed."""
    (relay,) = context.lab.relays
    over = threading.Event()
    longest = 0.0

    def watch() -> None:
        nonlocal longest
        passed, since = relay.counts()["forwarded"], time.monotonic()
        while not over.wait(0.5):
            now = relay.counts()["forwarded"]
            if now != passed:
                passed, since = now, time.monotonic()
            longest = max(longest, time.monotonic() - since)

    before = relay.counts()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    after = relay.counts()
    context.note(", ".join(f"{after[what] - before[what]} {what}" for what in after))
    check(after["lost"] > before["lost"] or after["forwarded"] < before["forwarded"] + 1000,
          "the path lost nothing")
    check(longest <= SILENCE * context.patience, f"nothing passed for {longest:.0f} s")


def add(title: str, action: Callable[[Context], None], program: str = "", **options: object
        ) -> None:
    """A case, with an eye on the path. A program of ours is made before that."""
    def run(context: Context) -> None:
        for peer in context.peers if program else ():
            context.program(peer, program)
        with moving(context):
            action(context)

    AREA.add(title, run, **options)


def verified(options: tuple[str, ...], context: Context) -> None:
    """rdma_verify; no round of it may take long."""
    context.note(verify(context, *options, "--timeout", "60").strip().removeprefix("verified: "))


def measured(tool: str, options: tuple[str, ...], context: Context) -> None:
    """One perftest pair."""
    (row,) = perftest(context, tool, *options)
    context.note(f"{float(row[3]) * 1048576 * 8 / 1e6:.1f} Mb/s" if "_bw" in tool
                 else f"{float(row[4]) / 1000:.1f} ms")


def tcp(context: Context) -> None:
    """iperf3 both ways, and bytes that are compared."""
    for way in ((), ("-R",)):
        sums = iperf(context, context.a, context.b, *way)
        context.note(f"{sums['bits_per_second'] / 1e6:.1f} Mb/s")
    transfer(context, context.b, context.a, context.a.ip(), 1 << 20)


def pinged(context: Context) -> None:
    """Each way takes its time. Whether one is lost is a matter of luck."""
    result = context.b.run(["ping", "-n", "-c", "100", "-i", "0.05", "-W", "3", context.a.ip()],
                           timeout=60, check=False)
    text = result.stdout.strip().splitlines()[-2:]
    context.note("; ".join(text))
    check("rtt min" in result.stdout, f"no answer came: {text}")
    fastest = float(result.stdout.split("mdev = ")[1].split("/")[0])
    check(fastest >= 20, f"an answer after {fastest} ms")


add("ping takes 20 ms", pinged, smoke=True)
add("TCP, both ways, with its bytes compared", tcp, smoke=True)
add("verified: all operations at all edges up to 128 KiB", partial(
    verified, ("--seed", "91", "--batch", "2", "--align", "1", "--max", "131072")),
    program=VERIFY, smoke=True)
add("verified: random sizes, both directions, PSN wrap", partial(
    verified, ("--seed", "92", "--rounds", "6", "--batch", "8", "--max", "70000", "--both",
               "--align", "3", "--psn", "0xffff80")), program=VERIFY)
add("verified: 16 queue pairs, completion events", partial(
    verified, ("--seed", "93", "--rounds", "4", "--batch", "32", "--max", "20000", "--both",
               "--qps", "16", "--events")), program=VERIFY)
add("verified: READs of 8 MiB", partial(
    verified, ("--seed", "94", "--rounds", "1", "--batch", "1", "--ops", "read", "--min",
               "8388608", "--max", "8388608")), program=VERIFY, smoke=True)
for _tool in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
    add(f"{_tool} -s 1048576 -n 10", partial(measured, _tool, ("-s", "1048576", "-n", "10")))
add("ib_send_bw -b -s 65536 -n 60", partial(measured, "ib_send_bw", (
    "-b", "-s", "65536", "-n", "60")))
# All 64 begin with a window each, which is more than the path takes in a while: those whose packets
# do not get through are to ask again for longer than the half second of perftest's default, -u 14.
for _tool in ("ib_write_bw", "ib_read_bw"):
    add(f"{_tool} -q 64 -s 16384 -n 10 -N -u 18", partial(measured, _tool, (
        "-q", "64", "-s", "16384", "-n", "10", "-N", "-u", "18")), smoke=_tool == "ib_read_bw")
for _tool in ("ib_write_lat", "ib_read_lat", "ib_send_lat"):
    add(f"{_tool} -s 8 -n 200", partial(measured, _tool, ("-s", "8", "-n", "200")))


def atomics(context: Context) -> None:
    """Each FETCH ADD once."""
    if not (context.has("driver") and context.has("provider") and context.has("ext")):
        skip("stock software has no atomics")
    measured("ib_atomic_lat", ("-A", "FETCH_AND_ADD", "-n", "200"), context)


def uc(context: Context) -> None:
    """What is lost of it is lost. The sender does not wait for it, so its figure says nothing."""
    perftest(context, "ib_write_bw", "-c", "UC", "-s", "65536", "-n", "60")


add("ib_atomic_lat -A FETCH_AND_ADD -n 200", atomics)
add("ib_write_bw -c UC -s 65536 -n 60", partial(unreliable, uc))
add("rping -V", partial(cm.rping, "-V -S 4000", count=10), smoke=True, **cm.ONLY)
