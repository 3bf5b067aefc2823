# SPDX-License-Identifier: Apache-2.0
"""The RDMA device as the tools of iproute2 and rdma-core show it."""

from __future__ import annotations

import errno
import json
import re
from typing import Any

from harness import Area, Context, Peer, check, skip
from programs import ping, set_mtu

AREA = Area("rdma")


def gids(peer: Peer) -> dict[str, str]:
    """GID -> type, from ibv_devinfo -v."""
    text = peer.out(f"ibv_devinfo -v -d {peer.rdma}")
    return {address.lower(): kind.strip() for address, kind in
            re.findall(r"GID\[\s*\d+\]:\s+(\S+?),?\s+(.*)$", text, re.M)}


@AREA.case("mana_ib binds, and makes one RDMA device per NIC")
def binds(context: Context) -> None:
    for peer in context.peers:
        drivers = peer.out("ls -l /sys/bus/auxiliary/devices/*/driver")
        check(re.search(r"mana\.rdma\.\d+/driver -> .*mana_ib|mana_ib\.mana", drivers)
              or "mana_ib" in drivers, f"{peer.name}: {drivers}")
        devices = peer.out("ls /sys/class/infiniband").split()
        count = sum(name.startswith("mana_") for name in devices)
        check(count == len(peer.guest.macs), f"{peer.name}: RDMA devices {devices}")


@AREA.case("rdma link, dev and system show the device", smoke=True)
def rdma_link(context: Context) -> None:
    for peer in context.peers:
        text = peer.out(f"rdma link show {peer.rdma}/1")
        check("state ACTIVE" in text and f"netdev {peer.interface}" in text,
              f"{peer.name}: rdma link: {text.strip()}")
        check("physical_state LINK_UP" in text, f"{peer.name}: rdma link: {text.strip()}")
        check(peer.rdma in peer.out("rdma dev show"), f"{peer.name}: rdma dev")
        check("netns" in peer.out("rdma system show"), f"{peer.name}: rdma system")


@AREA.case("rdma resource shows a program's objects, and that they are gone after it", smoke=True)
def rdma_res(context: Context) -> None:
    for peer in context.peers:
        before = peer.out(f"rdma resource show {peer.rdma}")
        index = gid_index(peer, "::ffff:" + peer.ip())
        port = context.port()
        program = peer.spawn(f"exec ibv_rc_pingpong -d {peer.rdma} -g {index} -p {port}")
        peer.wait_listening(port, program)
        # QPs are counted but not listed: that needs query QP, which the driver does not have
        during = peer.out(f"rdma resource show {peer.rdma}")
        numbers = [int(re.findall(r"\bqp (\d+)", text)[0]) for text in (before, during)]
        check(numbers[1] == numbers[0] + 1, f"{peer.name}: QPs: {before}then: {during}")
        for kind in ("cq", "mr", "pd", "ctx"):
            text = peer.out(f"rdma resource show {kind} dev {peer.rdma}")
            check("ibv_rc_pingpong" in text, f"{peer.name}: no {kind} of ibv_rc_pingpong: {text}")
        program.kill()
        peer.finish(program, 20, check=False)
        after = peer.out(f"rdma resource show {peer.rdma}")
        check(after == before, f"{peer.name}: objects before: {before}after: {after}")


# What `rdma -dd resource show` is to call each number that resources.c prints, of our driver.
SHOWN = {"cq": {"cq_id": "drv_cq_id", "vector": "drv_vector"},
         "mr": {"lkey": "lkey", "rkey": "rkey", "length": "mrlen", "access": "drv_access"},
         "qp": {"qpn": "lqpn", "state": "state", "max_send_wr": "drv_max_send_wr",
                "max_recv_wr": "drv_max_recv_wr"},
         "srq": {"max_wr": "drv_max_wr"}}


