# SPDX-License-Identifier: Apache-2.0
"""Runs named cases in the guests of one lab, and reports each of them.

An `Area` is a list of cases with a title; a case is a function that gets a `Context` and raises
when something is wrong. The runner prints one line a case, keeps what a failure needs to be
understood (console, kernel log, the commands with their output, manad's figures) in a directory
of its own, and goes on as long as the guests and manad live.
"""

from __future__ import annotations

import ipaddress
import json
import re
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from checkers import Checkers, Races, plain  # noqa: E402
from lab.debian import release_of  # noqa: E402
from lab.errors import CommandFailed, CommandTimeout, LabError  # noqa: E402
from lab.evidence import CLOSING, Recorder  # noqa: E402
from lab.image import making_seconds  # noqa: E402

CASE_TIMEOUT = 180.0
MOST_NOTED = 12  # lines of a kernel's log
CLEAN_PATIENCE = 10.0
MOST_WORDS = 300  # of a case in the evidence

# Kernel messages of a level of warning or worse that are no failure: (pattern of the whole message,
# reason). Only what was seen; a run names those that it met. What a fresh guest says of its own
# machine, before any case, needs no entry.
HARMLESS_KERNEL_MESSAGES = (
    (r"tsc: (Unable to calibrate against PIT|PIT calibration deviates from PMTIMER: \d+ \d+)",
     "a rebooted guest on a busy host: the emulated timer was late, the other one is used"),
    (r"APIC calibration not consistent with PM-Timer: \d+ms instead of \d+ms",
     "the same, at the second calibration"),
    (r"hrtimer: interrupt took \d+ ns|clocksource: .*|workqueue: .* hogged CPU .*|"
     r"perf: interrupt took too long .*",
     "the emulated CPU got no time from a busy host for a while"),
    (r"eth\d+ speed is unknown, defaulting to \d+",
     "6.12: ib_core asks for the link speed, which this version of mana does not tell it"),
    (r"mana_ib: (loading out-of-tree module taints kernel\.|module verification failed: .*)",
     "our module is none of the kernel package's"),
    (r"NFSD: (Unable to initialize client recovery tracking! \(-\d+\)|Is nfsdcld running\? .*)",
     "7.2: nobody keeps the list of NFS clients, which then open their files anew"),
    (r"NFSD: (Using|starting) .*|db_root: cannot open: /etc/target|MODE SENSE: unimplemented .*|"
     r"sd \S+ \[sd\w\] Optimal transfer size \d+ logical blocks > dev_max .*",
     "servers of the storage tests that start, and one that takes any size"),
    (r"nvme nvme\d+: (starting error recovery|Failed reconnect attempt .*|Connect rejected: .*|"
     r"rdma connection establishment failed .*)|block nvme\w+: no usable path - requeuing I/O",
     "a storage target that a case takes away for a moment"),
    (r"mana [0-9a-f:.]+ eth\d+: TX: CQE error 33",
     "frames with a foreign source address that a case sends"),
    (r"mana [0-9a-f:.]+ eth\d+: HWC timeout occurred",
     "7.2: said once a boot, when counters are read, of requests that had no answer before; each "
     "of them has lines of its own"),
    (r"rdma_rxe: loaded", "the module of Soft-RoCE"),
)


class CaseFailed(Exception):
    """A check of a case did not hold."""


class CaseSkipped(Exception):
    """A case that cannot run here, and why."""


class CaseTimeout(Exception):
    """A case that took longer than it may."""


def check(condition: object, message: str) -> None:
    """Fails the case when the condition does not hold."""
    if not condition:
        raise CaseFailed(message)


def skip(reason: str) -> None:
    """Ends the case as skipped."""
    raise CaseSkipped(reason)


@dataclass(frozen=True)
class Case:
    """One named behaviour. `only`: suites (of either guest) whose stock driver can do it, with the
    reason why others cannot. `smoke`: among the few that `--smoke` runs."""

    title: str
    run: Callable[[Context], None]
    long: bool = False
    timeout: float = CASE_TIMEOUT
    only: tuple[str, ...] = ()
    reason: str = ""
    nics: int = 1
    smoke: bool = False


