# SPDX-License-Identifier: Apache-2.0
"""A device that does not do what our driver asks for: what it may still write to is not given back.
Between the driver and its parent stands a module (given_up/given_up.c), which keeps answers from
the driver, and uses a queue pair as kernel users do."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial

from areas import dpdk
from areas.lifecycle import address, works
from areas.module import (RECOVERY, RESET_MESSAGES, bring_back, device_number,
                          take_auxiliary)
from harness import Area, Context, Peer, check, skip
from lab import ours
from programs import configure, ping

AREA = Area("given_up", needs=("driver",))
FOLDER = "tests/vm/given_up"
RESET, ERR = 1 << 0, 1 << 6  # states of queue pairs
MESSAGES = (r"given_up: .*|mana \S+: mana_ib: keeping memory that the device may use|"
            r"mana \S+: mana_ib: (request 0x\w+: an answer to another|"
            r"request 0x\w+ failed: -EBUSY|no port has an interface)|"
            + RESET_MESSAGES)
CUT = "cut off from memory"
DISABLE_QUEUE = 13  # MANA_HW_DISABLE_QUEUE
DESTROY_WQ = 0x20005  # MANA_HW_ETH_DESTROY_WQ_OBJ
TAKE_PAGE = 22  # MANA_HW_ALLOCATE_RESOURCE_RANGE
# The kernel's log since the module came.
LOG = "dmesg | sed '/given_up: begun/h;//!H;$!d;x'"


def parameter(peer: Peer, name: str) -> str:
    """A parameter of the module."""
    return peer.out(f"cat /sys/module/given_up/parameters/{name}").strip()


def tell(peer: Peer, **values: int) -> None:
    """Sets parameters of the module."""
    for name, value in values.items():
        peer.run(f"echo {value} >/sys/module/given_up/parameters/{name}")


def again(peer: Peer, number: int, cut: bool) -> None:
    """The device of that number is started anew: it was given up. The parent of 7.2 starts a
    function that is cut off by itself, and has to be let do it."""
    if cut:
        bring_back(peer, number)
    else:
        peer.run(f"echo 1 >/sys/bus/pci/devices/{address(peer)}/remove && "
                 "echo 1 >/sys/bus/pci/rescan", timeout=120)
    peer.until("[ -n \"$(ls -A /sys/class/infiniband)\" ]", "the RDMA device did not come back", 30)


def given_up(title: str, cut: bool | None, timeout: float = 300.0
             ) -> Callable[[Callable[[Context, Peer], None]], None]:
    """Decorator that adds a case with the module in the second guest. `cut`: the function has to be
    cut off in it, or must not be; None: the device is not given up."""
    def add(function: Callable[[Context, Peer], None]) -> None:
        def case(context: Context) -> None:
            b = context.b
            if context.kernel != "stock":
                skip("the debug kernels have no function tracer")
            context.expect_kernel(b, MESSAGES)
            path = ours.build_module(b.guest.image, FOLDER) / "given_up.ko"
            b.guest.put(path, "/tmp/given_up.ko")
            b.run("echo given_up: begun >/dev/kmsg && insmod /tmp/given_up.ko")
            number = device_number(b)
            try:
                function(context, b)
            finally:
                log = b.out(LOG)
                b.run("rmmod given_up", timeout=120)
                if cut is not None:
                    again(b, number, CUT in log)
            if cut is None:
                return
            check((CUT in log) == cut, f"the function was {'not ' if cut else ''}cut off")
            check(not cut or "keeping memory" not in b.out(LOG), "memory is kept")
            configure(context, b)
            works(context, b)
        AREA.add(title, case, timeout=timeout, smoke=cut is not None)
    return add


def ended(peer: Peer) -> dict[str, int]:
    """What became of a queue pair of the kernel: its receive's status; whether the device had ended
    the queue pair by then, and mastered the bus."""
    peer.run(f"echo {peer.rdma} >/sys/module/given_up/parameters/device", timeout=120)
    said = parameter(peer, "verdict")
    found = re.fullmatch(r"back: status=(\d+) ended=(\d) masters=(\d)", said)
    check(found, f"a queue pair of the kernel: {said}")
    assert found is not None
    return dict(zip(("status", "ended", "masters"), map(int, found.groups())))


def slow(late: bool, context: Context, peer: Peer) -> None:
    """One that answers, but not when it was asked to go to ERR."""
    tell(peer, lose_states=ERR, reset_ms=1000, late=int(late))
    seen = ended(peer)
    check(seen["status"] == 5, f"the receive was not flushed: {seen}")
    check(seen["ended"], f"the receive came back before the queue pair's end: {seen}")
    check(seen["masters"], f"a slow device is cut off from memory: {seen}")
    ping(context.a, peer.ip(), count=2)  # Ethernet goes on


given_up("a slow device ends a queue pair before its receives go back", False)(
    partial(slow, False))
given_up("a late answer to another request ends no queue pair", False)(partial(slow, True))


@given_up("a device that refuses to end a queue pair is cut off from memory", True)
def refusing(_: Context, peer: Peer) -> None:
    tell(peer, lose_states=ERR, refuse_states=RESET)
    seen = ended(peer)
    check(not seen["masters"], f"the receive came back while the device could write to it: {seen}")


@given_up("a process ends while its silent device is cut off: no memory is kept", True)
def ends_meanwhile(context: Context, peer: Peer) -> None:
    """It ends between the request that has no answer and the second one, which has none either."""
    program = peer.spawn(f"exec ibv_rc_pingpong -d {peer.rdma} -g 1 -p 18700")
    peer.wait_listening(18700, program)
    tell(peer, lost_ms=round(4000 * context.patience), lose_all=1)
    asks = peer.spawn(f"exec ibv_devinfo -d {peer.rdma}")
    peer.until(f"{LOG} | grep -q 'mana_ib: request .*: no answer'", "the device answered", 60)
    check(CUT not in peer.out(LOG), "the guest is too slow for this test")
    program.kill()
    peer.finish(program, 60, check=False)
    peer.finish(asks, 60, check=False)
    peer.until(f"{LOG} | grep -q '{CUT}'", "the device is not cut off", 60)
    check("keeping memory" not in peer.out(LOG), "memory is kept")


@given_up("the answer to another request is none", False)
def swapped(context: Context, peer: Peer) -> None:
    """That by which a process gets a doorbell page: with another's it has a page of whoever."""
    tell(peer, swap_opcode=TAKE_PAGE)
    opened = peer.run(f"ibv_devinfo -d {peer.rdma}", check=False, timeout=60)
    check(opened.status != 0, "a process has the doorbell page of another answer")
    check("an answer to another" in peer.out(LOG), f"it fails otherwise: {opened.stderr}")
    ping(context.a, peer.ip(), count=2)  # Ethernet goes on


