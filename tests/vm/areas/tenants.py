# SPDX-License-Identifier: Apache-2.0
"""Two tenants on one manad, or on the manad of two hosts: two pairs of guests, each in a network of
its own, with the same addresses. Each works as if it was alone, and neither finds anything of the
other."""

from __future__ import annotations

import re

from areas import cm, neighbours
from harness import Area, Context, Peer, ThirdNic, check
from programs import gbits, perftest, ping, verify

AREA = Area("tenants", layout="networks")
HOSTS = Area("tenants_hosts", layout="hosts")  # areas/tenants_hosts.py
NETWORKS = ("red", "blue")


def pairs(context: Context) -> tuple[tuple[Peer, Peer], tuple[Peer, Peer]]:
    """The guests of the one tenant, and those of the other."""
    a, b, c, d = context.peers
    return (a, b), (c, d)


def cm_works(context: Context) -> bool:
    """The stock driver of kernel 6.12 has no QP1, so no connection manager."""
    return context.has("driver") or context.pair == "forky"


def received(*peers: Peer) -> list[int]:
    """Frames that came to NICs."""
    return [peer.counters()["fabric.port.rx_frames"] for peer in peers]


class Alone:
    """That the guests of a network get nothing but what they send each other: a kernel speaks up at
    any time."""

    def __init__(self, one: Peer, other: Peer) -> None:
        self._pair = one, other
        self._before = self._counted()

    def _counted(self) -> list[tuple[int, int]]:
        """Frames sent and received."""
        return [(found["fabric.port.tx_frames"], found["fabric.port.rx_frames"])
                for found in (peer.counters() for peer in self._pair)]

    def check(self) -> None:
        """Raises if one of them got more than the other sent meanwhile."""
        got = self._counted()  # what was sent by then comes later, so it is asked for first
        now = self._counted()
        for at, peer in enumerate(self._pair):
            came = got[at][1] - self._before[at][1]
            sent = now[1 - at][0] - self._before[1 - at][0]
            check(came <= sent, f"{peer.name} got {came} frames, and its neighbour sent {sent}")


def rping(context: Context, server: Peer, client: Peer, count: int = 20) -> None:
    """With data check."""
    words = f"-a {server.ip()} -p {context.port()} -V -S 4000 -C {count}"
    listener = server.spawn(cm.watched(server, f"rping -s {words}"))
    cm.wait_cm_listening(server, "rping -s")
    result = client.run(cm.watched(client, f"rping -c {words}"), timeout=60, check=False)
    status = server.finish(listener, 30, check=False)
    for end in (status, result.status):
        check(end in (0, cm.STUCK), f"rping ended with {result.status} and {status}: "
              f"{result.stderr[-200:]} {listener.stderr[-200:]}")


def inside(context: Context) -> None:
    first, second = pairs(context)
    for one, other in zip(first, second):
        check(one.ip() == other.ip() and one.guest.macs == other.guest.macs,
              f"{one.name} and {other.name} have different addresses")
    for server, client in (first, second):
        elsewhere = second if server is first[0] else first
        alone = Alone(*elsewhere)
        ping(client, server.ip())
        row = perftest(context, "ib_write_bw", "-s", "65536", "-n", "200", server=server,
                       client=client)[0]
        perftest(context, "ib_send_lat", "-s", "64", "-n", "200", server=server, client=client)
        if cm_works(context):
            rping(context, server, client)
        context.note(f"{server.name}, {client.name}: {gbits(row)}")
        alone.check()


def at_once(context: Context) -> None:
    """Of the same ports, too, so that nothing but the network tells them apart."""
    port = context.port()
    words = f"-s 65536 -n 500 -F -p {port}"
    started = []
    for server, client in pairs(context):
        listener = server.spawn(f"exec ib_write_bw -d {server.rdma} {words}")
        server.wait_listening(port, listener)
        started.append((server, client, listener))
    running = [(client, client.spawn(f"exec ib_write_bw -d {client.rdma} {words} {server.ip()}"))
               for server, client, _ in started]
    for client, command in running:
        client.finish(command, 90)
        check(re.search(r"^\s*65536\s", command.stdout, re.M), f"{client.name}: no table")
    for server, _, listener in started:
        server.finish(listener, 30)


def across(context: Context) -> None:
    (a, b), (c, d) = pairs(context)
    own = "10.0.0.99"
    interface = b.interface
    try:
        b.run(f"ip addr add {own}/24 dev {interface}")
        ping(a, own)
        alone = Alone(a, b)
        ping(c, own, expect=False)
        if cm_works(context):
            result = c.run(f"rping -c -a {own} -p {context.port()} -C 1", timeout=60, check=False)
            check(result.status != 0, "rping reached an address of the other network")
        c.run("ping -n -b -c 3 -i 0.1 -W 1 10.0.0.255; ping -n -c 2 -i 0.1 -W 1 ff02::1%"
              f"{c.interface}; true", timeout=30)
        alone.check()
        check(received(d)[0] > 0, "broadcasts did not even reach their own network")
    finally:
        b.run(f"ip addr del {own}/24 dev {interface} 2>/dev/null; true")


@AREA.case("manactl names the network of each NIC, and counts for each")
def named(context: Context) -> None:
    rows = context.lab.manad.ctl_json("status")["nics"]
    check([row["network"] for row in rows] == ["red", "red", "blue", "blue"],
          f"status says {[row['network'] for row in rows]}")
    stats = context.lab.stats()
    check([row["network"] for row in stats["networks"]] == list(NETWORKS),
          f"stats have {stats['networks']}")
    first, second = (row["counters"]["fabric.switch.flooded"] for row in stats["networks"])
    check(first > 0 and second > 0, f"floods: {first}, {second}")
    check(stats["switch"]["fabric.switch.flooded"] >= first + second, "the sum is less")
    table = context.lab.manactl("status")
    check("network" in table.splitlines()[0] and "blue" in table, f"no networks in {table}")


@AREA.case("a hostile client in one network: its neighbours' data are right, the other network "
           "hears nothing", timeout=300.0, smoke=True)
def hostile_inside(context: Context) -> None:
    first, second = pairs(context)
    nic = ThirdNic(context.lab.run_dir / "hostile.sock", name="hostile")
    context.lab.manactl("nic", "add", f"{nic.argument()},network={NETWORKS[1]}")
    context.third = nic
    ends = context.a, context.b
    try:
        alone = Alone(*first)
        with neighbours.hostile(context) as client:
            before = client.done()
            context.a, context.b = second
            said = verify(context, "--seed", "25", "--rounds", "20", "--batch", "16", "--max",
                          "60000", "--both", "--align", "3")
            done = {name: count - before.get(name, 0) for name, count in client.done().items()}
        check(done["rounds"] > 0, f"the hostile client did next to nothing: {done}")
        alone.check()
        for server, client_of in (first, second):
            ping(client_of, server.ip())
        context.note(f"{said.strip().removeprefix('verified: ')}; {done['rounds']} rounds of "
                     "attacks")
    finally:
        context.a, context.b = ends
        context.third = None
        context.lab.manactl("nic", "remove", nic.name)


for _title, _action in (
        ("the same addresses in two networks: perftest and rping inside each", inside),
        ("both tenants at once: connections from and to the same addresses", at_once),
        ("nothing crosses: an address of the other network is nobody's", across)):
    AREA.add(_title, _action, smoke=True)
    HOSTS.add(_title, _action)