# Guests that cases need, in the order in which they run.
LAYOUTS = {
    "pair": "two guests with a NIC each, on one manad",
    "monitored": "the same, and manad has a monitor",
    "third": "manad has one more NIC, without a guest",
    "plug": "and the second has a free root port",
    "split": "each guest has a manad of its own, joined by UDP",
    "far": "the same through a path that is long, loses datagrams and changes their order",
    "move": "each guest on a host of its own, and free to move to the other; one more beside the "
            "second",
    "networks": "two pairs, each in a network of its own, with the same addresses",
    "hosts": "the same, with one guest of each pair on either of two hosts",
    "soft": "the second has Soft-RoCE on a virtio NIC",
    "headers": "modules can be built in the second",
    "one": "one guest with two NICs",
    "systemd": "the same with systemd as process 1, and udev",
    "nodes": "two guests with a NIC each, and with systemd and udev",
    "tap": "one guest, and the host's stack behind a TAP device",
    "xdp": "as soft, with a wire between manad's AF_XDP and the other guest's TAP device",
    "vxlan": "the same with a tunnel between manad and the kernel of the other guest's host",
}


@dataclass
class Area:
    """A topic. `layout` says which guests it needs, `needs` what the cases use that stock software
    lacks, among driver, provider and ext."""

    name: str
    layout: str = "pair"
    needs: tuple[str, ...] = ()
    cases: list[Case] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise ValueError(f"{self.name}: '{self.layout}' is no layout: {', '.join(LAYOUTS)}")

    def case(self, title: str, **options: Any) -> Callable[..., Any]:
        """Decorator that adds a case."""
        def add(function: Callable[[Context], None]) -> Callable[[Context], None]:
            self.add(title, function, **options)
            return function
        return add

    def add(self, title: str, function: Callable[[Context], None], **options: Any) -> None:
        """Adds a case."""
        if any(case.title == title for case in self.cases):
            raise ValueError(f"{self.name}: two cases are named '{title}'")
        self.cases.append(Case(title, function, **options))

    def cannot(self, program: str, reason: str) -> None:
        """A program that Debian does not carry or that cannot run here: a row of docs/programs.md
        says why."""
        self.add(f"{program} cannot run", lambda context: context.cannot(program, reason),
                 smoke=True)


@dataclass
class Spoken:
    """A command that ran in a guest, for the report of a failure."""

    guest: str
    text: str
    command: Any = None
    result: Any = None
    error: str = ""

    def describe(self) -> str:
        """Its text, output and status."""
        done = self.result if self.result is not None else self.command
        status = getattr(done, "status", None) if done is not None else None
        lines = [f"--- {self.guest}: {self.text}", f"    status: {status} {self.error}".rstrip()]
        for name in ("stdout", "stderr"):
            text = getattr(done, name, "") if done is not None else ""
            if text:
                lines += [f"    {name}:", text.rstrip()]
        return "\n".join(lines)


