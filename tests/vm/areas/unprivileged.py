# SPDX-License-Identifier: Apache-2.0
"""What a process without privileges may do to others of its guest: to another network namespace,
and to other users of what all share. It is refused or limited, and the others go on."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import json
from collections.abc import Iterator
from functools import partial

from areas.lifecycle import works
from harness import Area, Context, Peer, check, skip

AREA = Area("unprivileged", needs=("driver", "provider", "ext"))
APART = "apart"  # a network namespace
DEVICE = "apart0"
MOVES = "/tmp/address-moves"
HELD = "/tmp/greedy-holds"
RUNS = "/tmp/flood-runs"
FLOOD = 64  # threads


def gid_of(address: str) -> str:
    """The GID of an IPv4 address, as sysfs has it."""
    digits = f"{int(ipaddress.IPv4Address(address)):08x}"
    return f"0000:0000:0000:0000:0000:ffff:{digits[:4]}:{digits[4:]}"


def wait_gid(peer: Peer, address: str, there: bool = True) -> None:
    """Until the port has the GID of an address, or has it no more."""
    look = f"grep -qsF {gid_of(address)} /sys/class/infiniband/{peer.rdma}/ports/1/gids/*"
    peer.until(look if there else f"! {look}",
               f"the GID of {address} does not {'come' if there else 'go'}", 20)


def another(peer: Peer, number: int) -> tuple[str, str]:
    """A further address of the NIC's network, and how `ip` wants it."""
    shown = json.loads(peer.out(f"ip -j -4 address show dev {peer.interface}"))
    address = str(ipaddress.ip_address(peer.ip()) + number)
    return address, f"{address}/{shown[0]['addr_info'][0]['prefixlen']}"


@contextlib.contextmanager
def apart(peer: Peer) -> Iterator[str]:
    """A network namespace of the guest that has an address of its own on the NIC: that address."""
    address, words = another(peer, 100)
    peer.run(f"ip netns add {APART}")
    try:
        peer.run(f"ip link add link {peer.interface} name {DEVICE} type ipvlan mode l2")
        peer.run(f"ip link set {DEVICE} netns {APART}")
        peer.run(f"ip -n {APART} address add {words} dev {DEVICE}")
        peer.run(f"ip -n {APART} link set {DEVICE} up")
        wait_gid(peer, address)
        yield address
    finally:
        peer.run(f"ip netns delete {APART}")
        wait_gid(peer, address, there=False)


def dropped(peer: Peer) -> int:
    """Datagrams that the device did not send since their source was another's."""
    return peer.counters()["rnic.drop.foreign_source"]


def forge(context: Context, own: str, foreign: str, *before: str) -> None:
    """The program at both ends: of its datagrams the one with the foreign source does not come."""
    a, b = context.a, context.b
    port = str(context.port())
    count = dropped(b)
    server = a.spawn([context.program(a, "foreign_source.c"), "--server", "--dev", a.rdma, "--port",
                      port])
    a.wait_listening(int(port), server)
    b.run([*before, context.program(b, "foreign_source.c"), "--host", a.ip(), "--dev", b.rdma,
           "--port", port, "--own", own, "--foreign", foreign])
    a.finish(server, 40)
    check(server.stdout == f"1 from {own}\n3 from {own}\n", f"what came: {server.stdout!r}")
    check(dropped(b) - count == 1, f"{dropped(b) - count} datagrams were dropped, expected 1")


@AREA.case("a source of another network namespace", smoke=True)
def from_outside(context: Context) -> None:
    b = context.b
    with apart(b) as address:
        forge(context, b.ip(), address)
    works(context)


@AREA.case("a source of the first network namespace, by a process of another one")
def from_inside(context: Context) -> None:
    b = context.b
    with apart(b) as address:
        forge(context, address, b.ip(), "ip", "netns", "exec", APART)
    works(context)


