# SPDX-License-Identifier: Apache-2.0
"""manalab bench: MANA, Soft-RoCE, TCP and the host's memcpy, side by side in one run."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import chart, cost
from .build import configure_and_build, ensure_manad
from .demo import perftest, wait_listening
from .errors import LabError
from .guest import Guest, GuestSpec
from .host import check_space
from .paths import BUILD, GUEST_FILES
from .progress import Step, say
from .session import Lab

SIZES = (8, 64, 512, 4096, 16384, 65536, 262144, 1048576, 4194304)
SLOW_SIZES = (8, 512, 4096, 65536, 1048576)
QUICK_SIZES = (8, 4096, 65536, 1048576)
PORT = 18515
# Figures that are set beside each other are the best of as many runs, as those of memcpy are
# (memcpy_bench.cc); of latencies the median, for a tail has no best.
COMPARED_SIZES = (65536, 1048576)
ROUNDS = 3
# Beside stock all figures are compared, and by turns: what else the machine does is for both.
ROUNDS_BESIDE_STOCK = 5
POST_LIST = ("-l", "16")
# Gb/s that Soft-RoCE and TCP are guessed to reach, to choose iterations that end in seconds.
SLOW_GUESS = 0.05
STOCK = "MANA, all stock"


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


def table_rows(text: str) -> list[list[float]]:
    """The rows of numbers of a perftest table."""
    rows = []
    for line in text.splitlines():
        words = line.split()
        if words and all(re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", word) for word in words):
            rows.append([float(word) for word in words])
    return rows


def iterations(size: int, slow: bool, quick: bool) -> int:
    """How many messages of a size take some tenths of a second, or a few, if each is slow."""
    if slow:
        count = int(SLOW_GUESS * 1e9 / 8 / max(size, 1024) * (1 if quick else 2))
        return max(10, min(count, 500 if quick else 2000))
    return max(500, min(100000, (1 << 33) // max(size, 4096))) // (4 if quick else 1)


def perftest_row(route: Route, program: str, *options: str) -> list[float]:
    """The last row of a perftest's table."""
    text = perftest(route.server, route.client, program, "-F", *options, timeout=300,
                    server_device=route.server_device, client_device=route.client_device,
                    address=route.address)
    rows = table_rows(text)
    if not rows:
        raise LabError(f"{program} printed no table: {text.strip()[-200:]}")
    return rows[-1]


