# SPDX-License-Identifier: Apache-2.0
"""The Ethernet half of the NIC under the stock mana driver."""

from __future__ import annotations

import re
from functools import partial

from harness import Area, Context, Peer, check, is_harmless, skip
from programs import configure, ethtool_stats, iperf, ping, set_mtu, transfer

from lab.debian import WITH_BACKPORTS

AREA = Area("ethernet")
NEWEST = (7, 3)  # that docs/spec was written from
OFFLOADS = ("tx", "rx", "sg", "tso", "gso", "gro")


def set_offloads(state: str, *peers: Peer) -> None:
    """Turns checksum and segmentation offloads on or off, and checks that it was done."""
    for peer in peers:
        words = " ".join(f"{name} {state}" for name in OFFLOADS)
        peer.run(f"ethtool -K {peer.interface} {words}")
        shown = peer.out(f"ethtool -k {peer.interface}")
        for name in ("tcp-segmentation-offload", "tx-checksumming", "rx-checksumming"):
            check(re.search(rf"^{name}: {state}\b", shown, re.M),
                  f"{peer.name}: {name} is not {state}")


@AREA.case("mana probes without a warning", smoke=True)
def probes(context: Context) -> None:
    for peer in context.peers:
        lines = peer.out("dmesg -l emerg,alert,crit,err,warn").splitlines()
        wrong = [line for line in lines
                 if re.search(r"mana|1414|hwc", line, re.I) and not is_harmless(line)]
        check(not wrong, f"{peer.name}: {'; '.join(wrong[:3])}")
        listed = peer.out("lspci -nk -d 1414:00ba")
        check("Kernel driver in use: mana" in listed, f"{peer.name}: lspci says {listed}")


@AREA.case("lspci -vv reads like a NIC")
def lspci(context: Context) -> None:
    for peer in context.peers:
        text = peer.out("lspci -vv -d 1414:00ba")
        for wanted in ("Ethernet controller", "MSI-X: Enable+", "Express", "Power Management",
                       "FLReset+"):
            check(wanted in text, f"{peer.name}: no '{wanted}' in lspci -vv")
        check("!!!" not in text and "<access denied>" not in text,
              f"{peer.name}: lspci -vv: {text}")


@AREA.case("ping over IPv4 and IPv6, both ways", smoke=True)
def pings(context: Context) -> None:
    a, b = context.a, context.b
    for source, target in ((a, b), (b, a)):
        for version in (4, 6):
            ping(source, target.ip(version))
        ping(source, target.ip(), size=1472, dont_fragment=True)


@AREA.case("MTU 1500: what is larger does not pass, fragments do")
def mtu_1500(context: Context) -> None:
    a, b = context.a, context.b
    set_mtu(1500, a, b)
    ping(a, b.ip(), size=1473, dont_fragment=True, expect=False, count=1)
    ping(a, b.ip(), size=8000)
    ping(b, a.ip(6), size=8000)


@AREA.case("MTU 9000: jumbo frames over IPv4 and IPv6", smoke=True)
def mtu_9000(context: Context) -> None:
    a, b = context.a, context.b
    set_mtu(9000, a, b)
    try:
        ping(a, b.ip(), size=8000, dont_fragment=True)
        ping(b, a.ip(), size=8972, dont_fragment=True)
        ping(a, b.ip(6), size=8000, dont_fragment=True)
        transfer(context, a, b, b.ip())
        transfer(context, b, a, a.ip(6))
    finally:
        set_mtu(1500, a, b)
    ping(a, b.ip())


def tcp(streams: int, state: str, context: Context) -> None:
    a, b = context.a, context.b
    set_offloads(state, a, b)
    try:
        before = ethtool_stats(b)
        forth = iperf(context, a, b, "-P", str(streams))
        moved = ethtool_stats(b)
        back = iperf(context, a, b, "-P", str(streams), "-R")
        tso = sum(value - before.get(name, 0) for name, value in moved.items()
                  if re.fullmatch(r"tx_\d+_tso_packets", name))
        check((tso > 0) == (state == "on"), f"{tso} TSO packets with offloads {state}")
        context.note(f"{forth['bits_per_second'] / 1e6:.0f} and "
                     f"{back['bits_per_second'] / 1e6:.0f} Mb/s")
    finally:
        set_offloads("on", a, b)


