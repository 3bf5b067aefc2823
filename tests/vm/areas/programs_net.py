# SPDX-License-Identifier: Apache-2.0
"""What shares the interface with RDMA: a WireGuard tunnel over it, and XDP programs on it."""

from __future__ import annotations

import re
import time
from functools import partial
from pathlib import Path
from typing import Any

from harness import Area, Context, Peer, check, skip
from programs import gbits, iperf, perftest, ping, transfer

from lab import extras
from lab.errors import LabError

AREA = Area("programs_net")
LIMIT = 420.0  # a case may fetch a kernel package
WG = "/root/wireguard"
TUNNEL = "10.9.0."
LIBRARIES = ("libcurve25519", "libchacha20poly1305", "udp_tunnel", "ip6_udp_tunnel")


def wireguard_module(peer: Peer) -> None:
    """The module of the guest's kernel package: images have few modules."""
    if peer.run("modprobe -q wireguard || grep -q ^wireguard /proc/modules",
                check=False).status == 0:
        return
    version = peer.guest.image.version
    try:
        tar = extras.archive(peer.suite, (f"linux-image-{version}",),
                             ("usr/lib/modules/*/kernel/drivers/net/wireguard/wireguard.ko*",))
    except LabError as error:
        skip(f"{peer.suite} has no wireguard.ko for {version} any more: {error}")
    peer.guest.put(tar, "/root/module.tar")
    peer.run(f"modprobe -a {' '.join(LIBRARIES)} && mkdir -p /root/module && cd /root/module && "
             "tar -xf ../module.tar && insmod ./wireguard.ko*", timeout=60)


@AREA.case("WireGuard over the interface, and RDMA beside it", timeout=LIMIT)
def wireguard(context: Context) -> None:
    peers = (context.a, context.b)
    tar = extras.archive("trixie", ("wireguard-tools",), ("usr/bin/wg",))
    context.ran("WireGuard", extras.version(tar, "wireguard-tools"),
                "wg set wg0 private-key k peer K allowed-ips 10.9.0.0/24 endpoint ADDRESS:51820")
    keys = {}
    for peer in peers:
        wireguard_module(peer)
        extras.unpack(peer.guest, tar, WG)
        keys[peer.index] = peer.out(f"cd {WG} && umask 77 && ./wg genkey >key && "
                                    "./wg pubkey <key").strip()
    try:
        for peer, other in (peers, peers[::-1]):
            peer.run(f"""set -e
ip link add wg0 type wireguard
ip addr add {TUNNEL}{peer.index + 1}/24 dev wg0
{WG}/wg set wg0 listen-port 51820 private-key {WG}/key peer {keys[other.index]} \
allowed-ips {TUNNEL}0/24 endpoint {other.ip()}:51820
ip link set wg0 up""")
        a, b = peers
        ping(b, f"{TUNNEL}{a.index + 1}", count=5)
        port = context.port()
        words = f"ib_write_bw -F -s 65536 -D 30 -p {port}"
        listener = a.spawn(f"exec {words} -d {a.rdma}")
        a.wait_listening(port, listener)
        beside = b.spawn(f"exec {words} -d {b.rdma} {a.ip()}")
        transfer(context, b, a, f"{TUNNEL}{a.index + 1}", size=1 << 20)
        transfer(context, a, b, f"{TUNNEL}{b.index + 1}", size=1 << 20)
        check(beside.status is None, f"ib_write_bw ended beside the tunnel: {beside.stderr}")
        moved = re.findall(r"(\d+)", b.out(f"{WG}/wg show wg0 transfer").split(maxsplit=1)[1])
        check(all(int(one) > 1 << 20 for one in moved), f"the tunnel carried {moved} bytes")
        beside.kill()
        context.note(f"1 MiB each way compared, {moved[0]} and {moved[1]} bytes in the tunnel, "
                     "ib_write_bw beside it")
    finally:
        for peer in peers:
            peer.run("ip link del wg0", check=False)


COUNT = "/root/xdp_count.py"
SOURCE = Path(__file__).resolve().parents[1] / "xdp_count.py"


def attach(peer: Peer, mode: str, action: str) -> Any:
    """XDP on the peer's interface, until its stdin closes."""
    peer.guest.put(SOURCE, COUNT, 0o755)
    started = peer.spawn(["python3", COUNT, peer.interface, mode, action], stdin=True)
    started.wait_output("attached", 30)
    check("xdp" in peer.out(f"ip link show {peer.interface}"), "ip knows of no XDP program")
    return started


def counted(started: Any) -> int:
    """Packets that it saw."""
    number = started.stdout.count("counted")
    started.write(b"\n")
    started.wait_output(f" counted {number}\n", 20)
    return int(re.findall(rf"^(\d+) counted {number}$", started.stdout, re.M)[0])


def detach(peer: Peer, started: Any) -> None:
    """Takes it away."""
    started.close_stdin()
    peer.finish(started, 20)
    check("xdp" not in peer.out(f"ip link show {peer.interface}"), "the XDP program stays")


def xdp(mode: str, context: Context) -> None:
    """Programs that pass and drop what is not RDMA."""
    server, client = context.a, context.b
    context.ran("XDP", server.version("linux-image-amd64"),
                f"a program that counts on {server.interface}, {mode}, while ib_write_bw runs")
    started = attach(server, mode, "pass")
    ping(client, server.ip(), count=5)
    transfer(context, client, server, server.ip())
    sums = iperf(context, server, client)
    quiet = counted(started)
    check(quiet >= 5, f"XDP saw {quiet} packets")
    rows = perftest(context, "ib_write_bw", "-s", "65536", "-n", "500")
    rdma = counted(started) - quiet
    check(rdma < 500, f"XDP saw {rdma} packets of 500 WRITEs of 64 KiB")
    detach(server, started)
    context.note(f"pass: {quiet} packets of ping and TCP ({sums['bits_per_second'] / 1e6:.0f} "
                 f"Mb/s), {rdma} of perftest's own TCP, {gbits(rows[0])} by RDMA")
    # What it drops is not what RDMA needs; the neighbours know each other.
    port = context.port()
    words = f"ib_write_bw -F -s 65536 -D 20 -p {port}"
    listener = server.spawn(f"exec {words} -d {server.rdma}")
    server.wait_listening(port, listener)
    traffic = client.spawn(f"exec {words} -d {client.rdma} {server.ip()}")
    before = client.counters()["rnic.tx.bytes"]
    end = time.monotonic() + 30
    while (sent := client.counters()["rnic.tx.bytes"]) < before + 65536:
        check(time.monotonic() < end and traffic.status is None,
              f"ib_write_bw does not send: {traffic.stderr}")
        time.sleep(0.2)
    started = attach(server, mode, "drop")
    ping(client, server.ip(), count=3, expect=False)
    check(traffic.status is None, f"RDMA ended as XDP dropped: {traffic.stderr}")
    first = client.counters()["rnic.tx.bytes"]
    server.run("sleep 1")
    second = client.counters()["rnic.tx.bytes"]
    check(second > first > sent, "no RDMA while XDP drops what the interface gets")
    detach(server, started)
    ping(client, server.ip(), count=3)
    traffic.kill()
    context.note("drop: no ping, and RDMA goes on")


for _mode in ("native", "generic"):
    AREA.add(f"XDP, {_mode}: counts and drops what the interface gets, while RDMA runs",
             partial(xdp, _mode), timeout=LIMIT, smoke=_mode == "native")
