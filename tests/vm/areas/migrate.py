# SPDX-License-Identifier: Apache-2.0
"""A guest moves by QEMU's live migration to the other host's manad and back, while its queue pairs
are in use: its connections go on, there, or where they are when the move fails."""

from __future__ import annotations

import contextlib
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import Area, CaseFailed, Context, Peer, check, skip
from programs import ping, quick_rdma

from lab.emulator import Arrival, Move, ask, connect, end, launch
from lab.errors import LabError
from lab.manad import Nic
from lab.qemu import Machine

AREA = Area("migrate", layout="move")
# Traffic is under way by then, before a move and behind it.
SETTLE = 1.0
BOOT = 180.0  # seconds that a guest may take to boot
SNAPSHOTS = 3
THIRD = 2  # the guest that is on the host where b was at first, and stays
BLOCKED = "vfio-user"  # the kind of the device that QEMU names when it refuses
SLOW = 8 << 20  # bytes a second: there is time for something to happen


def patched(context: Context) -> None:
    """QEMU 11.1 as it is has no migration of vfio-user devices."""
    if context.options.qemu != "patched":
        skip("needs --qemu patched")


def other(context: Context) -> int:
    """The host that the moving guest is not on."""
    return 1 - int(context.b.guest.spec.host)


def move(context: Context, *how: Any, **changes: str) -> dict[str, Any]:
    """Moves guest b to the other host."""
    moved: dict[str, Any] = context.lab.move(context.b.index, other(context), *how, **changes)
    return moved


def works(context: Context) -> None:
    """Both kinds of traffic, begun anew."""
    ping(context.b, context.a.ip())
    quick_rdma(context)


def fails(context: Context, words: str, *how: Any, **changes: str) -> None:
    """A move that fails: the guest is where it was, and the other host has no NIC of it."""
    target = context.lab.manads[other(context)]
    nics = len(target.ctl_json("stats")["nics"])
    try:
        move(context, *how, **changes)
    except LabError as error:
        check(re.search(words, str(error)) is not None, f"not '{words}': {error}")
        context.note(str(error).partition("; log")[0])
    else:
        raise CaseFailed("the guest has moved")
    status = context.b.guest.qmp("query-status")["status"]
    check(status == "running", f"the guest does not run any more: {status}")
    left = len(target.ctl_json("stats")["nics"])
    check(left == nics, f"the target has {left} NICs, {nics} before")


def figures(moves: list[dict[str, Any]]) -> str:
    """What QEMU says of moves, in words."""
    down = [one["downtime"] for one in moves]
    state = [one.get("vfio", {}).get("transferred", 0) for one in moves]
    return (f"{len(moves)} moves; downtime: median {statistics.median(down):.0f} ms, max "
            f"{max(down)} ms; state of the NIC: {max(state):,} bytes at most")


@AREA.case("a guest with an idle NIC moves to the other host and back, and works", smoke=True,
           timeout=400.0)
def idle(context: Context) -> None:
    patched(context)
    moves = []
    for _ in range(2):
        moves.append(move(context))
        works(context)
    check(all(one.get("vfio", {}).get("transferred", 0) > 0 for one in moves),
          f"QEMU has moved no state of a device: {moves}")
    context.note(figures(moves))


class Bare:
    """A QEMU that boots the guest b once more, beside it. It ends with its block."""

    def __init__(self, context: Context, name: str, **changes: Any) -> None:
        lab = context.lab
        # Without it what QEMU itself allocates is in the way of CPR, too.
        self.qemu = replace(lab.qemu, argv=(*lab.qemu.argv, "-machine", "aux-ram-share=on"))
        self.name, self.log = name, lab.log_dir / f"{name}.qemu"
        self._places, self._number = lab.run_dir, 0
        self._machine = replace(context.b.guest.machine, **{"nics": (), **changes})
        self.machine = self._placed()
        self.process = launch(self.qemu, self.machine, self.log)

    def __enter__(self) -> Bare:
        return self

    def __exit__(self, *_: object) -> None:
        end(self.process)

    def _placed(self) -> Machine:
        """The machine with sockets that no QEMU has had."""
        self._number += 1
        place = self._places / f"{self.name}-{self._number}"
        return replace(self._machine, agent_socket=place.with_suffix(".agent"),
                       qmp_socket=place.with_suffix(".qmp"))

    def ask(self, command: str, **arguments: Any) -> Any:
        """One QMP command."""
        with connect(self.process, self.machine.qmp_socket, self.name, self.log) as sock:
            return ask(sock, self.name, self.log, command, arguments, 20.0)

    def wait_booted(self) -> None:
        """Waits until the guest's agent has said something."""
        with connect(self.process, self.machine.agent_socket, self.name, self.log) as sock:
            sock.settimeout(BOOT)
            try:
                said = sock.recv(1)
            except TimeoutError:
                said = b""
            check(said != b"", f"the guest {self.name} did not boot within {BOOT:.0f} s")

    def move(self) -> dict[str, Any]:
        """To another QEMU on this host."""
        machine = self._placed()
        with Arrival(self.qemu, machine, self.name, self.log) as new:
            said = new.receive(self.ask, Move())
            new.stays()
        new.agent.close()
        self.__exit__()
        self.process, self.machine, self.log = new.process, machine, new.log
        return said