@AREA.case("rdma resource shows the details of each object that our driver has", smoke=True)
def rdma_res_details(context: Context) -> None:
    if not context.has("driver") or not context.has("provider"):
        skip("needs our driver, which tells them, and our provider, which knows them")
    for peer in context.peers:
        program = peer.spawn([context.program(peer, "resources.c"), peer.rdma], stdin=True)
        program.wait_output("ready", 20)
        objects = [line.split() for line in program.stdout.splitlines() if line != "ready"]
        for kind in dict.fromkeys(words[0] for words in objects):
            made = [dict(zip(words[1::2], words[2::2])) for words in objects if words[0] == kind]
            said = json.loads(peer.out(f"rdma -j -d -d resource show {kind}"))
            check_details(f"{peer.name}: {kind}", made, [
                entry for entry in said if entry.get("ifname") == peer.rdma
                and entry.get("comm") == "resources"], SHOWN[kind])
        program.close_stdin()
        peer.finish(program, 20)


def check_details(what: str, made: list[dict[str, str]], said: list[dict[str, Any]],
                  names: dict[str, str]) -> None:
    """Whether a list has an entry for each object, with its numbers, and no other."""
    wanted = sorted([values[name] for name in names] for values in made)
    shown = sorted([str(entry.get(key)) for key in names.values()] for entry in said)
    check(shown == wanted, f"{what}: {list(names.values())} are {shown}, expected {wanted}: {said}")


@AREA.case("rdma statistic shows the counters that the driver has")
def rdma_statistic(context: Context) -> None:
    for peer in context.peers:
        result = peer.run(f"rdma statistic show link {peer.rdma}/1", check=False)
        if peer.suite == "trixie":  # the driver of 6.12 has none
            check(result.status == 0 or re.search("Invalid argument|not supported", result.stderr),
                  f"{peer.name}: rdma statistic: {result.stderr}")
            continue
        names = re.findall(r"(\w+) \d+", result.stdout)
        check(result.status == 0 and len(names) >= 30,
              f"{peer.name}: rdma statistic: {result.stdout[:200]} {result.stderr}")
        for name in ("requester_timeout", "rx_bytes", "tx_packets"):
            check(any(name in one for one in names), f"{peer.name}: no counter {name} in {names}")


@AREA.case("ibv_devinfo shows PORT_ACTIVE, the link layer and sensible limits")
def devinfo(context: Context) -> None:
    for peer in context.peers:
        text = peer.out(f"ibv_devinfo -v -d {peer.rdma}")
        for wanted in (r"state:\s+PORT_ACTIVE", r"link_layer:\s+Ethernet",
                       r"max_mtu:\s+4096", r"active_mtu:\s+1024", r"phys_port_cnt:\s+1"):
            check(re.search(wanted, text), f"{peer.name}: no '{wanted}' in ibv_devinfo -v")
        for name in ("max_qp", "max_qp_wr", "max_cq", "max_cqe", "max_mr", "max_pd", "max_sge"):
            value = re.search(rf"^\s*{name}:\s+(\d+)", text, re.M)
            check(value and int(value.group(1)) > 0, f"{peer.name}: {name} is 0 or missing")


def gid_index(peer: Peer, address: str) -> int:
    """Index of a GID in the table of port 1."""
    text = peer.out(f"ibv_devinfo -v -d {peer.rdma}")
    found = re.search(rf"GID\[\s*(\d+)\]:\s+{re.escape(address)},?\s", text, re.I)
    check(found, f"{peer.name}: no GID {address}")
    assert found is not None
    return int(found.group(1))


