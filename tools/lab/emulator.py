# SPDX-License-Identifier: Apache-2.0
"""A QEMU process: how it is started and asked, and one that waits for a guest that moves."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from .errors import GuestDied, GuestTimeout, LabError
from .proc import end_group, spawn
from .qemu import Machine, Qemu, command_line

OPEN_TIMEOUT = 60.0
# Without it the old QEMU would believe in a move that the new one has refused.
CAPABILITIES = [{"capability": "return-path", "state": True}]
OVER = ("completed", "failed", "cancelled")


@dataclass(frozen=True)
class Move:
    """How a guest moves: within how many seconds, and with how many bytes a second, as fast as it
    goes if nothing else is said. `meanwhile` is called once, with the process of the new QEMU, when
    it has begun."""

    timeout: float = 180.0
    bandwidth: int = 4 << 30
    meanwhile: Callable[[subprocess.Popen[bytes]], None] | None = None


def launch(qemu: Qemu, machine: Machine, log: Path) -> subprocess.Popen[bytes]:
    """Starts it; its stdout is the guest's console."""
    argv = command_line(qemu, machine)
    with log.open("wb") as err:
        err.write((" ".join(argv) + "\n").encode())
        err.flush()
        return spawn(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err,
                     env=qemu.environment())


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends one whose console nobody reads."""
    end_group(process, grace=2.0)
    if process.stdout is not None:
        process.stdout.close()


def connect(process: subprocess.Popen[bytes], path: Path, name: str, log: Path) -> socket.socket:
    """Connects to a socket of it, which it may not have opened yet."""
    deadline = time.monotonic() + OPEN_TIMEOUT
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            sock.connect(str(path))
            return sock
        except OSError as error:
            sock.close()
            status = process.poll()
            if status is not None:
                raise GuestDied(f"{name}: QEMU ended with status {status}: {words_of(log)}",
                                log) from error
            if time.monotonic() > deadline:
                raise GuestTimeout(f"{name}: QEMU did not open {path.name}", log) from error
            time.sleep(0.02)


def words_of(log: Path) -> str:
    """The last that QEMU said, whose log begins with its command line."""
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1][:200] if len(lines) > 1 else "no message"


def ask(sock: socket.socket, name: str, log: Path, command: str, arguments: dict[str, Any],
        timeout: float) -> Any:
    """One QMP command over a new connection; its answer."""
    sock.settimeout(timeout)
    answer: dict[str, Any] = {}
    # A file that an error keeps open would keep out the next one who asks.
    with sock.makefile("rw", encoding="utf-8") as file:
        try:
            file.readline()
            for request in ({"execute": "qmp_capabilities"},
                            {"execute": command, "arguments": arguments}):
                file.write(json.dumps(request) + "\n")
                file.flush()
                while True:
                    answer = json.loads(file.readline() or "{}")
                    if "error" in answer or not answer:
                        text = answer.get("error", {}).get("desc", "QEMU went away")
                        raise LabError(f"{name}: QMP {command}: {text}")
                    if "return" in answer:
                        break
        except (OSError, ValueError) as error:
            raise LabError(f"{name}: QMP {command}: {error}", log) from error
    return answer["return"]


def end_of(asked: Callable[..., Any], name: str, deadline: float) -> dict[str, Any]:
    """What a QEMU says of a migration when it is over."""
    while True:
        said: dict[str, Any] = asked("query-migrate")
        if said.get("status") in OVER:
            return said
        if time.monotonic() > deadline:
            asked("migrate_cancel")
            raise LabError(f"{name}: did not move in time")
        time.sleep(0.05)


def prepare(asked: Callable[..., Any], how: Move, capabilities: list[dict[str, Any]]) -> None:
    """Tells a QEMU how it is to migrate."""
    off = [{**one, "state": False} for one in CAPABILITIES if one not in capabilities]
    asked("migrate-set-capabilities", capabilities=capabilities + off)
    asked("migrate-set-parameters", **{"max-bandwidth": how.bandwidth})


def write(asked: Callable[..., Any], name: str, path: Path, how: Move) -> dict[str, Any]:
    """Writes the guest of a QEMU, which stands still, to a file; what that says of it."""
    prepare(asked, how, [])
    asked("migrate", uri=f"file:{path}")
    said = end_of(asked, name, time.monotonic() + how.timeout)
    if said["status"] != "completed":
        raise LabError(f"{name}: was not written: {said.get('error-desc', said['status'])}")
    return said


class Arrival:
    """A QEMU that waits for a guest. It ends with its block, but if the guest is there and
    `stays`. `agent`: its end of the guest's command channel."""

    def __init__(self, qemu: Qemu, machine: Machine, name: str, log: Path) -> None:
        self._machine = machine
        self._name = name
        number = int(log.suffix.removeprefix(".qemu") or "0") + 1
        self.log = log.with_suffix(f".qemu{number}")
        self._keep = False
        self.process = launch(qemu, replace(machine, incoming=True), self.log)
        try:
            self.agent = connect(self.process, machine.agent_socket, name, self.log)
        except BaseException:
            end_group(self.process, grace=0.5)
            raise

    def __enter__(self) -> Arrival:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        if not self._keep:
            self.agent.close()
            end(self.process)

    def stays(self) -> None:
        """The guest is here."""
        self._keep = True

    def ask(self, command: str, **arguments: object) -> Any:
        """One QMP command."""
        with connect(self.process, self._machine.qmp_socket, self._name, self.log) as sock:
            return ask(sock, self._name, self.log, command, arguments, 20.0)

    def read(self, path: Path, how: Move) -> None:
        """The guest that a file has: it is here, and stands still as when it was written."""
        prepare(self.ask, how, [])
        self.ask("migrate-incoming", uri=f"file:{path}")
        deadline = time.monotonic() + how.timeout
        while self.ask("query-status")["status"] != "paused":
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"{self._name}: is not what {path.name} has: {words_of(self.log)}",
                               self.log)
            time.sleep(0.02)

    def receive(self, source: Callable[..., Any], how: Move) -> dict[str, Any]:
        """Lets the guest come from the QEMU that answers `source`; returns what that says of it
        when the guest is here."""
        path = self._machine.agent_socket.with_suffix(".move")
        for ask_one in (source, self.ask):
            prepare(ask_one, how, CAPABILITIES)
        self.ask("migrate-incoming", uri=f"unix:{path}")
        source("migrate", uri=f"unix:{path}")
        deadline = time.monotonic() + how.timeout
        if how.meanwhile is not None:
            how.meanwhile(self.process)
        said = end_of(source, self._name, deadline)
        if said["status"] != "completed":
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=5)
            raise LabError(f"{self._name}: did not move: "
                           f"{said.get('error-desc', said['status'])}; the other QEMU: "
                           f"{words_of(self.log)}", self.log)
        while self.ask("query-status")["status"] != "running":
            if time.monotonic() > deadline:
                raise LabError(f"{self._name}: does not run where it moved to", self.log)
            time.sleep(0.02)
        return said
