# SPDX-License-Identifier: Apache-2.0
"""`up`, `run`, `shell`, `down`, `status`: a lab in a background process and its clients.

The background process owns a Lab and a socket `control` in its directory `lab-NAME` below the run
base. A client speaks the frames of `channel.py`: the first is a request (START with JSON), what
follows is a command's stdin, stdout, stderr and status, under the same id.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import tty
from pathlib import Path
from typing import Any

from .build import ensure_manad
from .channel import (CHUNK, EXIT, KILL, START, STDERR, STDIN, STDIN_END, STDOUT, WINSIZE, Decoder,
                      encode)
from .debug_kernel import kernel_image
from .errors import LabError
from .guest import GuestSpec
from .janitor import is_owned, sweep
from .manad import find_binary
from .ours import guest_initrd
from .paths import logs_dir, private_dir, run_base
from .proc import tail
from .progress import Step, say
from .qemu import find_qemu
from .session import Lab

UP_TIMEOUT = 600.0


def _directory(name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9_.]{1,32}", name):
        raise LabError(f"'{name}' is no name for a lab: letters, digits, dot and underscore only")
    return run_base() / f"lab-{name}"


# -- the background process


class Supervisor:
    """Serves the clients of one lab."""

    def __init__(self, lab: Lab, listener: socket.socket) -> None:
        self._lab = lab
        self._listener = listener
        self._since = time.time()
        self.done = threading.Event()

    def loop(self) -> None:
        """Takes connections until `down`."""
        while not self.done.is_set():
            try:
                conn, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _status(self) -> dict[str, Any]:
        guests = []
        for guest in self._lab.guests:
            error = guest.channel.error
            guests.append({"name": guest.name, "suite": guest.spec.suite,
                           "state": "up" if error is None else str(error),
                           "kernel": guest.image.version, "driver": guest.spec.driver,
                           "provider": guest.spec.provider, "pid": guest.pid,
                           "addresses": [guest.ip(i) for i in range(len(guest.macs))],
                           "accel": guest.machine.accel, "console": str(guest.console_log)})
        manad = self._lab.manad
        return {"pid": os.getpid(), "since": self._since, "guests": guests,
                "ext": "on" if self._lab.ext else "off",
                "manad": None if manad is None else {
                    "pid": manad.pid, "control": str(manad.control), "log": str(manad.log),
                    "state": "up" if manad.status is None else f"ended: {manad.status}"},
                "logs": str(self._lab.log_dir)}

    def _serve(self, conn: socket.socket) -> None:
        with conn, contextlib.suppress(OSError):
            decoder = Decoder()
            frames: list[tuple[int, int, bytes]] = []
            while not frames:
                data = conn.recv(CHUNK)
                if not data:
                    return
                frames = decoder.feed(data)
            request = json.loads(frames[0][2])
            if request["what"] == "status":
                conn.sendall(encode(STDOUT, 1, json.dumps(self._status()).encode()))
            elif request["what"] == "down":
                conn.sendall(encode(EXIT, 1, struct.pack("<i", 0)))
                self.done.set()
                self._listener.shutdown(socket.SHUT_RDWR)
            elif request["what"] == "run":
                self._command(conn, decoder, frames[1:], request)

    def _command(self, conn: socket.socket, decoder: Decoder,
                 frames: list[tuple[int, int, bytes]], request: dict[str, Any]) -> None:
        lock = threading.Lock()

        def send(kind: int, payload: bytes) -> None:
            with lock, contextlib.suppress(OSError):
                conn.sendall(encode(kind, 1, payload))

        try:
            guest = self._lab.guests[request["guest"]]
            command = guest.spawn(request["argv"], pty=request["pty"], stdin=True,
                                  env=request.get("env"), on_output=send)
        except IndexError:
            send(STDERR, f"manalab: there is no guest {request['guest']}\n".encode())
            send(EXIT, struct.pack("<i", 1))
            return
        except LabError as error:
            send(STDERR, f"manalab: {error}\n".encode())
            send(EXIT, struct.pack("<i", 1))
            return

        def watch() -> None:
            """Tells the client when the guest dies under its command."""
            try:
                command.wait(365 * 86400.0)
            except LabError as error:
                send(STDERR, f"manalab: {error}\n".encode())
                send(EXIT, struct.pack("<i", 1))

        threading.Thread(target=watch, daemon=True).start()
        try:
            while True:
                for kind, _, payload in frames:
                    if kind == STDIN:
                        command.write(payload)
                    elif kind == STDIN_END:
                        command.close_stdin()
                    elif kind == KILL:
                        command.kill(struct.unpack("<i", payload)[0])
                    elif kind == WINSIZE:
                        command.resize(*struct.unpack("<HH", payload))
                data = conn.recv(CHUNK)
                if not data:
                    break
                frames = decoder.feed(data)
        except LabError:
            pass
        if command.status is None and command.error is None:
            with contextlib.suppress(LabError):
                command.kill(signal.SIGKILL)


def serve(args: argparse.Namespace, specs: list[GuestSpec]) -> int:
    """The background process of `up`. Says `up` on stdout when the lab is."""
    directory = _directory(args.name)
    lock = (directory / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with Lab(specs, nics=args.nics, virtio=args.virtio, mtu=args.mtu,
                 ext=args.ext == "on", name=args.name, manad_args=args.manad_arg,
                 keep_logs=True) as lab:
            if not args.no_network:
                lab.configure_network()
            listener.bind(str(directory / "control"))
            listener.listen(16)
            print("up", flush=True)
            sys.stdout = sys.stderr
            os.dup2(2, 1)
            Supervisor(lab, listener).loop()
    finally:
        listener.close()
        shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            directory.parent.rmdir()
    return 0


def up(args: argparse.Namespace, specs: list[GuestSpec]) -> int:
    """Starts the background process and waits until its lab is up."""
    directory = _directory(args.name)
    Lab(specs, nics=args.nics, virtio=args.virtio, mtu=args.mtu)  # refuses what makes no sense
    sweep(run_base())
    if directory.exists() and is_owned(directory):
        raise LabError(f"lab '{args.name}' is already running; stop it with: manalab down")
    for spec in dict.fromkeys(specs):
        guest_initrd(kernel_image(spec.suite, spec.kernel), spec.driver, spec.provider)
    find_qemu()
    if args.nics:
        ensure_manad()
        find_binary("manad")
    shutil.rmtree(directory, ignore_errors=True)
    private_dir(directory)
    log = logs_dir() / f"lab-{args.name}.log"
    argv = ["/usr/bin/python3", str(Path(__file__).resolve().parents[1] / "manalab"), "_serve",
            "--name", args.name, "--guests", str(len(specs)),
            "--guest", ",".join(spec.suite for spec in specs), "--cpus", str(specs[0].cpus),
            "--memory", str(specs[0].memory), "--nics", str(args.nics),
            "--virtio", str(args.virtio), "--kernel", args.kernel, "--network", args.network,
            *(("--systemd",) if args.systemd else ())]
    argv += ["--driver", args.driver, "--provider", args.provider, "--ext", args.ext]
    argv += ["--mtu", str(args.mtu)] if args.mtu else []
    argv += ["--no-network"] if args.no_network else []
    argv += [f"--manad-arg={arg}" for arg in args.manad_arg]
    with log.open("wb") as err:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=err, start_new_session=True)
    assert process.stdout is not None
    up_ok = False
    try:
        with Step(f"starting lab '{args.name}' with {len(specs)} guests"):
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                if selector.select(UP_TIMEOUT):
                    up_ok = process.stdout.readline() == b"up\n"
            if not up_ok:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=15)
                words = tail(log).removeprefix("manalab: ")
                raise LabError(words or "the lab did not come up", None if words else log)
    finally:
        if not up_ok and process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
        process.stdout.close()
    say(f"lab '{args.name}' is up; try: manalab run g0 ibv_devinfo, manalab shell g0, "
        "manalab down")
    return 0


# -- clients


def _connect(name: str) -> socket.socket:
    directory = _directory(name)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.connect(str(directory / "control"))
    except OSError:
        sock.close()
        state = "is still starting" if is_owned(directory) else "is not running"
        raise LabError(f"lab '{name}' {state}; start one with: manalab up") from None
    return sock


def _request(sock: socket.socket, **request: object) -> None:
    sock.sendall(encode(START, 1, json.dumps(request).encode()))


def _guest_number(text: str) -> int:
    match = re.fullmatch(r"g?(\d{1,3})", text)
    if match is None:
        raise LabError(f"'{text}' is no guest; they are called g0, g1, ...")
    return int(match.group(1))


def _pump(sock: socket.socket, interactive: bool, deadline: float | None) -> int:
    """Moves stdin to the command and its output here, until it ends."""
    decoder = Decoder()
    outputs = {STDOUT: 1, STDERR: 2}
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        try:
            selector.register(0, selectors.EVENT_READ)
        except (PermissionError, OSError):  # a plain file: always readable, not for epoll
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                # a command that ended, or never began, takes no input; its answer follows
                while data := os.read(0, CHUNK):
                    sock.sendall(encode(STDIN, 1, data))
                sock.sendall(encode(STDIN_END, 1))
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            events = selector.select(left)
            if not events and deadline is not None:
                sock.sendall(encode(KILL, 1, struct.pack("<i", signal.SIGKILL)))
                raise LabError("the command did not end in time and was killed")
            for key, _ in events:
                if key.fd == 0:
                    data = os.read(0, CHUNK)
                    if not data:
                        selector.unregister(0)
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        sock.sendall(encode(STDIN, 1, data) if data else encode(STDIN_END, 1))
                    continue
                data = sock.recv(1 << 18)
                if not data:
                    raise LabError("the lab went down")
                for kind, _, payload in decoder.feed(data):
                    if kind == EXIT:
                        status = struct.unpack("<i", payload)[0]
                        return status if status >= 0 else 128 - status
                    while payload:
                        payload = payload[os.write(outputs[kind], payload):]


def run(name: str, target: str, argv: list[str], timeout: int | None) -> int:
    """Runs a command in a guest of a running lab."""
    if argv[:1] == ["--"]:
        argv = argv[1:]
    if not argv:
        raise LabError("which command? manalab run GUEST COMMAND...")
    if len(argv) == 1 and re.search(r"[\s;|&<>$]", argv[0]):
        argv = ["sh", "-c", argv[0]]
    with _connect(name) as sock:
        _request(sock, what="run", guest=_guest_number(target), argv=argv, pty=None)
        return _pump(sock, False, None if timeout is None else time.monotonic() + timeout)


def shell(name: str, target: str) -> int:
    """An interactive shell in a guest."""
    if not os.isatty(0):
        return run(name, target, ["bash"], None)
    size = os.get_terminal_size(0)
    with _connect(name) as sock:
        _request(sock, what="run", guest=_guest_number(target), argv=["bash", "-l"],
                 pty=[size.lines or 24, size.columns or 80],
                 env={"TERM": os.environ.get("TERM") or "linux"})

        def resized(_signum: int, _frame: object) -> None:
            now = os.get_terminal_size(0)
            sock.sendall(encode(WINSIZE, 1, struct.pack("<HH", now.lines, now.columns)))

        old = termios.tcgetattr(0)
        signal.signal(signal.SIGWINCH, resized)
        tty.setraw(0)
        try:
            return _pump(sock, True, None)
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, old)


def _labs() -> list[str]:
    return sorted(path.name.removeprefix("lab-") for path in run_base().glob("lab-*")
                  if is_owned(path))


def down(name: str | None) -> int:
    """Stops one lab, or all."""
    names = _labs() if name is None else [name]
    for one in names:
        directory = _directory(one)
        with _connect(one) as sock, Step(f"stopping lab '{one}'"):
            _request(sock, what="down")
            sock.settimeout(60)
            with contextlib.suppress(OSError):
                while sock.recv(4096):
                    pass
            deadline = time.monotonic() + 60
            while directory.exists():
                if time.monotonic() > deadline:
                    raise LabError(f"lab '{one}' does not stop", logs_dir() / f"lab-{one}.log")
                time.sleep(0.05)
    return 0


def _query(name: str) -> dict[str, Any]:
    with _connect(name) as sock:
        sock.settimeout(10)
        _request(sock, what="status")
        decoder = Decoder()
        while True:
            data = sock.recv(CHUNK)
            if not data:
                raise LabError(f"lab '{name}' does not answer")
            for _, _, payload in decoder.feed(data):
                answer = json.loads(payload)
                assert isinstance(answer, dict)
                return answer


def status(as_json: bool) -> int:
    """Shows what runs."""
    labs: dict[str, dict[str, Any]] = {}
    for name in _labs():
        try:
            labs[name] = _query(name)
        except LabError as error:
            labs[name] = {"error": str(error), "guests": []}
    with contextlib.suppress(OSError):
        run_base().rmdir()
    if as_json:
        print(json.dumps(labs, indent=2))
        return 0
    if not labs:
        print("no lab is running")
    for name, lab in labs.items():
        if "error" in lab:
            print(f"lab {name}: {lab['error']}")
            continue
        minutes = (time.time() - lab["since"]) / 60
        print(f"lab {name}: up for {minutes:.0f} min, process {lab['pid']}, logs {lab['logs']}")
        if lab["manad"]:
            print(f"  manad  {lab['manad']['state']}, extensions {lab['ext']}, "
                  f"control {lab['manad']['control']}")
        for guest in lab["guests"]:
            print(f"  {guest['name']:6} {guest['state']}, {guest['suite']}, {guest['kernel']}, "
                  f"driver {guest['driver']}, provider {guest['provider']}, "
                  f"{guest['accel']}, {' '.join(guest['addresses'])}")
    return 0
