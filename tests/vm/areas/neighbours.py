# SPDX-License-Identifier: Apache-2.0
"""Two guests beside a client that means harm, on a NIC of the same manad.

The client is a process of the host, tests/hostile/hostile_client_main.cc: it does to its NIC what
hostile_test does. What it costs its neighbours is compared with what one costs them that merely
computes: that takes as much CPU time as the client and the thread of its NIC did, by two processes
with their nice values.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness import Area, Context, ThirdNic, check
from programs import gbits, perftest, verify

from lab.manad import NICE, find_binary
from lab.proc import end_group, spawn, tail

AREA = Area("neighbours", layout="third")
PAIRS = 5
SIZE = 65536
# perftest leaves out the first and the last two seconds.
SECONDS = 14
# The least that a neighbour keeps, and the least CPU time of a control, of that of the client.
LIMIT = 0.8
BURNT = 0.9
PATIENCE = 60.0


@dataclass(frozen=True)
class Used:
    """CPU time of a second: that of the client, and of its NIC's thread in manad."""

    client: float
    nic: float

    @property
    def both(self) -> float:
        """In CPUs."""
        return self.client + self.nic


@dataclass(frozen=True)
class Phase:
    """ib_write_bw beside one of the two: messages in the time that perftest measures."""

    messages: int
    gbits: float
    used: Used
    done: dict[str, int] = field(default_factory=dict)  # by the hostile client meanwhile


def cpu_seconds(pid: int, thread: str | None = None) -> float:
    """CPU time of a process, or of its threads of a name."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends
            if thread is None or (task / "comm").read_text().strip() == thread:
                total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def last_line(text: str) -> dict[str, int]:
    """The last whole line of what a hostile client printed: what it has done so far."""
    lines = text.rpartition("\n")[0].splitlines()
    return dict(json.loads(lines[-1])) if lines else {}


def nic_of(context: Context) -> ThirdNic:
    """The NIC that no guest has."""
    assert context.third is not None
    return context.third


class Hostile:
    """The hostile client, at work."""

    def __init__(self, context: Context) -> None:
        nic = nic_of(context)
        self._pid = context.lab.manad_of(0).pid
        self._thread = f"nic-{nic.name}"
        self._log = context.lab.log_dir / "hostile_client"
        victims = [f"{peer.guest.macs[0]}={peer.ip().rpartition('.')[2]}" for peer in context.peers]
        self._before = cpu_seconds(self._pid, self._thread)
        with self._log.open("wb") as out, self._log.with_suffix(".err").open("wb") as err:
            self.process = spawn([str(find_binary("hostile_client")), str(nic.socket), nic.mac,
                                  str(nic.host), *victims], stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=err)

    def done(self) -> dict[str, int]:
        """What it has done so far."""
        return last_line(self._log.read_text())

    def used(self) -> tuple[float, float]:
        """CPU time so far: its own, its NIC's."""
        return cpu_seconds(self.process.pid), \
            cpu_seconds(self._pid, self._thread) - self._before

    def wait_at_work(self) -> None:
        """Until each kind of attack has had its turn."""
        deadline = time.monotonic() + PATIENCE
        while not self.done().get("rounds"):
            check(self.process.poll() is None, f"hostile_client ended: "
                  f"{tail(self._log.with_suffix('.err'))}")
            check(time.monotonic() < deadline, "hostile_client did not get around in time")
            time.sleep(0.05)


class Control:
    """Two processes that compute: one like the client, one like its NIC's thread."""

    def __init__(self, used: Used) -> None:
        program = str(find_binary("hostile_client"))
        self.processes = [spawn([program, "burn", f"{min(share, 1.0):.4f}"], nice=nice,
                                stdin=subprocess.DEVNULL)
                          for share, nice in ((used.client, 0), (used.nic, NICE))]

    def used(self) -> tuple[float, float]:
        """CPU time so far."""
        client, nic = (cpu_seconds(one.pid) for one in self.processes)
        return client, nic


@contextlib.contextmanager
def hostile(context: Context) -> Iterator[Hostile]:
    """A hostile client that is at work."""
    client = Hostile(context)
    try:
        client.wait_at_work()
        yield client
        check(client.process.poll() is None, "hostile_client did not last")
    finally:
        end_group(client.process)