@AREA.case("an address that goes to another network namespace")
def moving(context: Context) -> None:
    a, b = context.a, context.b
    moved, words = another(b, 101)
    port = str(context.port())
    with apart(b):
        b.run(f"rm -f {MOVES}; ip address add {words} dev {b.interface}")
        wait_gid(b, moved)
        count = dropped(b)
        server = a.spawn([context.program(a, "foreign_source.c"), "--server", "--dev", a.rdma,
                          "--port", port])
        a.wait_listening(int(port), server)
        client = b.spawn([context.program(b, "foreign_source.c"), "--host", a.ip(), "--dev",
                          b.rdma, "--port", port, "--own", moved, "--foreign", b.ip(), "--moves",
                          MOVES])
        b.until(f"test -e {MOVES}", "the first datagram was not sent", 30)
        b.run(f"ip address delete {words} dev {b.interface}")
        wait_gid(b, moved, there=False)
        b.run(f"ip -n {APART} address add {words} dev {DEVICE}")
        wait_gid(b, moved)
        b.run(f"rm {MOVES}")
        b.finish(client, 40)
        a.finish(server, 40)
        check(server.stdout == f"1 from {moved}\n3 from {b.ip()}\n", f"what came: {server.stdout}")
        check(dropped(b) - count == 1, f"{dropped(b) - count} datagrams were dropped, expected 1")
    wait_gid(b, moved, there=False)
    works(context)


def taken(words: str) -> dict[str, tuple[int, int]]:
    """What the program got of each kind, and the error of the next."""
    lines = [line.split() for line in words.splitlines()]
    return {kind: (int(count), int(error)) for kind, count, error in lines}


@AREA.case("what all users share: each has its part", timeout=300, smoke=True)
def shares(context: Context) -> None:
    b = context.b
    # Handles take long on a slow kernel. On the usual one more than any guest here may have.
    most = 1_000_000 if context.kernel == "stock" else 5_000
    memory = int(b.out("sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo"))
    program = context.program(b, "greedy.c")
    b.run(f"rm -f {HELD}")
    taker = b.spawn([program, b.rdma, "nobody", str(most), HELD])
    b.until(f"test -e {HELD}", "the greedy process does not come to its end", 120)
    got = taken(taker.stdout)
    limits = {"dm": 4, "groups": 256, "pds": 8192, "handles": memory // 16, "contexts": 512}
    full = {kind: (limit, errno.EDQUOT) if limit < most else (most, 0)
            for kind, limit in limits.items()}
    check(got == full, f"a user got {got}, expected {full}")
    for other in ("nobody", "subordinate"):
        said = b.out([program, b.rdma, other, "2"])
        check(taken(said) == {"contexts": (0, errno.EDQUOT)}, f"another process of it got {said}")
    everything = {kind: (2, 0) for kind in limits}
    said = b.out([program, b.rdma, "root", "2"])
    check(taken(said) == everything, f"another user got {said}")
    works(context)
    b.run(f"rm {HELD}")
    b.finish(taker, 120)
    said = b.out([program, b.rdma, "nobody", "2"])
    check(taken(said) == everything, f"the user got {said} after all had been given back")
    context.note(f"{got['handles'][0]} handles")


@AREA.case("protection domains of the device for raw packets: a user has half of the function's")
def raw_shares(context: Context) -> None:
    b = context.b
    devices = b.out("ls /sys/class/infiniband").split()
    raw = next((name for name in devices if name.startswith("manae")), None)
    if raw is None:
        skip(f"{b.suite} has one device for both")
    program = context.program(b, "greedy.c")
    got = taken(b.out([program, raw, "nobody", "32768"], timeout=120))
    check(got == {"pds": (8192, errno.EDQUOT)}, f"of {raw} a user got {got}")
    works(context)


def beside(kind: str, context: Context) -> None:
    """A thread of root beside many of nobody: of 3 requests that wait for the device it has one.
    First come, first served would give it one of 65; what is asked for has room for a guest with
    one CPU and a busy host."""
    b = context.b
    program = context.program(b, "flood.c")
    b.run(f"rm -f {RUNS}")
    flood = b.spawn([program, b.rdma, "nobody", kind, str(FLOOD), "100", RUNS])
    b.until(f"test -e {RUNS}", "the flood does not begin", 60)
    own = int(b.out([program, b.rdma, "root", kind, "1", "3"]))
    b.run(f"rm {RUNS}")
    b.finish(flood, 60)
    others = int(flood.stdout)
    context.note(f"{own} a second beside {others} of {FLOOD} threads")
    check(0 < others < 16 * own, f"root has {own} requests a second, {FLOOD} threads of a user "
          f"{others}")
    works(context)


AREA.add("many threads of a user query queue pairs: others have their turns",
         partial(beside, "query"), smoke=True)
AREA.add("many threads of a user make and destroy CQs: others have their turns",
         partial(beside, "cq"))
