# SPDX-License-Identifier: Apache-2.0
"""Drivers, functions and guests that come and go; after each, Ethernet and RDMA work."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from harness import Area, CaseFailed, Context, Peer, check
from programs import configure, ping, quick_rdma

AREA = Area("lifecycle")
ROUNDS = int(os.environ.get("OPENMANA_VM_ROUNDS", "3"))


def works(context: Context, *restarted: Peer) -> None:
    """ping and a short ib_write_bw between the guests."""
    configure(context, *restarted)
    ping(context.a, context.b.ip(), count=2)
    quick_rdma(context)


def address(peer: Peer) -> str:
    """PCI address of the NIC."""
    found = peer.out("grep -l 0x00ba /sys/bus/pci/devices/*/device").split()
    check(len(found) > peer.nic, f"{peer.name}: the NIC is not on the PCI bus")
    return found[peer.nic].split("/")[5]


def reload_driver(peer: Peer) -> None:
    """Unloads mana_ib and mana, and loads them again."""
    peer.run("rmmod mana_ib && rmmod mana && modprobe mana && modprobe mana_ib", timeout=90)


def reload_rdma(peer: Peer) -> None:
    """Unloads and loads mana_ib alone."""
    peer.run("rmmod mana_ib && modprobe mana_ib", timeout=60)


def rebind(peer: Peer) -> None:
    """Unbinds the function from its driver and binds it again."""
    at = address(peer)
    peer.run(f"echo {at} >/sys/bus/pci/drivers/mana/unbind && "
             f"echo {at} >/sys/bus/pci/drivers/mana/bind", timeout=60)


def sysfs_reset(peer: Peer) -> None:
    """Resets the function (FLR) by sysfs. The driver of these kernels is not told of a reset, so
    it is unbound meanwhile."""
    at = address(peer)
    methods = peer.out(f"cat /sys/bus/pci/devices/{at}/reset_method").split()
    check("flr" in methods, f"{peer.name}: reset methods are {methods}")
    peer.run(f"echo {at} >/sys/bus/pci/drivers/mana/unbind && "
             f"echo 1 >/sys/bus/pci/devices/{at}/reset && "
             f"echo {at} >/sys/bus/pci/drivers/mana/bind", timeout=60)


def rescan(peer: Peer) -> None:
    """Removes the function from the bus and finds it again."""
    at = address(peer)
    peer.run(f"echo 1 >/sys/bus/pci/devices/{at}/remove && echo 1 >/sys/bus/pci/rescan",
             timeout=60)


def rounds(action: Callable[[Peer], None], context: Context) -> None:
    """Some rounds of an action, on one guest and the other in turn."""
    for number in range(ROUNDS):
        peer = (context.b, context.a)[number % 2]
        try:
            action(peer)
            peer.until("[ -n \"$(ls -A /sys/class/infiniband)\" ]",
                       "the RDMA device did not come back", 20)
            works(context, peer)
        except CaseFailed as error:
            raise CaseFailed(f"round {number + 1} of {ROUNDS}: {error}") from error
    context.note(f"{ROUNDS} rounds")


_LIMIT = 60.0 + 25 * ROUNDS
for _title, _action in (("driver unload and load", reload_driver),
                        ("mana_ib unload and load", reload_rdma),
                        ("unbind and bind", rebind), ("reset by sysfs", sysfs_reset),
                        ("remove and rescan", rescan)):
    AREA.add(_title, partial(rounds, _action), timeout=_LIMIT, smoke=_action is reload_driver)


@AREA.case("guest reboot")
def reboot(context: Context) -> None:
    context.b.guest.reboot()
    works(context, context.b)


def traffic(context: Context, seconds: int = 60) -> tuple[Any, Any]:
    """An ib_write_bw between the guests that goes on for long; returns its two ends."""
    port = context.port()
    words = f"-F -D {seconds} -s 65536 -p {port}"
    server = context.a.spawn(f"exec ib_write_bw -d {context.a.rdma} {words}")
    context.a.wait_listening(port, server)
    client = context.b.spawn(f"exec ib_write_bw -d {context.b.rdma} {words} {context.a.ip()}")
    context.a.until(f"grep -q ':{port:04X} .* 01 ' /proc/net/tcp /proc/net/tcp6",
                    "no connection of ib_write_bw")
    context.b.run("sleep 1")
    return server, client


@AREA.case("guest reboot in full traffic")
def reboot_in_traffic(context: Context) -> None:
    traffic(context)
    context.b.guest.reboot()
    context.end()
    works(context, context.b)


@AREA.case("driver unbound in full Ethernet traffic")
def unbind_in_traffic(context: Context) -> None:
    a, b = context.a, context.b
    b.spawn(f"ping -f -q -s 1400 {a.ip()} >/dev/null 2>&1")
    b.run("sleep 0.5")
    rebind(b)
    works(context, b)


@AREA.case("guest killed in full traffic: the other goes on, a new one attaches", timeout=300.0,
           smoke=True)
def killed(context: Context) -> None:
    a, b = context.a, context.b
    traffic(context)
    b.guest.kill()
    # the other guest: its own NIC at both ends
    quick_rdma(context, server=a, client=a)
    replace(context, b)
    context.end()
    works(context, b)


def replace(context: Context, peer: Peer) -> None:
    """Starts a new guest in the place of one that was killed."""
    context.lab.replace(peer.index)
    context.forget(peer)
