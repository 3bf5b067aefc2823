# SPDX-License-Identifier: Apache-2.0
"""manalab bench --tuning: what an operator can set, each beside what the lab has, by turns in one
run: interrupts and their moderation in the guests, the MTU, huge pages, manad's CPUs."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .bench import Route, commit, iperf, mana
from .build import ensure_manad
from .errors import LabError
from .guest import Guest, GuestSpec
from .paths import GUEST_FILES
from .perftest import wait_listening
from .progress import Step, say
from .session import Lab
from .two_hosts import middle, rdma

ROUNDS = 5
QUICK_ROUNDS = 3
PINGPONG_PORT = 18600
LARGE_MTU = 9000
HUGE_PAGE = 2 << 20
HUGE_PAGES = Path("/proc/sys/vm/nr_hugepages")
USUAL = "as it is"
# The figures: those above are better when larger, those below when smaller.
FIGURES = ("writes of 64 KiB, Gb/s", "writes of 8 bytes, /s", "TCP, Gb/s",
           "latency of a write, us", "latency of a send, by events, us", "TCP ping-pong, us")
NO_MODERATION = ("adaptive-rx off adaptive-tx off rx-usecs 0 rx-frames 0 tx-usecs 0 tx-frames 0")
MODERATION = "adaptive-rx off adaptive-tx off rx-usecs 50 tx-usecs 50"


@dataclass(frozen=True)
class Way:
    """Something that is set while figures are taken; `huge`: of the guests in huge pages."""

    name: str
    applied: Callable[[Lab], AbstractContextManager[None]]
    huge: bool = False


@contextlib.contextmanager
def nothing(_: Lab) -> Iterator[None]:
    """All is as it was."""
    yield


def in_guests(lab: Lab, command: Callable[[Guest], str]) -> None:
    """Runs a command in each."""
    for guest in lab.guests:
        guest.run(command(guest), timeout=30)


@contextlib.contextmanager
def interrupts_on_one(lab: Lab) -> Iterator[None]:
    """All interrupts of the NICs go to CPU 0 of their guest; the driver spreads them."""
    files = "$(grep -l . $(ls -d /proc/irq/*/mana* | sed 's,/mana.*,/smp_affinity,'))"
    in_guests(lab, lambda _: f"for f in {files}; do echo $f $(cat $f); done >/run/affinity && "
              f"for f in {files}; do echo 1 >$f; done")
    try:
        yield
    finally:
        in_guests(lab, lambda _: "while read file mask; do echo $mask >$file; done </run/affinity")


def moderated(words: str) -> Callable[[Lab], AbstractContextManager[None]]:
    """With this moderation of interrupts, which the driver has off or does by itself otherwise."""
    @contextlib.contextmanager
    def applied(lab: Lab) -> Iterator[None]:
        in_guests(lab, lambda guest: f"ethtool -C {guest.interface()} {words}")
        try:
            yield
        finally:
            in_guests(lab, lambda guest: f"ethtool -C {guest.interface()} adaptive-rx on "
                      "adaptive-tx on")
    return applied


@contextlib.contextmanager
def large_mtu(lab: Lab) -> Iterator[None]:
    """Of the interfaces; with it the path MTU of queue pairs is 4096."""
    usual = lab.guests[0].run(f"cat /sys/class/net/{lab.guests[0].interface()}/mtu").stdout.strip()
    in_guests(lab, lambda guest: f"ip link set {guest.interface()} mtu {LARGE_MTU}")
    lab.configure_network()
    try:
        yield
    finally:
        in_guests(lab, lambda guest: f"ip link set {guest.interface()} mtu {usual}")
        lab.configure_network()


def put_on(pid: int, cpus: set[int]) -> None:
    """All threads of a process."""
    for task in Path("/proc", str(pid), "task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), cpus)


def pinned(apart: bool) -> Callable[[Lab], AbstractContextManager[None]]:
    """manad's threads on one CPU; with `apart` the guests have the others."""
    @contextlib.contextmanager
    def applied(lab: Lab) -> Iterator[None]:
        cpus = os.sched_getaffinity(0)
        first = {min(cpus)}
        pids = [lab.manad_of(0).pid, *(guest.pid for guest in lab.guests)]
        for pid, own in zip(pids, [first] + [cpus - first if apart else cpus] * len(lab.guests)):
            put_on(pid, own)
        try:
            yield
        finally:
            for pid in pids:
                put_on(pid, cpus)
    return applied


WAYS = (Way(USUAL, nothing),
        Way("as it is, again", nothing),  # how far apart the same may be
        Way("all interrupts of a guest on one CPU", interrupts_on_one),
        Way("no moderation of interrupts", moderated(NO_MODERATION)),
        Way("moderation of 50 us", moderated(MODERATION)),
        Way(f"MTU {LARGE_MTU}", large_mtu),
        Way("guests' memory in huge pages", nothing, huge=True),
        Way("manad on one CPU", pinned(apart=False)),
        Way("manad on one CPU, the guests on the other", pinned(apart=True)))


