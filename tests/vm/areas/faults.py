# SPDX-License-Identifier: Apache-2.0
"""Bad networks, and what the host's policy does: faults, rate limits, access rules, spoof
protection, the flow log."""

from __future__ import annotations

import ipaddress
import json
import re
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

from areas import errors
from frames import packets_of
from harness import Area, CaseFailed, Context, Peer, check
from programs import (captured, faulty, gbits, gid_index, iperf, perftest, ping, transfer,
                      under_policy, verify)

AREA = Area("faults")

# -- faults


def lossy(options: str, counters: tuple[str, ...], context: Context) -> None:
    """ib_write_bw and verified data through faults at the client's link; right, and not stalled."""
    names = [f"fabric.fault.{name}" for name in counters]
    before = context.b.counters()
    with faulty(context.b, options):
        begin = time.monotonic()
        rows = perftest(context, "ib_write_bw", "-s", "65536", "-n", "300")
        took = time.monotonic() - begin
        check(took < 60, f"ib_write_bw took {took:.0f} s")
        verify(context, "--seed", "91", "--rounds", "30", "--batch", "12", "--max", "60000",
               "--both", "--align", "3")
    after = context.b.counters()
    seen = {name: after[name] - before[name] for name in names}
    check(all(count > 0 for count in seen.values()), f"nothing happened: {seen}")
    words = ", ".join(f"{count} {name.split('.')[-1]}" for name, count in seen.items())
    context.note(f"{gbits(rows[0])}; {words}")


for _title, _options, _counters in (
        ("1 % loss", "loss=1%,seed=5", ("lost",)),
        ("1 % duplication", "dup=1%,seed=6", ("duplicated",)),
        ("1 % reordering", "reorder=1%,seed=7", ("reordered",)),
        ("1 % corruption", "corrupt=1%,seed=8", ("corrupted",)),
        ("all of them, and delay", "loss=0.5%,dup=0.5%,reorder=0.5%,corrupt=0.5%,delay=100us,"
         "jitter=100us,seed=9", ("lost", "duplicated", "reordered", "corrupted", "delayed"))):
    AREA.add(f"ib_write_bw and verified data through {_title}", partial(lossy, _options, _counters),
             smoke=_title == "1 % loss")


RAW_FRAME = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((sys.argv[1], 0))
for _ in range(20):
    s.send(bytes.fromhex(sys.argv[2]).ljust(60, bytes(1)))
