#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of lab.relay: what the long path does to datagrams."""

from __future__ import annotations

import socket
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tools"))

from lab.relay import PathFaults, Relay  # noqa: E402

COUNT = 2000


class PathTest(unittest.TestCase):
    """Two sockets with a path between them."""

    def setUp(self) -> None:
        self.ends = []
        for _ in range(2):
            end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            end.bind(("127.0.0.1", 0))
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            end.settimeout(0.5)
            self.addCleanup(end.close)
            self.ends.append(end)

    def path(self, faults: PathFaults) -> Relay:
        """Each end is connected to what stands for the other."""
        first, second = (f"127.0.0.1:{end.getsockname()[1]}" for end in self.ends)
        relay = Relay((first, second), faults)
        self.addCleanup(relay.stop)
        for end, beside in zip(self.ends, relay.beside):
            host, port = beside.split(":")
            end.connect((host, int(port)))
        return relay

    def through(self, count: int, pause: float = 0.0) -> list[int]:
        """Numbers as they arrive at the second end that leave the first one in order."""
        for number in range(count):
            self.ends[0].send(number.to_bytes(4, "big"))
            time.sleep(pause)
        got = []
        try:
            while True:
                got.append(int.from_bytes(self.ends[1].recv(64), "big"))
        except TimeoutError:
            return got

    def test_each_datagram_takes_its_time_in_either_direction(self) -> None:
        """And arrives as it was."""
        self.path(PathFaults(delay=0.05, loss=0, late=0))
        for one, other in (self.ends, self.ends[::-1]):
            begin = time.monotonic()
            one.send(b"words")
            self.assertEqual(other.recv(64), b"words")
            self.assertGreaterEqual(time.monotonic() - begin, 0.05)

    def test_nothing_is_lost_and_the_order_is_kept_without_faults(self) -> None:
        """All of them, one after the other."""
        relay = self.path(PathFaults(delay=0.001, loss=0, late=0))
        self.assertEqual(self.through(COUNT), list(range(COUNT)))
        self.assertEqual(relay.counts(), {"forwarded": COUNT, "lost": 0, "late": 0})

    def test_the_share_that_is_to_be_lost_is_lost_and_counted(self) -> None:
        """Of 2,000 with a chance of 5 % it is 100, give or take five deviations."""
        relay = self.path(PathFaults(delay=0.001, loss=0.05, late=0))
        got = self.through(COUNT)
        counts = relay.counts()
        self.assertEqual(counts["lost"], COUNT - len(got))
        self.assertGreater(counts["lost"], 50)
        self.assertLess(counts["lost"], 150)

    def test_late_ones_come_behind_those_that_were_sent_after_them(self) -> None:
        """And none is lost or comes twice."""
        relay = self.path(PathFaults(delay=0.001, loss=0, late=0.05, lateness=0.005))
        got = self.through(COUNT // 4, pause=0.0005)
        self.assertEqual(sorted(got), list(range(COUNT // 4)))
        overtaken = sum(after < before for before, after in zip(got, got[1:]))
        self.assertGreater(overtaken, 0)
        self.assertGreaterEqual(relay.counts()["late"], overtaken)

    def test_an_end_that_is_not_there_costs_only_what_was_sent_to_it(self) -> None:
        """The path lives on."""
        self.path(PathFaults(delay=0.001, loss=0, late=0))
        address = self.ends[1].getsockname()
        self.ends[1].close()
        for _ in range(3):
            self.ends[0].send(b"nobody")
            time.sleep(0.05)
        self.ends[1] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(self.ends[1].close)
        self.ends[1].bind(address)
        self.ends[1].settimeout(0.5)
        self.ends[0].send(b"again")
        self.assertEqual(self.ends[1].recv(64), b"again")


if __name__ == "__main__":
    unittest.main()