for _streams in (1, 4):
    for _state in ("on", "off"):
        AREA.add(f"iperf3 both ways, {_streams} stream{'s' * (_streams > 1)}, TSO and checksum "
                 f"offload {_state}", partial(tcp, _streams, _state),
                 smoke=(_streams, _state) == (1, "on"))


def data(state: str, context: Context) -> None:
    a, b = context.a, context.b
    set_offloads(state, a, b)
    try:
        for version in (4, 6):
            transfer(context, a, b, b.ip(version), 2 << 20)
            transfer(context, b, a, a.ip(version), 2 << 20)
    finally:
        set_offloads("on", a, b)


for _state in ("on", "off"):
    AREA.add(f"TCP data arrives unchanged over IPv4 and IPv6, offloads {_state}",
             partial(data, _state), smoke=_state == "off")


@AREA.case("offloads on at one end only")
def mixed_offloads(context: Context) -> None:
    a, b = context.a, context.b
    set_offloads("off", a)
    try:
        transfer(context, a, b, b.ip(), 2 << 20)
        transfer(context, b, a, a.ip(), 2 << 20)
    finally:
        set_offloads("on", a)


@AREA.case("UDP both ways, with large datagrams too")
def udp(context: Context) -> None:
    a, b = context.a, context.b
    for options in (("-b", "10M", "-l", "1400"), ("-b", "10M", "-l", "1400", "-R"),
                    ("-b", "10M", "-l", "8000")):
        sums = iperf(context, a, b, *options, seconds=1, udp=True)
        check(sums["lost_percent"] < 20,
              f"iperf3 -u {' '.join(options)} lost {sums['lost_percent']:.0f} %")


@AREA.case("VLAN: tagged traffic passes, other tags do not", smoke=True)
def vlan(context: Context) -> None:
    a, b = context.a, context.b
    try:
        for peer in (a, b):
            for tag in (7, 8):
                if tag == 8 and peer is b:
                    continue
                name = f"v{tag}"
                peer.run(f"ip link add link {peer.interface} name {name} type vlan id {tag} && "
                         f"ip addr add 10.77.{tag}.{peer.index + 1}/24 dev {name} && "
                         f"ip link set {name} up")
        ping(a, f"10.77.7.{b.index + 1}")
        transfer(context, a, b, f"10.77.7.{b.index + 1}", 1 << 20)
        transfer(context, b, a, f"10.77.7.{a.index + 1}", 1 << 20)
        b.run(f"ip addr add 10.77.8.{b.index + 1}/24 dev v7")
        ping(a, f"10.77.8.{b.index + 1}", count=1, expect=False)
    finally:
        for peer in (a, b):
            for name in ("v7", "v8"):
                peer.run(f"ip link del {name} 2>/dev/null || true")


@AREA.case("ethtool -i, -l, -S, -k, -x")
def ethtool(context: Context) -> None:
    for peer in context.peers:
        name = peer.interface
        check(re.search(r"^driver: mana$", peer.out(f"ethtool -i {name}"), re.M),
              f"{peer.name}: ethtool -i does not name the driver")
        check("Combined:" in peer.out(f"ethtool -l {name}"), f"{peer.name}: ethtool -l")
        stats = ethtool_stats(peer)
        check(any(key.startswith("rx_0_") for key in stats) and len(stats) > 10,
              f"{peer.name}: ethtool -S shows {sorted(stats)[:5]}")
        features = peer.out(f"ethtool -k {name}")
        for wanted in ("tcp-segmentation-offload: on", "rx-checksumming: on",
                       "tx-checksumming: on", "scatter-gather: on"):
            check(wanted in features, f"{peer.name}: ethtool -k lacks '{wanted}'")
        table = peer.out(f"ethtool -x {name}")
        check(re.search(r"^\s*0:(\s+\d+)+", table, re.M) and re.search(
            r"([0-9a-f]{2}:){39}[0-9a-f]{2}", table), f"{peer.name}: ethtool -x: {table[:200]}")
        check(peer.out(f"cat /sys/class/net/{name}/carrier").strip() == "1",
              f"{peer.name}: no carrier")