"""


def hex_mac(peer: Peer) -> str:
    """The MAC address of a peer, as raw_frames() takes it."""
    return str(peer.guest.macs[0]).replace(":", "")


def raw_frames(peer: Peer, frame: str) -> None:
    """Sends 20 times a frame that is given in hexadecimal digits."""
    peer.guest.put(RAW_FRAME, "/tmp/raw.py")
    peer.run(["python3", "/tmp/raw.py", peer.interface, frame])


def one_way(direction: str, context: Context) -> None:
    """Frames pass a link that loses all of one direction in the other one only."""
    a, b = context.a, context.b
    lost = b.counters()["fabric.fault.lost"]
    with faulty(b, f"loss=100%,dir={direction}"):
        for source, target, passes in ((b, a, direction == "rx"), (a, b, direction == "tx")):
            before = target.counters()["eth.rx.unicast_packets"]
            raw_frames(source, hex_mac(target) + hex_mac(source) + "88b5")
            time.sleep(0.3)
            got = target.counters()["eth.rx.unicast_packets"] - before
            check(got >= 20 if passes else got == 0,
                  f"dir={direction}: {got} of 20 frames came from {source.name} to {target.name}")
    lost = b.counters()["fabric.fault.lost"] - lost
    check(lost >= 20, f"dir={direction}: {lost} frames are counted as lost")
    with faulty(b, f"loss=2%,dir={direction},seed=11"):
        verify(context, "--seed", "93", "--rounds", "20", "--batch", "12", "--max", "60000",
               "--both")


for _way in ("tx", "rx"):
    AREA.add(f"faults of dir={_way} are of that direction only", partial(one_way, _way))


@AREA.case("verified data through a link that flaps")
def flapping(context: Context) -> None:
    before = context.b.counters()["fabric.fault.flaps"]
    with faulty(context.b, "flap=700ms/100ms"):
        said = verify(context, "--seed", "92", "--rounds", "150", "--batch", "12", "--max",
                      "60000", "--both")
    flaps = context.b.counters()["fabric.fault.flaps"] - before
    check(flaps > 0, "the link did not flap during the traffic")
    context.note(f"{flaps} flaps; {said.strip().removeprefix('verified: ')}")
    context.lab.configure_network([context.b.guest])


@AREA.case("the link goes down in full traffic: retries are used up")
def link_down(context: Context) -> None:
    a, b = context.a, context.b
    _, client = errors.traffic(context)
    b.manactl("link", b.in_manad, "down")
    try:
        errors.lost(context, client)
    finally:
        b.manactl("link", b.in_manad, "up")
    context.end()  # ib_write_bw has retries left, and would go on
    context.lab.configure_network([b.guest])
    ping(a, b.ip())
    perftest(context, "ib_write_bw", "-s", "65536", "-n", "200")


# -- rates

RATE = 100_000_000  # bit/s, below what a guest without KVM can do
SETTLE = 1.0
MEASURE = 3.0
STARTED = 50_000  # bytes: more than two programs say to each other before


def rate_of(context: Context, peer: Peer, counter: str, since: int, seconds: float = MEASURE
            ) -> float:
    """bit/s of a counter of bytes over some seconds of traffic that has settled; the counter was
    `since` before the programs were started, which may take their time."""
    deadline = time.monotonic() + 10 * context.patience
    while peer.counters()[counter] < since + STARTED:
        check(time.monotonic() < deadline, f"{peer.name}: no traffic in {counter}")
        time.sleep(0.1)
    time.sleep(SETTLE)
    begin, before = time.monotonic(), peer.counters()[counter]
    time.sleep(seconds)
    end, after = time.monotonic(), peer.counters()[counter]
    return (after - before) * 8 / (end - begin)


def slowness(context: Context) -> float:
    """What a debug kernel takes longer to fill, and may not fill at all, is so much less."""
    return float(min(context.patience, 3))


def holds(context: Context, rate: float, limit: float) -> None:
    """A limit of bit/s holds within 5 %."""
    words = f"{rate / 1e6:.2f} Mb/s of {limit / 1e6:.2f}"
    context.note(words)
    check(abs(rate / limit - 1) <= 0.05, words)


def streaming(context: Context, tool: str, *options: str, seconds: int = 8) -> tuple[Any, Any]:
    """perftest for some seconds; returns its two ends."""
    port = context.port()
    words = [tool, "-F", "-D", str(seconds), "-p", str(port), *options]
    server = context.a.spawn([words[0], "-d", context.a.rdma, *words[1:]])
    context.a.wait_listening(port, server)
    client = context.b.spawn([words[0], "-d", context.b.rdma, *words[1:], context.a.ip()])
    context.a.until(f"grep -q ':{port:04X} .* 01 ' /proc/net/tcp /proc/net/tcp6",
                    "no connection of perftest")
    return server, client


def limited(tool: str, policy: str, counter: str, context: Context) -> None:
    """The limit on RDMA, or on all that the guest sends."""
    limit = round(RATE / slowness(context))
    with under_policy(context.b, policy.format(limit)):
        before = context.b.counters()[counter]
        server, client = streaming(context, tool, "-s", "65536")
        rate = rate_of(context, context.b, counter, before)
        context.b.finish(client, 60)
        context.a.finish(server, 60)
    holds(context, rate, limit)


AREA.add("a limit on what a guest sends, ib_write_bw",
         partial(limited, "ib_write_bw", "rdma-limit={}", "fabric.port.tx_bytes"), smoke=True)
AREA.add("a limit on what a guest sends, ib_send_bw",
         partial(limited, "ib_send_bw", "limit={}", "fabric.port.tx_bytes"))
AREA.add("a limit on what a guest receives, ib_read_bw",
         partial(limited, "ib_read_bw", "rdma-limit={},dir=rx", "fabric.port.rx_bytes"))


def limited_tcp(policy: str, receives: bool, counter: str, context: Context) -> None:
    """The limit on Ethernet, for what comes out of it, headers and all."""
    limit = round(50e6 / slowness(context) / context.patience)
    seconds = MEASURE * slowness(context)
    a, b = context.a, context.b
    limited_peer = a if receives else b
    port = context.port()
    with under_policy(limited_peer, f"eth-limit={limit}{policy}"):
        before = limited_peer.counters()[counter]
        listener = a.spawn(["iperf3", "-s", "-1", "-p", str(port)])
        a.wait_listening(port, listener)
        client = b.spawn(["iperf3", "-c", a.ip(), "-p", str(port), "-t", f"{seconds + 5:.0f}"])
        a.until(f"grep -q ':{port:04X} .* 01 ' /proc/net/tcp /proc/net/tcp6", "no connection")
        rate = rate_of(context, limited_peer, counter, before, seconds)
        b.finish(client, 60)
        a.finish(listener, 60)
    holds(context, rate, limit)


# Both counters are behind the limit: what leaves the port, and what the guest is given.
AREA.add("a limit on Ethernet that a guest sends, iperf3",
         partial(limited_tcp, "", False, "fabric.port.tx_bytes"))
AREA.add("a limit on Ethernet that a guest receives, iperf3",
         partial(limited_tcp, ",dir=rx", True, "eth.rx.bytes"))


# Counters of manad for congestion: those of `rdma statistic`, by the names of the stock driver and
# of ours, and those of the device, which are in sysfs.
OF_PORT = {"rnic.cnp.received": ("received_cnps", "received_cnps"),
           "rnic.rate.cuts": ("num_qps_congested", "congested_qps"),
           "rnic.rate.increases": ("rate_inc_events", "rate_increases"),
           "rnic.rate.recoveries": ("num_qps_recovered", "recovered_qps")}
OF_DEVICE = {"rnic.cnp.sent": ("sent_cnps", "sent_cnps"),
             "rnic.ecn.received": ("received_ecns", "received_ecns"),
             "rnic.cnp.received": ("received_cnp_count", "received_cnps"),
             "rnic.rate.cuts": ("qp_congested_events", "qp_congested_events"),
             "rnic.rate.increases": ("rate_inc_events", "rate_increase_events"),
             "rnic.rate.recoveries": ("qp_recovered_events", "qp_recovered_events")}


def statistics(peer: Peer) -> tuple[dict[str, int], dict[str, int]]:
    """What a guest says of its port and of its device."""
    port = peer.out(f"rdma statistic show link {peer.rdma}/1")
    device = peer.out(f"cd /sys/class/infiniband/{peer.rdma}/hw_counters && "
                      "for name in *; do echo $name $(cat $name); done")
    found = [{name: int(value) for name, value in re.findall(r"\b([a-z]\w*) (\d+)", text)}
             for text in (port, device)]
    return found[0], found[1]


def compare_statistics(peer: Peer) -> dict[str, int]:
    """The counters of a guest, once nothing moves any more, must be manad's. Returns these."""
    ours = peer.has("driver")
    deadline = time.monotonic() + 10
    while True:
        before = peer.counters()
        port, device = statistics(peer)
        after = peer.counters()
        wrong = [f"{name} is {after[name]}, {where} has {names[ours]} {seen.get(names[ours])}"
                 for where, table, seen in (("rdma statistic", OF_PORT, port),
                                            ("sysfs", OF_DEVICE, device))
                 for name, names in table.items() if seen.get(names[ours]) != after[name]]
        if not wrong and all(before[name] == after[name] for name in (*OF_PORT, *OF_DEVICE)):
            return {name: after[name] for name in (*OF_PORT, *OF_DEVICE)}
        check(time.monotonic() < deadline, f"{peer.name}: {'; '.join(wrong) or 'still counting'}")
        time.sleep(0.3)