@given_up("memory of raw packet queues whose end has no answer is kept", False, dpdk.LIMIT)
def raw_queues(context: Context, peer: Peer) -> None:
    """Those of a process that is killed. The device answers other requests, so Ethernet goes on."""
    dpdk.install(peer)
    program = dpdk.Testpmd(context, peer, "rxonly", "--rxq=2", "--txq=2")
    tell(peer, lose_opcode=DESTROY_WQ)
    program.process.kill()
    peer.finish(program.process, 60, check=False)
    peer.run("echo 0 >/proc/sys/vm/nr_hugepages")
    check("keeping memory" in peer.out(LOG), "the memory of raw packet queues is given back")


def event_queues(fault: str, context: Context, peer: Peer) -> None:
    """Those of the RDMA device, which its driver leaves."""
    tell(peer, **{fault: DISABLE_QUEUE})
    take_auxiliary(peer)
    check("keeping memory" in peer.out(LOG), "the memory of event queues is given back")
    ping(context.a, peer.ip(), count=2)  # Ethernet goes on


given_up("memory of event queues whose end has no answer is kept", False)(
    partial(event_queues, "lose_opcode"))
given_up("memory of event queues whose end is refused is kept", False)(
    partial(event_queues, "refuse_opcode"))


@given_up("all devices of a silent function are given up", True)
def neighbours(context: Context, peer: Peer) -> None:
    """7.2 has one for RDMA and one for raw packets."""
    devices = sorted(peer.out("ls /sys/class/infiniband").split())
    counters = "cat /sys/class/infiniband/*/ports/1/counters/port_xmit_data"
    before = list(map(int, peer.out(counters).split()))
    tell(peer, lose_all=1)
    peer.run(f"ibv_devinfo -d {peer.rdma}", check=False, timeout=60)
    peer.until(f"{LOG} | grep -q '{CUT}'", "the device is not cut off", RECOVERY)
    end = time.monotonic() + 10 * context.patience
    while sorted(told := parameter(peer, "fatal").split()) != devices:
        check(time.monotonic() < end, f"of {devices} these told of their end: {told}")
        time.sleep(0.1)
    # What exporters read says what the devices said last: one that fails, fails all of them.
    read = peer.run(counters, check=False)
    if read.status != 0 and "MANA reset cycle start" in peer.out(LOG):
        return  # the parent has begun to make the device anew
    after = list(map(int, str(read.stdout).split()))
    check(len(after) == len(devices) and all(map(int.__ge__, after, before)),
          f"counters of {devices} were {before}, and are {after}")


@given_up("a ring of 4 MiB and its record are made", None)
def long_ring(_: Context, peer: Peer) -> None:
    """The kernel has no 8 MiB at once (order 10 at most), the ring's power of two with a record."""
    if not peer.has("ext"):
        skip("only extended CQs have a record")
    tell(peer, entries=65536)
    seen = ended(peer)
    check(seen["status"] == 5, f"the receive was not flushed: {seen}")


@given_up("a full CQ has room for what is posted while it is polled", None)
def full_cq(_: Context, peer: Peer) -> None:
    """For one receive more, posted when the first was polled and that poll goes on."""
    if not peer.has("ext"):
        skip("the device does not know of stock CQs whether they are full")
    tell(peer, entries=64, full=1)
    peer.run(f"echo {peer.rdma} >/sys/module/given_up/parameters/device", timeout=120)
    said = parameter(peer, "verdict")
    check(said == "back: 65 of 65", f"receives of a full CQ: {said}")


@given_up("a datagram queue pair that the device ends is in ERR until its reset", None)
def datagrams(_: Context, peer: Peer) -> None:
    """By the event alone, which may come late: the public format has no query."""
    if peer.has("ext"):
        skip("the device is asked for the state of extended queue pairs")
    handler = peer.out("awk '$3 == \"mana_ib_event\" {print $1}' /proc/kallsyms").strip()
    tell(peer, handler=int(handler, 16))
    peer.run(f"echo {peer.rdma} >/sys/module/given_up/parameters/device", timeout=120)
    said = parameter(peer, "verdict")
    check(said == "states: 6 0", f"not in ERR, or not in RESET afterwards: {said}")


@given_up("a port whose interface the parent could not start is none", None)
def no_interface(context: Context, peer: Peer) -> None:
    peer.run("rmmod mana_ib", timeout=60)
    tell(peer, hide_port=1)
    peer.run("modprobe mana_ib", timeout=60)
    devices = peer.out("ls /sys/class/infiniband").split()
    peer.run("rmmod mana_ib", timeout=60)
    tell(peer, hide_port=0)
    peer.run("modprobe mana_ib", timeout=60)
    check(not devices, f"without an interface there are {devices}")
    works(context, peer)
