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

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from lab import channel  # noqa: E402
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
        with mock.patch.object(self.manad, "ctl", side_effect=[busy, busy, ""]):
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


if __name__ == "__main__":
    unittest.main()