@AREA.case("ethtool -L and -X change the number of queues and the RSS table")
def channels(context: Context) -> None:
    changed = False
    a, b = context.a, context.b
    for peer, other in ((a, b), (b, a)):
        shown = peer.out(f"ethtool -l {peer.interface}")
        numbers = [int(value) for value in re.findall(r"^Combined:\s+(\d+)", shown, re.M)]
        if not numbers or numbers[0] < 2:
            continue
        changed = True
        for count in (1, 2):
            peer.run(f"ethtool -L {peer.interface} combined {count}")
            now = peer.out(f"ethtool -l {peer.interface}")
            check(re.findall(r"^Combined:\s+(\d+)", now, re.M)[-1] == str(count),
                  f"{peer.name}: the number of queues did not become {count}")
            configure(context, peer)
            ping(peer, other.ip())
            iperf(context, peer, other, "-P", "4", seconds=1)
        peer.run(f"ethtool -X {peer.interface} equal 1")
        iperf(context, peer, other, "-P", "4", seconds=1)
        peer.run(f"ethtool -X {peer.interface} default")
    if not changed:
        skip("guests with one CPU have one queue")


def modern(peer: Peer) -> None:
    """Skips before Linux 7.3."""
    if peer.suite not in WITH_BACKPORTS:
        skip("the driver is older than 7.3")


def shortest(peer: Peer, other: Peer) -> float:
    """The shortest round trip of some pings, in milliseconds."""
    said = peer.out(f"ping -n -q -c 20 -i 0.02 -W 2 {other.ip()}")
    found = re.search(r"= ([\d.]+)/", said)
    check(found is not None, f"{peer.name}: {said}")
    return float(found[1]) if found else 0.0


@AREA.case("the newest kernel of backports is one that docs/spec knows")
def known(context: Context) -> None:
    for peer in context.peers:
        modern(peer)
        running = peer.out("uname -r").strip()
        found = re.match(r"(\d+)\.(\d+)\.", running)
        check(found is not None and (int(found[1]), int(found[2])) <= NEWEST,
              f"{peer.name} runs {running}: compare its drivers with those of "
              f"{'.'.join(map(str, NEWEST))}, and write down what is new")


@AREA.case("7.3: ethtool -C moderates interrupts, adaptive at the start", smoke=True)
def moderation(context: Context) -> None:
    a, b = context.a, context.b
    modern(a)
    shown = a.out(f"ethtool -c {a.interface}")
    check(re.search(r"^Adaptive RX: on\s+TX: on", shown, re.M), f"{a.name}: ethtool -c: {shown}")
    try:
        a.run(f"ethtool -C {a.interface} adaptive-rx off adaptive-tx off rx-usecs 0 tx-usecs 0")
        at_once = shortest(a, b)
        a.run(f"ethtool -C {a.interface} rx-usecs 1000 rx-frames 0")
        moderated = shortest(a, b)
        check(moderated >= 1.0, f"a reply came after {moderated} ms, with an event each 1 ms")
        a.run(f"ethtool -C {a.interface} rx-frames 1")
        limited = shortest(a, b)
        check(limited < moderated, f"{limited} ms with a frame each event, {moderated} without")
        context.note(f"{at_once} ms, moderated {moderated} ms, with rx-frames 1 {limited} ms")
        for words in ("rx-usecs 1024", "rx-frames 256"):
            check(a.run(f"ethtool -C {a.interface} {words}", check=False).status != 0,
                  f"{a.name}: {words} was taken")
        iperf(context, a, b, seconds=1)
    finally:
        a.run(f"ethtool -C {a.interface} rx-usecs 0 rx-frames 0 adaptive-rx on adaptive-tx on")
    iperf(context, a, b, seconds=1)


@AREA.case("7.3: ethtool -C rx-cqe-frames: four and eight packets in a CQE")
def together(context: Context) -> None:
    a, b = context.a, context.b
    modern(a)
    if "rx-cqe-frames" not in a.out("ethtool --help"):
        skip("ethtool does not know it (that of forky does)")
    try:
        for frames in (8, 4):
            a.run(f"ethtool -C {a.interface} rx-cqe-frames {frames}")
            shown = a.out(f"ethtool -c {a.interface}")
            check(re.search(rf"^rx-cqe-frames:\s+{frames}$", shown, re.M), f"{a.name}: {shown}")
            before = ethtool_stats(a)
            transfer(context, b, a, a.ip())
            iperf(context, b, a, "-P", "4", seconds=1)
            after = ethtool_stats(a)
            shared = {name: after[name] - before[name] for name in after
                      if re.fullmatch(r"rx_\d+_coalesced_cqe_\d+", name)}
            check(sum(shared.values()) > 0, f"{a.name}: no CQE told of several packets: {shared}")
            context.note(f"{frames}: " + ", ".join(
                f"{name} {count}" for name, count in shared.items() if count))
    finally:
        a.run(f"ethtool -C {a.interface} rx-cqe-frames 1")
    transfer(context, b, a, a.ip())


