# SPDX-License-Identifier: Apache-2.0
"""perftest and the pingpong programs of rdma-core, between two ends.

perftest computes its peak over all pairs of iterations: iterations x QPs stay below some 40,000,
or -N leaves the peak out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from harness import Area, Context, check, skip
from programs import ALL_SIZES, gbits, gid_index, perftest, set_mtu

from lab.debian import WITH_BACKPORTS

AREA = Area("perftest")
BANDWIDTH = ("ib_write_bw", "ib_read_bw", "ib_send_bw")
LATENCY = ("ib_write_lat", "ib_read_lat", "ib_send_lat")


def run(tool: str, options: tuple[str, ...], netdev_mtu: int, sizes: int, context: Context) -> None:
    """One perftest pair, at an MTU of the interfaces."""
    if netdev_mtu != 1500:
        set_mtu(netdev_mtu, *context.peers)
    try:
        rows = perftest(context, tool, *options, sizes=sizes)
    finally:
        if netdev_mtu != 1500:
            set_mtu(1500, *context.peers)
    if tool in BANDWIDTH:
        context.note(gbits(max(rows, key=lambda row: float(row[3]))))
    else:
        context.note(f"{rows[0][4]} us")


def add(tool: str, *options: str, mtu: int = 1500, sizes: int = 1, long: bool = False,
        smoke: bool = False) -> None:
    """A case for one command line."""
    title = " ".join((tool, *options)) + (f" with interface MTU {mtu}" if mtu != 1500 else "")
    AREA.add(title, partial(run, tool, options, mtu, sizes), long=long, smoke=smoke)


# For each CI run: every tool over all sizes, and each option once or twice.
for _tool in BANDWIDTH:
    add(_tool, "-a", "-n", "60", sizes=ALL_SIZES, smoke=_tool == "ib_write_bw")
for _tool in LATENCY:
    add(_tool, "-a", "-n", "60", sizes=ALL_SIZES)
add("ib_write_bw", "-b", "-s", "65536", "-n", "500")
add("ib_send_bw", "-b", "-s", "65536", "-n", "300", smoke=True)
add("ib_send_bw", "-e", "-s", "65536", "-n", "300")
add("ib_write_bw", "-q", "64", "-s", "16384", "-n", "100", "-N")
add("ib_read_bw", "-q", "64", "-s", "16384", "-n", "100", "-N", smoke=True)
add("ib_send_bw", "-q", "64", "-s", "4096", "-n", "100", "-N")
add("ib_send_lat", "-e", "-s", "64", "-n", "200", smoke=True)
add("ib_write_bw", "-m", "4096", "-s", "1048576", "-n", "100", mtu=9000)
add("ib_write_bw", "-m", "1024", "-s", "1048576", "-n", "100", mtu=9000)
add("ib_read_bw", "-m", "4096", "-s", "1048576", "-n", "100", mtu=9000)
add("ib_send_bw", "-m", "4096", "-s", "1048576", "-n", "100", mtu=9000)
add("ib_write_bw", "-l", "16", "-s", "1024", "-n", "4800")


@AREA.case("doorbells are posted: no guest waits for an answer to one", smoke=True)
def posted(context: Context) -> None:
    """QEMU's client waits for each once a region of the device can be mapped (architecture.md)."""
    before = [peer.counters() for peer in context.peers]
    perftest(context, "ib_write_lat", "-s", "8", "-n", "1000")
    perftest(context, "ib_send_bw", "-s", "1024", "-n", "2000")
    for peer, counters in zip(context.peers, before):
        now = peer.counters()
        writes, waited = (now[name] - counters[name]
                          for name in ("vfio_user.write.posted", "vfio_user.write.answered"))
        context.note(f"{peer.name}: {writes} posted, {waited} answered")
        check(writes >= 100 and waited <= writes / 100,
              f"{peer.name}: {writes} writes posted, {waited} waited for an answer")