@AREA.case("rdma statistic has the ECN marks, CNPs and rates that manad counts")
def congestion_counters(context: Context) -> None:
    a, b = context.a, context.b
    before = {peer.index: peer.counters() for peer in (a, b)}
    with under_policy(b, "rdma-limit=100M,ecn=64K"):
        server, client = streaming(context, "ib_write_bw", "-q", "4", "-s", "65536")
        time.sleep(3)
        during = [statistics(peer)[0] for peer in (a, b) if has_statistics(peer)]
        # With room on the link the rates rise again, and the queue pairs recover.
        b.manactl("policy", "set", b.in_manad, "rdma-limit=1000G")
        b.finish(client, 60)
        a.finish(server, 60)
    gone = {peer.index: {name: peer.counters()[name] - count
                         for name, count in before[peer.index].items()} for peer in (a, b)}
    check(all(gone[a.index][name] > 0 for name in ("rnic.ecn.received", "rnic.cnp.sent")),
          f"{a.name} got no marks: {gone[a.index]}")
    check(all(gone[b.index][name] > 0 for name in OF_PORT), f"{b.name}: {gone[b.index]}")
    # The last may come when the queue pair that it slows down has gone.
    arrived = gone[b.index]["rnic.cnp.received"] + gone[b.index]["rnic.cnp.ignored"]
    check(arrived == gone[a.index]["rnic.cnp.sent"],
          f"{gone[a.index]['rnic.cnp.sent']} CNPs were sent, {arrived} received")
    compared = [peer for peer in (a, b) if has_statistics(peer)]
    for peer in compared:
        compare_statistics(peer)
    if has_statistics(b):  # of the queue pair whose rate changed last
        check(10 <= during[-1]["current_rate"] < 100_000, f"current_rate: {during[-1]}")
    moved = gone[b.index]
    context.note(f"{gone[a.index]['rnic.ecn.received']} marks, {moved['rnic.cnp.received']} CNPs, "
                 f"{moved['rnic.rate.cuts']} cuts, {moved['rnic.rate.increases']} increases, "
                 f"{moved['rnic.rate.recoveries']} recoveries; compared in "
                 f"{', '.join(peer.name for peer in compared) or 'no guest: no such counters'}")