@AREA.case("a RoCE v2 GID for every address, also after adding and removing one")
def gid_table(context: Context) -> None:
    for peer in context.peers:
        table = gids(peer)
        check(all(kind == "RoCE v2" for kind in table.values()), f"{peer.name}: {table}")
        check("::ffff:" + peer.ip() in table, f"{peer.name}: no GID of {peer.ip()} in {table}")
        check(peer.ip(6) in table, f"{peer.name}: no GID of {peer.ip(6)} in {table}")
        check(any(address.startswith("fe80:") for address in table), f"{peer.name}: {table}")
        added = {f"10.55.0.{peer.index + 1}/24": f"::ffff:10.55.0.{peer.index + 1}",
                 f"fd55::{peer.index + 1}/64": f"fd55::{peer.index + 1}"}
        name = peer.interface
        for address, gid in added.items():
            peer.run(f"ip addr add {address} dev {name} {'nodad' if ':' in address else ''}")
            peer.until(f"ibv_devinfo -v -d {peer.rdma} | grep -qiE '[[:space:]]{gid},'",
                       f"no GID {gid} appeared")
        for address, gid in added.items():
            peer.run(f"ip addr del {address} dev {name}")
            peer.until(f"! ibv_devinfo -v -d {peer.rdma} | grep -qiE '[[:space:]]{gid},'",
                       f"GID {gid} did not disappear")
        check(gids(peer) == table, f"{peer.name}: the GID table changed: {gids(peer)}")


RIGHTS = ("remote write and read", "remote atomic", "window", "relaxed order", "all of them")
WINDOWS = ("window of type 1", "window of type 2")


@AREA.case("memory is registered with every right, and windows are made")
def registrations(context: Context) -> None:
    """What stock software says was seen: the driver of 6.12 knows the first right alone, and the
    provider of rdma-core 56 no windows."""
    for peer in context.peers:
        results = {name: int(error) for name, error in re.findall(
            r"^(.+): (\d+)$", peer.out([context.program(peer, "registrations.c"), peer.rdma]),
            re.M)}
        old = peer.suite == "trixie" and not peer.has("driver")
        windows = () if peer.release == "trixie" and not peer.has("provider") else WINDOWS
        good = (RIGHTS[0], RIGHTS[3]) if old else (*RIGHTS, *windows)
        refused = {name: error for name, error in results.items() if error}
        check(not any(name in refused for name in good),
              f"{peer.name}: refused: {refused}; expected without an error: {', '.join(good)}")
        check("paging on demand" in refused, f"{peer.name}: not refused: paging on demand")
        context.note(f"{peer.name}: " + (", ".join(f"{name}: {errno.errorcode[error]}"
                                                   for name, error in refused.items())))


@AREA.case("the active MTU follows the interface: 1500 gives 1024, 9000 gives 4096")
def active_mtu(context: Context) -> None:
    for peer in context.peers:
        try:
            for mtu, wanted in ((9000, 4096), (1500, 1024)):
                set_mtu(mtu, peer)
                peer.until(f"ibv_devinfo -d {peer.rdma} | grep -q 'active_mtu:.*{wanted}'",
                           f"MTU {mtu} does not give an active MTU of {wanted}")
        finally:
            set_mtu(1500, peer)


@AREA.case("the port goes down and comes back with the interface")
def port_state(context: Context) -> None:
    peer, other = context.a, context.b
    name = peer.interface
    peer.run(f"ip link set {name} down")
    try:
        peer.until(f"ibv_devinfo -d {peer.rdma} | grep -q 'state:.*PORT_DOWN'", "port stays up")
    finally:
        context.lab.configure_network([peer.guest])
    peer.until(f"ibv_devinfo -d {peer.rdma} | grep -q 'state:.*PORT_ACTIVE'", "port stays down")
    if other.index != peer.index:
        ping(peer, other.ip())


@AREA.case("ibv_devices and the node GUID")
def guid(context: Context) -> None:
    for peer in context.peers:
        octets = peer.guest.macs[peer.nic].split(":")
        octets[0] = f"{int(octets[0], 16) ^ 2:02x}"
        wanted = "".join([*octets[:3], "ff", "fe", *octets[3:]])
        listed = peer.out("ibv_devices")
        check(re.search(rf"{peer.rdma}\s+{wanted}", listed),
              f"{peer.name}: node GUID is not {wanted}: {listed}")
