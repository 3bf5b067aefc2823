# SPDX-License-Identifier: Apache-2.0
"""SMC-R: sockets that the kernel carries by RDMA. Version 1 wants GIDs of RoCEv1. Version 2 takes
those of RoCEv2, which are what there is here, and an EID that a user has defined on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

from harness import Area, Context, Peer, check
from programs import ping

AREA = Area("programs_smc", needs=("driver",))
SOURCE = Path(__file__).resolve().parents[1] / "smc_user.py"
PROGRAM = "/root/smc_user.py"
EID = "OPENMANA-LAB"
MEGABYTES = 16
# What it says of devices, as if of errors.
KERNEL = (r"smc: (adding|removing) ib device \S+.*|smc: +ib device \S+ port 1 has pnetid.*|"
          r"smc: SMC-R lg .*")
NO_MODULE = "Debian's kernel {} has no module smc"


def smc(*words: str) -> str:
    """A command of smc_user.py."""
    return " ".join(["python3", PROGRAM, *words])


@contextmanager
def routed(peer: Peer, other: Peer) -> Iterator[None]:
    """The way to the other is one over a gateway, which is another address of the other."""
    second = {one.index: str(ip_address(one.ip()) + 100) for one in (peer, other)}
    peer.run(f"ip addr add {second[peer.index]}/24 dev {peer.interface}; "
             f"ip route add {other.ip()}/32 via {second[other.index]} src {peer.ip()}")
    try:
        yield
    finally:
        peer.run(f"ip route del {other.ip()}/32; "
                 f"ip addr del {second[peer.index]}/24 dev {peer.interface}", check=False)


@AREA.case("SMC-R v2 over a gateway: bytes compared, by RDMA and not by TCP", timeout=300,
           smoke=True)
def smcr(context: Context) -> None:
    server, client = context.a, context.b
    for peer in (server, client):
        if peer.run("modprobe smc", check=False).status != 0:
            context.cannot("SMC-R v2", NO_MODULE.format(peer.guest.image.version))
        peer.guest.put(SOURCE, PROGRAM, 0o755)
        peer.run(smc("ueid", EID))
        context.expect_kernel(peer, KERNEL)
    context.ran("SMC-R v2", client.version("linux-image-amd64"),
                "socket(AF_SMC, SOCK_STREAM, 0), with an EID as by smcr ueid add")
    try:
        with routed(server, client), routed(client, server):
            ping(client, server.ip())
            ping(server, client.ip())
            port = str(context.port())
            listener = server.spawn(f"exec {smc('serve', server.ip(), port)}")
            listener.wait_output("listening", 60)
            before = client.counters()
            sent = client.out(smc("send", server.ip(), port, str(MEGABYTES)), timeout=120)
            server.finish(listener, 60)
            moved = client.counters()["rnic.tx.bytes"] - before["rnic.tx.bytes"]
            check(sent.strip() == listener.stdout.splitlines()[-1],
                  f"sent {sent}, came {listener.stdout}")
            reasons = [peer.out(smc("fallbacks")).split("\n") for peer in (server, client)]
            check(moved >= MEGABYTES << 20,
                  f"{moved} bytes by RDMA; the kernel's reasons for TCP: {reasons}")
            context.note(f"{MEGABYTES} MiB, {moved} bytes by RDMA")
    finally:
        for peer in (server, client):  # it keeps queue pairs for the next connection
            peer.until("rmmod smc", "smc stays", 30)


AREA.cannot("SMC-R v2 within a subnet", "the kernel (6.12 and 7.3) leaves the client's MAC "
            "address out of a proposal that is for version 2 alone (smc_clc_send_proposal): the "
            "server's queue pair sends to 00:00:00:00:00:00, and both go on by TCP. NICs with GIDs "
            "of RoCEv1 propose version 1, too")
AREA.cannot("smc_run (smc-tools)", "Debian does not carry smc-tools")