class Peer:
    """A guest (with one of its NICs) as the cases use it: commands end with the case's deadline."""

    def __init__(self, context: Context, index: int, nic: int = 0) -> None:
        self._context = context
        self.index = index
        self.nic = nic

    @property
    def guest(self) -> Any:
        """The lab's guest; another object after the guest was replaced."""
        return self._context.lab.guests[self.index]

    @property
    def name(self) -> str:
        """Name of the guest."""
        return str(self.guest.name)

    @property
    def suite(self) -> str:
        """trixie, forky, trixie-backports or newest: it says which kernel it runs."""
        return str(self.guest.spec.suite)

    @property
    def release(self) -> str:
        """trixie or forky: whose rdma-core it has."""
        return release_of(self.suite)

    def has(self, side: str) -> bool:
        """Whether driver, provider or extensions are ours, as `Context.has`."""
        return self._context.has(side)

    @property
    def interface(self) -> str:
        """Network interface of the NIC."""
        return str(self.guest.interface(self.nic))

    @property
    def rdma(self) -> str:
        """RDMA device of the NIC."""
        return self._context.rdma_device(self)

    @property
    def in_manad(self) -> str:
        """The name of the NIC in manad."""
        return f"{self.name}n{self.nic}"

    def manactl(self, *words: str, check: bool = True) -> str:
        """Runs manactl against the manad of the NIC."""
        return str(self._context.lab.manactl(*words, check=check, guest=self.index))

    def counters(self) -> dict[str, int]:
        """All counters of the NIC."""
        report = self._context.lab.stats(self.in_manad, "--all", guest=self.index)
        return dict(report["nics"][0]["counters"])

    def ip(self, version: int = 4) -> str:
        """Address of the NIC."""
        return str(ipaddress.ip_address(self.guest.ip(self.nic, version)))

    def run(self, command: str | list[str], timeout: float = 60.0, check: bool = True,
            **options: Any) -> Any:
        """Runs a command to its end."""
        text = command if isinstance(command, str) else " ".join(command)
        spoken = Spoken(self.name, text)
        self._context.spoken.append(spoken)
        limit, by_case = self._context.limit(timeout)
        try:
            spoken.result = self.guest.run(command, timeout=limit, check=check, **options)
        except CommandFailed as error:
            spoken.result = error.result
            raise
        except CommandTimeout as error:
            spoken.result = error
            if by_case:
                raise CaseTimeout(f"{self._context.words()} while it waited for '{text}'"
                                  ) from error
            raise
        except LabError as error:
            spoken.error = str(error)
            raise
        return spoken.result

    def out(self, command: str | list[str], timeout: float = 60.0) -> str:
        """stdout of a command that must succeed."""
        return str(self.run(command, timeout).stdout)

    def spawn(self, command: str | list[str], **options: Any) -> Any:
        """Starts a command, which ends with the case at the latest."""
        text = command if isinstance(command, str) else " ".join(command)
        started = self.guest.spawn(command, **options)
        self._context.spoken.append(Spoken(self.name, text + " &", command=started))
        self._context.spawned.append(started)
        return started

    def version(self, package: str) -> str:
        """A package of the guest with its version, for `Context.ran`."""
        return self.out(f"dpkg-query -W -f '${{Package}} ${{Version}}' {package}")

    def finish(self, started: Any, timeout: float = 60.0, check: bool = True) -> int:
        """Waits for the end of a spawned command."""
        limit, by_case = self._context.limit(timeout)
        try:
            status = int(started.wait(limit))
        except CommandTimeout as error:
            if by_case:
                raise CaseTimeout(f"{self._context.words()} while it waited for "
                                  f"'{started.text}'") from error
            raise
        if check and status != 0:
            words = (started.stderr or started.stdout).strip()[-400:]
            raise CaseFailed(f"{self.name}: '{started.text}' ended with status {status}: {words}")
        return status

    def wait_listening(self, port: int, started: Any, timeout: float = 30.0) -> None:
        """Waits until something listens on a TCP port of the guest; looks each second whether what
        should listen has ended."""
        look = (f"for i in 1 2 3 4 5 6 7 8 9 10; do grep -qs ':{port:04X} 0*:0000 0A' "
                "/proc/net/tcp /proc/net/tcp6 && exit 0; sleep 0.1; done; exit 1")
        seconds = timeout * self._context.patience
        deadline = time.monotonic() + seconds
        while True:
            result = self.run(look, 30, check=False)
            if started.status is not None:
                words = (started.stderr or started.stdout).strip()[-400:]
                raise CaseFailed(f"{self.name}: '{started.text}' ended with status "
                                 f"{started.status} before it listened: {words}")
            if result.status == 0:
                return
            if time.monotonic() > deadline:
                raise CaseFailed(f"{self.name}: '{started.text}' did not listen within "
                                 f"{seconds:.0f} s")

    def until(self, command: str, what: str, timeout: float = 10.0) -> None:
        """Waits until a shell condition holds in the guest."""
        seconds = timeout * self._context.patience
        result = self.run(f"end=$(($(date +%s) + {seconds:.0f})); until {command}; do "
                          "[ $(date +%s) -lt $end ] || exit 77; sleep 0.1; done", timeout + 30,
                          check=False)
        if result.status != 0:
            raise CaseFailed(f"{self.name}: {what} (waited {seconds:.0f} s)")


