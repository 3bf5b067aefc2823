# SPDX-License-Identifier: Apache-2.0
"""The command channel: frames over a stream socket, and the host's side of the guest agent.

A frame is magic "OML1", type (u8), command id (u32), payload length (i32), payload; little endian.
Both sides look for the magic again after bytes that make no sense, since a guest that reboots may
leave half a frame behind; the agent repeats its hello until it is answered.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from .errors import CommandTimeout, GuestDied, GuestTimeout, LabError

MAGIC = b"OML1"
HEADER = struct.Struct("<4sBIi")
(HELLO, ACK, START, STDIN, STDIN_END, KILL, STDOUT, STDERR, EXIT, REBOOT,
 WINSIZE) = range(1, 12)
MAX_PAYLOAD = 2 << 20
CHUNK = 65536
KILL_GRACE = 10.0
SEND_PATIENCE = 60


def encode(kind: int, ident: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return HEADER.pack(MAGIC, kind, ident, len(payload)) + payload


class Decoder:
    """Cuts a byte stream into frames; skips what is none."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """Adds received bytes; returns the frames that are complete."""
        self._buffer += data
        frames = []
        while True:
            start = self._buffer.find(MAGIC)
            if start < 0:
                del self._buffer[:max(0, len(self._buffer) - 3)]
                return frames
            del self._buffer[:start]
            if len(self._buffer) < HEADER.size:
                return frames
            _, kind, ident, length = HEADER.unpack_from(self._buffer)
            if not 0 <= length <= MAX_PAYLOAD:
                del self._buffer[:1]
                continue
            if len(self._buffer) < HEADER.size + length:
                return frames
            frames.append((kind, ident, bytes(self._buffer[HEADER.size:HEADER.size + length])))
            del self._buffer[:HEADER.size + length]


class Command:
    """A command that runs in a guest. Methods may be called from any thread."""

    def __init__(self, channel: Channel, ident: int, text: str,
                 on_output: Callable[[int, bytes], None] | None = None) -> None:
        self._channel = channel
        self._ident = ident
        self._on_output = on_output
        self._changed = channel.changed
        self.text = text
        self._out = bytearray()
        self._err = bytearray()
        self._status: int | None = None
        self._error: LabError | None = None

    # -- called by the channel, with its condition held

    def _deliver(self, kind: int, payload: bytes) -> None:
        if kind == EXIT:
            self._status = struct.unpack("<i", payload)[0]
        elif kind == STDOUT:
            self._out += payload
        elif kind == STDERR:
            self._err += payload

    def _fail(self, error: LabError) -> None:
        if self._status is None:
            self._error = error

    # -- for users

    @property
    def stdout(self) -> str:
        """What it has written to stdout so far."""
        with self._changed:
            return self._out.decode(errors="replace")

    @property
    def stdout_bytes(self) -> bytes:
        """The same, undecoded."""
        with self._changed:
            return bytes(self._out)

    @property
    def stderr(self) -> str:
        """What it has written to stderr so far."""
        with self._changed:
            return self._err.decode(errors="replace")

    @property
    def status(self) -> int | None:
        """Exit status (negative: the signal that ended it), None while it runs."""
        with self._changed:
            return self._status

    @property
    def error(self) -> LabError | None:
        """Why it was lost (the guest died or rebooted), None otherwise."""
        with self._changed:
            return self._error

    def write(self, data: bytes) -> None:
        """Sends bytes to its stdin."""
        for at in range(0, len(data), CHUNK):
            self._channel.send(STDIN, self._ident, data[at:at + CHUNK])

    def close_stdin(self) -> None:
        """Ends its stdin."""
        self._channel.send(STDIN_END, self._ident)

    def resize(self, rows: int, columns: int) -> None:
        """Sets the size of its terminal."""
        self._channel.send(WINSIZE, self._ident, struct.pack("<HH", rows, columns))

    def kill(self, signum: int = signal.SIGKILL) -> None:
        """Sends a signal to its process group."""
        self._channel.send(KILL, self._ident, struct.pack("<i", signum))

    def wait_output(self, text: str, timeout: float) -> None:
        """Waits until stdout or stderr contains `text`."""
        wanted = text.encode()
        timeout *= self._channel.patience
        deadline = time.monotonic() + timeout
        with self._changed:
            while wanted not in self._out and wanted not in self._err:
                if self._error is not None:
                    raise self._error
                if self._status is not None:
                    raise LabError(f"{self._channel.name}: '{self.text}' ended with status "
                                   f"{self._status} before it wrote '{text}': "
                                   f"{self._err.decode(errors='replace')[-300:].strip()}")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise CommandTimeout(
                        f"{self._channel.name}: '{self.text}' did not write '{text}' within "
                        f"{timeout:.0f} s", self._out.decode(errors="replace"),
                        self._err.decode(errors="replace"))
                self._changed.wait(left)

    def wait(self, timeout: float) -> int:
        """Waits for its end and returns its status. One that does not end in time is killed."""
        timeout *= self._channel.patience
        deadline = time.monotonic() + timeout
        if self._wait_until(deadline):
            assert self._status is not None
            return self._status
        self.kill(signal.SIGKILL)
        if not self._wait_until(time.monotonic() + KILL_GRACE * self._channel.patience):
            raise GuestTimeout(f"{self._channel.name}: '{self.text}' did not end within "
                               f"{timeout:.0f} s and the guest does not answer; it hangs",
                               self._channel.log)
        raise CommandTimeout(f"{self._channel.name}: '{self.text}' did not end within "
                             f"{timeout:.0f} s", self.stdout, self.stderr)

    def _wait_until(self, deadline: float) -> bool:
        with self._changed:
            while self._status is None:
                if self._error is not None:
                    raise self._error
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            return True


class Channel:
    """The host's end of the command channel of one guest. Thread-safe.

    `fail` ends it with the error that every waiter, now and later, gets. `boot` is the guest's boot
    id once its agent has said hello; a new one (a reboot) ends all commands of the old boot.
    `on_close` is called when the other end closes, and may `fail` with a better reason first.
    All waits are `patience` times as long as the caller says.
    """

    def __init__(self, sock: socket.socket, name: str, log: str | None = None,
                 on_close: Callable[[], None] | None = None, patience: float = 1.0) -> None:
        self._sock = sock
        self.patience = patience
        self._on_close = on_close
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_PATIENCE, 0))
        self.name = name
        self.log = log
        self.changed = threading.Condition()
        self._send_lock = threading.RLock()
        self._commands: dict[int, Command] = {}
        self._next = 1
        self._boot: str | None = None
        self._info: dict[str, Any] = {}
        self._error: LabError | None = None
        self._thread = threading.Thread(target=self._read, daemon=True, name=f"channel-{name}")
        self._thread.start()

    def _read(self) -> None:
        decoder = Decoder()
        sock = self._sock
        while True:
            try:
                data = sock.recv(1 << 18)
            except OSError:
                data = b""
            if not data and sock is not self._sock:
                sock.close()
                sock = self._sock
                continue
            if not data:
                if self._on_close is not None:
                    self._on_close()
                self.fail(GuestDied(f"{self.name}: the command channel closed", self.log))
                return
            for kind, ident, payload in decoder.feed(data):
                self._handle(kind, ident, payload)

    def _handle(self, kind: int, ident: int, payload: bytes) -> None:
        if kind == HELLO:
            try:
                info = json.loads(payload)
                boot = str(info["boot"])
            except (ValueError, KeyError, TypeError):
                return
            with self.changed:
                if self._boot is not None and boot != self._boot:
                    self._end_commands(GuestDied(f"{self.name}: the guest rebooted", self.log))
                self._boot = boot
                self._info = info
                self.changed.notify_all()
            try:
                self.send(ACK, 0)
            except LabError:
                pass
            return
        with self.changed:
            command = self._commands.get(ident)
            if command is None or kind not in (STDOUT, STDERR, EXIT):
                return
            command._deliver(kind, payload)
            if kind == EXIT:
                del self._commands[ident]
            self.changed.notify_all()
            callback = command._on_output
        if callback is not None:
            callback(kind, payload)

    def _end_commands(self, error: LabError) -> None:
        for command in self._commands.values():
            command._fail(error)
        self._commands.clear()

    def fail(self, error: LabError) -> None:
        """Ends the channel; the first error stays."""
        with self.changed:
            if self._error is None:
                self._error = error
            self._end_commands(self._error)
            self.changed.notify_all()

    @property
    def error(self) -> LabError | None:
        """Why the channel is over, None while it lives."""
        with self.changed:
            return self._error

    @property
    def boot(self) -> str | None:
        """Boot id of the guest, None before its first hello."""
        with self.changed:
            return self._boot

    @property
    def info(self) -> dict[str, Any]:
        """What the agent said of itself."""
        with self.changed:
            return dict(self._info)

    def wait_boot(self, timeout: float, old: str | None = None) -> None:
        """Waits until the agent says hello from another boot than `old`."""
        timeout *= self.patience
        deadline = time.monotonic() + timeout
        with self.changed:
            while self._boot is None or self._boot == old:
                if self._error is not None:
                    raise self._error
                left = deadline - time.monotonic()
                if left <= 0:
                    raise GuestTimeout(f"{self.name}: the guest did not come up within "
                                       f"{timeout:.0f} s", self.log)
                self.changed.wait(left)

    def send(self, kind: int, ident: int, payload: bytes = b"") -> None:
        """Sends one frame."""
        with self._send_lock:
            try:
                self._sock.sendall(encode(kind, ident, payload))
            except (TimeoutError, BlockingIOError) as error:
                raise GuestTimeout(f"{self.name}: the guest takes no input; it hangs",
                                   self.log) from error
            except OSError as error:
                raise self.error or GuestDied(
                    f"{self.name}: the command channel closed", self.log) from error

    def start(self, argv: list[str], *, env: dict[str, str] | None = None, cwd: str | None = None,
              pty: tuple[int, int] | None = None,
              on_output: Callable[[int, bytes], None] | None = None) -> Command:
        """Starts a command. `on_output` is called from the reader's thread with each frame."""
        with self.changed:
            if self._error is not None:
                raise self._error
            ident = self._next
            self._next += 1
            command = Command(self, ident, " ".join(argv)[:120], on_output)
            self._commands[ident] = command
        request = {"argv": argv, "env": env, "cwd": cwd, "pty": pty}
        self.send(START, ident, json.dumps(request).encode())
        return command

    @contextlib.contextmanager
    def held(self, timeout: float) -> Iterator[None]:
        """Nobody else sends meanwhile, and the guest has taken all that was sent before."""
        with self._send_lock:
            self.start(["true"]).wait(timeout)
            yield

    def follow(self, sock: socket.socket) -> None:
        """The guest has moved: it reads from `sock` now, and what it wrote is there behind what the
        old socket still has. The caller holds the channel."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO,
                        struct.pack("ll", SEND_PATIENCE, 0))
        self._sock = sock

    def close(self) -> None:
        """Closes the socket; the reader's thread ends."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._sock.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)
