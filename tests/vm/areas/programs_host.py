# SPDX-License-Identifier: Apache-2.0
"""What else a host does with its RDMA device: it has Soft-RoCE beside it, gives it to a network
namespace of its own, limits the memory that its users pin, or starts another kernel by kexec while
peers write."""

from __future__ import annotations

import re
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from areas import errors, kill
from harness import Area, Context, Peer, check
from programs import configure, perftest, ping, quick_rdma

from lab import extras

AREA = Area("programs_host")
BOX = "box"
IN_BOX = f"ip netns exec {BOX} "
EXCLUSIVE = "rdma system set netns exclusive"


@contextmanager
def boxed(context: Context, peer: Peer) -> Iterator[None]:
    """Device and interface of a peer are in a network namespace that they have for themselves."""
    rdma, interface = peer.rdma, peer.interface
    peer.run(f"""set -e
{EXCLUSIVE}
ip netns attach outside $$
ip netns add {BOX}
rdma dev set {rdma} netns {BOX}
ip link set {interface} netns {BOX}
ip -n {BOX} addr add {peer.ip()}/24 dev {interface}
ip -n {BOX} link set lo up
ip -n {BOX} link set {interface} up""")
    try:
        yield
    finally:
        back(context, peer, rdma, interface)


def back(context: Context, peer: Peer, rdma: str, interface: str) -> None:
    """All is as before; a namespace that ends gives back what it had."""
    peer.run(f"pkill -9 -x ib_write_bw; ip netns del {BOX}; ip netns del outside", check=False)
    peer.until(f"test -d /sys/class/net/{interface} && test -d /sys/class/infiniband/{rdma}",
               "interface and device did not come back from their namespace", 30)
    # The mode changes when no other namespace is left, and one that ended goes a moment later.
    peer.until("rdma system set netns shared", "the namespaces stay exclusive", 30)
    configure(context, peer)


def boxed_client(context: Context, seconds: int = 40) -> Any:
    """ib_write_bw from the namespace of b to a; returns when it is at work."""
    server, client = context.a, context.b
    port = context.port()
    words = f"ib_write_bw -F -s 65536 -D {seconds} -p {port}"
    listener = server.spawn(f"exec {words} -d {server.rdma}")
    server.wait_listening(port, listener)
    started = client.spawn(f"exec {IN_BOX}{words} -d {client.rdma} {server.ip()}")
    end = time.monotonic() + 30
    while not any(errors.messages_sent(client).values()):
        check(time.monotonic() < end and started.status is None,
              f"ib_write_bw in a namespace does not send: {started.stdout[-200:]} "
              f"{started.stderr[-200:]}")
        time.sleep(0.2)
    return started


@AREA.case("exclusive network namespaces: the device is in one alone, and works there", timeout=120)
def exclusive(context: Context) -> None:
    client, server = context.b, context.a
    context.ran("rdma (iproute2)", client.version("iproute2"),
                f"{EXCLUSIVE}; rdma dev set {client.rdma} netns {BOX}")
    with boxed(context, client):
        check(f" {client.rdma}:" not in client.out("rdma dev"),
              "the device is outside of its namespace, too")
        outside = client.run("ibv_devices && ibv_devinfo", check=False)
        check(client.rdma not in outside.stdout, f"outside a program finds it: {outside.stdout}")
        inside = client.out(f"{IN_BOX}ibv_devinfo -d {client.rdma}")
        check("PORT_ACTIVE" in inside, f"inside: {inside}")
        client.run(f"{IN_BOX}ping -n -c 2 -W 3 {server.ip()}")
        started = boxed_client(context, 2)
        client.finish(started, 40)
        context.note("ib_write_bw inside, nothing outside")
    quick_rdma(context)


def moved(action: str, context: Context) -> None:
    """A device that leaves its namespace in traffic takes its queue pairs along, and works."""
    client = context.b
    context.ran("rdma (iproute2)", client.version("iproute2"), action)
    with boxed(context, client):
        started = boxed_client(context)
        client.run(action)
        # It polls its own memory, and is not told: what it had is gone for all that.
        end = time.monotonic() + 20
        while pairs := errors.messages_sent(client):
            check(time.monotonic() < end, f"the program's queue pairs are still there: {pairs}")
            time.sleep(0.2)
        if started.status is None:
            started.kill()
        context.note(f"{action}: the program's queue pair is gone")
    quick_rdma(context)
    context.note("afterwards the device is outside and works")


