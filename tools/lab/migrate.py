# SPDX-License-Identifier: Apache-2.0
"""manalab migrate: a guest moves between two hosts by live migration while ib_write_bw runs to it,
and what the other end sees of that: its bandwidth over time."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from . import chart
from .bench import commit
from .build import ensure_manad
from .errors import LabError
from .guest import Guest, GuestSpec
from .perftest import PERFTEST_PORT, wait_listening
from .progress import Step, say
from .session import Lab
from .two_hosts import AROUND

MTU = 1500
SETTLE = 3.0  # seconds of traffic before a move, and behind the last one
SAMPLE = 0.01  # seconds between two looks at a counter
BIN = 0.05  # seconds that a point of the plot stands for
MOVING, STAYING = 1, 0  # guests


def bytes_done(answer: dict[str, Any]) -> int:
    """Payload of WRITEs that the other end has acknowledged, of an answer of manad to `stats` for
    one NIC."""
    if answer.get("ok") is not True or len(answer.get("nics", [])) != 1:
        raise LabError(f"no answer about one NIC: {json.dumps(answer)[:200]}")
    sizes = answer["nics"][0].get("requests", {}).get("rnic.request.bytes", {})
    return int(sizes.get("write", {}).get("sum", 0))


class Sampler:
    """Looks at what a NIC has sent with success, as long as its block lasts: (time.monotonic(),
    bytes) pairs. It has a connection to manad's control socket, since a process for each look would
    take more than guests leave."""

    def __init__(self, control: Path, nic: str) -> None:
        self.samples: list[tuple[float, int]] = []
        self._control = control
        self._request = json.dumps({"command": "stats", "nic": nic}).encode() + b"\n"
        self._over = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if kind is None and self._error is not None:
            raise LabError(f"manad's counters: {self._error}") from self._error

    def _run(self) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.settimeout(20)
                sock.connect(str(self._control))
                with sock.makefile("rb") as answers:
                    while not self._over.wait(SAMPLE):
                        sock.sendall(self._request)
                        answer = json.loads(answers.readline() or b"{}")
                        self.samples.append((time.monotonic(), bytes_done(answer)))
        except (OSError, ValueError, LabError) as error:
            self._error = error


def rate(samples: list[tuple[float, int]], begin: float, end: float) -> float:
    """Gb/s between two times; 0 if there was no look at it in between."""
    inside = [sample for sample in samples if begin <= sample[0] <= end]
    if len(inside) < 2 or inside[-1][0] == inside[0][0]:
        return 0.0
    return (inside[-1][1] - inside[0][1]) * 8e-9 / (inside[-1][0] - inside[0][0])


def curve(samples: list[tuple[float, int]]) -> list[tuple[float, float]]:
    """(seconds since the first sample, Gb/s) for each BIN."""
    if not samples:
        return []
    points, first = [], samples[0]
    for sample in samples:
        if sample[0] - first[0] >= BIN:
            middle = (sample[0] + first[0]) / 2 - samples[0][0]
            points.append((middle, (sample[1] - first[1]) * 8e-9 / (sample[0] - first[0])))
            first = sample
    return points


def pause(samples: list[tuple[float, int]], begin: float, end: float) -> float:
    """The longest time between two times in which nothing was acknowledged, in seconds."""
    inside = [sample for sample in samples if begin <= sample[0] <= end]
    if not inside:
        return 0.0
    longest, (since, before) = 0.0, inside[0]
    for at, value in inside:
        longest = max(longest, at - since)
        if value != before:
            since, before = at, value
    return longest


@dataclass
class Course:
    """What a run was: when the moves began and ended, and what QEMU said of each."""

    moves: list[dict[str, Any]] = field(default_factory=list)
    samples: list[tuple[float, int]] = field(default_factory=list)

    def add(self, begin: float, end: float, said: dict[str, Any]) -> None:
        """One that went well."""
        self.moves.append({"begin": begin, "end": end, "downtime_ms": said.get("downtime"),
                           "memory_bytes": said.get("ram", {}).get("transferred"),
                           "state_bytes": said.get("vfio", {}).get("transferred")})

    def results(self) -> dict[str, Any]:
        """All of it, in seconds since the first look."""
        zero = self.samples[0][0] if self.samples else 0.0
        moves = []
        for move in self.moves:
            begin, end = move["begin"], move["end"]
            moves.append({**move, "begin": begin - zero, "end": end - zero,
                          "pause_ms": pause(self.samples, begin, end + SETTLE) * 1000,
                          "gbps": {"before": rate(self.samples, begin - SETTLE, begin),
                                   "meanwhile": rate(self.samples, begin, end),
                                   "after": rate(self.samples, end, end + SETTLE)}})
        return {"moves": moves, "curve": curve(self.samples)}


def table(results: dict[str, Any]) -> str:
    """As Markdown."""
    lines = ["| move | took, s | guest stood still, ms | nothing acknowledged for, ms "
             "| Gb/s before | meanwhile | after |", "|---|---|---|---|---|---|---|"]
    for number, move in enumerate(results["moves"], start=1):
        speeds = " | ".join(f"{move['gbps'][name]:.2f}" for name in ("before", "meanwhile",
                                                                     "after"))
        lines.append(f"| {number} | {move['end'] - move['begin']:.1f} | {move['downtime_ms']} "
                     f"| {move['pause_ms']:.0f} | {speeds} |")
    return "\n".join(lines)


def moves_in_traffic(lab: Lab, count: int, course: Course) -> None:
    """ib_write_bw from the guest that stays to the one that moves, until it has moved so often."""
    server, client = lab.guests[MOVING], lab.guests[STAYING]
    words = ["ib_write_bw", "-s", "65536", "--run_infinitely", "-F"]
    listener = server.spawn([*words, "-d", server.rdma_device()])
    wait_listening(server, listener, PERFTEST_PORT)
    caller = client.spawn([*words, "-d", client.rdma_device(), server.ip()])
    with Sampler(lab.manad_of(STAYING).control, f"{client.name}n0") as sampler:
        course.samples = sampler.samples
        until_traffic(sampler, client)
        time.sleep(SETTLE)
        for number in range(count):
            with Step(f"move {number + 1} of {count}", every=15):
                begin = time.monotonic()
                said = lab.move(MOVING, 1 - int(lab.specs[MOVING].host or 0))
                course.add(begin, time.monotonic(), said)
            time.sleep(SETTLE)
            for one in (caller, listener):
                if one.status is not None:
                    raise LabError(f"ib_write_bw ended with status {one.status}: "
                                   f"{(one.stderr or one.stdout).strip()[-300:]}")
    for one in (caller, listener):
        one.kill()


def until_traffic(sampler: Sampler, client: Guest) -> None:
    """Waits for the first bytes."""
    deadline = time.monotonic() + 60
    while not sampler.samples or sampler.samples[-1][1] == sampler.samples[0][1]:
        if time.monotonic() > deadline:
            raise LabError("ib_write_bw sends nothing", client.console_log)
        time.sleep(0.05)


def run(specs: list[GuestSpec], mtu: int | None, moves: int, output: Path, plot: bool, ext: bool
        ) -> int:
    """All of it, the table, the files."""
    if len(specs) != 2:
        raise LabError("one of two guests moves")
    if os.geteuid() != 0:
        raise LabError("two hosts on this one can be made by root alone")
    ensure_manad()
    output.mkdir(parents=True, exist_ok=True)
    course = Course()
    with ExitStack() as stack:
        lab = stack.enter_context(Lab(
            [replace(spec, host=host) for host, spec in enumerate(specs)], mtu=mtu,
            wire_mtu=(mtu or MTU) + AROUND, ext=ext, qemu="patched", name="migrate"))
        lab.configure_network()
        moves_in_traffic(lab, moves, course)
    results = {"format": 1, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
               "commit": commit(), "mtu": mtu or MTU,
               "guests": [f"{spec.suite} {spec.driver} {spec.provider}" for spec in specs],
               **course.results()}
    (output / "migrate.json").write_text(json.dumps(results) + "\n")
    if plot:
        (output / "migrate.svg").write_text(chart.render_time(
            "ib_write_bw to a guest that moves", "Gb/s", results["curve"],
            [(move["begin"], move["end"]) for move in results["moves"]]))
    print(table(results))
    say(f"saved in {output}")
    return 0