def has_statistics(peer: Peer) -> bool:
    """The stock driver of Linux 6.12 has no counters."""
    return peer.has("driver") or peer.suite != "trixie"


@AREA.case("guarantees share a limit between RDMA and TCP")
def guaranteed(context: Context) -> None:
    """Of the 10 Mb/s that nobody is promised each gets half: 75 and 25 in all. TCP may ask for
    less, since iperf3 and ib_write_bw share one emulated CPU; then RDMA has that, too."""
    a, b = context.a, context.b
    with under_policy(b, "limit=100M,rdma-guarantee=70M,eth-guarantee=20M"):
        server, client = streaming(context, "ib_write_bw", "-s", "65536", seconds=14)
        port = context.port()
        listener = a.spawn(["iperf3", "-s", "-1", "-p", str(port)])
        a.wait_listening(port, listener)
        tcp = b.spawn(["iperf3", "-c", a.ip(), "-p", str(port), "-t", "10"])
        time.sleep(2)
        before, begin = b.counters(), time.monotonic()
        time.sleep(6)
        after, seconds = b.counters(), time.monotonic() - begin
        b.finish(tcp, 60)
        b.finish(client, 60)
        a.finish(server, 60)
    total, ethernet = ((after[name] - before[name]) * 8 / seconds
                       for name in ("fabric.port.tx_bytes", "eth.tx.bytes"))
    rdma = total - ethernet
    context.note(f"RDMA {rdma / 1e6:.1f} Mb/s, TCP {ethernet / 1e6:.1f}")
    check(abs(total / RATE - 1) <= 0.05, f"{total / 1e6:.1f} Mb/s in all, the limit is 100")
    check(rdma >= 0.95 * 75e6, f"RDMA got {rdma / 1e6:.1f} Mb/s, 75 are due to it")
    check(0 < ethernet <= 1.05 * 25e6, f"TCP got {ethernet / 1e6:.1f} Mb/s, 25 are due to it")