def rate(context: Context, beside: Hostile | Control) -> tuple[int, float, Used]:
    """ib_write_bw, and the CPU time that the one beside it had of each second."""
    before, begin = beside.used(), time.monotonic()
    row = perftest(context, "ib_write_bw", "-s", str(SIZE), "-D", str(SECONDS),
                   timeout=SECONDS * 3 + 60)[0]
    took = time.monotonic() - begin
    client, nic = ((now - then) / took for now, then in zip(beside.used(), before))
    return int(row[1]), float(gbits(row).split()[0]), Used(client, nic)


def beside_hostile(context: Context) -> Phase:
    """One turn."""
    with hostile(context) as client:
        before = client.done()
        messages, speed, used = rate(context, client)
        done = {name: count - before.get(name, 0) for name, count in client.done().items()}
    check(done.get("rounds", 0) > 0, f"the hostile client did next to nothing: {done}")
    return Phase(messages, speed, used, done)


def beside_control(context: Context, used: Used) -> Phase:
    """The other's turn."""
    control = Control(used)
    try:
        phase = Phase(*rate(context, control))
    finally:
        for process in control.processes:
            end_group(process)
    check_burnt(used, phase.used)
    return phase


def check_burnt(used: Used, burnt: Used) -> None:
    """One that had less CPU time than the hostile one took is nothing to compare with."""
    check(burnt.both >= BURNT * used.both,
          f"the control burnt {burnt.both:.2f} CPUs beside {used.both:.2f} of the hostile client")


def median_ratio(pairs: list[tuple[Phase, Phase]]) -> float:
    """What a neighbour of the hostile one keeps of what one of the control has."""
    return statistics.median(bad.messages / good.messages for bad, good in pairs)


def judge(pairs: list[tuple[Phase, Phase]]) -> None:
    """Fails if that is too little."""
    ratio = median_ratio(pairs)
    check(ratio >= LIMIT, f"ib_write_bw beside a hostile client has {ratio:.3f} of what it has "
          f"beside one that computes (median of {len(pairs)} pairs), and that is below {LIMIT}")


def words_of(number: int, bad: Phase, good: Phase) -> str:
    """A pair in a line."""
    done = ", ".join(f"{count} {name}" for name, count in bad.done.items() if count)
    return (f"pair {number}: {bad.messages} messages, {bad.gbits:.1f} Gb/s beside the hostile "
            f"client ({bad.used.client:.2f} CPUs, its NIC {bad.used.nic:.2f}; {done}); "
            f"{good.messages}, {good.gbits:.1f} Gb/s beside the control ({good.used.client:.2f} "
            f"and {good.used.nic:.2f}); ratio {bad.messages / good.messages:.3f}")


def recorded(phase: Phase) -> dict[str, object]:
    """A turn, for the evidence."""
    return {"messages": phase.messages, "gbits": phase.gbits,
            "cpus": [round(phase.used.client, 3), round(phase.used.nic, 3)],
            **({"done": phase.done} if phase.done else {})}


@AREA.case("data and completions are right beside a hostile client", timeout=300.0, smoke=True)
def right(context: Context) -> None:
    with hostile(context) as client:
        before = client.done()
        said = verify(context, "--seed", "31", "--rounds", "40", "--batch", "24", "--max", "70000",
                      "--both", "--align", "3")
        rounds = client.done()["rounds"] - before["rounds"]
    context.note(f"{said.strip().removeprefix('verified: ')}; {rounds} rounds of attacks")


@AREA.case("ib_write_bw beside a hostile client has 80 % of that beside one that computes",
           long=True, timeout=120.0 + PAIRS * 2 * (4 * SECONDS + 60))
def bandwidth(context: Context) -> None:
    used = beside_hostile(context).used  # a turn that counts for nothing, to know what it takes
    pairs = []
    for number in range(1, PAIRS + 1):
        # By turns, and every other pair the other way round.
        good = beside_control(context, used) if number % 2 == 0 else None
        bad = beside_hostile(context)
        used = bad.used
        pairs.append((bad, good or beside_control(context, used)))
        print(f"  {words_of(number, *pairs[-1])}", flush=True)
    context.note(f"median of {PAIRS} pairs {median_ratio(pairs):.3f}, limit {LIMIT}")
    context.data = {"median": round(median_ratio(pairs), 3), "limit": LIMIT,
                    "pairs": [{"hostile": recorded(bad), "control": recorded(good)}
                              for bad, good in pairs]}
    judge(pairs)
