# SPDX-License-Identifier: Apache-2.0
"""Two tenants with the same addresses on two hosts: one guest of each on either, and an uplink for
each network on the wire between the hosts."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from areas import perftest as tools, tenants, ulp
from harness import Context, Peer, check, skip
from programs import captured, ping, verify

AREA = tenants.HOSTS


@contextlib.contextmanager
def of_tenant(context: Context, pair: tuple[Peer, Peer]) -> Iterator[None]:
    """Cases for two guests are those of one tenant meanwhile."""
    before = context.a, context.b
    context.a, context.b = pair
    try:
        yield
    finally:
        context.a, context.b = before


def for_each(action: Callable[[Context], None], context: Context) -> None:
    """One tenant after the other, who hears nothing of it."""
    first, second = tenants.pairs(context)
    for pair, other in ((first, second), (second, first)):
        alone = tenants.Alone(*other)
        with of_tenant(context, pair):
            action(context)
        alone.check()


def perftest(tool: str, options: tuple[str, ...], context: Context) -> None:
    """One tool, over its sizes."""
    tools.perftest(context, tool, *options, sizes=tools.ALL_SIZES if "-a" in options else 1)


for _tool, _options in (
        ("ib_write_bw", ("-a", "-n", "30")), ("ib_read_bw", ("-s", "65536", "-n", "100")),
        ("ib_send_bw", ("-b", "-s", "65536", "-n", "100")), ("ib_write_lat", ("-a", "-n", "30")),
        ("ib_read_lat", ("-s", "8", "-n", "100")), ("ib_send_lat", ("-s", "64", "-n", "100")),
        ("ib_write_bw", ("-q", "32", "-s", "16384", "-n", "50", "-N"))):
    AREA.add(f"{_tool} {' '.join(_options)}",
             partial(for_each, partial(perftest, _tool, _options)), timeout=180.0)
AREA.add("verified: all operations, random sizes, both directions", partial(
    for_each, lambda context: verify(context, "--seed", "75", "--rounds", "30", "--batch", "8",
                                     "--max", "60000", "--both", "--align", "3") and None),
         timeout=180.0)


@AREA.case("NVMe over RDMA inside each, a file system compared", timeout=420.0)
def nvme(context: Context) -> None:
    if not context.has("driver"):
        skip("kernel users of RDMA need our driver")
    for_each(ulp.nvme_files, context)


SWEEP = """
for n in $(seq 1 254); do ping -n -c 1 -W 2 10.0.0.$n >/dev/null 2>&1 && echo 10.0.0.$n & done
wait
ping -n -c 3 -i 0.2 -W 1 ff02::1%{0} 2>/dev/null | grep -o 'from fe80[^%]*' | sort -u
"""


@AREA.case("a scanner finds its own network alone", timeout=180.0)
def scanner(context: Context) -> None:
    """Every IPv4 address of the network that both have, and all that answer to IPv6's."""
    (a, b), (c, d) = tenants.pairs(context)
    own = "10.0.0.77"
    a.run(f"ip addr add {own}/24 dev {a.interface}")
    try:
        ping(b, own)
        alone = tenants.Alone(a, b)
        found = c.run(SWEEP.format(c.interface), timeout=150).stdout.split()
        alone.check()
        check(c.ip() in found and d.ip() in found, f"it did not even find its own: {found}")
        check(own not in found, "it found an address of the other tenant")
        mine = {peer.out(f"ip -6 -o addr show dev {peer.interface} scope link | grep -o fe80[^/]*"
                         ).strip() for peer in (c, d)}
        others = {word for word in found if word.startswith("fe80")}
        check(others <= mine, f"{others - mine} answered from elsewhere")
    finally:
        a.run(f"ip addr del {own}/24 dev {a.interface}")


@AREA.case("captures of each NIC have the frames of its own network alone")
def captures(context: Context) -> None:
    """By what is in them: each tenant sends what it knows itself by."""
    (a, b), (c, d) = tenants.pairs(context)
    marks = {a: "aa", c: "cc"}
    with tempfile.TemporaryDirectory() as folder, \
            captured(a, b, c, d, folder=Path(folder)) as files:
        for source, target in ((a, b), (c, d)):
            source.run(["ping", "-n", "-c", "5", "-i", "0.1", "-W", "3", "-s", "200", "-p",
                        marks[source], target.ip()], timeout=30)
        context.lab.manactl("capture", "show", guest=0)
        context.lab.manactl("capture", "show", guest=1)
        seen = {peer: file.read_bytes() for peer, file in zip((a, b, c, d), files)}
    for peer, data in seen.items():
        for source, mark in marks.items():
            has = bytes.fromhex(mark) * 150 in data
            wanted = (peer in (a, b)) == (source is a)
            check(has == wanted, f"the capture of {peer.name} has {'' if has else 'not '}what "
                  f"{source.name} sent")