# -- access rules and spoof protection


def no_rdma(context: Context, version: int = 4) -> None:
    """RDMA from b to a makes no progress: of the connection, which perftest makes over TCP, the
    retries are used up."""
    a, b = context.a, context.b
    port = context.port()
    words = ["-F", "-s", "64", "-n", "5", "-u", "10", "-p", str(port)]
    server = a.spawn(["ib_write_bw", "-d", a.rdma, "-x", str(gid_index(a, version)), *words])
    a.wait_listening(port, server)
    result = b.run(["ib_write_bw", "-d", b.rdma, "-x", str(gid_index(b, version)), *words, a.ip()],
                   check=False)
    server.kill()
    retries_used_up(b, result)


def retries_used_up(peer: Peer, result: Any) -> None:
    """A perftest client must have ended with that completion."""
    said = result.stdout + result.stderr
    status = re.search(r"Failed status (\d+)", said)
    wanted = errors.status_of(peer, 0x1c6)
    check(result.status != 0 and status and int(status.group(1)) == wanted,
          f"perftest ended with {result.status}, its completion must have status {wanted}: "
          f"{said[-300:]}")


def deny_rdma(direction: str, version: int, context: Context) -> None:
    """A rule at the link of who sends (tx), or of who gets (rx)."""
    a, b = context.a, context.b
    peer = b if direction == "tx" else a
    before = peer.counters()["fabric.policy.denied"]
    with under_policy(peer, f"acl=deny {direction} rdma from {b.ip(version)} to {a.ip(version)}"):
        no_rdma(context, version)
        ping(b, a.ip(version))
        transfer(context, b, a, a.ip(version), size=1 << 18)
        perftest(context, "ib_write_bw", "-s", "65536", "-n", "50",
                 gid=gid_index(b, 10 - version))
    denied = peer.counters()["fabric.policy.denied"] - before
    check(denied >= 1, f"{denied} frames denied")
    perftest(context, "ib_write_bw", "-s", "65536", "-n", "50", gid=gid_index(b, version))
    others = ("10.0.0.99", "10.0.0.98") if version == 4 else ("fd00::99", "fd00::98")
    with under_policy(peer, f"acl=deny tx rdma to {others[0]};deny rx rdma from {others[1]}"):
        perftest(context, "ib_write_bw", "-s", "65536", "-n", "50", gid=gid_index(b, version))
    context.note(f"{denied} frames denied")


def deny_port(direction: str, version: int, context: Context) -> None:
    a, b = context.a, context.b
    peer = b if direction == "tx" else a
    ports = context.port(), context.port()
    host = a.ip(version) if version == 4 else f"[{a.ip(version)}]"
    with under_policy(peer, f"acl=deny {direction} tcp to {a.ip(version)} port {ports[0]}"):
        for port, expected in zip(ports, (False, True)):
            sink = a.spawn(f"socat -u TCP{version}-LISTEN:{port},reuseaddr -")
            a.wait_listening(port, sink)
            done = b.run(f"echo there | socat -u - TCP{version}:{host}:{port},connect-timeout=3",
                         check=False)
            check((done.status == 0) == expected,
                  f"port {port}: socat ended with {done.status}, rule for {ports[0]}")
            if expected:
                a.finish(sink, 20)
                check(sink.stdout == "there\n", f"port {port}: {sink.stdout!r} arrived")
            else:
                sink.kill()
        ping(b, a.ip(version))
        perftest(context, "ib_write_bw", "-s", "65536", "-n", "50", gid=gid_index(b, version))


