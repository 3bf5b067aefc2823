# SPDX-License-Identifier: Apache-2.0
"""The device daemon as a process of a lab."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import LabError
from .paths import BUILD, IS_SOURCE_TREE, ROOT
from .proc import end_group, kill_group, spawn, tail
from .rights import UMASK, User, check_rights, how_it_ended

# It works for microseconds at a time, and a guest that computes waits for what it does.
NICE = -20
START_TIMEOUT = 30.0


@dataclass(frozen=True)
class Nic:
    """One NIC of manad."""

    name: str
    socket: Path
    mac: str
    options: str = ""

    def argument(self) -> str:
        """The value of manad's --nic."""
        text = f"id={self.name},socket={self.socket},mac={self.mac}"
        return text + (f",{self.options}" if self.options else "")


def find_binary(name: str) -> Path:
    """A program of the build, or an installed one; OPENMANA_BUILD names another build directory
    than build/release."""
    base = Path(os.environ.get("OPENMANA_BUILD")
                or (BUILD / "release" if IS_SOURCE_TREE else BUILD))
    for folder in ("bin", "", "device/manad", "device", "tools", f"tools/{name}", "tests/hostile"):
        path = base / folder / name
        if path.is_file() and os.access(path, os.X_OK):
            return path
    raise LabError(f"{name} is not in {base}; build it first: "
                   f"cmake --preset release && cmake --build --preset release (in {ROOT.name}/)")


class Manad:
    """A running manad. `stop` ends it and gives its exit status. With a `user` it is started as
    its package does it; the directory of `control` has to be that user's. `before`: words that
    begin its command line, of a program that becomes manad."""

    def __init__(self, nics: list[Nic], control: Path, log: Path, args: tuple[str, ...] = (),
                 binary: Path | None = None, user: User | None = None,
                 before: tuple[str, ...] = ()) -> None:
        self.nics = nics
        self.control = control
        self.log = log
        self._args = args
        self._binary = binary
        self._user = user
        self._before = before
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits for its `ready`."""
        self._spawn()
        self._wait_ready()
        self.check_rights()

    def upgrade(self) -> dict[str, float]:
        """Has another process go on in its place, one of ours as it is; returns for how many
        milliseconds nobody served each NIC."""
        before = self._process
        if before is None:
            raise LabError("manad is not running")
        self._spawn("--take-over", os.fspath(self.control))
        self._wait_ready()
        status = before.wait(timeout=START_TIMEOUT)
        assert before.stdout is not None
        before.stdout.close()
        if status != 0:
            raise LabError(f"{how_it_ended(status, before.pid)} when another one went on",
                           self.log)
        self.check_rights()
        nics = self.ctl_json("upgrade", "--last")["nics"]
        return {nic["nic"]: float(nic["blackout_ms"]) for nic in nics}

    def _spawn(self, *more: str) -> None:
        argv = self._program()
        for nic in self.nics:
            argv += ["--nic", nic.argument()]
        argv += ["--control", os.fspath(self.control), *self._args, *more]
        with self.log.open("ab") as log:
            log.write((" ".join(argv) + "\n").encode())
            log.flush()
            self._process = spawn(argv, nice=NICE, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=log,
                                  umask=-1 if self._user is None else UMASK)

    def _wait_ready(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + START_TIMEOUT
        seen = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"ready\n" not in seen:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise LabError(f"manad did not say ready within {START_TIMEOUT:.0f} s",
                                   self.log)
                if not selector.select(left):
                    continue
                data = os.read(self._process.stdout.fileno(), 4096)
                if not data:
                    self._process.wait(timeout=10)
                    self.check()
                seen += data

    def _program(self) -> list[str]:
        """What starts manad. Its user may not reach where the build is, so it gets a copy."""
        binary = self._binary or find_binary("manad")
        if self._user is None:
            return [*self._before, os.fspath(binary)]
        copy = self.control.parent / "bin" / "manad"
        if not copy.exists():
            copy.parent.mkdir(mode=0o755, exist_ok=True)
            shutil.copy(binary, copy)
            copy.chmod(0o755)
        return [*self._before, *self._user.words(), os.fspath(copy), *self._user.options]

    def check_rights(self) -> None:
        """Raises when it has rights that its user should not have."""
        if self._user is not None:
            check_rights(self.pid, self._user, self.log)

    @property
    def pid(self) -> int:
        """Its process id."""
        if self._process is None:
            raise LabError("manad is not running")
        return self._process.pid

    @property
    def serving_pid(self) -> int:
        """The process that serves: with --monitor a child of the one that was started."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="ascii")
        for child in children.split():
            name = Path(f"/proc/{child}/comm")
            if name.exists() and name.read_text(encoding="utf-8").strip() == "manad":
                return int(child)
        return self.pid

    @property
    def status(self) -> int | None:
        """Exit status, None while it runs."""
        return None if self._process is None else self._process.poll()

    def check(self) -> None:
        """Raises when it has died."""
        if self._process is not None and self._process.poll() is not None:
            raise LabError(f"{how_it_ended(self._process.returncode, self._process.pid)}: "
                           f"{tail(self.log)[:200]}", self.log)

    def ctl(self, *args: str, check: bool = True, timeout: float = 20.0) -> str:
        """Runs manactl; returns its output."""
        argv = [os.fspath(find_binary("manactl")), "--control", os.fspath(self.control), *args]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout,
                                  check=False)
        except subprocess.TimeoutExpired as error:
            self.check()
            raise LabError(f"manactl {' '.join(args)} did not end within {timeout:.0f} s",
                           self.log) from error
        if check and done.returncode != 0:
            self.check()
            raise LabError(f"manactl {' '.join(args)} failed (status {done.returncode}): "
                           f"{done.stderr.strip()}", self.log)
        return done.stdout

    def ctl_json(self, *args: str) -> Any:
        """Runs manactl with --json; returns the parsed answer."""
        return json.loads(self.ctl("--json", *args))

    def add_nic(self, nic: Nic, options: str = "") -> None:
        """Makes a NIC; `options` it has as long as this process lives."""
        more = f",{options}" if options else ""
        self.ctl("nic", "add", nic.argument() + more)
        self.nics.append(nic)

    def remove_nics(self, nics: list[Nic]) -> None:
        """Ends those of its NICs that are among them, once their client has gone; QEMU may need a
        moment for it, and on a busy machine so may the NIC."""
        deadline = time.monotonic() + START_TIMEOUT
        for nic in [nic for nic in nics if nic in self.nics]:
            while True:
                try:
                    self.ctl("nic", "remove", nic.name)
                    break
                except LabError as error:
                    busy = "has a client" in str(error) or "nothing was done" in str(error)
                    if not busy or time.monotonic() > deadline:
                        raise
                time.sleep(0.05)
            self.nics.remove(nic)

    def kill(self) -> None:
        """Ends it at once, as a crash would; `start` may follow."""
        if self._process is None:
            return
        kill_group(self._process)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None

    def stop(self) -> int | None:
        """Ends it; returns its exit status."""
        if self._process is None:
            return None
        end_group(self._process, grace=10.0)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return self._process.returncode
