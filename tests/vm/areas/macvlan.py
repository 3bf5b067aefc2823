# SPDX-License-Identifier: Apache-2.0
"""Interfaces over the port's in network namespaces, as pods have them: macvlan, whose MAC address
is its own, and ipvlan, which shares the port's. Ethernet with every driver, and RoCE with ours, but
for ipvlan in its modes l3 and l3s: the kernel's connection manager does not resolve addresses over
interfaces without ARP."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from areas import cm
from areas.vlan import index_of
from harness import Area, Context, Peer, check
from programs import captured, check_capture, under_policy

AREA = Area("macvlan")
KINDS = {"macvlan": "macvlan mode bridge", "ipvlan l2": "ipvlan mode l2",
         "ipvlan l3s": "ipvlan mode l3s"}
NAME = "pod0"
# What the driver, the core and the parent say of a GID that the NIC's policy forbids.
REFUSED = (r"(mana \S+ |infiniband )?mana_\d+: no RDMA by \S+ the NIC may not have its interface's "
           r"MAC address \S+ \(manad --policy macs=\)|"
           r"infiniband mana_\d+: add_roce_gid GID add failed .*|"
           r"__ib_cache_gid_add: unable to add gid .*|"
           r"mana \S+: (HWC: Failed hw_channel req: 0x\w+|Command 0x\w+ failed with status: 0x\w+)")
PATIENCE = 30


def address(peer: Peer, number: int = 0) -> str:
    """Of a pod; all of them are in one network."""
    return f"10.77.{number}.{peer.index + 1}"


def inside(number: int = 0) -> str:
    """What a command in a pod begins with."""
    return f"ip netns exec pod{number}"


def make_pod(peer: Peer, kind: str, number: int = 0) -> None:
    """A network namespace with an interface over the port's and an address."""
    enter, space = inside(number), f"pod{number}"
    peer.run(f"ip netns add {space} && ip link add link {peer.interface} name made type "
             f"{KINDS[kind]} && ip link set made netns {space} name {NAME} && "
             f"{enter} ip addr add {address(peer, number)}/16 dev {NAME} && "
             f"{enter} ip link set {NAME} up && {enter} ip link set lo up")


def route(peer: Peer, other: Peer, change: str) -> None:
    """With ipvlan l3s the guests themselves route between the pods."""
    peer.run(f"ip route {change} {address(other)}/32 via {other.ip()} dev {peer.interface}")


def end_pod(peer: Peer, number: int = 0) -> None:
    """Without waiting for its namespace, which goes when nobody is in it."""
    peer.run(f"{inside(number)} ip link del {NAME} 2>/dev/null; "
             f"ip netns del pod{number} 2>/dev/null || true")


@contextlib.contextmanager
def pods(context: Context, kind: str, *more: Peer) -> Iterator[None]:
    """A pod in each guest, and a second one in some. The host allows them MAC addresses."""
    made = [(peer, 0) for peer in context.peers] + [(peer, 1) for peer in more]
    allowed = contextlib.ExitStack()
    try:
        for peer in context.peers if kind == "macvlan" else ():
            allowed.enter_context(under_policy(peer, "macs=any"))
        for peer, number in made:
            make_pod(peer, kind, number)
        yield
    finally:
        for peer, number in made:
            end_pod(peer, number)
        allowed.close()


def mac_of(peer: Peer, number: int = 0) -> str:
    """The MAC address of a pod."""
    return peer.out(f"{inside(number)} cat /sys/class/net/{NAME}/address").strip()


def reach(peer: Peer, other: str, number: int = 0, check_it: bool = True) -> bool:
    """Whether a pod reaches an address, with packets of every size."""
    result = peer.run(f"{inside(number)} ping -c 3 -i 0.2 -W 5 -s 1400 {other}", check=check_it)
    return bool(result.status == 0)


def ethernet(kind: str, context: Context) -> None:
    """Ping, and TCP with its offloads, both ways."""
    a, b = context.a, context.b
    with pods(context, kind), contextlib.ExitStack() as stack:
        for peer, other in ((b, a), (a, b)) if kind == "ipvlan l3s" else ():
            route(peer, other, "add")
            stack.callback(route, peer, other, "del")
        for peer, other in ((b, a), (a, b)):
            reach(peer, address(other))
        for server, client in ((a, b), (b, a)):
            listener = server.spawn(f"exec {inside()} iperf3 -s -1 --forceflush")
            listener.wait_output("listening", PATIENCE)
            client.run(f"{inside()} iperf3 -c {address(server)} -n 20M", timeout=90)
            server.finish(listener, PATIENCE)
    context.note(f"{kind}: 20 MB of TCP each way between two namespaces")


for _kind in KINDS:
    AREA.add(f"{_kind}: ping and TCP between two network namespaces", partial(ethernet, _kind),
             smoke=_kind == "macvlan")


def rping(context: Context, server: Peer, client: Peer, server_pod: int = 0,
          client_pod: int = 0) -> None:
    """rdma_cm between two pods; both ends must end well."""
    words = f"-a {address(server, server_pod)} -p {context.port()} -C 10 -V -S 4000"
    listener = server.spawn(cm.watched(server, f"{inside(server_pod)} rping -s {words}"))
    cm.wait_cm_listening(server, listener.text)
    client.run(f"{inside(client_pod)} rping -c {words}", timeout=60)
    server.finish(listener, PATIENCE)


