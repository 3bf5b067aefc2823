# SPDX-License-Identifier: Apache-2.0
"""RoCE over VLAN interfaces: tagged both ways, with the priority that was asked for, and apart from
other VLANs with the same addresses. The stock driver sends such packets without a tag."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from areas import cm
from frames import Packet
from harness import Area, Context, Peer, check
from programs import captured, check_capture, perftest, set_mtu

AREA = Area("vlan", needs=("driver", "provider"))
VLAN = 100
PRIORITY = 5
UD_REQUESTS = (0x64, 0x65)
GSI = 1


def address(peer: Peer) -> str:
    """Of its VLAN interface."""
    return f"10.100.7.{peer.index + 1}"


def index_of(peer: Peer, interface: str, ip: str) -> int:
    """The index of the GID of an interface's address, as soon as there is one."""
    port = f"/sys/class/infiniband/{peer.rdma}/ports/1"
    wanted = ipv4_gid(ip)
    loop = (f"for i in $(seq 0 15); do [ \"$(cat {port}/gids/$i)\" = {wanted} ] && "
            f"[ \"$(cat {port}/gid_attrs/ndevs/$i 2>/dev/null)\" = {interface} ] && echo $i; "
            "done; true")
    peer.until(f"[ -n \"$({loop})\" ]", f"{interface} has no GID for {ip}", 20)
    return int(peer.out(loop))


def ipv4_gid(ip: str) -> str:
    """As sysfs shows it."""
    high, low = ("".join(f"{int(octet):02x}" for octet in ip.split(".")[at:at + 2])
                 for at in (0, 2))
    return f"0000:0000:0000:0000:0000:ffff:{high}:{low}"


@contextlib.contextmanager
def tagged(context: Context) -> Iterator[tuple[int, int]]:
    """A VLAN interface on each guest; the indexes of the GIDs."""
    cm.needs(context, "VLANs", "ext")
    try:
        for peer in context.peers:
            peer.run(f"ip link add link {peer.interface} name red type vlan id {VLAN} && "
                     f"ip addr add {address(peer)}/24 dev red && ip link set red up")
        yield (index_of(context.a, "red", address(context.a)),
               index_of(context.b, "red", address(context.b)))
    finally:
        for peer in context.peers:
            peer.run("ip link del red 2>/dev/null || true")


def check_tags(packets: list[Packet], priority: int | None, what: str) -> None:
    """All of them are in the VLAN, with that priority if one is given."""
    check(packets, f"{what}: no packets were captured")
    for packet in packets:
        tag = packet.tag
        check(tag is not None and tag & 0xfff == VLAN, f"{what}: the tag is {tag} in {packet}")
        check(priority is None or tag >> 13 == priority,
              f"{what}: the priority is {(tag or 0) >> 13} in {packet}")


def watched(context: Context, files: list, priority: int | None, what: str) -> list[Packet]:
    """The packets of both links, which must be tagged."""
    found = [check_capture(path) for path in files]
    for packets in found:
        check_tags(packets, priority, what)
    context.note(f"{what}: {len(found[0])} packets, all tagged")
    return found[0]


def tool(name: str, options: tuple[str, ...], context: Context) -> None:
    """perftest between the VLAN's GIDs, on the local path and then as frames."""
    with tagged(context) as (a, b):
        check(a == b, f"the GIDs have different indexes: {a}, {b}")
        words = (*options, "-S", str(PRIORITY))
        perftest(context, name, *words, gid=a)
        with captured(*context.peers, folder=context.lab.output_dir) as files:
            perftest(context, name, *words, gid=a)
        watched(context, files, PRIORITY, name)


for _name, _options in (("ib_write_bw", ("-s", "65536", "-n", "100")),
                        ("ib_read_lat", ("-s", "4096", "-n", "100")),
                        ("ib_send_bw", ("-c", "UC", "-s", "4096", "-n", "100")),
                        ("ib_send_bw", ("-c", "UD", "-s", "1024", "-n", "200"))):
    AREA.add(" ".join((_name, *_options)), partial(tool, _name, _options),
             smoke=_name == "ib_write_bw")