@contextlib.contextmanager
def huge_pages(memory: int) -> Iterator[None]:
    """So many bytes in huge pages for the guests, as long as the block lasts."""
    before = int(HUGE_PAGES.read_text())
    wanted = before + memory // HUGE_PAGE
    try:
        HUGE_PAGES.write_text(str(wanted))
        if int(HUGE_PAGES.read_text()) < wanted:
            raise LabError(f"the host has no {wanted} huge pages")
        yield
    finally:
        HUGE_PAGES.write_text(str(before))


def pingpong(route: Route, count: int) -> float:
    """Half the round trip of 8 bytes over TCP, us, the median."""
    programs = [guest.compile(GUEST_FILES / "tcp_pingpong.c", libs=())
                for guest in (route.server, route.client)]
    listener = route.server.spawn([programs[0], str(PINGPONG_PORT)])
    try:
        wait_listening(route.server, listener, PINGPONG_PORT)
        words = route.client.run([programs[1], str(PINGPONG_PORT), route.address, "8", str(count)],
                                 timeout=120).stdout.split()
    finally:
        if listener.status is None and route.server.alive:
            listener.kill()
    return float(words[words.index("p50") + 1])


def figures(route: Route, part: int) -> dict[str, float | None]:
    """All of them once; `part` of the messages of a whole run."""
    def count(whole: int) -> str:
        return str(whole // part)

    values = (rdma(route, ("ib_write_bw", "-N", "--report_gbits", "-s", "65536", "-n",
                           count(20000)), 3, 1.0),
              rdma(route, ("ib_write_bw", "-N", "-s", "8", "-n", count(100000)), 4, 1e6),
              iperf(route, "-t", "3"),
              rdma(route, ("ib_write_lat", "-s", "8", "-n", count(8000)), 4, 1.0),
              rdma(route, ("ib_send_lat", "-e", "-s", "8", "-n", count(4000)), 4, 1.0),
              pingpong(route, 2000 // part))
    return dict(zip(FIGURES, values))


def ratios(rounds: list[dict[str, dict[str, float | None]]], way: str, figure: str) -> list[float]:
    """To what there was in the same round without it."""
    pairs = [(one[way].get(figure), one[USUAL].get(figure)) for one in rounds
             if way in one and USUAL in one]
    return [value / usual for value, usual in pairs if value is not None and usual]


def table(results: dict[str, Any]) -> str:
    """As Markdown."""
    rounds = results["rounds"]
    lines = [f"| | {' | '.join(FIGURES)} |", "|---" * (len(FIGURES) + 1) + "|"]
    usual = [[value for one in rounds if (value := one[USUAL].get(name)) is not None]
             for name in FIGURES]
    lines.append(f"| {USUAL} | " + " | ".join(map(middle, usual)) + " |")
    for way in results["ways"]:
        if way != USUAL:
            lines.append(f"| {way} | " + " | ".join(middle(ratios(rounds, way, name))
                                                    for name in FIGURES) + " |")
    return "\n".join(lines)


def possible(labs: dict[bool, Lab]) -> list[Way]:
    """The ways that there are here; says why others are not."""
    found = []
    for way in WAYS:
        try:
            if way.huge and True not in labs:
                raise LabError("no huge pages")
            if "the other" in way.name and len(os.sched_getaffinity(0)) < 2:
                raise LabError("one CPU")
            with way.applied(labs[way.huge]):
                pass
            found.append(way)
        except LabError as error:
            say(f"{way.name}: left out: {error.message}")
    return found


def run(specs: list[GuestSpec], mtu: int | None, output: Path, quick: bool, ext: bool) -> int:
    """All of it, the table, the file."""
    if len(specs) != 2:
        raise LabError("two guests are measured")
    ensure_manad()
    output.mkdir(parents=True, exist_ok=True)
    count = QUICK_ROUNDS if quick else ROUNDS
    results: dict[str, Any] = {
        "format": 1, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit(), "rounds": [],
        "guests": [f"{spec.suite} {spec.driver} {spec.provider}" for spec in specs]}
    with ExitStack() as stack:
        labs = {}
        for huge in (False, True):
            try:
                if huge:
                    stack.enter_context(huge_pages(sum(spec.memory for spec in specs) << 20))
            except (LabError, OSError) as error:
                say(f"no guests in huge pages: {error}")
                continue
            labs[huge] = stack.enter_context(Lab([replace(spec, huge=huge) for spec in specs],
                                                 mtu=mtu, ext=ext, name="tuning"))
            labs[huge].configure_network()
        routes = {huge: mana(lab, "MANA") for huge, lab in labs.items()}
        for route in routes.values():  # emulation has translated all programs
            figures(route, 40)
        ways = possible(labs)
        results["ways"] = [way.name for way in ways]
        for number in range(count):
            results["rounds"].append({})
            with Step(f"round {number + 1} of {count}", every=60):
                for way in ways if number % 2 == 0 else reversed(ways):
                    with way.applied(labs[way.huge]):
                        results["rounds"][-1][way.name] = figures(routes[way.huge],
                                                                  4 if quick else 1)
            # What there is stays if the rest does not come to its end.
            (output / "tuning.json").write_text(json.dumps(results, indent=2) + "\n")
    print(table(results))
    say(f"saved in {output / 'tuning.json'}")
    return 0
