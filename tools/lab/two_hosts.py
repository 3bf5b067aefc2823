# SPDX-License-Identifier: Apache-2.0
"""manalab bench --two-hosts: guests on two hosts beside guests on one, a plain UDP sender on the
same wire, and Soft-RoCE over such a wire, by turns in one run."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from .bench import PORT, Route, commit, iperf, mana, perftest_row, soft_roce
from .build import configure_and_build, ensure_manad
from .errors import LabError
from .guest import GuestSpec
from .hosts import Hosts
from .paths import BUILD
from .progress import Step, say
from .session import Lab

ROUNDS = 5
QUICK_ROUNDS = 3
HEADERS = 58  # of a RoCEv2 packet over IPv4: Ethernet, IP, UDP, BTH and ICRC
AROUND = 46  # a frame with a VLAN tag in a datagram over IPv4, beside its MTU
SEND_SECONDS = 2.0
# What a figure is, its unit, and what it should reach beside the other.
LARGE, SMALL, LATENCY, TCP, PLAIN = (
    "writes of 64 KiB", "writes of 8 bytes", "latency of a write of 8 bytes", "TCP",
    "plain UDP, datagrams of as many bytes")
UNITS = {LARGE: "Gb/s", SMALL: "/s", LATENCY: "us", TCP: "Gb/s", PLAIN: "Gb/s"}
PLACES = ("two hosts", "one host", "Soft-RoCE")


def packet_bytes(mtu: int) -> int:
    """Bytes of a full RoCEv2 frame between interfaces of that MTU: the largest IBA path MTU that
    fits."""
    payload = 4096
    while payload > 256 and payload + 96 > mtu:
        payload //= 2
    return payload + HEADERS


def plain_udp(hosts: Hosts, size: int) -> float:
    """Gb/s that arrive of datagrams of a size, sent as fast as they go."""
    program = os.fspath(BUILD / "release" / "tests" / "bench" / "udp_bench")
    ends = [f"{hosts.address(host)}:{PORT}" for host in range(2)]
    with subprocess.Popen([*hosts.words(1), program, "receive", ends[1], ends[0]],
                          stdout=subprocess.PIPE, text=True) as receiver:
        time.sleep(0.2)  # until it listens: what is sent before is lost, and not counted
        hosts.run(0, program, "send", ends[0], ends[1], str(size), str(SEND_SECONDS))
        out = receiver.communicate(timeout=60)[0]
    return float(json.loads(out)["gbps"])


def rdma(route: Route, options: tuple[str, ...], column: int, factor: float) -> float | None:
    """A figure of perftest's last row."""
    row = perftest_row(route, *options)
    return None if row is None else row[column] * factor


def measures(route: Route, quick: bool) -> dict[str, Callable[[], float | None]]:
    """How each figure of a pair of guests is made."""
    part = (4 if quick else 1) * (20 if route.slow else 1)
    return {
        LARGE: lambda: rdma(route, ("ib_write_bw", "-N", "--report_gbits", "-s", "65536", "-n",
                                    str(20000 // part)), 3, 1.0),
        SMALL: lambda: rdma(route, ("ib_write_bw", "-N", "-s", "8", "-n", str(200000 // part)),
                            4, 1e6),
        LATENCY: lambda: rdma(route, ("ib_write_lat", "-s", "8", "-n", str(8000 // part)), 4, 1.0),
        TCP: lambda: iperf(route, "-t", "3")}


def warm_up(route: Route) -> None:
    """Emulation has translated each program, and touched its memory, before a figure counts."""
    count = "50" if route.slow else "300"
    perftest_row(route, "ib_write_bw", "-N", "-s", "65536", "-n", count)
    perftest_row(route, "ib_write_lat", "-s", "8", "-n", count)


def middle(values: list[float]) -> str:
    """Median with the lowest and the highest."""
    if not values:
        return "-"
    digits = 0 if min(values) >= 1000 else 2
    low, median, high = (f"{value:,.{digits}f}" for value in
                         (min(values), statistics.median(values), max(values)))
    return f"{median} ({low} to {high})"


def ratio(over: list[float], under: list[float]) -> str:
    """Of the medians."""
    if not over or not under or not statistics.median(under):
        return "-"
    return f"{statistics.median(over) / statistics.median(under):.2f}"


def table(results: dict[str, Any]) -> str:
    """As Markdown."""
    lines = [f"MTU {results['mtu']}, medians of {results['rounds']} rounds with the lowest and the "
             "highest:", "",
             "| | two hosts | one host | two by one | by plain UDP | Soft-RoCE, two hosts |",
             "|---|---|---|---|---|---|"]
    plain = results["two hosts"].get(PLAIN, [])
    for name, unit in UNITS.items():
        two, one, soft = (results[place].get(name, []) for place in PLACES)
        by_plain = ratio(two, plain) if name == LARGE else ""
        lines.append(f"| {name}, {unit} | {middle(two)} | {middle(one)} | {ratio(two, one)} "
                     f"| {by_plain} | {middle(soft)} |")
    return "\n".join(lines)


def run(specs: list[GuestSpec], mtu: int | None, output: Path, quick: bool, ext: bool) -> int:
    """All of it, the table, the file."""
    if len(specs) != 2:
        raise LabError("two hosts have two guests")
    wire = mtu or 1500
    mtu = wire - AROUND  # of the guests: what goes through the wire whole
    ensure_manad()
    configure_and_build("release", ("udp_bench",))
    output.mkdir(parents=True, exist_ok=True)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    results: dict[str, Any] = {
        "format": 1, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "mtu": wire,
        "rounds": rounds, "commit": commit(), **{place: {} for place in PLACES},
        "guests": [f"{spec.suite} {spec.driver} {spec.provider}" for spec in specs]}
    with ExitStack() as stack:
        labs = {}
        for place, its_wire in (("two hosts", wire), ("one host", None)):
            labs[place] = stack.enter_context(Lab(specs, mtu=mtu, wire_mtu=its_wire, ext=ext,
                                                  name="hosts"))
            labs[place].configure_network()
        routes = {place: mana(lab, place) for place, lab in labs.items()}
        soft = stack.enter_context(Lab(
            [replace(spec, uplinks=1, driver="stock", provider="stock") for spec in specs], nics=0,
            mtu=wire, wire_mtu=wire, outside="taps", name="soft"))
        soft.configure_network()
        routes["Soft-RoCE"] = soft_roce(soft, uplinks=True)
        ways = {place: measures(route, quick) for place, route in routes.items()}
        hosts = labs["two hosts"].hosts
        assert hosts is not None
        ways["two hosts"][PLAIN] = lambda: plain_udp(hosts, packet_bytes(mtu))
        for route in routes.values():
            warm_up(route)
        for number in range(rounds):
            with Step(f"round {number + 1} of {rounds}", every=60):
                for name in UNITS:
                    for place in sorted(ways, reverse=number % 2 == 1):
                        value = ways[place][name]() if name in ways[place] else None
                        if value is not None:
                            results[place].setdefault(name, []).append(value)
    (output / "hosts.json").write_text(json.dumps(results, indent=2) + "\n")
    print(table(results))
    say(f"saved in {output / 'hosts.json'}")
    return 0
