# SPDX-License-Identifier: Apache-2.0
"""What the lab needs for guests that move, without guests."""

from __future__ import annotations

import socket
import struct
import sys
import threading
import unittest
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from lab import channel, chart, migrate  # noqa: E402
from lab.errors import LabError  # noqa: E402
from lab.guest import GuestSpec  # noqa: E402
from lab.manad import Manad, Nic  # noqa: E402
from lab.session import Lab  # noqa: E402


class ChannelTest(unittest.TestCase):
    """The guest's end of a command channel gets another socket."""

    def setUp(self) -> None:
        ours, self.old = socket.socketpair()
        self.successor, self.new = socket.socketpair()
        for sock in (self.old, self.new):
            sock.settimeout(10)
            self.addCleanup(sock.close)
        self.channel = channel.Channel(ours, "g0", "the.console")
        self.addCleanup(self.channel.close)

    def agent(self, sock: socket.socket) -> tuple[int, int]:
        """Takes one frame: its kind and command."""
        decoder = channel.Decoder()
        while True:
            frames = decoder.feed(sock.recv(65536))
            if frames:
                return frames[0][:2]

    def ends(self, ident: int) -> bytes:
        return channel.encode(channel.EXIT, ident, struct.pack("<i", 0))

    def answering(self) -> threading.Thread:
        """The old end answers the next command, as the guest does."""
        def answer() -> None:
            _, ident = self.agent(self.old)
            self.old.sendall(self.ends(ident))

        thread = threading.Thread(target=answer)
        thread.start()
        return thread

    def move(self, left: bytes = b"") -> None:
        """As a move does it; `left` is what the old end still had of the guest."""
        thread = self.answering()
        with self.channel.held(10):
            self.channel.follow(self.successor)
        thread.join()
        self.old.sendall(left)
        self.old.close()

    def test_a_command_goes_on(self) -> None:
        command = self.channel.start(["sleep", "9"])
        _, ident = self.agent(self.old)
        whole = channel.encode(channel.STDOUT, ident, b"before and behind")
        self.move(whole[:20])  # in the middle of a frame
        self.new.sendall(whole[20:] + self.ends(ident))
        self.assertEqual(command.wait(10), 0)
        self.assertEqual(command.stdout, "before and behind")

    def test_commands_go_to_the_new_end(self) -> None:
        self.move()
        self.channel.start(["true"])
        self.assertEqual(self.agent(self.new)[0], channel.START)

    def test_nobody_sends_meanwhile(self) -> None:
        started = threading.Event()

        def start() -> None:
            self.channel.start(["true"])
            started.set()

        thread = self.answering()
        with self.channel.held(10):
            other = threading.Thread(target=start)
            other.start()
            self.assertFalse(started.wait(0.1))
        other.join()
        thread.join()
        self.assertTrue(started.is_set())

    def test_it_is_over_when_the_new_end_closes(self) -> None:
        self.move()
        command = self.channel.start(["true"])
        self.new.close()
        with self.assertRaisesRegex(LabError, "channel closed"):
            command.wait(10)


class NicsTest(unittest.TestCase):
    """NICs of a manad that come and go with a guest."""

    def setUp(self) -> None:
        self.manad = Manad([], Path("control"), Path("log"))
        self.nic = Nic("g1n0", Path("g1n0-1.sock"), "02:4d:41:00:01:00", "mtu=1500")
        self.said: list[tuple[str, ...]] = []

    def test_what_is_true_once_is_not_kept(self) -> None:
        with mock.patch.object(self.manad, "ctl",
                               side_effect=lambda *words: self.said.append(words)):
            self.manad.add_nic(self.nic, "incoming=on")
        self.assertEqual(self.said, [("nic", "add", "id=g1n0,socket=g1n0-1.sock,"
                                      "mac=02:4d:41:00:01:00,mtu=1500,incoming=on")])
        self.assertNotIn("incoming", self.manad.nics[0].argument())

    def test_a_client_may_need_a_moment_to_go(self) -> None:
        self.manad.nics.append(self.nic)
        busy = LabError("manactl nic remove g1n0 failed (status 1): g1n0 has a client")
        hangs = LabError("manactl nic remove g1n0 failed (status 1): NIC 'g1n0' does not answer: "
                         "nothing was done; it is at: client end")
        with mock.patch.object(self.manad, "ctl", side_effect=[busy, hangs, busy, ""]):
            self.manad.remove_nics([self.nic])
        self.assertEqual(self.manad.nics, [])

    def test_another_failure_is_one(self) -> None:
        self.manad.nics.append(self.nic)
        with mock.patch.object(self.manad, "ctl", side_effect=LabError("no such NIC")):
            with self.assertRaisesRegex(LabError, "no such NIC"):
                self.manad.remove_nics([self.nic])