def pair(context: Context, program: str) -> None:
    """A program of ibverbs between the pods' GIDs."""
    a, b = context.a, context.b
    port = context.port()
    indexes = [index_of(peer, NAME, address(peer)) for peer in (a, b)]
    line = f"{inside()} {program} -p {port}"
    listener = a.spawn(f"exec {line} -d {a.rdma} -g {indexes[0]}")
    a.until(f"{inside()} grep -qs ':{port:04X} 0*:0000 0A' /proc/net/tcp /proc/net/tcp6",
            f"'{listener.text}' does not listen", PATIENCE)
    b.run(f"{line} -d {b.rdma} -g {indexes[1]} {address(a)}", timeout=60)
    a.finish(listener, PATIENCE)


def frames(context: Context) -> int:
    """What both NICs have sent as frames."""
    return sum(peer.counters()["fabric.port.tx_frames"] for peer in context.peers)


def needs(context: Context, kind: str) -> None:
    """The public ABI does not say by which MAC address an address is reached."""
    cm.needs(context, "RoCE of a pod", "driver", "provider",
             *(("ext",) if kind == "macvlan" else ()))


def roce(kind: str, context: Context) -> None:
    """On the local path, and as frames, whose source has the interface's MAC address."""
    a, b = context.a, context.b
    needs(context, kind)
    own = kind == "macvlan"
    with pods(context, kind):
        macs = {address(peer): mac_of(peer) if own else peer.guest.macs[0] for peer in (a, b)}
        reach(b, address(a))
        rping(context, a, b)
        before = frames(context)
        pair(context, "ibv_rc_pingpong -s 65536 -n 500")
        made = frames(context) - before
        check(made < 300, f"1000 messages of 64 KiB made {made} frames: not the local path")
        with captured(a, b, folder=context.lab.output_dir) as files:
            rping(context, b, a)
            pair(context, "ibv_rc_pingpong -s 65536 -n 20")
            pair(context, "ibv_ud_pingpong -s 1024 -n 20")
        for path in files:
            packets = [packet for packet in check_capture(path) if packet.source in macs]
            check(packets, f"{path.name}: no packets of pods")
            for packet in packets:
                check(packet.source_mac == macs[packet.source],
                      f"{packet.source} sent by {packet.source_mac}, not {macs[packet.source]}")
            context.note(f"{kind}: {len(packets)} packets")


for _kind in ("macvlan", "ipvlan l2"):
    AREA.add(f"{_kind}: rdma_cm, RC and UD between two network namespaces", partial(roce, _kind),
             smoke=_kind == "macvlan")


@AREA.case("macvlan: two pods of one guest reach each other by RDMA")
def neighbours(context: Context) -> None:
    a = context.a
    needs(context, "macvlan")
    with pods(context, "macvlan", a):
        reach(a, address(a, 1))
        rping(context, a, a, server_pod=1)
        with captured(a, folder=context.lab.output_dir):
            rping(context, a, a, server_pod=1)


@AREA.case("policies: a macvlan is refused but where macs= names it or says any")
def policies(context: Context) -> None:
    a, b = context.a, context.b
    ours = context.has("driver") and context.has("ext")
    if ours:
        for peer in (a, b):
            context.expect_kernel(peer, REFUSED)
    with contextlib.ExitStack() as stack:
        stack.enter_context(under_policy(a, "macs=any"))
        for peer in (a, b):
            stack.callback(end_pod, peer)
            make_pod(peer, "macvlan")
        before = b.counters()["eth.tx.source"]
        check(not reach(b, address(a), check_it=False), "a pod had Ethernet all the same")
        check(b.counters()["eth.tx.source"] > before, "the NIC did not refuse its frames")
        b.until("dmesg | grep -q 'TX: CQE error'", "the guest's kernel says nothing", 10)
        if ours:
            b.until("dmesg | grep -q 'no RDMA by'", "the driver says nothing", 10)
        mac = mac_of(b)
        stack.enter_context(under_policy(b, f"macs={mac}"))
        reach(b, address(a))
        enter = inside()
        if ours:
            # A GID that was refused comes with its address.
            b.run(f"{enter} ip addr del {address(b)}/16 dev {NAME} && "
                  f"{enter} ip addr add {address(b)}/16 dev {NAME}")
            index_of(b, NAME, address(b))
            rping(context, a, b)
        # Nobody else has it, even if he may have any.
        before = a.counters()["fabric.port.foreign_source"]
        a.run(f"{enter} ip link set {NAME} down && {enter} ip link set {NAME} address {mac} && "
              f"{enter} ip link set {NAME} up && "
              f"{enter} ip addr replace {address(a)}/16 dev {NAME}")
        check(not reach(a, address(b), check_it=False), "another guest took the address")
        stopped = a.counters()
        check(stopped["eth.tx.source"] + stopped["fabric.port.foreign_source"] > before,
              "the other NIC did not refuse its frames")
