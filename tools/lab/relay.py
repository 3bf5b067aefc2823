# SPDX-License-Identifier: Apache-2.0
"""A long path between two UDP uplinks: each datagram arrives late, some are lost, some overtaken.

As a program it forwards between two sockets of the loopback interface; the first line of its
output is their ports, and each line of its input is answered with what it has counted, as JSON."""

from __future__ import annotations

import heapq
import json
import random
import selectors
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import count

BURST = 256  # datagrams that are taken before others are due
ROOM = 8 << 20  # bytes of a socket's buffers
SNDBUF_FORCE, RCVBUF_FORCE = 32, 33  # asm-generic/socket.h; the module has no names for them


@dataclass(frozen=True)
class PathFaults:
    """What a path does to a datagram, in each direction: seconds, and shares from 0 to 1. One that
    is `late` comes after those that were sent in the next `lateness` seconds."""

    delay: float = 0.010
    loss: float = 0.01
    late: float = 0.01
    lateness: float = 0.002
    seed: int = 1


FAR = PathFaults()


class Relay:
    """Between the uplinks at `ends`, as HOST:PORT. Dies with this process."""

    def __init__(self, ends: tuple[str, str], faults: PathFaults) -> None:
        words = [sys.executable, __file__, json.dumps({"ends": ends, **asdict(faults)})]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        #: What each of them has to call its other end.
        self.beside: tuple[str, str]
        first, second = json.loads(self._process.stdout.readline())
        self.beside = f"127.0.0.1:{first}", f"127.0.0.1:{second}"

    def counts(self) -> dict[str, int]:
        """Datagrams that were `forwarded`, `lost` and `late` so far."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        counts = json.loads(self._process.stdout.readline())
        assert isinstance(counts, dict)
        return counts

    def stop(self) -> None:
        """Ends it."""
        self._process.communicate(timeout=10)


class Forwarder:
    """The program."""

    def __init__(self, ends: tuple[str, str], faults: PathFaults) -> None:
        self._faults = faults
        self._random = random.Random(faults.seed)
        self._order = count()
        self._under_way: list[tuple[float, int, socket.socket, tuple[str, int], bytes]] = []
        self._counts = {"forwarded": 0, "lost": 0, "late": 0}
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in ends]
        self._to: dict[socket.socket, tuple[socket.socket, tuple[str, int]]] = {}
        for own, other, end in zip(self.sockets, self.sockets[::-1], ends[::-1]):
            own.bind(("127.0.0.1", 0))
            own.setblocking(False)
            for option, forced in ((socket.SO_RCVBUF, RCVBUF_FORCE),
                                   (socket.SO_SNDBUF, SNDBUF_FORCE)):
                try:  # beyond what the system gives anybody
                    own.setsockopt(socket.SOL_SOCKET, forced, ROOM)
                except PermissionError:
                    own.setsockopt(socket.SOL_SOCKET, option, ROOM)
            host, port = end.rsplit(":", 1)
            self._to[own] = other, (host, int(port))

    def run(self) -> None:
        """Until its input ends."""
        print(json.dumps([own.getsockname()[1] for own in self.sockets]), flush=True)
        with selectors.DefaultSelector() as selector:
            for one in (*self.sockets, sys.stdin):
                selector.register(one, selectors.EVENT_READ)
            while True:
                due = self._under_way[0][0] if self._under_way else None
                wait = None if due is None else max(0.0, due - time.monotonic())
                for key, _ in selector.select(wait):
                    if isinstance(key.fileobj, socket.socket):
                        self._take(key.fileobj)
                    elif sys.stdin.readline():
                        print(json.dumps(self._counts), flush=True)
                    else:
                        return
                self._send()

    def _take(self, own: socket.socket) -> None:
        faults, chance = self._faults, self._random.random
        due = time.monotonic() + faults.delay
        for _ in range(BURST):
            try:
                data = own.recv(65536)
            except BlockingIOError:
                return
            if chance() < faults.loss:
                self._counts["lost"] += 1
                continue
            late = chance() < faults.late
            self._counts["late"] += late
            heapq.heappush(self._under_way, (due + late * faults.lateness, next(self._order),
                                             *self._to[own], data))

    def _send(self) -> None:
        now = time.monotonic()
        while self._under_way and self._under_way[0][0] <= now:
            _, _, by, end, data = heapq.heappop(self._under_way)
            try:
                by.sendto(data, end)
                self._counts["forwarded"] += 1
            except BlockingIOError:
                self._counts["lost"] += 1


def main() -> None:
    """As the module's text says."""
    words = json.loads(sys.argv[1])
    ends = words.pop("ends")
    Forwarder((ends[0], ends[1]), PathFaults(**words)).run()


if __name__ == "__main__":
    main()