class LabTest(unittest.TestCase):
    """A lab whose guest does not move."""

    def setUp(self) -> None:
        self.lab = Lab([GuestSpec(host=0), GuestSpec(host=1)])
        self.lab._qemu = mock.Mock()
        self.lab._run = mock.Mock(path=Path("/run"))
        nics = [Nic(f"g{i}n0", Path(f"/run/g{i}n0.sock"), f"02:4d:41:00:0{i}:00")
                for i in range(2)]
        self.manads = [mock.Mock(nics=[nic]) for nic in nics]
        self.lab.manads = list(self.manads)
        self.guest = mock.Mock(spec_set=["name", "machine", "move", "spec"])
        self.guest.name = "g1"
        self.guest.machine.nics = (nics[1].socket,)
        self.lab.guests = [mock.Mock(), self.guest]
        patch = mock.patch("lab.session.replace", side_effect=lambda what, **_: what)
        self.replace = patch.start()
        self.addCleanup(patch.stop)

    def test_who_is_there_does_not_move(self) -> None:
        with self.assertRaisesRegex(LabError, "g1 is there already"):
            self.lab.move(1, 1)

    def test_a_failed_move_leaves_no_nic(self) -> None:
        self.guest.move.side_effect = LabError("did not move")
        with self.assertRaisesRegex(LabError, "did not move"):
            self.lab.move(1, 0)
        self.manads[0].add_nic.assert_called_once()
        self.manads[0].remove_nics.assert_called_once()
        self.manads[1].remove_nics.assert_not_called()

    def test_a_move_leaves_no_nic_behind(self) -> None:
        self.guest.move.return_value = {"downtime": 5}
        self.assertEqual(self.lab.move(1, 0), {"downtime": 5})
        self.manads[0].remove_nics.assert_not_called()
        self.manads[1].remove_nics.assert_called_once_with(self.manads[1].nics)


class CourseTest(unittest.TestCase):
    """What the other end of a connection sees of a move, from looks at what it has done."""

    # A look each 10 ms at 1 MB each; nothing from 1.0 to 1.3 s, and half as much from 2 s on.
    def setUp(self) -> None:
        self.samples, done = [], 0
        for number in range(301):
            at = number / 100
            if not 1.0 < at < 1.3:
                done += 1_000_000 if at < 2 else 500_000
            self.samples.append((100 + at, done))

    def test_a_pause_is_as_long_as_nothing_is_done(self) -> None:
        self.assertAlmostEqual(migrate.pause(self.samples, 100.5, 102.5), 0.3, places=3)
        self.assertAlmostEqual(migrate.pause(self.samples, 101.5, 101.8), 0.01, places=3)

    def test_what_has_not_gone_on_is_a_pause_to_the_end(self) -> None:
        self.assertAlmostEqual(migrate.pause(self.samples, 101.05, 101.25), 0.2, places=2)
        self.assertEqual(migrate.pause([], 0, 1), 0.0)

    def test_a_rate_is_that_of_its_time(self) -> None:
        self.assertAlmostEqual(migrate.rate(self.samples, 100, 100.9), 0.8, places=3)
        self.assertAlmostEqual(migrate.rate(self.samples, 102.1, 102.9), 0.4, places=3)
        self.assertEqual(migrate.rate(self.samples, 200, 201), 0.0)

    def test_the_curve_falls_to_nothing_and_rises(self) -> None:
        points = migrate.curve(self.samples)
        self.assertEqual(min(speed for at, speed in points if 1.05 < at < 1.2), 0.0)
        self.assertTrue(all(abs(speed - 0.8) < 0.01 for at, speed in points if at < 0.9))
        self.assertEqual(migrate.curve([]), [])

    def test_a_move_is_told_with_what_was_before_and_after(self) -> None:
        course = migrate.Course(samples=self.samples)
        course.add(101.0, 101.4, {"downtime": 31, "ram": {"transferred": 7}})
        move = course.results()["moves"][0]
        self.assertAlmostEqual(move["begin"], 1.0)
        self.assertAlmostEqual(move["pause_ms"], 300, places=0)
        self.assertAlmostEqual(move["gbps"]["before"], 0.8, places=2)
        self.assertIn("| 31 | 300 |", migrate.table(course.results()))

    def test_the_plot_has_the_line_and_the_moves(self) -> None:
        text = chart.render_time("a < b", "Gb/s", migrate.curve(self.samples), [(1.0, 1.4)])
        root = ElementTree.fromstring(text)
        names = [element.tag.rpartition("}")[2] for element in root]
        self.assertEqual(names.count("polyline"), 1)
        self.assertEqual(names.count("rect"), 2)  # the paper, and the move
        self.assertIn("a &lt; b", text)
        self.assertIn("polyline", chart.render_time("", "", [], []))

    def test_an_answer_that_is_none_is_an_error(self) -> None:
        good = {"ok": True, "nics": [{"requests": {"rnic.request.bytes": {"write": {"sum": 5.0}}}}]}
        self.assertEqual(migrate.bytes_done(good), 5)
        self.assertEqual(migrate.bytes_done({"ok": True, "nics": [{"requests": {}}]}), 0)
        for bad in ({}, {"ok": False, "error": "no NIC"}, {"ok": True, "nics": []}):
            with self.assertRaisesRegex(LabError, "no answer"):
                migrate.bytes_done(bad)


if __name__ == "__main__":
    unittest.main()