@AREA.case("rdma_cm: rping and ucmatose to the VLAN's address", smoke=True)
def connected(context: Context) -> None:
    a, b = context.a, context.b
    with tagged(context), captured(a, b, folder=context.lab.output_dir) as files:
        words = f"-a {address(a)} -p {context.port()} -C 10 -V -S 4000"
        listener = a.spawn(cm.watched(a, f"rping -s {words}"))
        cm.wait_cm_listening(a, listener.text)
        b.run(f"rping -c {words}", timeout=60)
        a.finish(listener, 30)
        port = context.port()
        listener = a.spawn(f"exec ucmatose -p {port} -b {address(a)}")
        cm.wait_cm_listening(a, listener.text)
        result = b.run(f"ucmatose -s {address(a)} -p {port}", timeout=90)
        a.finish(listener, 40)
        check("return status 0" in result.stdout, f"ucmatose: {result.stdout[-200:]}")
    packets = watched(context, files, None, "rdma_cm")
    check(any(packet.qpn == GSI for packet in packets), "no packet of the connection manager")


@AREA.case("udaddy: who answers by ibv_init_ah_from_wc answers with the priority that came")
def answered(context: Context) -> None:
    """A type of service of 0x10 is interactive traffic (6) to the kernel, which the interface of
    the client alone maps to the priority."""
    a, b = context.a, context.b
    with tagged(context):
        b.run(f"ip link set red type vlan egress-qos-map 6:{PRIORITY}")
        with captured(a, b, folder=context.lab.output_dir) as files:
            listener = a.spawn(f"exec udaddy -b {address(a)} -c 2 -C 20 -S 900")
            cm.wait_cm_listening(a, listener.text)
            result = b.run(f"udaddy -s {address(a)} -t 0x10 -c 2 -C 20 -S 900", timeout=60)
            a.finish(listener, 30)
        check("return status 0" in result.stdout, f"udaddy: {result.stdout[-300:]}")
        data = [packet for packet in watched(context, files, None, "udaddy")
                if packet.opcode in UD_REQUESTS and packet.qpn != GSI]
        for source in (address(a), address(b)):
            check_tags([packet for packet in data if packet.source == source], PRIORITY,
                       f"datagrams of {source}")


@AREA.case("mckey: multicast in the VLAN")
def multicast(context: Context) -> None:
    a, b = context.a, context.b
    group = "239.55.0.1"
    with tagged(context):
        with captured(a, b, folder=context.lab.output_dir) as files:
            receiver = a.spawn(f"exec stdbuf -oL mckey -m {group} -b {address(a)} -C 20 -S 900")
            receiver.wait_output("joined", 30)
            result = b.run(f"mckey -m {group} -b {address(b)} -s -C 20 -S 900", timeout=60)
            a.finish(receiver, 30)
        check("return status 0" in result.stdout and "return status 0" in receiver.stdout,
              f"mckey: {result.stdout[-200:]} {receiver.stdout[-200:]}")
        watched(context, files, None, "mckey")


def pingpong(context: Context, indexes: tuple[int, int], options: str = "-n 50") -> str:
    """ibv_rc_pingpong between two GIDs, by a connection over the guests' own addresses: what the
    client says of its failure, or nothing."""
    a, b = context.a, context.b
    port = context.port()
    program = f"ibv_rc_pingpong -p {port} {options} -c"
    listener = a.spawn(f"exec {program} -d {a.rdma} -g {indexes[0]}")
    a.wait_listening(port, listener)
    result = b.run(f"{program} -d {b.rdma} -g {indexes[1]} {a.ip()}", check=False, timeout=60)
    if result.status:
        listener.kill()
        a.finish(listener, 20, check=False)
        return result.stderr or result.stdout
    a.finish(listener, 30)
    check("invalid data" not in result.stdout + listener.stdout, "the received data is wrong")
    return ""


