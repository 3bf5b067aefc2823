# SPDX-License-Identifier: Apache-2.0
"""manalab bench: MANA, Soft-RoCE, TCP and the host's memcpy, side by side in one run."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from typing import Any

from . import chart, cost
from .build import configure_and_build, ensure_manad
from .errors import LabError
from .guest import Guest, GuestSpec
from .host import check_space
from .paths import BUILD, GUEST_FILES, IS_SOURCE_TREE, ROOT
from .perftest import perftest, row_of, timed_line, wait_listening
from .progress import Step, say
from .session import Lab

SIZES = (8, 64, 512, 4096, 16384, 65536, 262144, 1048576, 4194304)
SLOW_SIZES = (8, 512, 4096, 65536, 1048576)
QUICK_SIZES = (8, 4096, 65536, 1048576)
PORT = 18515
# Figures of which ratios are made are the best of as many runs, as those of memcpy are
# (memcpy_bench.cc); of latencies the median, for a tail has no best.
COMPARED_SIZES = (65536, 1048576)
ROUNDS = 3
# Beside stock all figures are compared, and by turns: what else the machine does is for both.
ROUNDS_BESIDE_STOCK = 5
POST_LIST = ("-l", "16")
# Gb/s that Soft-RoCE and TCP are guessed to reach, to choose iterations that end in seconds.
SLOW_GUESS = 0.05
STOCK = "MANA, all stock"
RATES = ("writes_per_second", "writes_per_second_post_list_16")


@dataclass(frozen=True)
class Route:
    """A way between two guests: a label, the server's address, an RDMA device on each."""

    label: str
    server: Guest
    client: Guest
    address: str
    server_device: str = ""
    client_device: str = ""
    slow: bool = False


