# SPDX-License-Identifier: Apache-2.0
"""What the areas do with the guests: perftest, ping, transfers, our own programs, set-up."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from frames import Packet, packets_of
from harness import CaseFailed, Context, Peer, check

from lab.tshark import find_tshark

ALL_SIZES = 23  # -a: 2 bytes to 8 MiB


def set_mtu(mtu: int, *peers: Peer) -> None:
    """MTU of the NICs; the RDMA path MTU follows it (1500: 1024, 9000: 4096)."""
    for peer in peers:
        peer.run(f"ip link set {peer.interface} mtu {mtu}")


def configure(context: Context, *peers: Peer) -> None:
    """Addresses and carrier after a restart of a guest or its driver."""
    for peer in peers:
        context.forget(peer)
        context.lab.configure_network([peer.guest])


def ping(source: Peer, target: str, size: int = 56, count: int = 3, dont_fragment: bool = False,
         expect: bool = True, device: str | None = None) -> None:
    """ping, all of whose packets must come back (or, not expected, none)."""
    words = ["ping", "-n", "-c", str(count), "-i", "0.1", "-W", "3", "-s", str(size)]
    if dont_fragment:
        words += ["-M", "do"]
    if device is not None:
        words += ["-I", device]
    result = source.run([*words, target], timeout=count * 4 + 10, check=False)
    received = re.search(r"(\d+) (?:packets )?received", result.stdout)
    got = int(received.group(1)) if received else 0
    if expect:
        check(result.status == 0 and got == count,
              f"{source.name}: ping -s {size} {target}: {got} of {count} came back: "
              f"{(result.stdout + result.stderr).strip()[-300:]}")
    else:
        check(got == 0, f"{source.name}: ping -s {size} {target} came back, but must not")


def iperf(context: Context, server: Peer, client: Peer, *options: str, seconds: float = 2,
          version: int = 4, udp: bool = False) -> dict[str, Any]:
    """iperf3 from client to server (-R: back); returns the sums of its report."""
    port = context.port()
    listener = server.spawn(["iperf3", "-s", "-1", "-p", str(port)])
    server.wait_listening(port, listener)
    result = client.run(["iperf3", "-c", server.ip(version), "-p", str(port), "-t", str(seconds),
                         "-J", *(("-u",) if udp else ()), *options],
                        timeout=seconds * 3 + 40, check=False)
    try:
        report = json.loads(result.stdout)
    except ValueError:
        report = {}
    if result.status != 0 or "error" in report:
        raise CaseFailed(f"{client.name}: iperf3 {' '.join(options)}: "
                         f"{report.get('error') or result.stderr.strip()[-300:]}")
    server.finish(listener, 30)
    sums = report["end"]["sum"] if udp else report["end"]["sum_received"]
    check(sums["bytes"] > 0, f"{client.name}: iperf3 {' '.join(options)} moved no bytes")
    return dict(sums)


def transfer(context: Context, source: Peer, target: Peer, address: str, size: int = 4 << 20
             ) -> None:
    """Sends random bytes over TCP and compares what arrived with what was sent."""
    port = context.port()
    family = "6" if ":" in address else "4"
    host = f"[{address}]" if family == "6" else address
    path = "/tmp/vm-transfer"
    source.run(f"[ $(stat -c %s {path} 2>/dev/null || echo 0) = {size} ] || "
               f"head -c {size} /dev/urandom >{path}")
    sink = target.spawn(f"socat -u TCP{family}-LISTEN:{port},reuseaddr - | sha256sum")
    target.wait_listening(port, sink)
    source.run(f"socat -u OPEN:{path} TCP{family}:{host}:{port}", timeout=90)
    target.finish(sink, 60)
    sent = source.out(f"sha256sum <{path}").split()[0]
    check(sink.stdout.split()[0] == sent, f"{source.name} to {target.name}: the {size} bytes that "
          f"arrived over TCP are not those that were sent")


def ethtool_stats(peer: Peer) -> dict[str, int]:
    """`ethtool -S` as numbers."""
    found = re.findall(r"^\s*(\S+):\s*(\d+)\s*$", peer.out(f"ethtool -S {peer.interface}"), re.M)
    return {name: int(value) for name, value in found}


def rows_of(text: str) -> list[list[str]]:
    """The lines of perftest's table."""
    return [line.split() for line in text.splitlines() if re.match(r"^\s*\d+\s+\d+\s", line)]


# perftest compares the CPU's counter with the time of day when it starts. On a busy host the guest
# may be held up meanwhile; then all is done and checked as ever, but each figure is zero.
CLOCK_UNKNOWN = "Correlation coefficient"


def measured(tool: str, rows: list[list[str]]) -> bool:
    """Whether the table has a figure."""
    # bandwidth: size, iterations, peak, average; latency: ..., min, max, typical
    return any(float(row[3] if "_bw" in tool else row[4]) > 0 for row in rows)


# With -R perftest's server listens twice, and its client may come to the second time too early.
NOT_YET = "RDMA_CM_EVENT_REJECTED; error: 8."
TRIES = 3