# The full matrix. 64 QPs with -a would need buffers of 1 GiB, which is all that a guest has.
for _tool in BANDWIDTH:
    for _mtu, _path in ((1500, "1024"), (9000, "1024"), (9000, "4096")):
        for _extra in ((), ("-b",), ("-e",), ("-b", "-e")):
            if "-e" in _extra and _tool == "ib_write_bw":
                continue  # "Events feature not available on WRITE verb"
            add(_tool, "-a", "-q", "1", "-m", _path, "-n", "50", "-N", *_extra, mtu=_mtu,
                sizes=ALL_SIZES, long=True)
            for _size in ("64", "1048576"):
                add(_tool, "-s", _size, "-q", "64", "-m", _path, "-n", "20", "-N", *_extra,
                    mtu=_mtu, long=True)
for _tool in LATENCY:
    for _mtu, _path in ((1500, "1024"), (9000, "1024"), (9000, "4096")):
        for _extra in ((), ("-e",)):
            if _extra and _tool == "ib_write_lat":
                continue  # it polls memory, and has no events
            add(_tool, "-a", "-m", _path, "-n", "50", *_extra, mtu=_mtu, sizes=ALL_SIZES,
                long=True)


def addressed(version: int, context: Context) -> None:
    """With the GID of an IPv6 address at both ends."""
    indexes = [gid_index(peer, version) for peer in (context.a, context.b)]
    check(indexes[0] == indexes[1], f"the GIDs have different indexes: {indexes}")
    perftest(context, "ib_write_bw", "-s", "65536", "-n", "200", gid=indexes[0])
    perftest(context, "ib_read_lat", "-s", "8", "-n", "100", gid=indexes[0])


AREA.add("ib_write_bw and ib_read_lat over IPv6", partial(addressed, 6))


def pingpong(options: str, context: Context, tool: str = "ibv_rc_pingpong") -> None:
    """ibv_rc_pingpong and its like, which compare the received data with -c."""
    port = context.port()
    a, b = context.a, context.b
    listener = a.spawn(f"exec {tool} -d {a.rdma} -g {gid_index(a, 4)} -p {port} {options}")
    a.wait_listening(port, listener)
    result = b.run(f"{tool} -d {b.rdma} -g {gid_index(b, 4)} -p {port} {options} {a.ip()}")
    a.finish(listener, 30)
    check("usec/iter" in result.stdout, f"{tool} {options}: {result.stdout[-200:]}")
    check("invalid data" not in result.stdout + listener.stdout,
          f"{tool} {options}: the received data is wrong")


AREA.add("ibv_rc_pingpong", partial(pingpong, "-n 500"))
AREA.add("ibv_rc_pingpong with events and data check", partial(pingpong, "-n 300 -e -c"))
AREA.add("ibv_rc_pingpong with 1 MiB messages", partial(pingpong, "-n 50 -s 1048576 -c"))


def unreliable(run_it: Callable[[Context], None], context: Context) -> None:
    """UC: ours, or the stock driver of 7.3 with the stock provider of rdma-core 65."""
    stock = [side for side in ("driver", "provider") if not context.has(side)]
    if "driver" in stock and any(peer.suite not in WITH_BACKPORTS for peer in context.peers):
        skip("the driver is older than 7.3")
    if "provider" in stock and any(peer.release == "trixie" for peer in context.peers):
        skip("the provider is older than rdma-core 65")
    if len(stock) == 1 or (not stock and not context.has("ext")):
        skip("driver and provider are not of one kind")
    run_it(context)


for _tool, _options in (("ib_write_bw", ("-a", "-n", "60")), ("ib_send_bw", ("-a", "-n", "60")),
                        ("ib_write_bw", ("-q", "16", "-s", "16384", "-n", "100", "-N")),
                        ("ib_write_lat", ("-s", "8", "-n", "1000")),
                        ("ib_send_lat", ("-e", "-s", "64", "-n", "200"))):
    AREA.add(" ".join((_tool, "-c UC", *_options)), partial(unreliable, partial(
        run, _tool, ("-c", "UC", *_options), 1500, ALL_SIZES if "-a" in _options else 1)))
AREA.add("ibv_uc_pingpong", partial(unreliable, partial(
    pingpong, "-n 500 -c", tool="ibv_uc_pingpong")), smoke=True)
AREA.add("ibv_uc_pingpong with events and 100 KiB messages", partial(unreliable, partial(
    pingpong, "-n 100 -e -s 102400 -c", tool="ibv_uc_pingpong")))