def iterations(size: int, slow: bool, quick: bool) -> int:
    """How many messages of a size take some tenths of a second, or a few, if each is slow."""
    if slow:
        count = int(SLOW_GUESS * 1e9 / 8 / max(size, 1024) * (1 if quick else 2))
        return max(10, min(count, 500 if quick else 2000))
    return max(500, min(100000, (1 << 33) // max(size, 4096))) // (4 if quick else 1)


def perftest_row(route: Route, program: str, *options: str) -> list[float] | None:
    """The last row of a perftest's table; None if perftest could not time it in several runs, or if
    it failed on a slow route, which is there to compare with: Soft-RoCE loses requests on a busy
    machine."""
    name = f"{route.label} {' '.join((program, *options))}"
    try:
        line = timed_line(name, lambda: perftest(
            route.server, route.client, program, "-F", *options, timeout=300,
            server_device=route.server_device, client_device=route.client_device,
            address=route.address))
    except LabError as error:
        if not (route.slow and route.server.alive and route.client.alive):
            raise
        say(f"{name}: left out, since it failed: {error.message}")
        return None
    return None if line is None else row_of(line)


def iperf(route: Route, *options: str) -> float:
    """Gb/s of TCP that arrive at the server."""
    listener = route.server.spawn(["iperf3", "-s", "-1"])
    try:
        wait_listening(route.server, listener, 5201)
        text = route.client.run(["iperf3", "-J", "-c", route.address, "-O", "1", *options],
                                timeout=60).stdout
        listener.wait(30)
    finally:
        if listener.status is None and route.server.alive:
            listener.kill()
    return float(json.loads(text)["end"]["sum_received"]["bits_per_second"]) / 1e9


class Bench:
    """The measurements. What is measured of several routes is measured by turns, and the first run
    of a program on a route counts for nothing: emulation has to translate it, and its memory is
    touched for the first time."""

    def __init__(self, quick: bool) -> None:
        self._quick = quick
        self._warm: set[tuple[str, str]] = set()

    def _rounds(self, routes: Sequence[Route], compared: bool) -> int:
        """How often a figure is measured: several times where a ratio is made of it."""
        if len(routes) > 1 and not self._quick:
            return ROUNDS_BESIDE_STOCK
        return ROUNDS if compared or len(routes) > 1 else 1

    def _warm_up(self, route: Route, program: str) -> None:
        if (route.label, program) in self._warm:
            return
        self._warm.add((route.label, program))
        size, count = ((8, 200) if program.endswith("_lat") else
                       (1 << 20, 16) if route.slow else (max(SIZES), 100))
        perftest_row(route, program, "-s", str(size), "-n", str(count))

    def _by_turns(self, routes: Sequence[Route], program: str, *options: str,
                  compared: bool = False) -> dict[str, list[list[float]]]:
        """By route, the last row of perftest's table of each round in which all of the routes
        could be timed; several rounds if a ratio is made of the figure (`compared`)."""
        for route in routes:
            self._warm_up(route, program)
        found: dict[str, list[list[float]]] = {route.label: [] for route in routes}
        for number in range(self._rounds(routes, compared)):
            rows = {route.label: perftest_row(route, program, *options)
                    for route in (routes if number % 2 == 0 else reversed(routes))}
            whole = {label: row for label, row in rows.items() if row is not None}
            if len(whole) == len(rows):
                for label, row in whole.items():
                    found[label].append(row)
        return found

    def bandwidth(self, routes: Sequence[Route], program: str, *options: str
                  ) -> dict[str, dict[int, list[float]]]:
        """Gb/s of each round by route and message size; with options only of the sizes that are
        compared."""
        slow = routes[0].slow
        sizes = QUICK_SIZES if self._quick else SLOW_SIZES if slow else SIZES
        found: dict[str, dict[int, list[float]]] = {route.label: {} for route in routes}
        for size in COMPARED_SIZES if options else sizes:
            count = max(16, iterations(size, slow, self._quick) // 16 * 16)  # lists of 16
            measured = self._by_turns(
                routes, program, "-N", "--report_gbits", "-s", str(size), "-n", str(count),
                *options, compared=(size in COMPARED_SIZES
                                    and (program == "ib_write_bw" or not self._quick)))
            for label, rows in measured.items():
                if rows:
                    # small messages may have so little that only their rate is not 0.00
                    found[label][size] = [row[3] or size * 8 * row[4] / 1e3 for row in rows]
                    say(f"{label} {' '.join((program, *options))} {chart.human_size(size)}: "
                        f"{max(found[label][size]):.3f} Gb/s")
        return found

    def message_rate(self, routes: Sequence[Route], *options: str) -> dict[str, list[float]]:
        """8-byte writes a second of each round, by route."""
        count = 1000 if routes[0].slow else 50000 if self._quick else 200000
        measured = self._by_turns(routes, "ib_write_bw", "-N", "-s", "8", "-n", str(count),
                                  *options)
        return {label: [row[4] * 1e6 for row in rows] for label, rows in measured.items()}

    def latency(self, routes: Sequence[Route], program: str, size: int = 8
                ) -> dict[str, dict[str, list[float]]]:
        """Percentiles in microseconds of each round, by route."""
        slow = routes[0].slow
        count = (200 if slow else 2000) if self._quick else (1000 if slow else 10000)
        measured = self._by_turns(routes, program, "-s", str(size), "-n", str(count),
                                  compared=program == "ib_write_lat")
        # bytes, iterations, min, max, typical, average, deviation, 99 %, 99.9 %
        columns = {"min": 2, "p50": 4, "avg": 5, "p99": 7, "p99.9": 8, "max": 3}
        return {label: {key: [row[column] for row in rows] for key, column in columns.items()}
                for label, rows in measured.items() if rows}

    def rdma(self, *routes: Route) -> dict[str, dict[str, Any]]:
        """All of the RDMA devices of some routes, by route: figures, and the rounds of each."""
        rounds: dict[str, dict[str, Any]] = {
            route.label: {"bandwidth_gbps": {}, "latency_us": {}} for route in routes}

        def keep(measured: dict[str, Any], kind: str, program: str) -> None:
            for label, line in measured.items():
                rounds[label][kind][program] = line

        labels = " and ".join(rounds)
        for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
            with Step(f"{labels}: {program}", every=30):
                keep(self.bandwidth(routes, program), "bandwidth_gbps", program)
        with Step(f"{labels}: ib_write_bw with lists", every=30):
            keep(self.bandwidth(routes, "ib_write_bw", *POST_LIST), "bandwidth_gbps",
                 "ib_write_bw, lists of 16")
        for program in ("ib_write_lat", "ib_read_lat", "ib_send_lat"):
            with Step(f"{labels}: {program}", every=30):
                keep(self.latency(routes, program), "latency_us", program)
        with Step(f"{labels}: message rate", every=30):
            for label, rate in self.message_rate(routes).items():
                rounds[label]["writes_per_second"] = rate
            if not routes[0].slow:
                for label, rate in self.message_rate(routes, *POST_LIST).items():
                    rounds[label]["writes_per_second_post_list_16"] = rate
        return {label: figures(line) | {"rounds": line} for label, line in rounds.items()}

    def tcp(self, route: Route) -> dict[str, Any]:
        """iperf3 and a ping-pong."""
        label, server, client = route.label, route.server, route.client
        seconds = "2" if self._quick else "4"
        bandwidth = {}
        for size in QUICK_SIZES if self._quick else SLOW_SIZES:
            with Step(f"{label}: iperf3 -l {chart.human_size(size)}", every=30):
                bandwidth[size] = iperf(route, "-t", seconds, "-l", str(size))
        with Step(f"{label}: ping-pong"):
            paths = [guest.compile(GUEST_FILES / "tcp_pingpong.c", libs=())
                     for guest in (server, client)]
            listener = server.spawn([paths[0], "18600"])
            try:
                wait_listening(server, listener, 18600)
                text = client.run([paths[1], "18600", route.address, "8",
                                   "300" if self._quick else "2000"], timeout=120).stdout
            finally:
                if listener.status is None and server.alive:
                    listener.kill()
        words = text.split()
        latency = {words[i]: float(words[i + 1]) for i in range(0, len(words) - 1, 2)}
        return {"bandwidth_gbps": {"tcp": bandwidth}, "latency_us": {"tcp": latency},
                "writes_per_second": bandwidth[8] * 1e9 / 64}


def figures(rounds: dict[str, Any]) -> dict[str, Any]:
    """One figure for the rounds of each: the best bandwidth and rate, the median of a latency. What
    was never timed is not there."""
    found: dict[str, Any] = {
        "bandwidth_gbps": {program: {size: max(values) for size, values in line.items()}
                           for program, line in rounds["bandwidth_gbps"].items()},
        "latency_us": {program: {key: statistics.median(values) for key, values in line.items()}
                       for program, line in rounds["latency_us"].items()}}
    for key in RATES:
        if rounds.get(key):
            found[key] = max(rounds[key])
    return found


def soft_roce(lab: Lab, uplinks: bool = False) -> Route:
    """Sets Soft-RoCE up on the virtio NICs, or on those that are uplinks."""
    server, client = lab.guests
    for guest in (server, client):
        interface = guest.uplink_interface() if uplinks else guest.virtio_interface()
        guest.run(f"modprobe rdma_rxe && rdma link add rxe0 type rxe netdev {interface}")
    address = server.uplink_ip() if uplinks else server.virtio_ip()
    return Route("Soft-RoCE", server, client, address, "rxe0", "rxe0", slow=True)


def memcpy() -> dict[int, float]:
    """Gb/s of the host's memcpy by size."""
    programs = [path for path in (BUILD / "release").rglob("memcpy_bench")
                if path.is_file() and os.access(path, os.X_OK)]
    if not programs:
        raise LabError(f"memcpy_bench is not in {BUILD / 'release'}")
    done = subprocess.run([os.fspath(programs[0])], capture_output=True, text=True, timeout=120,
                          check=True)
    return {int(size): value for size, value in json.loads(done.stdout)["sizes"].items()}


def commit() -> str:
    """The commit of the source tree, with a + if something in it was changed; empty if there is
    none."""
    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", os.fspath(ROOT), *words], capture_output=True,
                              text=True, check=False).stdout.strip()

    if not IS_SOURCE_TREE or which("git") is None:
        return ""
    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short=7", "HEAD") + "+" * bool(changed)


def print_tables(results: dict[str, Any]) -> None:
    """What was measured, for people."""
    series = bandwidth_series(results)
    sizes = sorted({size for line in series.values() for size in line if size in SIZES})
    width = max(len(name) for name in (*series, *cost.COUNTED.values()))
    print("Bandwidth in Gb/s by message size")
    print(f"{'':{width}} " + "".join(f"{chart.human_size(size):>9}" for size in sizes))
    for name, line in series.items():
        cells = "".join(f"{line[size]:9.3f}" if size in line and line[size] < 10 else
                        f"{line[size]:9.1f}" if size in line else f"{'-':>9}" for size in sizes)
        print(f"{name:{width}} {cells}")
    print("\nLatency of 8 bytes in us")
    keys = ("min", "p50", "avg", "p99", "p99.9", "max")
    print(f"{'':{width}} " + "".join(f"{key:>9}" for key in keys))
    for label, data in results["paths"].items():
        for program, values in data["latency_us"].items():
            name = label if program == "tcp" else f"{label} {program[3:-4]}"
            print(f"{name:{width}} " + "".join(f"{values[key]:9.2f}" if key in values
                                               else f"{'-':>9}" for key in keys))
    print("\nMessages of 8 bytes a second")
    for label, data in results["paths"].items():
        for key, words in zip(RATES, ("", ", lists of 16"), strict=True):
            if key in data:
                print(f"{label + words:{width}} {data[key]:12,.0f}")
    if "instructions" in results:
        print("\nInstructions of the program for each work request or completion")
        print(f"{'':{width}} " + "".join(f"{label:>18}" for label in results["instructions"]))
        for words in cost.COUNTED.values():
            print(f"{words:{width}} " + "".join(f"{line[words]:18.0f}"
                                               for line in results["instructions"].values()))
    if results["ratios"]:
        print("\nBeside each other (lowest and highest of the rounds)")
        for name, ratio in results["ratios"].items():
            print(f"{name}: {ratio['value']:,.3g} ({ratio['low']:,.3g} to {ratio['high']:,.3g}, "
                  f"{ratio['rounds']} rounds)")


def bandwidth_series(results: dict[str, Any]) -> dict[str, dict[int, float]]:
    """Lines of the plot."""
    series = {}
    for label, data in results["paths"].items():
        for program, line in data["bandwidth_gbps"].items():
            name = label if program == "tcp" else f"{label} {program[3:].replace('_bw', '')}"
            series[name] = line
    series["host memcpy"] = results["memcpy_gbps"]
    return series


class Ratios:
    """Ratios by name, each with what the rounds give one by one: their spread says what a ratio is
    worth. What was not measured makes no ratio."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, float]] = {}

    def add(self, name: str, over: Sequence[float] | None, under: Sequence[float] | None,
            choose: Callable[[Sequence[float]], float] = max) -> None:
        """`over` divided by `under`: the `chosen` of the rounds of each."""
        if not over or not under:
            return
        each = [a / b for a, b in zip(over, under, strict=False)]
        self.found[name] = {"value": choose(over) / choose(under), "low": min(each),
                            "high": max(each), "rounds": len(each)}


def ratios(results: dict[str, Any]) -> dict[str, dict[str, float]]:
    """MANA beside the others, where both were measured."""
    paths, found = results["paths"], Ratios()
    if "MANA" not in paths:
        return {}
    mana = paths["MANA"]["rounds"]
    rxe = paths["Soft-RoCE"]["rounds"] if "Soft-RoCE" in paths else None
    copy = results["memcpy_gbps"].get(1 << 20)
    for program, name in (("ib_write_bw", ""), ("ib_write_bw, lists of 16", ", lists of 16")):
        writes = mana["bandwidth_gbps"].get(program, {})
        million = writes.get(1 << 20, [])
        found.add(f"write 1M{name}, share of host memcpy", million,
                  [copy] * len(million) if copy else None)
        if rxe is not None:
            found.add(f"write 64K{name}, times Soft-RoCE", writes.get(65536),
                      rxe["bandwidth_gbps"].get(program, {}).get(65536))
    if rxe is not None:
        found.add("write latency, share of Soft-RoCE",
                  mana["latency_us"].get("ib_write_lat", {}).get("p50"),
                  rxe["latency_us"].get("ib_write_lat", {}).get("p50"), statistics.median)
    if STOCK in paths:
        add_beside_stock(found, mana, paths[STOCK]["rounds"])
    return found.found


def add_beside_stock(found: Ratios, ours: dict[str, Any], stock: dict[str, Any]) -> None:
    """How much faster ours is: bandwidth and rate ours by stock, latency stock by ours."""
    for program, line in ours["bandwidth_gbps"].items():
        for size, values in line.items():
            found.add(f"{program} {chart.human_size(size)}, times stock", values,
                      stock["bandwidth_gbps"][program].get(size))
    for program, line in ours["latency_us"].items():
        for key, values in line.items():
            found.add(f"{program} {key}, times faster than stock",
                      stock["latency_us"].get(program, {}).get(key), values, statistics.median)
    for key in RATES:
        found.add(f"{key.replace('_', ' ')}, times stock", ours.get(key), stock.get(key))


def run(specs: list[GuestSpec], mtu: int | None, output: Path, quick: bool, plot: bool,
        ext: bool = True, beside_stock: bool = False) -> int:
    """All measurements, the table, the files."""
    if len(specs) != 2:
        raise LabError("the benchmark needs two guests")
    if beside_stock and stock_of(specs) == specs:
        raise LabError("--beside-stock needs --driver ours or --provider ours")
    Lab(specs, virtio=1, mtu=mtu)  # refuses what makes no sense, before work
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"cannot create {output}: {error.strerror}") from error
    check_space(output, 10_000_000, "the results")
    ensure_manad()
    configure_and_build("release", ("memcpy_bench",))
    results: dict[str, Any] = {
        "format": 2, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "quick": quick,
        "host": {"cpus": os.cpu_count(), "kernel": os.uname().release}, "commit": commit(),
        "paths": {}}
    with Step("host memcpy"):
        results["memcpy_gbps"] = memcpy()
    measure(specs, mtu, quick, results, ext=ext, beside_stock=beside_stock)
    results["ratios"] = ratios(results)
    (output / "bench.json").write_text(json.dumps(results, indent=2) + "\n")
    if plot:
        (output / "bench.svg").write_text(chart.render(
            "Bandwidth between two guests", "Gb/s", bandwidth_series(results)))
    print_tables(results)
    say(f"saved in {output}")
    return 0


def stock_of(specs: list[GuestSpec]) -> list[GuestSpec]:
    """The same guests with stock driver and provider."""
    return [replace(spec, driver="stock", provider="stock") for spec in specs]


def mana(lab: Lab, label: str) -> Route:
    """The route over the MANA NICs of the two guests."""
    server, client = lab.guests
    return Route(label, server, client, server.ip(), server.rdma_device(), client.rdma_device())


def measure(specs: list[GuestSpec], mtu: int | None, quick: bool, results: dict[str, Any],
            ext: bool = True, beside_stock: bool = False) -> None:
    """The part with guests."""
    bench = Bench(quick)
    with Lab(specs, nics=1, virtio=1, mtu=mtu, ext=ext, name="bench") as lab:
        lab.configure_network()
        results["guests"] = [{"suite": guest.spec.suite, "kernel": guest.image.version,
                              "driver": guest.spec.driver, "provider": guest.spec.provider,
                              "cpus": guest.spec.cpus, "accel": guest.machine.accel}
                             for guest in lab.guests]
        server, client = lab.guests
        if beside_stock:
            measure_beside_stock(bench, lab, stock_of(specs), mtu, results)
        else:
            results["paths"] |= bench.rdma(mana(lab, "MANA"))
        for label, address in (("TCP over MANA", server.ip()),
                               ("TCP over virtio", server.virtio_ip())):
            results["paths"][label] = bench.tcp(Route(label, server, client, address))
        results["paths"] |= bench.rdma(soft_roce(lab))


def measure_beside_stock(bench: Bench, lab: Lab, specs: list[GuestSpec], mtu: int | None,
                         results: dict[str, Any]) -> None:
    """RDMA, and what posting and polling cost, beside two more guests with stock software, which
    are idle while the first two are measured, and the other way round."""
    with Lab(specs, nics=1, mtu=mtu, ext=False, name="bench") as stock:
        stock.configure_network()
        results["paths"] |= bench.rdma(mana(lab, "MANA"), mana(stock, STOCK))
        results["instructions"] = {label: cost.count(guests[1]) for label, guests in
                                   (("MANA", lab.guests), (STOCK, stock.guests))}