def perftest(context: Context, tool: str, *options: str, server: Peer | None = None,
             client: Peer | None = None, rdma_cm: bool = False, gid: int | None = None,
             sizes: int = 1, timeout: float = 90.0) -> list[list[str]]:
    """Runs a perftest pair; both ends must succeed. Returns the rows of the client's table."""
    server = server or context.a
    client = client or context.b
    words = [*options, "-F"]
    if gid is not None:
        words += ["-x", str(gid)]
    for attempt in range(TRIES if rdma_cm else 1):
        listener, result = run_perftest(context, [tool, *words], server, client, rdma_cm, timeout)
        if result.status == 0 or attempt == TRIES - 1 or NOT_YET not in result.stderr:
            break
        listener.kill()
    if result.status != 0:
        other = ""
        if listener.status is not None:
            other = f"; the server ended with status {listener.status}: " \
                    f"{(listener.stderr or listener.stdout).strip()[-200:]}"
        raise CaseFailed(f"{client.name}: {tool} {' '.join(options)} ended with status "
                         f"{result.status}: {(result.stderr or result.stdout).strip()[-300:]}"
                         f"{other}")
    server.finish(listener, 30)
    rows = rows_of(result.stdout)
    check(len(rows) == sizes, f"{tool} {' '.join(options)}: {len(rows)} rows in its table, "
          f"expected {sizes}")
    if not measured(tool, rows):
        check(CLOCK_UNKNOWN in result.stderr, f"{tool} {' '.join(options)}: nothing measured")
        context.note(f"{tool} could not tell how fast the guest's clock runs")
    return rows


def run_perftest(context: Context, words: list[str], server: Peer, client: Peer, rdma_cm: bool,
                 timeout: float) -> tuple[Any, Any]:
    """The server, and what came of the client, whose status may be bad."""
    port = context.port()
    end = ["-p", str(port), *(["-R"] if rdma_cm else [])]
    listener = server.spawn([words[0], "-d", server.rdma, *words[1:], *end])
    if rdma_cm:
        server.until(f"rdma resource show cm_id | grep LISTEN | grep -q ':{port} '",
                     f"'{listener.text}' does not listen", 30)
    else:
        server.wait_listening(port, listener)
    return listener, client.run([words[0], "-d", client.rdma, *words[1:], *end, server.ip()],
                                timeout=timeout, check=False)


def gbits(row: list[str]) -> str:
    """perftest's average bandwidth (MiB/s) in Gb/s."""
    return f"{float(row[3]) * 1048576 * 8 / 1e9:.1f} Gb/s"


def verify(context: Context, *options: str, server: Peer | None = None, client: Peer | None = None,
           sges: bool = False, expect: int = 0, timeout: float = 150.0, server_options:
           tuple[str, ...] = (), client_options: tuple[str, ...] = ()) -> str:
    """Runs rdma_verify between two ends; returns what the client printed. With `sges`, each end
    uses as many SGEs as its provider can: trixie's libmana repeats the first one."""
    server = server or context.a
    client = client or context.b
    port = context.port()

    def words(peer: Peer) -> list[str]:
        count = "13" if sges and peer.release != "trixie" else "1"
        return [context.program(peer, "rdma_verify.c"), "--dev", peer.rdma, "--port", str(port),
                *options, *(("--sges", count) if sges else ())]

    listener = server.spawn([*words(server), "--server", *server_options])
    server.wait_listening(port, listener)
    result = client.run([*words(client), "--host", server.ip(), *client_options],
                        timeout=timeout, check=False)
    status = server.finish(listener, 60, check=False)
    said = "; ".join(text.strip().replace("\n", " | ")
                     for text in (listener.stderr, result.stderr) if text.strip())
    if expect:
        check(expect in (status, result.status) and "mismatch" in said,
              f"rdma_verify {' '.join(options)} must fail with status {expect}, but ended with "
              f"{result.status} and {status}: {said}")
        return said
    check(result.status == 0 and status == 0 and result.stdout.startswith("verified:"),
          f"rdma_verify {' '.join(options)}: client status {result.status}, server status "
          f"{status}: {said}")
    return str(result.stdout)


def quick_rdma(context: Context, server: Peer | None = None, client: Peer | None = None) -> None:
    """A short ib_write_bw."""
    perftest(context, "ib_write_bw", "-s", "65536", "-n", "200", server=server, client=client)


@contextlib.contextmanager
def captured(*peers: Peer, folder: Path) -> Iterator[list[Path]]:
    """Captures what passes the links of NICs; the files are whole after it."""
    files = []
    running = []
    try:
        for peer in peers:
            path = folder / f"{peer.in_manad}.pcap"
            peer.manactl("capture", "start", peer.in_manad, str(path))
            running.append(peer)
            files.append(path)
        yield files
    finally:
        for peer in running:
            peer.manactl("capture", "stop", peer.in_manad)


@contextlib.contextmanager
def faulty(peer: Peer, options: str) -> Iterator[None]:
    """Faults on the link of a NIC."""
    peer.manactl("fault", "set", peer.in_manad, options)
    try:
        yield
    finally:
        peer.manactl("fault", "clear", peer.in_manad)


@contextlib.contextmanager
def under_policy(peer: Peer, options: str) -> Iterator[None]:
    """A policy on a NIC."""
    peer.manactl("policy", "set", peer.in_manad, options)
    try:
        yield
    finally:
        peer.manactl("policy", "clear", peer.in_manad)


def check_capture(path: Path) -> list[Packet]:
    """tshark and our own reader find nothing wrong in a capture; returns its RoCEv2 packets."""
    packets = packets_of(path)
    wrong = [packet for packet in packets if not packet.icrc_right]
    check(not wrong, f"{path.name}: {len(wrong)} of {len(packets)} packets have a wrong ICRC, the "
          f"first: {wrong[0] if wrong else None}")
    errors = find_tshark().errors(path)
    check(not errors, f"{path.name}: tshark finds {len(errors)} errors: {'; '.join(errors[:3])}")
    return packets


def gid_index(peer: Peer, version: int = 4) -> int:
    """The index of the GID of a peer's address."""
    wanted = ("::ffff:" if version == 4 else "") + peer.ip(version)
    text = peer.out(f"ibv_devinfo -v -d {peer.rdma} | grep -iE '[[:space:]]{wanted},'")
    return int(text.split("[")[1].split("]")[0])