AREA.add("a device is moved out of its network namespace in traffic",
         partial(moved, f"{IN_BOX}rdma dev set mana_0 netns outside"), timeout=200)
AREA.add("a network namespace is deleted and its programs are killed, in traffic",
         partial(moved, f"ip netns del {BOX} && pkill -9 -x ib_write_bw"), timeout=200)


# -- Soft-RoCE

@AREA.case("Soft-RoCE on the interface, beside its RDMA device", timeout=200, smoke=True)
def soft_beside(context: Context) -> None:
    """Frames of RoCE for the NIC's addresses are the NIC's, as on other NICs: Soft-RoCE gets none
    of a peer's, and takes none from the NIC's own queue pairs."""
    peers = (context.a, context.b)
    context.ran("Soft-RoCE (rdma_rxe)", context.b.version("iproute2"),
                f"rdma link add rxe9 type rxe netdev {context.b.interface}")
    for peer in peers:
        peer.run(f"modprobe rdma_rxe && rdma link add rxe9 type rxe netdev {peer.interface}")
    try:
        rows = perftest(context, "ib_write_bw", "-s", "65536", "-n", "500")
        ping(context.b, context.a.ip())
        for peer in peers:
            found = peer.out("rdma link")
            check(all(re.search(rf"^link {name}/1 state ACTIVE ", found, re.M)
                      for name in (peer.rdma, "rxe9")), f"{peer.name}: {found}")
        # To itself Soft-RoCE sends without the NIC.
        peer = context.b
        port = context.port()
        words = f"ibv_rc_pingpong -d rxe9 -g 1 -p {port} -n 100"
        listener = peer.spawn(f"exec {words}")
        peer.wait_listening(port, listener)
        peer.run(f"{words} {peer.ip()}", timeout=60)
        peer.finish(listener, 30)
        context.note(f"the NIC's ib_write_bw beside it: {float(rows[0][3]):.0f} MiB/s; "
                     "ibv_rc_pingpong of Soft-RoCE with itself")
    finally:
        for peer in peers:
            peer.run("rdma link delete rxe9")
    quick_rdma(context)


# -- locked memory

PIN = r"""
import os, sys
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr
import pyverbs.enums as e

def pinned():
    text = open("/proc/self/status").read()
    return int(text.split("VmPin:")[1].split()[0])

keep = [Context(name=sys.argv[1])]
keep.append(PD(keep[0]))
for depth in (1, 16, 128, 512, 1024):
    before = pinned()
    cq = CQ(keep[0], 2 * depth)
    middle = pinned()
    cap = QPCap(max_send_wr=depth, max_recv_wr=depth, max_send_sge=1, max_recv_sge=1)
    keep += [cq, QP(keep[1], QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap))]
    print(depth, middle - before, pinned() - middle)
keep.append(MR(keep[1], 65536, e.IBV_ACCESS_LOCAL_WRITE))
print("all", pinned(), 0)
"""
LIBRARY = "/usr/lib/x86_64-linux-gnu/libibverbs"
STOCK = "/root/libmana.so.1"
NOBODY = "setpriv --reuid 65534 --clear-groups"


def stock_library(peer: Peer) -> str:
    """libmana of the guest's release beside ours; words that run a command with it."""
    tar = extras.archive(peer.release, ("ibverbs-providers",),
                         ("usr/lib/x86_64-linux-gnu/libibverbs/libmana-rdmav*.so",))
    with tarfile.open(tar) as files:
        member = files.extractfile("libmana.so.1")
        assert member is not None
        peer.guest.put(member.read(), STOCK)
    return f"unshare -m sh -ec 'mount --bind {STOCK} {LIBRARY}/libmana-rdmav*.so; exec \"$@\"' sh"


def pins(text: str) -> dict[str, tuple[int, int]]:
    """What PIN says: depth -> KiB of a CQ and of a queue pair."""
    return {name: (int(first), int(second))
            for name, first, second in (line.split() for line in text.splitlines())}