class Bench:
    """The measurements. What is measured of several routes is measured by turns."""

    def __init__(self, quick: bool) -> None:
        self._quick = quick

    def _by_turns(self, routes: Sequence[Route], program: str, *options: str,
                  compared: bool = False) -> dict[str, list[list[float]]]:
        """By route, the last row of perftest's table of each round; several rounds if the figure
        is `compared`."""
        rounds = (1 if self._quick else ROUNDS_BESIDE_STOCK if len(routes) > 1
                  else ROUNDS if compared else 1)
        found: dict[str, list[list[float]]] = {route.label: [] for route in routes}
        for number in range(rounds):
            for route in routes if number % 2 == 0 else reversed(routes):
                found[route.label].append(perftest_row(route, program, *options))
        return found

    def bandwidth(self, routes: Sequence[Route], program: str, *options: str
                  ) -> dict[str, dict[int, float]]:
        """Gb/s by route and message size; with options only of the sizes that are compared."""
        slow = routes[0].slow
        sizes = QUICK_SIZES if self._quick else SLOW_SIZES if slow else SIZES
        found: dict[str, dict[int, float]] = {route.label: {} for route in routes}
        for size in COMPARED_SIZES if options else sizes:
            count = max(16, iterations(size, slow, self._quick) // 16 * 16)  # lists of 16
            measured = self._by_turns(routes, program, "-N", "--report_gbits", "-s", str(size),
                                      "-n", str(count), *options, compared=size in COMPARED_SIZES)
            for label, rows in measured.items():
                found[label][size] = max(row[3] for row in rows)
                say(f"{label} {' '.join((program, *options))} {chart.human_size(size)}: "
                    f"{found[label][size]:.3f} Gb/s")
        return found

    def message_rate(self, routes: Sequence[Route], *options: str) -> dict[str, float]:
        """8-byte writes a second, by route."""
        count = 1000 if routes[0].slow else 50000 if self._quick else 200000
        measured = self._by_turns(routes, "ib_write_bw", "-N", "-s", "8", "-n", str(count),
                                  *options)
        return {label: max(row[4] for row in rows) * 1e6 for label, rows in measured.items()}

    def latency(self, routes: Sequence[Route], program: str, size: int = 8
                ) -> dict[str, dict[str, float]]:
        """Percentiles in microseconds, by route."""
        slow = routes[0].slow
        count = (200 if slow else 2000) if self._quick else (1000 if slow else 10000)
        found = {}
        for label, rows in self._by_turns(routes, program, "-s", str(size), "-n",
                                          str(count)).items():
            row = [statistics.median(column) for column in zip(*rows, strict=True)]
            # bytes, iterations, min, max, typical, average, deviation, 99 %, 99.9 %
            found[label] = {"min": row[2], "p50": row[4], "avg": row[5], "p99": row[7],
                            "p99.9": row[8], "max": row[3]}
        return found

    def rdma(self, *routes: Route) -> dict[str, dict[str, Any]]:
        """All of the RDMA devices of some routes, by route."""
        results: dict[str, dict[str, Any]] = {
            route.label: {"bandwidth_gbps": {}, "latency_us": {}} for route in routes}

        def keep(figures: dict[str, Any], kind: str, program: str) -> None:
            for label, figure in figures.items():
                results[label][kind][program] = figure

        labels = " and ".join(results)
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
                results[label]["writes_per_second"] = rate
            if not routes[0].slow:
                for label, rate in self.message_rate(routes, *POST_LIST).items():
                    results[label]["writes_per_second_post_list_16"] = rate
        return results

    def tcp(self, route: Route) -> dict[str, Any]:
        """iperf3 and a ping-pong."""
        label, server, client = route.label, route.server, route.client
        seconds = "2" if self._quick else "4"
        bandwidth = {}
        for size in QUICK_SIZES if self._quick else SLOW_SIZES:
            with Step(f"{label}: iperf3 -l {chart.human_size(size)}", every=30):
                listener = server.spawn(["iperf3", "-s", "-1"])
                try:
                    wait_listening(server, listener, 5201)
                    text = client.run(["iperf3", "-J", "-c", route.address, "-t", seconds,
                                       "-l", str(size)], timeout=60).stdout
                    listener.wait(30)
                finally:
                    if listener.status is None and server.alive:
                        listener.kill()
                bandwidth[size] = json.loads(text)["end"]["sum_received"]["bits_per_second"] / 1e9
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


def soft_roce(lab: Lab) -> Route:
    """Sets Soft-RoCE up on the virtio NICs."""
    server, client = lab.guests
    for guest in (server, client):
        guest.run(f"modprobe rdma_rxe && rdma link add rxe0 type rxe "
                  f"netdev {guest.virtio_interface()}")
    return Route("Soft-RoCE", server, client, server.virtio_ip(), "rxe0", "rxe0", slow=True)


def memcpy() -> dict[int, float]:
    """Gb/s of the host's memcpy by size."""
    programs = [path for path in (BUILD / "release").rglob("memcpy_bench")
                if path.is_file() and os.access(path, os.X_OK)]
    if not programs:
        raise LabError(f"memcpy_bench is not in {BUILD / 'release'}")
    done = subprocess.run([os.fspath(programs[0])], capture_output=True, text=True, timeout=120,
                          check=True)
    return {int(size): value for size, value in json.loads(done.stdout)["sizes"].items()}


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
        print(f"{label:{width}} {data['writes_per_second']:12,.0f}")
        if "writes_per_second_post_list_16" in data:
            print(f"{label + ', lists of 16':{width}} "
                  f"{data['writes_per_second_post_list_16']:12,.0f}")
    if "instructions" in results:
        print("\nInstructions of the program for each work request or completion")
        print(f"{'':{width}} " + "".join(f"{label:>18}" for label in results["instructions"]))
        for words in cost.COUNTED.values():
            print(f"{words:{width}} " + "".join(f"{line[words]:18.0f}"
                                               for line in results["instructions"].values()))
    if results["ratios"]:
        print("\nBeside each other")
        for name, value in results["ratios"].items():
            print(f"{name}: {value:,.3g}")


def bandwidth_series(results: dict[str, Any]) -> dict[str, dict[int, float]]:
    """Lines of the plot."""
    series = {}
    for label, data in results["paths"].items():
        for program, line in data["bandwidth_gbps"].items():
            name = label if program == "tcp" else f"{label} {program[3:].replace('_bw', '')}"
            series[name] = line
    series["host memcpy"] = results["memcpy_gbps"]
    return series


def ratios(results: dict[str, Any]) -> dict[str, float]:
    """MANA beside the others, where both were measured."""
    paths, found = results["paths"], {}
    mana, rxe = paths.get("MANA"), paths.get("Soft-RoCE")
    if mana is None:
        return {}
    copy = results["memcpy_gbps"]
    for program, name in (("ib_write_bw", ""), ("ib_write_bw, lists of 16", ", lists of 16")):
        writes = mana["bandwidth_gbps"][program]
        if 1 << 20 in writes and 1 << 20 in copy:
            found[f"write 1M{name}, share of host memcpy"] = writes[1 << 20] / copy[1 << 20]
        if rxe is not None:
            found[f"write 64K{name}, times Soft-RoCE"] = (
                writes[65536] / rxe["bandwidth_gbps"][program][65536])
    if rxe is not None:
        found["write latency, share of Soft-RoCE"] = (
            mana["latency_us"]["ib_write_lat"]["p50"] / rxe["latency_us"]["ib_write_lat"]["p50"])
    if STOCK in paths:
        found.update(beside_stock_ratios(mana, paths[STOCK]))
    return found


def beside_stock_ratios(ours: dict[str, Any], stock: dict[str, Any]) -> dict[str, float]:
    """How much faster ours is: bandwidth and rate ours by stock, latency stock by ours."""
    found = {}
    for program, line in ours["bandwidth_gbps"].items():
        for size, value in line.items():
            found[f"{program} {chart.human_size(size)}, times stock"] = (
                value / stock["bandwidth_gbps"][program][size])
    for program, values in ours["latency_us"].items():
        for key, value in values.items():
            found[f"{program} {key}, times faster than stock"] = (
                stock["latency_us"][program][key] / value)
    for key in ("writes_per_second", "writes_per_second_post_list_16"):
        found[f"{key.replace('_', ' ')}, times stock"] = ours[key] / stock[key]
    return found


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
        "format": 1, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "quick": quick,
        "host": {"cpus": os.cpu_count(), "kernel": os.uname().release}, "paths": {}}
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