@AREA.case("tenants with the same addresses: untagged and in the VLAN, on one NIC", smoke=True)
def tenants(context: Context) -> None:
    """The VLAN's interface is in a network namespace of its own, so that the port's own interface
    may have its address as well."""
    cm.needs(context, "VLANs", "ext")
    try:
        for peer in context.peers:
            peer.run(f"ip netns add red && ip link add link {peer.interface} name red type vlan "
                     f"id {VLAN} && ip link set red netns red && ip netns exec red ip addr add "
                     f"{address(peer)}/24 dev red && ip netns exec red ip link set red up && "
                     f"ip addr add {address(peer)}/24 dev {peer.interface}")
        plain = tuple(index_of(peer, peer.interface, address(peer)) for peer in context.peers)
        red = tuple(index_of(peer, "red", address(peer)) for peer in context.peers)
        for indexes in (plain, red):
            check(not pingpong(context, indexes), "tenants do not reach their own")
        # On the local path, and as frames.
        for folder in (None, context.lab.output_dir):
            for indexes in ((plain[0], red[1]), (red[0], plain[1])):
                with contextlib.ExitStack() as stack:
                    if folder is not None:
                        stack.enter_context(captured(*context.peers, folder=folder))
                    words = pingpong(context, indexes)
                check("transport retry counter exceeded" in words or "status 12" in words,
                      f"GIDs {indexes} met each other: {words[-200:] or 'no error'}")
        for indexes in (plain, red):
            check(not pingpong(context, indexes), "tenants do not reach their own any more")
    finally:
        for peer in context.peers:
            peer.run(f"ip addr del {address(peer)}/24 dev {peer.interface} 2>/dev/null; "
                     "ip netns exec red ip link del red 2>/dev/null; "
                     "ip netns del red 2>/dev/null || true")


@AREA.case("policies hold in a VLAN: an address that ips= does not name, a path MTU of 4096")
def policies(context: Context) -> None:
    a, b = context.a, context.b
    with tagged(context) as indexes:
        check(not pingpong(context, indexes), "no traffic before the policy")
        b.manactl("policy", "set", b.in_manad, f"ips={b.ip()},mac-check=on")
        try:
            check(pingpong(context, indexes), "a forbidden address in a VLAN had traffic")
        finally:
            b.manactl("policy", "clear", b.in_manad)
        b.manactl("policy", "set", b.in_manad, f"ips={b.ip()}+{address(b)},mac-check=on")
        try:
            check(not pingpong(context, indexes), "the address that the policy names had none")
        finally:
            b.manactl("policy", "clear", b.in_manad)
    set_mtu(9000, a, b)
    try:
        with tagged(context) as indexes, captured(a, b, folder=context.lab.output_dir) as files:
            for peer in (a, b):
                peer.run("ip link set red mtu 9000")
            check(not pingpong(context, indexes, "-n 20 -s 65536 -m 4096"), "4096 bytes a packet")
        packets = watched(context, files, None, "a path MTU of 4096")
        check(max(packet.payload for packet in packets) == 4096, "packets are not of 4096 bytes")
    finally:
        set_mtu(1500, a, b)


@AREA.case("what the device cannot tag is refused")
def refused(context: Context) -> None:
    a, b = context.a, context.b
    try:
        b.run(f"ip link add link {b.interface} name outer type vlan id 7 && "
              "ip link set outer up && ip link add link outer name inner type vlan id 9 && "
              "ip link set inner up && ip addr add 10.7.7.2/24 dev inner && "
              "ip addr add 10.7.8.2/24 dev outer")
        indexes = [index_of(b, "inner", "10.7.7.2")]
        for number, (name, words) in enumerate((
                ("service", "type vlan protocol 802.1ad id 8"), ("priority", "type vlan id 0"))):
            address = f"10.7.{20 + number}.2"
            b.run(f"ip link add link {b.interface} name {name} {words} && "
                  f"ip link set {name} up && ip addr add {address}/24 dev {name}")
            indexes.append(index_of(b, name, address))
        if not context.has("ext"):
            indexes.append(index_of(b, "outer", "10.7.8.2"))
        own = index_of(a, a.interface, a.ip())
        for program, words, feature in (
                ("ibv_rc_pingpong", "Failed to modify QP to RTR", None),
                ("ibv_uc_pingpong", "Failed to modify QP to RTR", "ext"),
                ("ibv_ud_pingpong", "Failed to create AH", None)):
            for index in indexes if feature is None or context.has(feature) else ():
                port = context.port()
                listener = a.spawn(f"exec {program} -d {a.rdma} -g {own} -p {port} -n 10")
                a.wait_listening(port, listener)
                result = b.run(f"{program} -d {b.rdma} -g {index} -p {port} -n 10 {a.ip()}",
                               check=False)
                listener.kill()
                a.finish(listener, 20, check=False)
                check(result.status and words in result.stderr,
                      f"{program}: {result.status}, {result.stderr[-200:]}")
    finally:
        for name in ("outer", "service", "priority"):
            b.run(f"ip link del {name} 2>/dev/null || true")
