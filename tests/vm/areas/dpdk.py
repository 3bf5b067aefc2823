# SPDX-License-Identifier: Apache-2.0
"""Raw packet queue pairs and RSS under DPDK: its MANA driver, over the stock kernel driver and
libmana, in the first guest; the kernel's own network stack in the second.

testpmd of the guest's release comes with its libraries from the package archive. The kernel's
interface is down meanwhile, since one of the two owns the vPort, and takes it back afterwards.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from harness import Area, CaseFailed, Context, Peer, check
from programs import configure, ping

from lab import extras

AREA = Area("dpdk")
FOLDER = "/root/dpdk"
PACKAGES = ("dpdk-dev",)
FILES = ("usr/bin/dpdk-testpmd", "usr/lib/x86_64-linux-gnu/librte_net_mana.so.??",
         "usr/lib/x86_64-linux-gnu/librte_mempool_ring.so.??")
HUGE_PAGES = 64
LIMIT = 600.0  # the first case may fetch the packages


@dataclass
class Forwarded:
    """What testpmd says that it did."""

    received: int = 0
    sent: int = 0
    queues: dict[int, tuple[int, int]] = field(default_factory=dict)  # received, sent


def parse(text: str) -> Forwarded:
    """The statistics that testpmd prints at its end; queues are listed where there are several."""
    done = Forwarded()
    for queue, received, sent in re.findall(
            r"RX Port= 0/Queue= *(\d+) ->.*?\n\s*RX-packets: (\d+)\s+TX-packets: (\d+)", text):
        done.queues[int(queue)] = (int(received), int(sent))
    total = text.rpartition("Accumulated forward statistics")[2]
    for name in ("RX", "TX"):
        found = re.search(rf"^\s*{name}-packets: (\d+)", total, re.M)
        if found is None:
            raise CaseFailed(f"testpmd shows no sum of {name} packets: {text[-300:]}")
        if name == "RX":
            done.received = int(found[1])
        else:
            done.sent = int(found[1])
    return done


def install(peer: Peer) -> None:
    """testpmd and its libraries in a guest."""
    if peer.run(f"test -x {FOLDER}/dpdk-testpmd", check=False).status != 0:
        extras.unpack(peer.guest, extras.archive(peer.suite, PACKAGES, FILES), FOLDER)


class Testpmd:
    """A running testpmd; `stop` gives its figures."""

    def __init__(self, context: Context, peer: Peer, mode: str, *options: str, huge: bool = True
                 ) -> None:
        self._peer = peer
        at = peer.out(f"basename $(readlink /sys/class/net/{peer.interface}/device)").strip()
        mac = peer.guest.macs[peer.nic]
        peer.run(f"ip link set {peer.interface} down")
        if huge:
            peer.run(f"echo {HUGE_PAGES} >/proc/sys/vm/nr_hugepages && "
                     f"[ $(cat /proc/sys/vm/nr_hugepages) = {HUGE_PAGES} ]")
        memory = "--in-memory" if huge else "--no-huge -m 128"
        last = int(peer.out("nproc")) - 1
        self.process = peer.spawn(
            f"cd {FOLDER} && LD_LIBRARY_PATH={FOLDER} exec stdbuf -oL ./dpdk-testpmd "
            f"--lcores 0@0,1@{last} {memory} --iova-mode=va "
            f"-d $(echo ./librte_net_mana.so.*) -d $(echo ./librte_mempool_ring.so.*) "
            f"-a {at},mac={mac} -- --forward-mode={mode} --auto-start --total-num-mbufs=8192 "
            f"--no-mlockall {' '.join(options)}", stdin=True)
        self.process.wait_output("Press enter to exit", 60)

    def stop(self) -> Forwarded:
        """Ends it as its user would."""
        self.process.write(b"\n")
        self._peer.finish(self.process, 30)
        return parse(self.process.stdout)


@contextlib.contextmanager
def testpmd(context: Context, mode: str, *options: str, huge: bool = True) -> Iterator[Testpmd]:
    """testpmd in the first guest; afterwards the kernel has the port again, and it works."""
    a, b = context.a, context.b
    install(a)
    try:
        yield Testpmd(context, a, mode, *options, huge=huge)
    finally:
        context.end()
        a.run("echo 0 >/proc/sys/vm/nr_hugepages")
        b.run(f"ip neigh flush dev {b.interface}")
        configure(context, a)
    ping(b, a.ip())


def echo(huge: bool, context: Context) -> None:
    """testpmd answers ARP and ping."""
    a, b = context.a, context.b
    with testpmd(context, "icmpecho", huge=huge) as program:
        for size in (56, 1400):
            ping(b, a.ip(), size=size, count=20)
        done = program.stop()
    check(done.received >= 40, f"testpmd received {done.received} packets")


AREA.add("testpmd answers ARP and ping", partial(echo, True), timeout=LIMIT, smoke=True)
AREA.add("testpmd in memory of small pages", partial(echo, False), timeout=LIMIT)

# Sends datagrams of random bytes and sizes from some ports, waits for each to come back.
REFLECT = """
import os, random, socket, sys
target, ports, rounds, largest = sys.argv[1], *map(int, sys.argv[2:])
random.seed(7)
sockets = []
for number in range(ports):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind(('', 20000 + number))
    one.connect((target, 30000 + number))
    one.settimeout(10)
    sockets.append(one)
for number in range(rounds):
    sent = [os.urandom(random.randint(1, largest)) for _ in sockets]
    for one, data in zip(sockets, sent):
        one.send(data)
    for one, data in zip(sockets, sent):
        back = one.recv(65536)
        if back != data:
            sys.exit(f'round {number}: {len(data)} bytes sent, {len(back)} other bytes came back')
print(ports * rounds)
"""


def reflect(context: Context, program: str, ports: int, rounds: int, largest: int) -> int:
    """Datagrams that testpmd sends back with their addresses swapped (it answers no ARP)."""
    a, b = context.a, context.b
    b.run(f"ip neigh replace {a.ip()} lladdr {a.guest.macs[a.nic]} dev {b.interface} "
          "nud permanent")
    try:
        return int(b.out(["python3", "-c", program, a.ip(), str(ports), str(rounds),
                          str(largest)], timeout=60))
    finally:
        b.run(f"ip neigh del {a.ip()} dev {b.interface}")


@AREA.case("RSS over 4 queues: datagrams come back unchanged, each flow on one queue",
           timeout=LIMIT)
def rss(context: Context) -> None:
    with testpmd(context, "5tswap", "--rxq=4", "--txq=4", "--rss-udp") as program:
        count = reflect(context, REFLECT, 32, 20, 1472)
        done = program.stop()
    check(done.received >= count, f"{count} datagrams, but testpmd received {done.received}")
    used = {queue: received for queue, (received, _) in done.queues.items() if received}
    check(len(used) >= 2, f"32 flows on {len(used)} of the queues: {done.queues}")
    context.note(", ".join(f"queue {queue}: {received}" for queue, received in used.items()))


@AREA.case("testpmd killed in traffic: the kernel takes the port back", timeout=LIMIT, smoke=True)
def killed(context: Context) -> None:
    with testpmd(context, "5tswap", "--rxq=2", "--txq=2", "--rss-udp") as program:
        reflect(context, REFLECT, 4, 5, 1472)
        program.process.kill()