class SoftPeer(Peer):
    """A guest with Soft-RoCE on a virtio NIC."""

    @property
    def interface(self) -> str:
        return str(self.guest.uplink_interface(self.nic))

    @property
    def rdma(self) -> str:
        return f"rxe{self.nic}"

    def ip(self, version: int = 4) -> str:
        return str(ipaddress.ip_address(self.guest.uplink_ip(self.nic, version)))


@dataclass(frozen=True)
class ThirdNic:
    """A NIC without a guest, on the switch of the others."""

    socket: Path
    name: str = "third"
    mac: str = "02:4d:41:03:00:00"
    host: int = 77  # the last byte of its IPv4 address

    def argument(self) -> str:
        """The value of manad's --nic."""
        return f"id={self.name},socket={self.socket},mac={self.mac}"


class Context:
    """What a case works with: `a` and `b`, its two ends, on a running lab."""

    def __init__(self, lab: Any, pair: str, options: Any = None, ends: Sequence[tuple[int, int]]
                 = ((0, 0), (1, 0)), kinds: dict[int, type[Peer]] | None = None,
                 pcap: Path | None = None, third: ThirdNic | None = None) -> None:
        self._kinds = kinds or {}
        self.third = third
        self.pcap = pcap  # what manad captures all the time
        self.lab = lab
        self.pair = pair
        self.options = options
        self.driver = getattr(options, "driver", "stock")
        self.provider = getattr(options, "provider", "stock")
        self.ext = getattr(options, "ext", "on") == "on"
        self.a, self.b = self.ends(*ends)
        self.spoken: list[Spoken] = []
        self.spawned: list[Any] = []
        self.notes: list[str] = []
        self.data: Any = None  # what the evidence of a case has besides
        self.programs: list[dict[str, str]] = []  # what it says of programs that no one here wrote
        self.expected: list[tuple[int, str]] = []  # guest, kernel messages that a case asked for
        # Reads the kernel logs for the area's last case. For cases after which a guest may go.
        self.read_kernel_logs: Callable[[], None] = lambda: None
        self.kernel = getattr(options, "kernel", "stock")
        # All times are those of guests with Debian's kernel; a debug kernel takes longer.
        self.patience = max(guest.spec.patience for guest in lab.guests)
        self._seconds = CASE_TIMEOUT * self.patience
        self._deadline = time.monotonic() + self._seconds - making_seconds()
        self._port = 18600
        self._programs: dict[tuple[int, str, str], str] = {}
        self._rdma: dict[tuple[int, int], str] = {}

    def has(self, side: str) -> bool:
        """Whether the driver, the provider or the device's extensions (`ext`) are ours and on."""
        return self.ext if side == "ext" else getattr(self, side) == "ours"

    def expect_kernel(self, peer: Peer, pattern: str) -> None:
        """Whole kernel messages of a guest that this case causes: no failure of its area."""
        self.expected.append((peer.index, pattern))

    # -- time

    def begin(self, seconds: float) -> None:
        """A case begins; it may take this long, and what it fetches for the first time on this
        machine as long as it takes."""
        self._seconds = seconds * self.patience
        self._deadline = time.monotonic() + self._seconds - making_seconds()
        self.spoken = []
        self.spawned = []
        self.notes = []
        self.data = None
        self.programs = []

    def words(self) -> str:
        """How to say that the case took too long."""
        return f"the case did not end within {self._seconds:.0f} s"

    def limit(self, timeout: float) -> tuple[float, bool]:
        """The time that a step may take, and whether the case's deadline is what limits it."""
        left = (self._deadline + making_seconds() - time.monotonic()) / self.patience
        if left <= 0:
            raise CaseTimeout(self.words())
        return (left, True) if left < timeout else (timeout, False)

    def end(self) -> None:
        """Ends what the case left running."""
        for started in self.spawned:
            if started.status is None and started.error is None:
                try:
                    started.kill()
                    started.wait(10)
                except LabError:
                    pass

    # -- guests

    @property
    def peers(self) -> tuple[Peer, ...]:
        """One peer for each guest."""
        return tuple(self._peer(index) for index in range(len(self.lab.guests)))

    def _peer(self, index: int, nic: int = 0) -> Peer:
        return self._kinds.get(index, Peer)(self, index, nic)

    def ends(self, first: tuple[int, int], second: tuple[int, int]) -> tuple[Peer, Peer]:
        """Two ends: (guest, NIC) each."""
        return self._peer(*first), self._peer(*second)

    def port(self) -> int:
        """A TCP port that no earlier case used."""
        self._port += 1
        return self._port

    def note(self, text: str) -> None:
        """A figure or remark that is printed behind the case's line."""
        self.notes.append(text)

    def ran(self, program: str, version: str, command: str, seen: str = "") -> None:
        """A program that no one here wrote has run, or is about to: a row of docs/programs.md.
        `version`: of its package, as the package says now (`Peer.version`, `extras.version`);
        `command`: as a user types it; `seen`: figures, if they are not the case's notes."""
        self.programs.append({"program": program, "version": version, "command": command,
                              "seen": seen[:MOST_WORDS]})

    def cannot(self, program: str, reason: str) -> None:
        """Ends the case as skipped, with a row of docs/programs.md that says why the program is
        not run with these guests."""
        self.ran(program, "", "")
        skip(reason)

    def rdma_device(self, peer: Peer) -> str:
        """The RDMA device of a NIC, looked up once."""
        key = (peer.index, peer.nic)
        if key not in self._rdma:
            self._rdma[key] = str(peer.guest.rdma_device(peer.nic))
        return self._rdma[key]

    def forget(self, peer: Peer) -> None:
        """Names and files of a guest are looked up anew: its driver or itself was restarted."""
        for table in (self._programs, self._rdma):
            for key in [key for key in table if key[0] == peer.index]:
                del table[key]  # type: ignore[attr-defined]
        devices = getattr(peer.guest, "forget_interfaces", None)
        if devices is not None:
            devices()
        else:
            peer.guest._devices = None

    def program(self, peer: Peer, source: str) -> str:
        """Puts one of our C programs into a guest, compiled there; returns its path."""
        key = (peer.index, source, str(peer.guest.pid))
        if key not in self._programs:
            # one file: the lab compiles, and remembers, one file at a time
            text = with_headers(Path(__file__).resolve().parent / source)
            whole = self.lab.log_dir / source
            whole.write_text(text)
            self._programs[key] = str(peer.guest.compile(
                whole, libs=("-libverbs",),
                flags=("-O2", "-Wall", "-Wextra", "-Werror", "-std=gnu11")))
        return self._programs[key]


