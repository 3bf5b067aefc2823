# SPDX-License-Identifier: Apache-2.0
"""Raw packet queue pairs with a data path, and flow rules, beside the kernel's interface:
perftest's raw_ethernet programs between two guests with our driver and provider.

Ethernet has no flow control, so the receiver posts all receives (-r) before the first packet.
"""

from __future__ import annotations

from functools import partial

from harness import Area, Context, Peer, check
from programs import gbits, ping, rows_of, under_policy

AREA = Area("raw", needs=("driver", "provider", "ext"))
PACKETS = 2000
IP = ("--source_ip", "{client}", "--dest_ip", "{server}")  # of the client's packets
UDP = (*IP, "--source_port", "7001", "--dest_port", "7002")
IPV6 = ("--raw_ipv6", *UDP)
FOREIGN_MAC = "02:4d:41:00:00:ee"


def mac(peer: Peer) -> str:
    """The interface's address."""
    return peer.out(f"cat /sys/class/net/{peer.interface}/address").strip()


def words(peer: Peer, other: Peer, *options: str) -> list[str]:
    """The options of one end: its device, MAC addresses, and where to stop."""
    return ["-d", peer.rdma, "-B", mac(peer), "-E", mac(other), "-F", *options]


def rx(peer: Peer, name: str) -> int:
    """A counter of received frames."""
    return peer.counters()[f"eth.rx.{name}"]


def pair(context: Context, tool: str, *options: str, both: bool = False) -> list[str]:
    """Runs server and client to their ends; the line of the client's table."""
    a, b = context.a, context.b
    version = 6 if "--raw_ipv6" in options else 4
    filled = [option.format(client=b.ip(version), server=a.ip(version)) for option in options]
    server = a.spawn(["stdbuf", "-oL", tool, "--server", *words(a, b, *filled)])
    server.wait_output("#bytes", 30)
    if both:
        # Each end waits for the other's packets, and knows nothing of when it is ready.
        a.until(f"rdma resource show qp link {a.rdma}/1 | grep -q 'state RTS'",
                "the server does not come to RTS")
    result = b.run([tool, "--client", *words(b, a, *filled)], timeout=90)
    a.finish(server, 60)
    rows = rows_of(result.stdout)
    check(len(rows) == 1, f"{tool}: no figures: {result.stdout[-300:]}")
    return rows[0]


def bandwidth(options: tuple[str, ...], exact: bool, context: Context) -> None:
    """All packets come, by the rule; with `exact` nothing else matches it."""
    a, b = context.a, context.b
    rule, sent = rx(a, "by_rule"), b.counters()["eth.tx.unicast_packets"]
    receives = () if "-r" in options else ("-r", str(PACKETS))
    row = pair(context, "raw_ethernet_bw", "-s", "1024", "-n", str(PACKETS), *receives, *options)
    rule, sent = rx(a, "by_rule") - rule, b.counters()["eth.tx.unicast_packets"] - sent
    check(rule == PACKETS if exact else rule >= PACKETS,
          f"{PACKETS} packets were sent, {rule} came by the rule")
    check(sent >= PACKETS, f"the client's NIC counts {sent} packets sent")
    context.note(gbits(row))
    ping(b, a.ip())


def add(title: str, *options: str, exact: bool = True, **more: bool) -> None:
    """A case of raw_ethernet_bw."""
    AREA.add(f"raw_ethernet_bw{title}", partial(bandwidth, options, exact), **more)


add("", exact=False, smoke=True)
add(" with a rule for IPv4 addresses", *IP)
add(" with a rule for UDP ports", *UDP, smoke=True)
add(" with a rule for TCP ports", *UDP, "--tcp")
add(" with a rule for UDP ports over IPv6", *IPV6)
add(" with VLAN tags", *UDP, "--vlan_en")
add(" with lists of 16", *UDP, "-l", "16", "--recv_post_list", "16", "-r", "2048")


@AREA.case("raw_ethernet_bw in both directions")
def duplex(context: Context) -> None:
    a, b = context.a, context.b
    before = [rx(peer, "by_rule") for peer in (a, b)]
    row = pair(context, "raw_ethernet_bw", "-b", "-s", "1024", "-n", "500", "-r", "500", *UDP,
               both=True)
    for peer, old in zip((a, b), before):
        check(rx(peer, "by_rule") - old == 500, f"{peer.name}: not all packets came by the rule")
    context.note(gbits(row))


@AREA.case("raw_ethernet_lat", smoke=True)
def latency(context: Context) -> None:
    row = pair(context, "raw_ethernet_lat", "-s", "64", "-n", "500", *UDP, both=True)
    context.note(f"{row[4]} us")


@AREA.case("raw_packets: events, bytes, foreign sources, checksums, errors, flush, reset",
           smoke=True)
def program(context: Context) -> None:
    a, b = context.a, context.b
    paths = [context.program(peer, "raw_packets.c") for peer in (a, b)]
    macs = [mac(peer) for peer in (a, b)]
    server = a.spawn([paths[0], "serve", a.rdma, macs[0], macs[1]])
    for number in range(2):
        server.wait_output("ready\n" * (number + 1), 30)
        b.run([paths[1], "send", b.rdma, macs[1], macs[0]])
    a.finish(server, 30)
    check(server.stdout.endswith("done\n"), f"the receiver: {server.stdout}{server.stderr}")


@AREA.case("spoof protection: packets of a queue pair from a foreign MAC address")
def spoofed(context: Context) -> None:
    a, b = context.a, context.b
    command = ["raw_ethernet_bw", "--client", "-d", b.rdma, "-B", FOREIGN_MAC, "-E", mac(a), "-F",
               "-s", "256", "-n", "500"]

    def numbers() -> tuple[int, int]:
        return (b.counters()["fabric.policy.spoofed_mac"],
                a.counters()["fabric.port.rx_frames"])

    # By default the source is free.
    stopped, arrived = numbers()
    b.run(command, timeout=90)
    now = numbers()
    check(now[0] == stopped, f"{now[0] - stopped} packets were stopped without a policy")
    check(now[1] - arrived >= 500, f"{now[1] - arrived} of 500 packets arrived")
    with under_policy(b, "mac-check=on"):
        stopped, arrived = numbers()
        b.run(command, timeout=90)
        now = numbers()
        check(now[0] - stopped >= 500, f"{now[0] - stopped} of 500 spoofed packets were stopped")
        check(now[1] - arrived < 50, f"{now[1] - arrived} frames arrived")
        ping(b, a.ip())


@AREA.case("the interface keeps what no rule names, also under traffic")
def beside(context: Context) -> None:
    a, b = context.a, context.b
    server = a.spawn(["stdbuf", "-oL", "raw_ethernet_bw", "--server",
                      *words(a, b, "-s", "1024", "-D", "6",
                             *(w.format(client=b.ip(), server=a.ip()) for w in UDP))])
    server.wait_output("#bytes", 30)
    before = rx(a, "by_rule")
    client = b.spawn(["raw_ethernet_bw", "--client",
                      *words(b, a, "-s", "1024", "-D", "6",
                             *(w.format(client=b.ip(), server=a.ip()) for w in UDP))])
    a.until("sleep 1; true", "a second passes")
    for size in (56, 1400):
        ping(b, a.ip(), size=size, count=5)
    b.finish(client, 60)
    a.finish(server, 60)
    check(rx(a, "by_rule") > before, "no packet came by the rule")