@AREA.case("locked memory: no more than with libmana, and a limit is a refusal", timeout=240)
def locked(context: Context) -> None:
    if not context.has("provider"):
        context.cannot("pyverbs", "compares our provider with libmana")
    peer = context.b
    context.ran("pyverbs", peer.version("python3-pyverbs"), "ulimit -l; a CQ and an RC queue pair")
    peer.guest.put(PIN, "/tmp/pin.py", 0o644)
    program = f"python3 /tmp/pin.py {peer.rdma}"
    here = pins(peer.out(program))
    there = pins(peer.out(f"{stock_library(peer)} {program}", timeout=90))
    for depth, (cq, pair) in here.items():
        check(cq + pair <= sum(there[depth]), f"{depth}: a CQ and a queue pair pin {cq} and {pair} "
              f"KiB, with libmana {there[depth]}")
    need = here["all"][0]
    context.note("KiB for a CQ and a QP, (libmana's): " + ", ".join(
        f"depth {depth}: {sum(two)} ({sum(there[depth])})" for depth, two in here.items()))
    # Nobody may lock what the limit says, to a page.
    for limit, works in ((there["all"][0], True), (need, True), (need - 4, False)):
        done = peer.run(f"ulimit -l {limit} && exec {NOBODY} {program}", check=False)
        check((done.status == 0) == works, f"ulimit -l {limit} (of {need}): status {done.status}, "
              f"{done.stderr[-200:]}")
        check(works or "Errno: 12" in done.stderr or "Cannot allocate memory" in done.stderr,
              f"ulimit -l {limit}: {done.stderr[-200:]}")
    left = peer.out("rdma resource show qp | grep -c python3 || true").strip()
    check(left == "0", f"{left} queue pairs are left")
    context.note(f"ulimit -l {need} is enough, {need - 4} is ENOMEM")


# -- kexec

KEXEC = "/root/kexec"
# Of the next kernel (7.3): the timer that the last one armed fires before it has use for it.
ARMED_TIMER = r"Spurious LAPIC timer interrupt on cpu \d+"


@AREA.case("kexec with live queues: no peer's write lands after it", timeout=400)
def kexec(context: Context) -> None:
    victim, survivor = context.a, context.b
    tar = extras.archive("trixie", ("kexec-tools",), ("usr/sbin/kexec",))
    extras.unpack(victim.guest, tar, KEXEC)
    guest = victim.guest
    guest.put(guest.machine.kernel, "/root/vmlinuz")
    guest.put(guest.machine.initrd, "/root/initrd")
    program = f"LD_LIBRARY_PATH={KEXEC} {KEXEC}/kexec"
    victim.run(f"{program} -l /root/vmlinuz --initrd=/root/initrd --reuse-cmdline", timeout=60)
    context.ran("kexec", extras.version(tar, "kexec-tools"),
                "kexec -l vmlinuz --initrd=initrd --reuse-cmdline; kexec -e")
    # Who writes and waits for no answer never learns that the other end is gone.
    unreliable = unreliable_writer(context) if context.has("driver") else None
    _, client = errors.traffic(context)
    context.read_kernel_logs()
    context.expect_kernel(victim, ARMED_TIMER)
    before = guest.channel.boot
    victim.spawn(f"{program} -e")
    guest.channel.wait_boot(180, before)
    kill.no_objects(context, victim, "kexec")
    first = victim.counters()
    if unreliable is not None:
        check(unreliable.status is None, f"the unreliable writer ended: {unreliable.stderr[-200:]}")
        time.sleep(2)
        last = victim.counters()
        check(last["rnic.rx.writes"] == first["rnic.rx.writes"]
              and last["rnic.rx.bytes"] == first["rnic.rx.bytes"], "writes land after kexec")
        context.note("a UC peer goes on writing: nothing lands")
        unreliable.kill()
    errors.lost(context, client)
    guest.load_modules()
    context.forget(victim)
    configure(context, victim)
    # Who looked for it meanwhile says for a moment more that it is not there.
    survivor.until(f"ping -n -c 1 -W 1 {victim.ip()}", "the next kernel is not found", 30)
    ping(survivor, victim.ip())
    quick_rdma(context)
    context.note("the RC peer's retries are used up; the next kernel's driver works")


def unreliable_writer(context: Context) -> Any:
    """ib_write_bw over UC from b to a."""
    a, b = context.a, context.b
    port = context.port()
    words = f"-c UC -F -D 100 -s 4096 -p {port}"
    listener = a.spawn(f"exec ib_write_bw -d {a.rdma} {words}")
    a.wait_listening(port, listener)
    return b.spawn(f"exec ib_write_bw -d {b.rdma} {words} {a.ip()}")