for _way, _words, _version in (("tx", "sends", 4), ("rx", "gets", 6)):
    AREA.add(f"an access rule against RDMA that a guest {_words}, IPv{_version}, stops that and "
             "nothing else", partial(deny_rdma, _way, _version), smoke=_way == "tx")
    AREA.add(f"an access rule against a TCP port, dir={_way}, IPv{_version}, stops that port and "
             "nothing else", partial(deny_port, _way, _version))


@AREA.case("rules that allow what is named and deny the rest")
def allow_only(context: Context) -> None:
    a, b = context.a, context.b
    rules = f"allow arp;allow both rdma;allow both tcp from {a.ip()};allow both tcp to {a.ip()}"
    with under_policy(b, f"acl={rules};deny any"):
        perftest(context, "ib_write_bw", "-s", "65536", "-n", "50")
        ping(b, a.ip(), count=1, expect=False)
    ping(b, a.ip())


FOREIGN_MAC = "024d410000ee"


def internet_checksum(data: bytes) -> int:
    """RFC 1071."""
    total = sum(int.from_bytes(data[at:at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def false_answer(peer: Peer, target: Peer, version: int) -> str:
    """Tells `target` that the address of `peer` is at somebody else's MAC address: an ARP reply, or
    a neighbour advertisement."""
    ends = hex_mac(target) + hex_mac(peer)
    own, other = (ipaddress.ip_address(one.ip(version)).packed for one in (peer, target))
    if version == 4:
        return (ends + "0806" + "0001080006040002" + FOREIGN_MAC + own.hex() + hex_mac(target)
                + other.hex())
    message = bytes.fromhex("8800000060000000" + own.hex() + "0201" + FOREIGN_MAC)
    pseudo = own + other + len(message).to_bytes(4, "big") + b"\0\0\0\x3a"
    checksum = internet_checksum(pseudo + message)
    message = message[:2] + checksum.to_bytes(2, "big") + message[4:]
    header = "60000000" + len(message).to_bytes(2, "big").hex() + "3aff" + own.hex() + other.hex()
    return ends + "86dd" + header + message.hex()


def spoofed(version: int, context: Context) -> None:
    """Of b over IPv4, of a over IPv6."""
    b, a = (context.b, context.a) if version == 4 else (context.a, context.b)
    # The NIC itself stops a foreign source; the policy also looks into ARP and its like: here is
    # an answer that gives the address of b to somebody else.
    foreign = hex_mac(a) + FOREIGN_MAC + "88b5"
    reply = false_answer(b, a, version)
    second, gid = ("10.0.0.77", "::ffff:10.0.0.77") if version == 4 else ("fd00::77", "fd00::77")
    length = "/24" if version == 4 else "/64 nodad preferred_lft 0"
    b.run(f"ip addr add {second}{length} dev {b.interface}")
    # Answers for the foreign address are stopped too; here RDMA shall get as far as its packets.
    neighbour = f"{second} lladdr {b.guest.macs[0]} dev {a.interface}"
    a.run(f"ip neigh replace {neighbour} nud permanent")
    try:
        ping(b, a.ip(version), device=second)
        before, seen = b.counters(), a.counters()["fabric.port.rx_frames"]
        with under_policy(b, f"mac-check=on,ips={b.ip()}+{b.ip(6)}"):
            for frame, counter in ((foreign, "eth.tx.source"),
                                   (reply, "fabric.policy.spoofed_mac")):
                raw_frames(b, frame)
                stopped = b.counters()[counter] - before[counter]
                check(stopped == 20, f"{counter}: {stopped} of 20 spoofed frames")
            arrived = a.counters()["fabric.port.rx_frames"] - seen
            check(arrived < 10, f"{arrived} frames arrived")
            ping(b, a.ip(version), count=1, expect=False, device=second)
            spoofed_ip = b.counters()["fabric.policy.spoofed_ip"] - before[
                "fabric.policy.spoofed_ip"]
            check(spoofed_ip > 0, "no frame was dropped for its IP address")
            ping(b, a.ip(version))
            perftest(context, "ib_write_bw", "-s", "65536", "-n", "50", server=a, client=b,
                     gid=gid_index(a, version))
            own = b.guest.rdma_device(0)
            b.until(f"ibv_devinfo -v -d {own} | grep -qi '[[:space:]]{gid},'", "no second GID")
            text = b.out(f"ibv_devinfo -v -d {own} | grep -i '[[:space:]]{gid},'")
            index = text.split("[")[1].split("]")[0]
            port = context.port()
            words = f"-F -s 64 -n 5 -u 10 -p {port}"
            server = a.spawn(f"exec ib_write_bw -d {a.rdma} -x {gid_index(a, version)} {words}")
            a.wait_listening(port, server)
            result = b.run(f"ib_write_bw -d {own} -x {index} {words} {a.ip()}", check=False)
            server.kill()
            retries_used_up(b, result)
    finally:
        a.run(f"ip neigh del {neighbour}")
        b.run(f"ip addr del {second}{length.split()[0]} dev {b.interface}")


for _version in (4, 6):
    AREA.add("spoof protection: a foreign MAC address, a foreign IP address"
             + (", IPv6" if _version == 6 else ""), partial(spoofed, _version))


# -- the flow log


def lines_of(path: Path, event: str = "end") -> list[dict[str, Any]]:
    """The lines of a flow log; each must be a JSON object."""
    found = []
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        check(isinstance(entry, dict), f"flow log: {line}")
        found.append(entry)
    return [entry for entry in found if entry["event"] == event]


def logged(tool: str, receives: bool, fault: str, version: int, context: Context) -> None:
    """The flow log says what perftest moved, and what a capture of the same link shows. The log is
    that of b, which runs the client; with `receives` that of a."""
    a, b = (context.b, context.a) if receives else (context.a, context.b)
    payload = "rx_payload" if receives != (tool == "ib_read_bw") else "tx_payload"
    requests = "rx_operations" if receives else "tx_operations"
    log = context.lab.output_dir / f"flows-{tool}-{len(fault)}-{version}.jsonl"
    size, count, pairs = 32768, 60, 2
    words = ("-s", str(size), "-n", str(count), "-q", str(pairs))
    gid = gid_index(b, version)
    b.manactl("policy", "set", b.in_manad, f"flow-log={log}")
    try:
        with captured(b, folder=context.lab.output_dir) as files:
            if fault:
                with faulty(a, fault):
                    perftest(context, tool, *words, gid=gid)
            else:
                perftest(context, tool, *words, gid=gid)
    finally:
        b.manactl("policy", "clear", b.in_manad)
    ends = [entry for entry in lines_of(log) if entry["protocol"] == "rdma-rc"]
    starts = [entry for entry in lines_of(log, "start") if entry["protocol"] == "rdma-rc"]
    check(len(ends) == len(starts) == pairs, f"{len(starts)} starts and {len(ends)} ends of "
          f"{pairs} connections: {ends}")
    moved = sum(entry[payload] for entry in ends)
    operations = sum(entry[requests] for entry in ends)
    repeated = sum(entry["retransmits"] for entry in ends)
    check(moved == pairs * count * size, f"{payload} {moved}, perftest moved "
          f"{pairs * count * size}: {ends}")
    check(operations == pairs * count, f"{operations} operations, perftest made {pairs * count}")
    check(sum(entry["errors"] for entry in ends) == 0, f"errors: {ends}")
    check((repeated > 0) == bool(fault), f"{repeated} repetitions with fault '{fault}'")
    wire: dict[tuple[bool, int], list[int]] = defaultdict(lambda: [0, 0])
    for packet in packets_of(files[0]):
        one = wire[packet.source == b.ip(version), packet.qpn]
        one[0] += 1
        one[1] += packet.size
    for entry in ends:
        for way, sent, qpn in (("tx", True, "remote_qpn"), ("rx", False, "local_qpn")):
            logged_sums = [entry[f"{way}_frames"], entry[f"{way}_bytes"]]
            check(logged_sums == wire[sent, entry[qpn]],
                  f"{way}: the log has {logged_sums} frames and bytes, the capture "
                  f"{wire[sent, entry[qpn]]}")
    context.note(f"{moved} bytes, {operations} operations, {repeated} packets again")


for _tool in ("ib_write_bw", "ib_send_bw", "ib_read_bw"):
    _title = f"the flow log accounts for every byte of {_tool}"
    AREA.add(_title, partial(logged, _tool, False, "", 4))
    AREA.add(f"{_title} through 1 % loss", partial(logged, _tool, False, "loss=1%,seed=3", 4))
AREA.add("the flow log of who gets it accounts for every byte of ib_write_bw over IPv6",
         partial(logged, "ib_write_bw", True, "", 6))


def segments_again(peer: Peer) -> int:
    """TCP segments that a guest has sent again since it booted."""
    names, values = (line.split() for line in peer.out("grep ^Tcp: /proc/net/snmp").splitlines())
    return int(values[names.index("RetransSegs")])


def logged_tcp(version: int, context: Context) -> None:
    """One connection, logged at the link of who sends (IPv4) or of who gets (IPv6)."""
    a, b = context.a, context.b
    peer, other = (b, a) if version == 4 else (a, b)
    sent, got = ("tx", "rx") if version == 4 else ("rx", "tx")
    log = context.lab.output_dir / f"flows-tcp-{version}.jsonl"
    size = 1 << 20
    again = segments_again(b)
    peer.manactl("policy", "set", peer.in_manad, f"flow-log={log}")
    try:
        transfer(context, b, a, a.ip(version), size=size)
        deadline = time.monotonic() + 20
        while not lines_of(log):
            if time.monotonic() > deadline:
                raise CaseFailed("no connection ended in the flow log")
            time.sleep(0.2)
    finally:
        peer.manactl("policy", "clear", peer.in_manad)
    ends = [entry for entry in lines_of(log) if entry["protocol"] == "tcp"]
    check(len(ends) == 1, f"connections: {ends}")
    one = ends[0]
    # A slow guest may send a segment once more; its bytes went over the link too.
    again = segments_again(b) - again
    check(0 <= one[f"{sent}_payload"] - size <= again * 1460 and one[f"{got}_payload"] == 0
          and one["reason"] == "closed" and one["local"] == peer.ip(version)
          and one["remote"] == other.ip(version)
          and one["opened_by"] == ("guest" if peer is b else "network"),
          f"{size} bytes were sent: {one}")
    check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", one["start"]) is not None,
          f"time: {one['start']}")


for _version in (4, 6):
    AREA.add(f"the flow log accounts for every byte of a TCP connection over IPv{_version}",
             partial(logged_tcp, _version))


@AREA.case("the flow log says of a connection that its peer died")
def logged_death(context: Context) -> None:
    b = context.b
    log = context.lab.output_dir / "flows-death.jsonl"
    with under_policy(b, f"flow-log={log}"):
        errors.stream("killed-peer", 0x1c6, context)
    ends = [entry for entry in lines_of(log) if entry["protocol"] == "rdma-rc"]
    check(len(ends) == 1 and ends[0]["errors"] == 1 and ends[0]["reason"] == "retries exceeded",
          f"connections: {ends}")