def with_headers(path: Path, known: set[str] | None = None) -> str:
    """A C file with our own headers in the place of their names, each once."""
    known = set() if known is None else known

    def header(found: re.Match[str]) -> str:
        name = found.group(1)
        if name in known:
            return ""
        known.add(name)
        folder = next(folder for folder in (path.parent, ROOT / "include" / "uapi")
                      if (folder / name).exists())
        return with_headers(folder / name, known)

    return re.sub(r'^#include "(.+)"\n', header, path.read_text(), flags=re.M)


def normal(line: str) -> str:
    """A kernel message without its time and its caller."""
    return plain(line).strip()


def is_harmless(line: str) -> bool:
    """Whether a kernel message is one of those that mean nothing here."""
    return any(re.fullmatch(pattern, normal(line)) for pattern, _ in HARMLESS_KERNEL_MESSAGES)


class KernelLog:
    """Looks for new kernel messages that are warnings or worse."""

    def __init__(self) -> None:
        self._seen: dict[int, set[str]] = {}
        self._boot: set[str] = set()
        self.harmless: set[str] = set()

    @staticmethod
    def _messages(peer: Peer) -> list[str]:
        # Of the kernel itself: systemd writes there, too.
        return str(peer.guest.run("dmesg -f kern -l emerg,alert,crit,err,warn", timeout=30).stdout
                   ).splitlines()

    def start(self, peers: Iterable[Peer]) -> None:
        """What a fresh guest says has nothing to do with the cases, unless it is about MANA."""
        for peer in peers:
            lines = self._messages(peer)
            self._seen[peer.index] = set(lines)
            self._boot |= {normal(line) for line in lines
                           if not re.search(r"mana|infiniband|ib_|rdma", line, re.I)}

    def new(self, peer: Peer, expected: Iterable[tuple[int, str]] = ()) -> list[str]:
        """Messages that came since the last call and are not known to be harmless."""
        patterns = [pattern for index, pattern in expected if index == peer.index]
        seen = self._seen.setdefault(peer.index, set())
        found = []
        for line in self._messages(peer):
            text = normal(line)
            if line in seen or text in self._boot:
                continue
            seen.add(line)
            if is_harmless(line) or any(re.fullmatch(pattern, text) for pattern in patterns):
                self.harmless.add(text)
            else:
                found.append(text)
        return found