@AREA.case("7.3: the private flag full-page-rx")
def full_pages(context: Context) -> None:
    a, b = context.a, context.b
    modern(a)
    for state in ("on", "off"):
        a.run(f"ethtool --set-priv-flags {a.interface} full-page-rx {state}")
        shown = a.out(f"ethtool --show-priv-flags {a.interface}")
        check(re.search(rf"^full-page-rx\s*: {state}", shown, re.M), f"{a.name}: {shown}")
        configure(context, a)
        transfer(context, b, a, a.ip())


@AREA.case("RSS spreads flows over the queues", smoke=True)
def rss(context: Context) -> None:
    a, b = context.a, context.b
    shown = a.out(f"ethtool -l {a.interface}")
    if int(re.findall(r"^Combined:\s+(\d+)", shown, re.M)[-1]) < 2:
        skip("guests with one CPU have one queue")
    # With this key the queue is the parity of addresses and ports. The source ports lie together,
    # so that with the driver's, which is random, they may all have the same queue.
    a.run(f"ethtool -X {a.interface} hkey {':'.join(['ff'] * 40)}")
    before = ethtool_stats(a)
    # every connection has another source port
    for _ in range(2):
        iperf(context, a, b, "-P", "8", seconds=1)
    after = ethtool_stats(a)
    used = [name for name in after if re.fullmatch(r"rx_\d+_packets", name)
            and after[name] > before.get(name, 0)]
    check(len(used) >= 2, f"{a.name}: 16 flows arrived on {used} only")


@AREA.case("statistics of both ends move with the traffic", smoke=True)
def statistics(context: Context) -> None:
    a, b = context.a, context.b

    def figures(peer: Peer) -> dict[str, int]:
        base = f"/sys/class/net/{peer.interface}/statistics"
        return {name: int(peer.out(f"cat {base}/{name}"))
                for name in ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes")}

    before = figures(a), figures(b)
    ping(a, b.ip(), size=1000, count=20)
    after = figures(a), figures(b)
    for peer, old, new in zip((a, b), before, after):
        for name, least in (("rx_packets", 20), ("tx_packets", 20), ("rx_bytes", 20000),
                            ("tx_bytes", 20000)):
            check(new[name] - old[name] >= least,
                  f"{peer.name}: {name} went from {old[name]} to {new[name]}")
    report = context.lab.manactl("stats", "--json")
    check('"counters"' in report, "manactl stats --json has no counters")


@AREA.case("interface down and up, promiscuous mode, multicast")
def down_up(context: Context) -> None:
    a, b = context.a, context.b
    for _ in range(3):
        a.run(f"ip link set {a.interface} down")
        configure(context, a)
        ping(a, b.ip())
    a.run(f"ip link set {a.interface} promisc on && ip link set {a.interface} promisc off")
    ping(b, a.ip())
    # All nodes of the link answer to this address, the asking one too.
    found = a.run(f"ping -6 -n -c 2 -I {a.interface} ff02::1", check=False).stdout
    own = a.out(f"ip -6 -o addr show dev {a.interface}")
    others = [address for address in re.findall(r"bytes from ([0-9a-f:]+)(?:%\w+)?: icmp", found)
              if f" {address}/" not in own]
    check(bool(others), f"{a.name}: nobody else answers to ff02::1")


@AREA.case("manactl link down stops the traffic, up brings it back; 7.2 sees it as carrier")
def link_state(context: Context) -> None:
    a, b = context.a, context.b
    carrier = f"$(cat /sys/class/net/{a.interface}/carrier)"
    context.lab.manactl("link", context.lab.manad.nics[0].name, "down")
    try:
        if a.suite not in ("bookworm", "trixie"):  # 6.1 and 6.12 know no link events
            a.until(f'[ "{carrier}" = 0 ]', "carrier stays on")
        ping(b, a.ip(), count=1, expect=False)
    finally:
        context.lab.manactl("link", context.lab.manad.nics[0].name, "up")
    a.until(f'[ "{carrier}" = 1 ]', "carrier stays off")
    configure(context, a)
    ping(a, b.ip())