@contextlib.contextmanager
def with_nic(context: Context, options: str) -> Iterator[Bare]:
    """Such a QEMU, with a NIC on b's host that has these options."""
    lab = context.lab
    manad = lab.manads[int(context.b.guest.spec.host)]
    nic = Nic("bare", lab.run_dir / "bare.sock", "02:4d:41:00:bb:00", options)
    manad.add_nic(nic)
    try:
        with Bare(context, "bare", nics=(nic.socket,)) as machine:
            yield machine
    finally:
        manad.remove_nics([nic])


@AREA.case("a NIC that offers no migration: each way out of its QEMU is refused in one line",
           timeout=200.0)
def blocked(context: Context) -> None:
    patched(context)
    with with_nic(context, "migration=off") as machine:
        question, said = machine.ask, []
        for mode in ("normal", "cpr-reboot", "cpr-transfer"):
            question("migrate-set-parameters", mode=mode)
            try:
                question("migrate", uri="exec:cat >/dev/null")
            except LabError as error:
                said.append(str(error))
            else:
                raise CaseFailed(f"QEMU migrates in mode {mode}")
        said.append(question("human-monitor-command", **{"command-line": "savevm a"}))
        for line in said:
            check(BLOCKED in line and len(line.strip().splitlines()) == 1, f"QEMU says: {line}")
        check(question("query-status")["status"] == "running", "the guest does not run")
        context.note(said[0])


class Verified:
    """rdma_verify between a guest and the one that moves, which compares every byte and
    completion."""

    def __init__(self, context: Context, peer: Peer, options: str) -> None:
        self._peer, self._mover = peer, context.b
        port = context.port()
        server, client = ([context.program(end, "rdma_verify.c"), "--dev", end.rdma, "--port",
                           str(port), *options.split()] for end in (peer, context.b))
        self._server = peer.spawn([*server, "--server"])
        peer.wait_listening(port, self._server)
        self._client = context.b.spawn([*client, "--host", peer.ip()])

    @property
    def under_way(self) -> bool:
        """Whether it has not come to its end."""
        return self._client.status is None

    def ended(self) -> None:
        """Both ends end well."""
        self._mover.finish(self._client, 300)
        self._peer.finish(self._server, 60)
        check(self._client.stdout.startswith("verified:"), f"rdma_verify: {self._client.stdout}")


def fails_in_traffic(context: Context, *how: Any, **changes: str) -> None:
    """The traffic goes on where it is, and the guest can still move."""
    patched(context)
    traffic = Verified(context, context.a, "--seed 5 --rounds 150 --batch 8 --max 60000 --both")
    time.sleep(SETTLE)
    fails(context, "did not move", *how, **changes)
    traffic.ended()
    move(context)
    works(context)


@AREA.case("a target with another MAC address refuses the state: traffic goes on", timeout=400.0)
def refused(context: Context) -> None:
    fails_in_traffic(context, mac="02:4d:41:7f:00:00")


@AREA.case("the new QEMU dies in the middle: traffic goes on, the next move works", timeout=400.0)
def target_dies(context: Context) -> None:
    def kill(process: Any) -> None:
        time.sleep(1)
        process.kill()

    fails_in_traffic(context, Move(bandwidth=SLOW, meanwhile=kill))


@AREA.case("moves with 64 connections, half of them to each host: all operations, verified",
           timeout=1200.0)
def in_traffic(context: Context) -> None:
    """Moves as long as the traffic lasts; again until there were enough of them."""
    patched(context)
    moves: list[dict[str, Any]] = []
    other_peer, _ = context.ends((THIRD, 0), (context.b.index, 0))
    while len(moves) < 2 * context.options.rounds:
        traffic = [Verified(context, peer, f"--seed {seed} --rounds 400 --batch 8 --qps 32 "
                            "--max 20000 --both --align 3")
                   for seed, peer in ((27, context.a), (28, other_peer))]
        time.sleep(SETTLE)
        while len(moves) < 2 * context.options.rounds and all(one.under_way for one in traffic):
            moved = move(context)
            time.sleep(SETTLE)
            if all(one.under_way for one in traffic):  # or it was none in traffic
                moves.append(moved)
        for one in traffic:
            one.ended()
    context.note(figures(moves))


@AREA.case("all guests are written to files together and go on from them: open connections",
           timeout=900.0)
def snapshots(context: Context) -> None:
    patched(context)
    sizes = []
    with tempfile.TemporaryDirectory(prefix="openmana-vm-") as folder:
        for _ in range(SNAPSHOTS):
            traffic = Verified(context, context.a, "--seed 6 --rounds 2000 --batch 8 --qps 4 "
                               "--max 60000 --both")
            time.sleep(SETTLE)
            check(traffic.under_way, "the traffic has ended before")
            context.lab.snapshot(Path(folder))
            sizes += [path.stat().st_size for path in Path(folder).iterdir()]
            traffic.ended()
    works(context)
    context.note(f"{SNAPSHOTS} times {len(context.lab.guests)} guests, {max(sizes) >> 20} MiB at "
                 "most")


@AREA.case("the same guest with virtio-net and without MANA, idle, for comparison", timeout=500.0)
def virtio(context: Context) -> None:
    patched(context)
    netdev = ({"type": "hubport", "hubid": 0}, "02:4d:41:00:bc:00")
    with Bare(context, "virtio", virtio=(netdev,)) as machine:
        machine.wait_booted()
        down = [machine.move()["downtime"] for _ in range(10)]
    context.note(f"{len(down)} moves; downtime: median {statistics.median(down):.0f} ms, max "
                 f"{max(down)} ms")