# Node GUIDs are made of MAC addresses (EUI-64).
LIST_CQS = ("cd /sys/class/infiniband && for d in *; do echo $d $(cat $d/node_guid); done; "
            "rdma -j resource show cq")


def pooled_cqs(guest: Any) -> dict[str, int]:
    """How many CQs the core of a guest keeps for the next user in its pool, by NIC. Storage over
    RDMA takes its CQs from there; they live until their device goes, as when its driver or the
    guest starts anew."""
    text = guest.run(LIST_CQS, timeout=30, check=False).stdout
    names, _, cqs = text.partition("[")
    devices = dict(re.findall(r"^(\S+) ([\da-f:]+)$", names, re.M))
    nics = {guid_of(mac): f"{guest.name}n{number}" for number, mac in enumerate(guest.macs)}
    idle = [nics[devices[cq["ifname"]]] for cq in json.loads(f"[{cqs}" if cqs else "[]")
            if "pid" not in cq and cq.get("comm", "").strip("[]") == "ib_core"
            and cq["users"] == 0 and devices.get(cq["ifname"]) in nics]
    return {nic: idle.count(nic) for nic in set(idle)}


def guid_of(mac: str) -> str:
    """The EUI-64 of a MAC address, as the kernel writes a node GUID."""
    eui = bytearray.fromhex(mac.replace(":", ""))
    eui[0] ^= 2
    digits = (bytes(eui[:3]) + b"\xff\xfe" + bytes(eui[3:])).hex()
    return ":".join(digits[at:at + 4] for at in range(0, 16, 4))


