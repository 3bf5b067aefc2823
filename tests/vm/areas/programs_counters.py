# SPDX-License-Identifier: Apache-2.0
"""Exporters, perftest and perfquery with counters: they read `ports/N/counters` of every RDMA
device there is, or ask the port for them.
"""

from __future__ import annotations

import re
import time

from harness import Area, Context, Peer, check, skip
from programs import perftest as bandwidth
from programs import configure, gid_index, ping

from lab import extras

AREA = Area("programs_counters")
LIMIT = 600.0  # the first case may fetch the packages
EXPORTER = "/root/exporter"
SCRAPE = ("python3 -c 'import sys, urllib.request; "
          "print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())'")
MESSAGE, MESSAGES = 65536, 500
# The port's own figures follow the last packet within this time (kernel/pma.c).
SETTLED = 0.1


def start_exporter(context: Context, peer: Peer) -> int:
    """Debian's node_exporter with the InfiniBand collector alone; the port that it listens at."""
    name = "prometheus-node-exporter"
    tar = extras.archive("trixie", (name,), (f"usr/bin/{name}",))
    if peer.run(f"test -x {EXPORTER}/{name}", check=False).status != 0:
        extras.unpack(peer.guest, tar, EXPORTER)
    port = context.port()
    words = [name, "--collector.disable-defaults", "--collector.infiniband",
             f"--web.listen-address=127.0.0.1:{port}"]
    if peer is context.b:
        context.ran(name, extras.version(tar, name), " ".join(words))
    exporter = peer.spawn([f"{EXPORTER}/{words[0]}", *words[1:]])
    peer.wait_listening(port, exporter)
    return port


def uncounted(context: Context, peer: Peer) -> list[str]:
    """Ports that have no counters: their driver answers no questions for them. Ours does."""
    ports = peer.out("cd /sys/class/infiniband && for port in */ports/*; do "
                     "[ -d $port/counters ] || echo $port/counters; done").split()
    check(not (ports and context.has("driver")), f"{peer.name}: our driver has no {ports}")
    return ports


def counted(context: Context, program: str = "") -> None:
    """Skips where a port has no counters; with a row if it is about a program."""
    if ports := [port for peer in (context.a, context.b) for port in uncounted(context, peer)]:
        why = f"the stock driver has no {', '.join(dict.fromkeys(ports))}"
        if program:
            context.cannot(program, why)
        skip(why)


def scrape(context: Context, peer: Peer, port: int) -> dict[tuple[str, str], float]:
    """What the exporter says: name of a metric, device -> value. Its collector must succeed if
    every port has counters, and fails as a whole otherwise."""
    time.sleep(SETTLED)
    text = peer.out(f"{SCRAPE} http://127.0.0.1:{port}/metrics", timeout=90)
    success = re.search(r'^node_scrape_collector_success{collector="infiniband"} (\d)$', text, re.M)
    absent = uncounted(context, peer)
    check(success and success[1] == ("0" if absent else "1"), f"{peer.name}: absent are "
          f"{absent or 'no counters'}, and the exporter says of its collector of InfiniBand: "
          f"{success[0] if success else text[-300:]}")
    return {(name, device): float(value) for name, device, value in re.findall(
        r'^node_infiniband_(\w+?)(?:_total)?{device="(\w+)",port="1"} (\S+)$', text, re.M)}


def moved(peer: Peer, before: dict[tuple[str, str], float], after: dict[tuple[str, str], float],
          name: str, device: str, least: float) -> float:
    """By how much a counter of a device rose; it must have by `least`."""
    check((name, device) in before, f"{peer.name}: the exporter has no {name} of {device}, only "
          f"{sorted(one for one, other in before if other == device)}")
    by = after[name, device] - before[name, device]
    check(by >= least, f"{peer.name}: {name} of {device} rose by {by:.0f}, not by {least:.0f}")
    return by


@AREA.case("node_exporter's InfiniBand collector succeeds, and its counters move", timeout=LIMIT,
           smoke=True)
def exporter(context: Context) -> None:
    """With stock drivers that have no counters it is seen to fail, for that alone."""
    server, client = context.a, context.b
    ports = {peer.index: start_exporter(context, peer) for peer in (server, client)}
    before = {peer.index: scrape(context, peer, ports[peer.index]) for peer in (server, client)}
    absent = [port for peer in (server, client) for port in uncounted(context, peer)]
    if absent:
        context.note(f"the collector fails, as the stock driver has no "
                     f"{', '.join(dict.fromkeys(absent))}: it needs --no-collector.infiniband")
        return
    bandwidth(context, "ib_write_bw", "-s", str(MESSAGE), "-n", str(MESSAGES))
    ping(client, server.ip(), count=10)
    for peer, data, packets in (
            (client, "port_data_transmitted_bytes", "port_packets_transmitted"),
            (server, "port_data_received_bytes", "port_packets_received")):
        old, new = before[peer.index], scrape(context, peer, ports[peer.index])
        by = moved(peer, old, new, data, peer.rdma, MESSAGE * MESSAGES)
        moved(peer, old, new, packets, peer.rdma, MESSAGES)
        context.note(f"{peer.name}: {data} rose by {by:.0f}")
        # 7.2 has a device for raw packets beside it, whose port is the interface's.
        for device in peer.out("ls /sys/class/infiniband").split():
            if device.startswith("manae_"):
                moved(peer, old, new, data, device, 10 * 64)
                for name in (packets, packets.replace("port_packets", "unicast_packets")):
                    moved(peer, old, new, name, device, 10)