@dataclass
class Tally:
    """How the cases of a run ended."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    left: int = 0  # there was no time for
    failures: list[str] = field(default_factory=list)


class Runner:
    """Runs areas on one lab."""

    def __init__(self, context: Context, tally: Tally, keep: Callable[[], Path], number: int = 0,
                 total: int = 0, out: Callable[[str], None] | None = None,
                 recorder: Recorder | None = None, until: float | None = None) -> None:
        self.context = context
        self.tally = tally
        self._keep = keep
        self._kernel_log = KernelLog()
        self.number = number
        self._total = total
        self._recorder = recorder
        self._until = until  # no case begins after this time
        self._say = out or (lambda text: print(text, flush=True))
        self._baseline: dict[str, Any] = {}
        self._warnings: list[tuple[str, str]] = []  # guest and message, since the last clean check
        context.read_kernel_logs = self._read_kernel_logs
        kind = {"debug": Checkers, "kcsan": Races}.get(context.kernel)
        self._checkers = kind() if kind else None

    # -- health

    def death(self) -> str | None:
        """Why the guests or manad cannot go on, or None."""
        lab = self.context.lab
        for manad in lab.manads:
            try:
                manad.check()
            except LabError as error:
                return str(error)
        for guest in lab.guests:
            error = guest.channel.error
            if error is not None or not guest.alive:
                return str(error or f"{guest.name}: the guest is not running")
        return None

    def start(self) -> None:
        """To be called once the guests are up."""
        self._kernel_log.start(self.context.peers)
        if self._recorder is not None:
            self._recorder.start(self.context.lab.guests)

    def figures(self) -> dict[str, Any]:
        """What must be the same before and after an area: objects that guests have in manad, but
        for CQs that a guest's core keeps in a pool."""
        figures = {str(nic["nic"]): {"qps": nic["qps"], **nic["objects"]}
                   for manad in self.context.lab.manads for nic in manad.ctl_json("status")["nics"]}
        for guest in self.context.lab.guests:
            for nic, count in pooled_cqs(guest).items():
                if nic in figures:
                    figures[nic]["cqs"] -= count
        return figures

    def _check_clean(self, _context: Context) -> None:
        lab = self.context.lab
        for manad in lab.manads:
            manad.check()
            manad.check_rights()
        wrong = self._check_debug_kernel() if self._checkers is not None else []
        told = self._checkers.lines if self._checkers is not None else set()
        self._read_kernel_logs()
        wrong += [f"{name}: kernel: {line}" for name, line in self._warnings if line not in told]
        self._warnings = []
        self.context.expected = []
        harmless = sorted(self._kernel_log.harmless)
        for line in harmless[:MOST_NOTED]:
            self.context.note(f"harmless: {line}")
        if len(harmless) > MOST_NOTED:  # those of a trace, say
            self.context.note(f"harmless: {len(harmless) - MOST_NOTED} more kinds of lines")
        self._kernel_log.harmless.clear()
        for relay in lab.relays:
            self.context.note("the path so far: " + ", ".join(
                f"{count} {what}" for what, count in relay.counts().items()))
        check(not wrong, "; ".join(wrong[:5]) + (f"; and {len(wrong) - 5} more"
                                                 if len(wrong) > 5 else ""))
        deadline = time.monotonic() + CLEAN_PATIENCE * self.context.patience
        while (figures := self.figures()) != self._baseline:
            if time.monotonic() > deadline:
                changes = [f"{nic}: {name} {before.get(name)} -> {after.get(name)}"
                           for nic, before in self._baseline.items()
                           for after in (figures.get(nic, {}),)
                           for name in sorted({*before, *after})
                           if before.get(name) != after.get(name)]
                raise CaseFailed("left behind in manad: " + ", ".join(changes))
            time.sleep(0.2)

    def _read_kernel_logs(self) -> None:
        for peer in self.context.peers:
            self._warnings += [(peer.name, line) for line in
                               self._kernel_log.new(peer, self.context.expected)]

    def _check_debug_kernel(self) -> list[str]:
        """What the debug kernel's checkers found since the last case: with the memory leaks of the
        whole area."""
        assert self._checkers is not None
        self._checkers.scan(self.context.peers)
        wrong = []
        for peer in self.context.peers:
            found = self._checkers.leaks(peer) + self._checkers.reports(peer, last=True)
            found += self._checkers.given_up(peer)
            wrong += [f"{peer.name}: kernel: {words}" for words in found]
        for words in sorted(self._checkers.known):
            self.context.note(f"known: {words}")
        return wrong

    def _reports(self) -> list[str]:
        """What a debug kernel reported in a case, which fails it."""
        if self._checkers is None:
            return []
        return self._checkers.before_reboots() + [
            f"{peer.name}: kernel: {title}" for peer in self.context.peers
            for title in self._checkers.reports(peer)
            if not self._is_expected(peer, title)]

    def _is_expected(self, peer: Peer, title: str) -> bool:
        return any(index == peer.index and re.fullmatch(pattern, title)
                   for index, pattern in self.context.expected)

    # -- running

    def run_area(self, area: Area, cases: Sequence[Case]) -> None:
        """Runs cases of an area, then checks that nothing is left behind."""
        try:
            self._baseline = self.figures() if self.death() is None else {}
        except LabError:
            self._baseline = {}  # the first case says what is wrong
        for done, case in enumerate(cases):
            if self._until is not None and time.time() >= self._until:
                self.tally.left += len(cases) - done
                cases = cases[:done]
                break
            self.run_case(area, case)
        if cases:
            self.run_case(area, Case(CLOSING, self._check_clean))

    def full_name(self, area: Area, case: Case) -> str:
        """pair.driver.provider.area: title"""
        context = self.context
        return f"{context.pair}.{context.driver}.{context.provider}.{area.name}: {case.title}"

    def run_case(self, area: Area, case: Case) -> None:
        """Runs one case and prints how it went."""
        self.number += 1
        context = self.context
        name = self.full_name(area, case)
        begin = time.monotonic()
        context.begin(case.timeout)
        error: BaseException | None = None
        why = ""
        dead = self.death()
        if dead is not None:
            why = f"not run: {dead}"
        else:
            try:
                suites = {peer.suite for peer in context.peers}
                if lack := [side for side in area.needs if not context.has(side)]:
                    raise CaseSkipped("needs our " + " and ".join(
                        {"ext": "device's extensions"}.get(side, side) for side in lack))
                if case.only and context.driver == "stock" and not suites <= set(case.only):
                    raise CaseSkipped(case.reason or f"only for {', '.join(case.only)}")
                for peer in context.peers if self._checkers is not None else ():
                    self._checkers.follow(peer)
                case.run(context)
                wrong = self._reports()
                check(not wrong, "; ".join(wrong[:5]))
            except CaseSkipped as reason:
                self.tally.skipped += 1
                context.end()
                self._say(f"skip {self.number} - {name}: {reason}")
                self._record(area, case, "skipped", 0.0, str(reason))
                return
            except KeyboardInterrupt:
                raise
            except Exception as failure:  # every failure of a case is reported, none ends the run
                error = failure
                why = "; ".join([self._reason(failure), *self._reports()[:5]])
            context.end()
        took = time.monotonic() - begin
        if not why:
            self.tally.passed += 1
            notes = f" [{'; '.join(context.notes)}]" if context.notes else ""
            self._say(f"ok {self.number} - {name} ({took:.1f} s){notes}")
            self._record(area, case, "passed", took, "; ".join(context.notes))
            return
        self.tally.failed += 1
        self.tally.failures.append(name)
        self._say(f"not ok {self.number} - {name} ({took:.1f} s): {why}")
        if error is not None:
            self._say(f"    kept: {self._save(name, why, error)}")
            self._record(area, case, "failed", took, why)

    def _record(self, area: Area, case: Case, result: str, took: float, words: str) -> None:
        """Evidence of a case. One that did not run, since the lab had died, is none."""
        if self._recorder is not None:
            self._recorder.case(area.name, case.title, result, took, words[:MOST_WORDS], case.long,
                                self.context.data, self.context.programs)

    def _reason(self, failure: Exception) -> str:
        if isinstance(failure, (CaseFailed, CaseTimeout, LabError)):
            text = str(failure)
        else:
            text = f"{type(failure).__name__}: {failure}"
        dead = self.death()
        if dead is not None and dead not in text:
            text = f"{dead} (seen as: {text})"
        return text.replace("\n", " | ")

    def _save(self, name: str, why: str, error: BaseException) -> Path:
        """Keeps what helps to understand a failure."""
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:80]
        folder = self._keep() / f"{self.number:03d}-{slug}"
        folder.mkdir(parents=True, exist_ok=True)
        context = self.context
        (folder / "failure").write_text(
            f"{name}\n{why}\n\n{''.join(traceback.format_exception(error))}")
        (folder / "commands").write_text(
            "\n".join(spoken.describe() for spoken in context.spoken) + "\n")
        for guest in context.lab.guests:
            if Path(guest.console_log).exists():
                shutil.copy(guest.console_log, folder / f"{guest.name}.console")
            if guest.alive:
                try:
                    (folder / f"{guest.name}.dmesg").write_text(guest.dmesg())
                except LabError as failure:
                    (folder / f"{guest.name}.dmesg").write_text(f"{failure}\n")
        for manad in context.lab.manads:
            log = Path(manad.log)
            if log.exists():
                shutil.copy(log, folder / log.name)
            for words in (("status", "--json"), ("stats", "--json"), ("stats", "--qp"),
                          ("uplinks",)):
                try:
                    text = manad.ctl(*words, check=False)
                except LabError as failure:
                    text = f"{failure}\n"
                name = f"{log.stem}ctl-{'-'.join(words).replace('--', '')}"
                (folder / name).write_text(text)
        return folder