@AREA.case("perftest reports what it moved by counters of the port (-W)", smoke=True)
def reported(context: Context) -> None:
    counted(context, "ib_write_bw -W")
    names = ("port_xmit_data", "port_rcv_packets", "port_xmit_wait", "symbol_error")
    port = context.port()
    words = ["ib_write_bw", "-F", "-s", str(MESSAGE), "-n", str(MESSAGES), "-p", str(port), "-W",
             ",".join(f"counters/{name}" for name in names)]
    server, client = context.a, context.b
    listener = server.spawn([*words, "-d", server.rdma])
    server.wait_listening(port, listener)
    context.ran(words[0], client.version("perftest"),
                " ".join([*words, "-d", client.rdma, server.ip()]))
    done = client.run([*words, "-d", client.rdma, server.ip()], timeout=90, check=False)
    check(done.status == 0, f"{client.name}: {' '.join(words)} ended with status {done.status}: "
          f"{(done.stderr or done.stdout).strip()[-300:]}")
    server.finish(listener, 30)
    for peer, said, name, least in (
            (client, done.stdout, "port_xmit_data", MESSAGE * MESSAGES // 4),
            (server, listener.stdout, "port_rcv_packets", MESSAGES)):
        found = {one: int(value) for one, value in
                 re.findall(r"counters/(\w+)=(\d+)$", said, re.M)}
        check(set(found) == set(names), f"{peer.name}: of {names} perftest reports {found}")
        check(found[name] >= least, f"{peer.name}: {name} rose by {found[name]}, not by {least}")
        context.note(f"{peer.name}: {name}={found[name]}")


def counter(peer: Peer, name: str, device: str | None = None) -> int:
    """A counter of the port, as sysfs has it."""
    time.sleep(SETTLED)
    return int(peer.out(f"cat /sys/class/infiniband/{device or peer.rdma}/ports/1/counters/{name}"))


@AREA.case("a port counts how often its link went down")
def link_downed(context: Context) -> None:
    counted(context)
    peer = context.b
    before = counter(peer, "link_downed")
    carrier = f"/sys/class/net/{peer.interface}/carrier"
    if peer.suite == "trixie":  # 6.12 does not listen to the device, but sets it down itself
        peer.run(f"ip link set {peer.interface} down")
    else:
        peer.manactl("link", peer.in_manad, "down")
        peer.until(f"grep -qx 0 {carrier}", "the link stays up")
    try:
        after = counter(peer, "link_downed")
    finally:
        if peer.suite == "trixie":
            peer.run(f"ip link set {peer.interface} up")
        else:
            peer.manactl("link", peer.in_manad, "up")
            peer.until(f"grep -qx 1 {carrier}", "the link stays down")
        configure(context, peer)
    check(after == before + 1, f"{peer.name}: link_downed was {before} and is {after}")


DIAGS = "/root/diags"
UNSUPPORTED = "status 0xc"  # method or attribute


@AREA.case("perfquery comes as far as with Soft-RoCE, and no neighbour is told a port's counters",
           timeout=LIMIT)
def perfquery(context: Context) -> None:
    """perfquery knows ports of InfiniBand alone. A datagram of our own asks."""
    peer, other = context.b, context.a
    counted(context, "perfquery")
    tar = extras.archive("trixie", ("infiniband-diags",), ("usr/sbin/perfquery",))
    extras.unpack(peer.guest, tar, DIAGS)
    context.ran("perfquery", extras.version(tar, "infiniband-diags"),
                f"perfquery -C {peer.rdma} -P 1")
    peer.run("modprobe ib_umad")
    umad = peer.out(f"grep -lx {peer.rdma} /sys/class/infiniband_mad/umad*/ibdev").split("/")[4]
    peer.run(f"modprobe rdma_rxe && rdma link add rxe9 type rxe netdev {peer.interface}")
    said = {}
    try:
        for name in (peer.rdma, "rxe9"):
            done = peer.run(f"LD_LIBRARY_PATH={DIAGS} {DIAGS}/perfquery -C {name} -P 1",
                            check=False)
            text = (done.stdout + done.stderr).replace(name, "DEVICE")
            said[name] = (done.status, re.sub(r"\[\d+\]", "[PID]", text).strip())
    finally:
        peer.run("rdma link delete rxe9")
    check(said[peer.rdma] == said["rxe9"], f"perfquery says of {peer.rdma} what it does not say of "
          f"Soft-RoCE: {said}")
    context.note(f"perfquery: {said[peer.rdma][1][-200:]}")
    # Over IPv4 the kernel compares the answer's source with what is no GID, and finds no question.
    ping(peer, other.ip(6))  # the kernel gives its neighbour a second
    asked = peer.out([context.program(peer, "pma_get.c"), f"/dev/infiniband/{umad}",
                      str(gid_index(peer, 6)), other.ip(6)])
    check(asked.strip() == UNSUPPORTED, f"{peer.name} asked {other.name} for the counters of its "
          f"port, and was told: {asked.strip()}; expected {UNSUPPORTED}")
